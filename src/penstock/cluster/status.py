"""What a running process shows of itself, in one small file that is replaced every second.

It is a view of the moment: what is in force, which peers are silent, the process id. Nothing is read back from it, so it is no
part of the journal, which holds what happened and what was learnt.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.filesystem import write_atomically

__all__ = ["read_status", "write_status"]

log = logging.getLogger("penstock")


def read_status(path: Path) -> dict[str, Any] | None:
    """Return what a process last wrote of itself; ``None`` if it has written nothing yet."""
    try:
        status: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return status


def write_status(path: Path, content: Mapping[str, Any]) -> None:
    """Write a status, whole; since it is only a view, a full disk is no reason to stop."""
    try:
        write_atomically(path, json.dumps(content).encode())
    except OSError as error:
        log.warning("%s could not be written: %s", path, error.strerror)
