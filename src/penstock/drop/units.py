"""What a gate keeps or drops as a whole, if not single rows: keys or windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.drop.hashing import uniform
from penstock.drop.tables import SLOTS, KeepTable
from penstock.duration import is_zero_duration, parse_duration
from penstock.errors import PenstockError

__all__ = ["BEHIND", "WholeKeys", "WholeWindows", "WindowRing"]

_AHEAD = SLOTS // 4
_RUN = 4
_MOST_OVERLAP = 1_000

BEHIND = SLOTS - _AHEAD - 1
"""For how many windows back a gate remembers its decisions."""


@dataclass(frozen=True, slots=True, init=False)
class WholeKeys:
    """Keep or drop whole keys: rows with the same key are kept or dropped together.

    All gates decide alike about equal keys, whatever their columns are called, so both sides of a join keep the same keys.

    Parameters
    ----------
    columns
        The names of the key columns.
    family
        Gates of different families decide independently.

    Raises
    ------
    PenstockError
        If no column is named.

    Examples
    --------
    >>> WholeKeys("user_id").columns
    ('user_id',)

    """

    columns: tuple[str, ...]
    family: str

    def __init__(self, *columns: str, family: str = "") -> None:
        if not columns or not all(isinstance(name, str) and name for name in columns):
            raise PenstockError(f"WholeKeys needs the names of one or more columns, got {columns!r}")
        object.__setattr__(self, "columns", tuple(columns))
        object.__setattr__(self, "family", family)


@dataclass(frozen=True, slots=True, init=False)
class WholeWindows:
    """Keep or drop whole windows of event time, those of ``F.window(time, length, slide, offset)``.

    Every window that is delivered is then exact.

    Parameters
    ----------
    time
        The name of the column with the event time.
    length, slide, offset
        As in ``F.window``: a text such as ``"10s"``, seconds, or a timedelta.
    by
        The names of group columns: each group's windows are then decided independently.

    Raises
    ------
    PenstockError
        If a duration is wrong, or a row may lie in too many windows.

    Examples
    --------
    >>> WholeWindows("timestamp", "10s", "5s").overlap
    2

    """

    time: str
    length: int
    """In microseconds, like slide and offset."""
    slide: int
    offset: int
    by: tuple[str, ...]

    def __init__(
        self,
        time: str,
        length: str | float | timedelta,
        slide: str | float | timedelta | None = None,
        offset: str | float | timedelta | None = None,
        *,
        by: str | Sequence[str] = (),
    ) -> None:
        if not isinstance(time, str) or not time:
            raise PenstockError(f"WholeWindows needs the name of the column with the time, got {time!r}")
        length_us = _parse_micros(length, "the length of a window")
        slide_us = length_us if slide is None else _parse_micros(slide, "the slide of a window")
        if slide_us > length_us:
            raise PenstockError(
                f"the slide of a window must be at most its length of {length_us / 1e6:g} s, got {slide_us / 1e6:g} s"
            )
        offset_us = 0 if offset is None else _parse_offset(offset)
        values = (time, length_us, slide_us, offset_us % slide_us, (by,) if isinstance(by, str) else tuple(by))
        for name, value in zip(("time", "length", "slide", "offset", "by"), values, strict=True):
            object.__setattr__(self, name, value)
        if self.overlap > _MOST_OVERLAP:
            raise PenstockError(
                f"a row may lie in at most {_MOST_OVERLAP:,} windows, and in windows of {length_us / 1e6:g} s by "
                f"{slide_us / 1e6:g} s it lies in {self.overlap:,}: use a longer slide"
            )

    @property
    def overlap(self) -> int:
        """How many windows a row may lie in."""
        return -(-self.length // self.slide)

    @property
    def run(self) -> int:
        """How many consecutive windows are kept or dropped together.

        If windows overlap, a row can be dropped only if all of its windows are. If windows were decided independently, almost no
        row could be dropped: with ten windows per row and a keep of one quarter, 94% of the rows lie in a window that is kept. In
        runs it is 31%.
        """
        return 1 if self.overlap == 1 else _RUN * self.overlap

    def ordinal(self, micros: int) -> int:
        """Return the number of the last window that has begun by a time."""
        return (micros - self.offset) // self.slide

    def start(self, ordinal: np.ndarray | int) -> np.ndarray | int:
        """Return when a window begins."""
        return ordinal * self.slide + self.offset


def _parse_offset(value: str | float | timedelta) -> int:
    """Return an offset in microseconds, which may also be zero or negative."""
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, timedelta):
        text = text.total_seconds()
    if isinstance(text, str):
        negative, size = text.startswith("-"), text.removeprefix("-")
        return 0 if is_zero_duration(size) else (-1 if negative else 1) * _parse_micros(size, "the offset of a window")
    return (-1 if text < 0 else 1) * _parse_micros(abs(text), "the offset of a window") if text else 0


def _parse_micros(value: str | float | timedelta, what: str) -> int:
    micros = round(parse_duration(value, what) * 1e6)
    if micros < 1:
        raise PenstockError(f"{what} must be at least a microsecond, got {value!r}")
    return micros


class WindowRing:
    """The keep of each window: decided once, before the window begins, and never changed.

    The tables that a query reads hold a fixed number of windows. A window that is further ahead is kept, and stays so. A window
    that is further back is dropped, unless everything was kept until then: a few late rows of a dropped window would look like
    an answer.

    Examples
    --------
    >>> ring = WindowRing(WholeWindows("t", "1s"), seed=1)
    >>> ring.decide(100, 0.0)
    >>> ring.keep(np.array([98, 99, 100, 101])).tolist()
    [1.0, 1.0, 0.0, 0.0]
    """

    def __init__(self, unit: WholeWindows, seed: int) -> None:
        self.unit = unit
        self.seed = seed
        self._changes: list[tuple[int, float]] = []  # neighbours differ; before the first, everything is kept
        self.last: tuple[int, float] | None = None
        """The latest decision: the first window it holds for, and the keep."""
        self._has_forgotten = False  # whether windows were shed whose decision is no longer known

    def decide(self, first: int, keep: float) -> None:
        """Let a keep hold for a window and all later ones; it replaces earlier decisions for them."""
        if self.last is not None and first > self.last[0] + _AHEAD - 1:  # the windows in between were ahead of the table
            self._change(self.last[0] + _AHEAD - 1, 1.0)
        self._change(first, float(keep))
        self.last = (first, float(keep))
        while len(self._changes) > 1 and self._changes[1][0] <= first - SLOTS:
            self._has_forgotten = self._has_forgotten or self._changes[0][1] < 1.0
            del self._changes[0]

    def _change(self, first: int, keep: float) -> None:
        while self._changes and self._changes[-1][0] >= first:
            del self._changes[-1]
        if keep != (self._changes[-1][1] if self._changes else 1.0):
            self._changes.append((first, keep))

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as plain JSON values."""
        return {
            "changes": [list(change) for change in self._changes],
            "last": self.last,
            "forgotten": self._has_forgotten,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of a snapshot."""
        self._changes = [(int(first), float(keep)) for first, keep in state["changes"]]
        last = state["last"]
        self.last = None if last is None else (int(last[0]), float(last[1]))
        self._has_forgotten = bool(state["forgotten"])

    def keep(self, ordinals: np.ndarray) -> np.ndarray:
        """Return the keep of each window."""
        keeps = np.array([1.0, *(keep for _, keep in self._changes)])
        keep_of_window: np.ndarray = keeps[np.searchsorted([first for first, _ in self._changes], ordinals, side="right")]
        return keep_of_window

    def fate(self, ordinals: np.ndarray, *groups: pa.Array) -> np.ndarray:
        """Return whether each window is kept; with ``by``, pass the group columns too."""
        numbers = ordinals.astype(np.int64)
        starts = pa.array(self.unit.start(numbers - numbers % self.unit.run), type=pa.int64())
        is_kept: np.ndarray = uniform(self.seed, [starts, *groups]) < self.keep(ordinals)
        return is_kept

    def tables(self) -> tuple[KeepTable, KeepTable]:
        """Return two tables over a ring of windows: the keep of each window, and whether a row in its slide is kept.

        A row is dropped only if all windows that it may lie in are dropped.
        """
        if self.last is None:
            everything = KeepTable.everywhere([1.0])
            return everything, everything
        oldest = self.last[0] - (SLOTS - _AHEAD)
        overlap = self.unit.overlap
        has_shed_before = self._has_forgotten or any(keep < 1.0 for first, keep in self._changes if first <= oldest)
        ends = [0.0 if has_shed_before else 1.0, 1.0]
        keeps = self.keep(np.arange(oldest, oldest + SLOTS))
        keeps[[0, -1]] = ends
        is_window_kept = self.fate(np.arange(oldest - overlap + 1, oldest + SLOTS))
        is_row_kept = np.lib.stride_tricks.sliding_window_view(is_window_kept, overlap).any(axis=1)
        fates: np.ndarray = np.asarray(is_row_kept, dtype=np.float64)
        fates[[0, -1]] = ends
        return KeepTable(oldest, keeps.reshape(-1, 1)), KeepTable(oldest, fates.reshape(-1, 1))
