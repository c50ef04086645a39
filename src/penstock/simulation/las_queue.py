"""A queue of tuples with different costs, behind the shedders of ``penstock.las``.

Tuples arrive at given times, and the operator processes them one by one. A shedder decides when a tuple arrives, from what the
operator has sent until then. ``simulate_plain`` runs the classes of ``penstock.las`` themselves. ``simulate_las`` is the same in
compiled loops, and tests check that both drop the same tuples. The loops do without the interpreter, so threads run in parallel.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.las.constraint import ABS
from penstock.las.cost_aware import AIM
from penstock.las.countmin import CostSketch
from penstock.las.operator_sketches import Operator
from penstock.las.tuple_shedder import TupleShedder
from penstock.simulation.cost_aware_loop import read_rules, run_cost_aware
from penstock.simulation.las_loop import run_las
from penstock.simulation.las_streams import Stream, phases, synthetic, zipf_at

__all__ = ["LasRun", "Method", "Stream", "phases", "simulate_las", "simulate_plain", "synthetic", "zipf_at"]

Method = Literal["base-line", "straw-man", "full-knowledge", "las", "cost-aware"]
_METHODS = {"base-line": 0, "straw-man": 1, "full-knowledge": 2, "las": 3, "cost-aware": 4}
_CONSTRAINTS = {"ABS": 0, "AVG": 1, "sliding": 2}


@dataclass(frozen=True, slots=True, eq=False)
class LasRun:
    """The result of a run: how long each tuple waited in the queue, -1 for those that were dropped."""

    waits_s: NDArray[np.float64]
    costs_s: NDArray[np.float64]

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which tuples were let through."""
        kept: NDArray[np.bool_] = self.waits_s >= 0
        return kept

    @property
    def dropped(self) -> float:
        """The share that was dropped (alpha); 0 if there was nothing."""
        return float(1.0 - self.kept.mean()) if self.waits_s.size else 0.0

    @property
    def mean_wait_s(self) -> float:
        """The mean queuing latency (Q)."""
        kept = self.waits_s[self.kept]
        return float(kept.mean()) if kept.size else 0.0

    @property
    def mean_completion_s(self) -> float:
        """The mean time from the arrival of a tuple to its completion."""
        kept = self.kept
        return float((self.waits_s[kept] + self.costs_s[kept]).mean()) if kept.any() else 0.0


def simulate_plain(stream: Stream, shedder: TupleShedder, operator: Operator | None = None) -> LasRun:
    """Run a shedder and its operator on a stream, tuple by tuple."""
    waits = np.full(stream.keys.size, -1.0)
    queue: deque[tuple[float, int, float, float | None]] = deque()
    clock_s = 0.0
    columns = (stream.arrivals_s.tolist(), stream.keys.tolist(), stream.costs_s.tolist())
    for number, (now_s, key, cost_s) in enumerate(zip(*columns, strict=True)):
        while operator is not None and queue and queue[0][0] <= now_s:
            done_s, old, taken_s, request_s = queue.popleft()
            for message in operator.update(old, taken_s, done_s, request_s):
                shedder.receive(message)
        if shedder.shed(key, now_s):
            continue
        start_s = max(now_s, clock_s)
        clock_s = start_s + cost_s
        waits[number] = start_s - now_s
        queue.append((clock_s, key, cost_s, shedder.request()))
    return LasRun(waits, stream.costs_s)


def simulate_las(
    stream: Stream,
    method: Method,
    tau_s: float,
    *,
    constraint: str = "AVG",
    window: int = 1024,
    epsilon: float = 0.05,
    delta: float = 0.1,
    mu: float = 0.05,
    seed: int = 0,
    share: float = 0.25,
    mean_cost_s: float | None = None,
    warm: Stream | None = None,
    margin: float | None = None,
    floor: float = 0.0,
    aim: float = AIM,
) -> LasRun:
    """Run one of the shedders by name.

    Parameters
    ----------
    stream, method, tau_s, constraint
        The tuples, the shedder, and its constraint on queuing latency.
    window, epsilon, delta, mu
        Parameters of the operator's sketches; see `Operator` and `CostSketch`.
    seed
        Seed of the hash functions and of the coins of Base Line.
    share
        What Base Line drops.
    mean_cost_s
        What Straw-Man assumes; the mean of the stream by default.
    warm
        A stream that the operator has executed before this one begins.
    margin
        What LAS adds to a cost, as a share; epsilon by default.
    floor, aim
        Parameters of `CostAware`.
    """
    if method not in _METHODS:
        raise PenstockError(f"there is no shedder {method!r}; there are {', '.join(_METHODS)}")
    if constraint not in _CONSTRAINTS:
        raise PenstockError(f"there is no constraint {constraint!r}; there are {', '.join(_CONSTRAINTS)}")
    if window < 1:
        raise PenstockError(f"the window N must be positive, got {window}")
    if not 0.0 <= floor < 1.0:
        raise PenstockError(f"the floor must lie in [0, 1), got {floor!r}")
    if not 0.0 <= aim <= 1.0:
        raise PenstockError(f"the aim must lie in [0, 1], got {aim!r}")
    if mean_cost_s is not None and not 0.0 <= mean_cost_s < float("inf"):
        raise PenstockError(f"the mean cost must be finite and not negative, got {mean_cost_s!r}")
    ABS(tau_s)  # raises if it is not valid
    sketch = CostSketch(epsilon, delta, seed)
    if warm is not None and method in {"las", "cost-aware"}:
        sketch.add(warm.keys, warm.costs_s)
    codes, cells = _cells(sketch, stream.keys)
    common = (stream.arrivals_s, codes, stream.costs_s, cells, _CONSTRAINTS[constraint], float(tau_s), window)
    known = (sketch.frequency.ravel(), sketch.duration.ravel(), sketch.mean_s or 0.0, float(warm.keys.size if warm else 0))
    coins = np.random.default_rng([seed, 3]).random(stream.keys.size if method == "base-line" or floor > 0 else 0)
    if method == "cost-aware":
        waits = run_cost_aware(*common, *known, coins, float(floor), float(aim), read_rules())  # type: ignore[no-untyped-call]  # compiled
    else:
        mean_s = stream.mean_cost_s if mean_cost_s is None else float(mean_cost_s)
        options = (mean_s, float(share), coins, float(epsilon if margin is None else margin))
        waits = run_las(_METHODS[method], *common, float(mu), *known, *options)  # type: ignore[no-untyped-call]  # compiled
    return LasRun(waits, stream.costs_s)


def _cells(sketch: CostSketch, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return a small number for each key, and for each of those numbers its cell in every row of the sketches."""
    size = keys.size
    if size and int(keys.min()) >= 0 and int(keys.max()) < 4 * size + 4096:
        codes, distinct = keys, np.arange(int(keys.max()) + 1)
    else:
        distinct, codes = np.unique(keys, return_inverse=True)
    rows, columns = sketch.frequency.shape
    cells = sketch.hash.buckets(distinct) + columns * np.arange(rows)[:, None]
    return codes, np.ascontiguousarray(cells.T, dtype=np.uint32)
