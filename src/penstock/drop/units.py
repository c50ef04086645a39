"""What a gate keeps or drops as one: rows, keys or windows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa

from penstock.drop.hashing import uniform
from penstock.drop.tables import SLOTS, KeepTable
from penstock.duration import parse_duration
from penstock.errors import PenstockError

__all__ = ["Key", "Window", "WindowRing", "key", "window"]

_AHEAD = SLOTS // 4
_RUN = 4


@dataclass(frozen=True, slots=True)
class Key:
    """Whole keys: rows with the same key share their fate, at every gate of the same family."""

    columns: tuple[str, ...]
    family: str = ""


def key(*columns: str, family: str = "") -> Key:
    """Keep or drop whole keys: ``shedder.gate(df, unit=ps.key("user_id"))``.

    Gates with equal keys drop the same ones, whatever their columns are called: both sides of a join keep the same keys. A
    ``family`` of its own sets a gate apart.

    >>> key("user_id").columns
    ('user_id',)
    """
    if not columns or not all(isinstance(name, str) and name for name in columns):
        raise PenstockError(f"key() needs the names of one or more columns, got {columns!r}")
    return Key(tuple(columns), family)


@dataclass(frozen=True, slots=True)
class Window:
    """Whole windows of event time, and with ``by`` those of each group for themselves. All times in microseconds."""

    time: str
    length: int
    slide: int
    offset: int = 0
    by: tuple[str, ...] = ()

    @property
    def overlap(self) -> int:
        """In how many windows a row may lie."""
        return -(-self.length // self.slide)

    @property
    def run(self) -> int:
        """How many windows in a row share their fate.

        Where windows overlap a row goes only if all of its windows do. Were each kept or not for itself, hardly a row ever would:
        of ten windows at a keep of one quarter, 94% of the rows are in one that is kept. In runs it is 31%.
        """
        return 1 if self.overlap == 1 else _RUN * self.overlap

    def ordinal(self, micros: int) -> int:
        """The number of the last window that has begun by a time."""
        return (micros - self.offset) // self.slide

    def start(self, ordinal: np.ndarray | int) -> np.ndarray | int:
        """When a window begins."""
        return ordinal * self.slide + self.offset


def window(
    time: str,
    length: str | float | timedelta,
    slide: str | float | timedelta | None = None,
    offset: str | float | timedelta | None = None,
    *,
    by: str | tuple[str, ...] | list[str] = (),
) -> Window:
    """Keep or drop whole windows, the same as ``F.window(time, length, slide, offset)`` makes.

    Every window that is delivered is then exact. With ``by``, each group's window has a fate of its own.

    >>> window("timestamp", "10s", "5s").overlap
    2
    """
    if not isinstance(time, str) or not time:
        raise PenstockError(f"window() needs the name of the column with the time, got {time!r}")
    whole = _micros(length, "the length of a window")
    step = whole if slide is None else _micros(slide, "the slide of a window")
    if step > whole:
        raise PenstockError(f"the slide of a window must be at most its length of {whole / 1e6:g} s, got {step / 1e6:g} s")
    begin = 0 if offset is None or offset in (0, "0", "0s") else _micros(offset, "the offset of a window")
    groups = (by,) if isinstance(by, str) else tuple(by)
    return Window(time, whole, step, begin % step, groups)


def _micros(value: str | float | timedelta, what: str) -> int:
    found = round(parse_duration(value, what) * 1e6)
    if found < 1:
        raise PenstockError(f"{what} must be at least a microsecond, got {value!r}")
    return found


class WindowRing:
    """Which keep holds for which window: decided once, before the window begins, and never changed.

    >>> ring = WindowRing(window("t", "1s"), seed=1)
    >>> ring.decide(100, 0.0)
    >>> ring.keep(np.array([98, 99, 100, 101])).tolist()
    [1.0, 1.0, 0.0, 0.0]
    """

    def __init__(self, unit: Window, seed: int) -> None:
        self.unit = unit
        self.seed = seed
        self._changes: list[tuple[int, float]] = []

    def decide(self, first: int, keep: float) -> None:
        """Let a keep hold for a window and all later ones; of two decisions for one window the later stands."""
        self._changes = [(number, old) for number, old in self._changes if number < first]
        self._changes.append((first, float(keep)))
        while len(self._changes) > 1 and self._changes[1][0] <= first - SLOTS:
            del self._changes[0]

    @property
    def last(self) -> tuple[int, float] | None:
        """The last decision: from which window on, and the keep."""
        return self._changes[-1] if self._changes else None

    def keep(self, ordinals: np.ndarray) -> np.ndarray:
        """The keep of each window."""
        found = np.ones(len(ordinals))
        for first, value in self._changes:
            found[ordinals >= first] = value
        return found

    def fate(self, ordinals: np.ndarray, *groups: pa.Array) -> np.ndarray:
        """Whether each window is kept; of windows by group, with their groups' columns."""
        numbers = ordinals.astype(np.int64)
        starts = pa.array(self.unit.start(numbers - numbers % self.unit.run), type=pa.int64())
        found: np.ndarray = uniform(self.seed, [starts, *groups]) < self.keep(ordinals)
        return found

    def tables(self) -> tuple[KeepTable, KeepTable]:
        """Lay out two tables over a ring of windows: the keep of each, and whether a row that comes in its slide is kept.

        A row is dropped only if all windows it may lie in are. At both ends of the ring everything is kept: what is that old is
        too late for its window, and what is that far ahead has not been decided.
        """
        if not self._changes:
            everything = KeepTable.for_batch([1.0])
            return everything, everything
        last = self._changes[-1][0]
        oldest = last - (SLOTS - _AHEAD)
        ordinals = np.arange(oldest, oldest + SLOTS)
        keeps = self.keep(ordinals)
        keeps[[0, -1]] = 1.0
        overlap = self.unit.overlap
        kept = self.fate(np.arange(oldest - overlap + 1, oldest + SLOTS))
        rows = np.lib.stride_tricks.sliding_window_view(kept, overlap).any(axis=1)
        fates: np.ndarray = np.asarray(rows, dtype=np.float64)
        fates[[0, -1]] = 1.0
        return KeepTable(oldest, keeps.reshape(-1, 1)), KeepTable(oldest, fates.reshape(-1, 1))
