"""Which store an address means, without Spark: a local directory, one below a mount, or one that pyarrow can read."""

from __future__ import annotations

from pathlib import Path

from pyarrow import fs

from penstock.filesystem import resolve
from penstock.storage.arrow_store import ArrowStore
from penstock.storage.mounted_store import open_local_store
from penstock.storage.store import Store

__all__ = ["open_store"]


def open_store(location: str | Path | Store, what: str) -> Store:
    """Return the store of a directory.

    Parameters
    ----------
    location
        A path, an address such as ``s3://bucket/x``, or a store, which is returned as it is.
    what
        What lies there, for messages.

    Raises
    ------
    PenstockError
        If no filesystem is known for the address, or it can't be reached.

    Examples
    --------
    >>> open_store("file:/data/x", "the journal").location
    '/data/x'
    """
    if isinstance(location, Store):
        return location
    filesystem, path = resolve(location, what)
    if isinstance(filesystem, fs.LocalFileSystem):
        return open_local_store(path)
    return ArrowStore(filesystem, path, str(location).rstrip("/"))
