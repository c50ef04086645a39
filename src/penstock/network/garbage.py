"""Pause Python's garbage collector while many objects are built at once."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["pause_collector"]


@contextlib.contextmanager
def pause_collector() -> Iterator[None]:
    """Pause the collector, which would search all objects again and again while there is no garbage among them.

    For a network of 10,000 operators, that search takes twice as long as all other work.

    Examples
    --------
    >>> import gc
    >>> with pause_collector():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
