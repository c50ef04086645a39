"""Where a path or an address leads: a filesystem that pyarrow reaches, and a path on it."""

from __future__ import annotations

import re
from pathlib import Path

from pyarrow import fs

from penstock.errors import PenstockError

__all__ = ["resolve"]


def resolve(location: str | Path, what: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem and the path on it.

    >>> resolve("file:/data/x", "the journal")[1]
    '/data/x'
    """
    text = str(location)
    if ":" not in text.split("/", 1)[0]:
        return fs.LocalFileSystem(), str(Path(text).absolute())
    try:
        # Hadoop writes file:/x where an address has file:///x.
        filesystem, path = fs.FileSystem.from_uri(re.sub(r"^file:/+", "file:///", text))
    except (OSError, ValueError, NotImplementedError) as error:
        raise PenstockError(f"{what} {text} can't be reached: {str(error).splitlines()[0]}") from error
    return filesystem, path
