"""Bytes that nobody reads, in what runs on Spark's Python workers, so that a task there does not wait for 0.04 s.

Since 4.2, Spark sends a worker what to run and then the rows, over a connection within the machine. Nagle's algorithm holds back
what is small until all before it is acknowledged; Linux acknowledges at once what came in several segments, and what came in one
0.04 s late. A segment has 64 KB there, so a function of more than that comes in several.
"""

from __future__ import annotations

__all__ = ["PADDING"]

PADDING = bytes(1 << 17)
"""To be an attribute of the function."""
