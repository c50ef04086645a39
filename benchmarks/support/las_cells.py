"""The cells of ``las-grid``: streams of many kinds, and the shedders on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.simulation.las_queue import LasRun, simulate_las
from penstock.simulation.las_streams import Stream, draw_costs, phases, synthetic

__all__ = [
    "ARRIVALS",
    "CHANGES",
    "CONSTRAINTS",
    "Cell",
    "ChangeCell",
    "Outcome",
    "Recovery",
    "build_stream",
    "measure_cell",
    "measure_change",
]

Arrivals = Literal["even", "Poisson", "on-off", "square 4", "square 16", "phases"]
Change = Literal["times 3", "permuted"]
Kind = Literal["ABS", "AVG"]
CHANGES: tuple[Change, ...] = ("times 3", "permuted")
CONSTRAINTS: tuple[Kind, ...] = ("ABS", "AVG")
ARRIVALS: tuple[Arrivals, ...] = ("even", "Poisson", "on-off", "square 4", "square 16", "phases")
_SQUARE, _PERIOD = 512, 2_048
"""Tuples of a square burst, and from one to the next."""
_ON, _BURST = 64, 4.0
"""Mean tuples of an on-period, and how much faster than the mean they arrive; nothing arrives in between."""
_WARM, _TUPLES, _PERMUTED = 2_048, 32_768, 2_048
_Q_ARRIVALS, _N, _NEVER = 256, 1_024, 99.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the grid."""

    skew: float
    columns: int
    tau_s: float
    under: float
    arrivals: Arrivals

    @property
    def epsilon(self) -> float:
        """The precision that gives this number of columns."""
        return float(np.e / self.columns)

    @property
    def has_constant_costs(self) -> bool:
        """Whether costs stay the same: the phases double them for a while."""
        return self.arrivals != "phases"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Means over the seeds: shares dropped, and mean queuing latencies relative to tau."""

    ours: float
    full: float
    las: float
    wait: float
    las_wait: float

    @property
    def ratio(self) -> float:
        """Our drops relative to the better of Full Knowledge and LAS."""
        best = min(self.full, self.las)
        if best > 0:
            return self.ours / best
        return 1.0 if self.ours == 0 else float("inf")


@lru_cache(maxsize=16)
def build_stream(arrivals: Arrivals, skew: float, under: float, seed: int) -> tuple[Stream, Stream]:
    """Build a stream, and what the operator has executed before it."""
    alpha = skew or None
    if arrivals == "phases":
        stream, _ = phases(seed, alpha=alpha, under=under)
        return stream, Stream(stream.arrivals_s[:_WARM], stream.keys[:_WARM], stream.costs_s[:_WARM])
    stream = synthetic(seed=seed, permutation=seed, alpha=alpha, under=under, tuples=_TUPLES)
    warm = synthetic(seed=seed + 1_000_000, permutation=seed, alpha=alpha, tuples=_WARM)
    gap_s = stream.mean_cost_s * (1.0 - under)
    arrivals_s = np.cumsum(_gaps(arrivals, gap_s, np.random.default_rng([seed, 77])))
    return Stream(arrivals_s - arrivals_s[0], stream.keys, stream.costs_s), warm


def _gaps(arrivals: Arrivals, gap_s: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the time before each tuple. Square bursts come on top of the mean rate, on and off keep it."""
    if arrivals == "Poisson":
        return rng.exponential(gap_s, _TUPLES)
    if arrivals == "on-off":
        gaps = np.full(_TUPLES, gap_s / _BURST)
        begins = np.cumsum(rng.geometric(1.0 / _ON, _TUPLES))
        begins = begins[begins < _TUPLES]
        gaps[begins] += rng.exponential(_ON * gap_s * (1.0 - 1.0 / _BURST), begins.size)
        return np.asarray(gaps * (gap_s * _TUPLES / gaps.sum()))
    if arrivals.startswith("square"):
        return np.where(np.arange(_TUPLES) % _PERIOD >= _PERIOD - _SQUARE, gap_s / float(arrivals.split()[1]), gap_s)
    return np.full(_TUPLES, gap_s)


@lru_cache(maxsize=64)
def _full_dropped(arrivals: Arrivals, skew: float, under: float, seed: int, tau_s: float) -> float:
    """Return what Full Knowledge drops, whatever the columns."""
    return simulate_las(build_stream(arrivals, skew, under, seed)[0], "full-knowledge", tau_s).dropped


def measure_cell(cell: Cell, seeds: Sequence[int]) -> Outcome:
    """Run Full Knowledge, LAS and ours on the same streams."""
    values = []
    for seed in seeds:
        stream, warm = build_stream(cell.arrivals, cell.skew, cell.under, seed)
        full = _full_dropped(cell.arrivals, cell.skew, cell.under, seed, cell.tau_s)
        las = simulate_las(stream, "las", cell.tau_s, epsilon=cell.epsilon, seed=seed, warm=warm)
        ours = simulate_las(stream, "cost-aware", cell.tau_s, epsilon=cell.epsilon, seed=seed, warm=warm)
        values.append((ours.dropped, full, las.dropped, ours.mean_wait_s / cell.tau_s, las.mean_wait_s / cell.tau_s))
    return Outcome(*np.mean(values, axis=0).tolist())


@dataclass(frozen=True, slots=True)
class ChangeCell:
    """A stream whose costs change: times 3 in its middle, or permuted among the keys again and again."""

    change: Change
    constraint: Kind
    columns: int
    tau_s: float
    under: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a change of costs did to one run."""

    windows: float
    """Windows of N executed tuples from a change until Q is back below tau, the longest of the run; 0 if Q never exceeds it."""
    comes_again: bool
    """Whether Q exceeds tau once more before the next change."""
    wait: float
    """The mean queuing latency of all tuples, relative to tau."""


def measure_change(cell: ChangeCell, seed: int) -> Recovery:
    """Run ours on a stream with changed costs.

    Q is what the constraint is about: with AVG the mean of all tuples so far, with ABS the mean of the last 256 arrivals. If it
    is not back at the end of the stream, that counts as 99 windows.
    """
    stream, warm = build_stream("even", 1.0, cell.under, seed)
    changes = [_TUPLES // 2] if cell.change == "times 3" else list(range(_PERMUTED, _TUPLES - _PERMUTED, _PERMUTED))
    costs_s = stream.costs_s.copy()
    for number, begin in enumerate(changes):
        if cell.change == "times 3":
            costs_s[begin:] *= 3.0
        else:
            costs_s[begin:] = draw_costs(seed + 10_000 + number)[stream.keys[begin:]]
    changed = Stream(stream.arrivals_s, stream.keys, costs_s)
    run = simulate_las(
        changed,
        "cost-aware",
        cell.tau_s,
        constraint=cell.constraint,
        epsilon=float(np.e / cell.columns),
        seed=seed,
        warm=warm,
    )
    ends = [*changes[1:], _TUPLES]  # of permuted costs, the last ones stay for twice as long, so that Q can come back
    times = [_recover(changed, run, cell, *part) for part in zip(changes, ends, strict=True)]
    return Recovery(max(time for time, _ in times), any(again for _, again in times), run.mean_wait_s / cell.tau_s)


def _recover(stream: Stream, run: LasRun, cell: ChangeCell, begin: int, end: int) -> tuple[float, bool]:
    waits = np.concatenate(([0.0], np.cumsum(np.where(run.kept, run.waits_s, 0.0))))
    kept = np.concatenate(([0], np.cumsum(run.kept)))
    if cell.constraint == "AVG":
        lasts = np.arange(begin + 1, _TUPLES + 1)
        means = waits[lasts] / np.maximum(kept[lasts], 1)
    else:
        lasts = np.arange(begin + _Q_ARRIVALS, _TUPLES + 1)
        means = (waits[lasts] - waits[lasts - _Q_ARRIVALS]) / np.maximum(kept[lasts] - kept[lasts - _Q_ARRIVALS], 1)
    above = means > cell.tau_s
    if not above[lasts <= end].any():
        return 0.0, False
    first = int(np.argmax(above))
    if above[first:].all():
        return _NEVER, False
    back = first + int(np.argmin(above[first:]))
    done_s = np.sort((stream.arrivals_s + run.waits_s + stream.costs_s)[run.kept])
    executed = np.diff(np.searchsorted(done_s, stream.arrivals_s[[begin, lasts[back] - 1]]))
    return float(executed[0]) / _N, bool(above[back:][lasts[back:] <= end].any())
