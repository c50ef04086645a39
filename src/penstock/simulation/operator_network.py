"""A network of operators on one CPU: physical queues, round robin, operators that feed several others.

The engine of paper 002's experiments. Every operator takes a row from its queue, works on it, passes it on with the
probability of its selectivity to all operators behind it, and the scheduler goes from operator to operator. A row that comes in
goes to all sources, if the gate keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.control.base import Controller, GateCount, Observation
from penstock.errors import PenstockError
from penstock.simulation.compiled import compiled
from penstock.simulation.outcome import DelayTally, Outcome
from penstock.simulation.profile import Profile
from penstock.simulation.queue import arrival_times

__all__ = ["OperatorNetwork", "simulate_network"]

Times = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OperatorNetwork:
    """Operators in topological order: each feeds only later ones.

    >>> shared = OperatorNetwork((0.001, 0.002, 0.002), (0.5, 1.0, 1.0), children=((1, 2), (), ()), sources=(0,))
    >>> shared.coefficients()                       # 1 ms + 0.5 * (2 ms + 2 ms) for what enters in front
    (0.003, 0.002, 0.002)
    >>> shared.input_coefficient
    0.003
    """

    costs_s: Sequence[float]
    selectivities: Sequence[float]
    children: Sequence[Sequence[int]]
    sources: Sequence[int]

    def __post_init__(self) -> None:
        count = len(self.costs_s)
        if not (count == len(self.selectivities) == len(self.children)) or count == 0:
            raise PenstockError("a network needs one cost, one selectivity and one list of children an operator")
        for place, (cost_s, selectivity, behind) in enumerate(zip(self.costs_s, self.selectivities, self.children, strict=True)):
            if not (math.isfinite(cost_s) and cost_s > 0):
                raise PenstockError(f"operator {place}: its cost must be positive, got {cost_s}")
            if not 0 <= selectivity <= 1:
                raise PenstockError(f"operator {place}: its selectivity must lie in [0, 1], got {selectivity}")
            if any(not place < child < count for child in behind):
                raise PenstockError(f"operator {place}: it must feed later operators only, got {list(behind)}")
        if not self.sources or any(not 0 <= source < count for source in self.sources):
            raise PenstockError(f"sources must name operators, got {list(self.sources)}")

    def coefficients(self) -> tuple[float, ...]:
        """The load coefficient of the branch behind each queue (paper 002, equation 2, summed over sub-paths)."""
        found = [0.0] * len(self.costs_s)
        for place in range(len(found) - 1, -1, -1):
            found[place] = self.costs_s[place] + self.selectivities[place] * sum(found[child] for child in self.children[place])
        return tuple(found)

    @property
    def input_coefficient(self) -> float:
        """Seconds of work that a row causes on its way through all of the network."""
        coefficients = self.coefficients()
        return sum(coefficients[source] for source in self.sources)

    @classmethod
    def flat(cls, operators: int, cost_s: float) -> OperatorNetwork:
        """A chain of equal operators that drop nothing, with a cost in all of ``cost_s``."""
        return cls(
            costs_s=(cost_s / operators,) * operators,
            selectivities=(1.0,) * operators,
            children=tuple((place + 1,) if place + 1 < operators else () for place in range(operators)),
            sources=(0,),
        )


def simulate_network(
    arrivals: ArrayLike,
    network: OperatorNetwork,
    controller: Controller,
    *,
    period_s: float = 0.5,
    headroom: float | Profile = 1.0,
    cost_factor: float | Profile = 1.0,
    stop_s: float | None = None,
    train: int = 10,
    seed: int = 0,
) -> Outcome:
    """Run arrivals through a controlled network.

    ``headroom`` is the share of the CPU there is, ``cost_factor`` multiplies the cost of all operators, and both may change. The
    scheduler takes up to ``train`` rows from a queue before it goes on. The delay of an output is counted from the arrival of
    the row it comes from. ``completed`` in what the controller sees counts rows put out or discarded, as paper 002 has CTRL count
    them. Queues are named by the number of their operator.

    >>> from penstock.control import KeepAll
    >>> run = simulate_network([0.0, 0.0], OperatorNetwork.flat(2, 1.0), KeepAll(2.0))
    >>> run.completed, run.max_delay_s           # a train of two rows takes a second in each operator
    (2, 2.0)
    """
    times = arrival_times(arrivals)
    share, factor = Profile.of(headroom), Profile.of(cost_factor)
    if share.cell_s != factor.cell_s:
        raise PenstockError(f"headroom and cost must change on one grid, got cells of {share.cell_s} and {factor.cell_s} s")
    if not (math.isfinite(period_s) and period_s > 0):
        raise PenstockError(f"the control period must be positive, got {period_s} s")
    draws = np.random.default_rng(seed).random(times.size)
    last_s = float(times[-1]) if stop_s is None else stop_s
    shares, factors = share.grid(2.0 * last_s + 60.0), factor.grid(2.0 * last_s + 60.0)
    engine = _Engine(network, seed)
    tally = DelayTally(controller.delay_target_s)
    periods = math.ceil((last_s + 1e-9) / period_s)
    series = {name: np.full(periods, np.nan) for name in ("t_s", "delay_s", "keep", "rate", "queue", "headroom")}
    keep, kept, at, number = 1.0, 0, 0, 0
    while number < periods or (stop_s is None and engine.queued()):
        start_s, end_s = number * period_s, (number + 1) * period_s
        upto = int(np.searchsorted(times, end_s, side="left"))
        admitted = times[at:upto][draws[at:upto] < keep]
        kept += admitted.size
        seen = engine.run(admitted, end_s, shares, factors, cell_s=share.cell_s, train=train, tally=tally)
        delay_s = seen.delay_s
        decision = controller.update(
            Observation(
                batch_id=number,
                start_s=start_s,
                end_s=end_s,
                gates={"in": GateCount(upto - at, admitted.size)},
                keep=keep,
                busy_s=seen.work_s,
                mean_arrival_s=None if delay_s is None else end_s - delay_s,
                backlog_rows={str(place): int(rows) for place, rows in enumerate(engine.lengths)},
                completed=seen.left,
            )
        )
        if number < periods:
            for name, value in (
                ("t_s", start_s),
                ("delay_s", delay_s),
                ("keep", keep),
                ("rate", (upto - at) / period_s),
                ("queue", float(engine.lengths.sum())),
                ("headroom", getattr(controller, "headroom", None)),
            ):
                series[name][number] = np.nan if value is None else value
        keep = keep if decision.keep is None else decision.keep
        at, number = upto, number + 1
    return tally.outcome(int(np.searchsorted(times, last_s, side="right")), kept, series)


@dataclass(frozen=True, slots=True)
class _Seen:
    left: int
    work_s: float
    delay_s: float | None


class _Engine:
    """The state between two periods: rows in linked lists, one a queue, out of one pool."""

    def __init__(self, network: OperatorNetwork, seed: int) -> None:
        count = len(network.costs_s)
        self._costs = np.array(network.costs_s, dtype=np.float64)
        self._selectivities = np.array(network.selectivities, dtype=np.float64)
        self._behind = np.array([child for behind in network.children for child in behind], dtype=np.int64)
        self._offsets = np.concatenate([[0], np.cumsum([len(behind) for behind in network.children])]).astype(np.int64)
        self._sources = np.array(network.sources, dtype=np.int64)
        self._heads, self._tails = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
        self.lengths = np.zeros(count, dtype=np.int64)
        self._pool_s, self._next = np.empty(_POOL), np.arange(1, _POOL + 1, dtype=np.int64)
        # Where the CPU is: time, operator, rows left of its train, first free row, random state.
        self._clock = np.zeros(1)
        self._state = np.array([0, 0, 0, (seed * 2 + 1) & 0x7FFFFFFFFFFFFFFF], dtype=np.int64)

    def queued(self) -> bool:
        """Whether any row is inside."""
        return bool(self.lengths.any())

    def run(
        self, admitted: Times, end_s: float, shares: Times, factors: Times, *, cell_s: float, train: int, tally: DelayTally
    ) -> _Seen:
        """Let the CPU work up to a time."""
        found = np.zeros(4)  # rows that left, seconds of work, outputs, sum of their delays
        full = _work(
            admitted, end_s, shares, factors, cell_s, train, self._costs, self._selectivities, self._behind, self._offsets,
            self._sources, self._heads, self._tails, self.lengths, self._pool_s, self._next, self._clock, self._state,
            tally.counts, tally.totals, tally.bin_s, tally.target_s, found,
        )  # fmt: skip
        if full:
            raise PenstockError(f"more than {_POOL:,} rows are queued in the simulated network: it has diverged; set stop_s")
        return _Seen(int(found[0]), float(found[1]), float(found[3] / found[2]) if found[2] else None)


_POOL = 1 << 23


@compiled
def _enqueue(  # noqa: PLR0917 - compiled code takes arrays
    queue: int, arrived_s: float, row: int, heads: Ints, tails: Ints, lengths: Ints, pool_s: Times, following: Ints
) -> int:
    """Put a free row of the pool at the end of a queue and return the next free one."""
    free: int = following[row]
    pool_s[row] = arrived_s
    following[row] = -1
    if tails[queue] >= 0:
        following[tails[queue]] = row
    else:
        heads[queue] = row
    tails[queue] = row
    lengths[queue] += 1
    return free


@compiled
def _work(  # noqa: PLR0912, PLR0915, PLR0917 - one loop, compiled
    admitted: Times,
    end_s: float,
    shares: Times,
    factors: Times,
    cell_s: float,
    train: int,
    costs: Times,
    selectivities: Times,
    behind: Ints,
    offsets: Ints,
    sources: Ints,
    heads: Ints,
    tails: Ints,
    lengths: Ints,
    pool_s: Times,
    following: Ints,
    clock: Times,
    state: Ints,
    counts: Ints,
    totals: Times,
    bin_s: float,
    target_s: float,
    found: Times,
) -> bool:
    now_s = clock[0]
    place, left_of_train, free, random = state[0], state[1], state[2], np.uint64(state[3])
    arriving = 0
    queued = lengths.sum()
    operators = costs.size
    while now_s < end_s:
        while arriving < admitted.size and admitted[arriving] <= now_s:
            for source in sources:
                if free >= pool_s.size:
                    return True
                free = _enqueue(source, admitted[arriving], free, heads, tails, lengths, pool_s, following)
                queued += 1
            arriving += 1
        if queued == 0:
            now_s = end_s if arriving >= admitted.size else admitted[arriving]
            continue
        if left_of_train == 0 or lengths[place] == 0:
            place = (place + 1) % operators
            while lengths[place] == 0:
                place = (place + 1) % operators
            left_of_train = min(lengths[place], train)
        row = heads[place]
        heads[place] = following[row]
        if heads[place] < 0:
            tails[place] = -1
        lengths[place] -= 1
        left_of_train -= 1
        queued -= 1
        arrived_s = pool_s[row]
        following[row] = free
        free = row
        cell = min(int(now_s / cell_s), shares.size - 1)
        work_s = costs[place] * factors[cell]
        now_s += work_s / shares[cell]
        found[1] += work_s
        random ^= random << np.uint64(13)
        random ^= random >> np.uint64(7)
        random ^= random << np.uint64(17)
        if (random >> np.uint64(11)) * (1.0 / 9007199254740992.0) >= selectivities[place]:
            found[0] += 1  # discarded
        elif offsets[place] == offsets[place + 1]:
            delay_s = now_s - arrived_s
            found[0] += 1
            found[2] += 1
            found[3] += delay_s
            counts[min(int(delay_s / bin_s), counts.size - 1)] += 1
            totals[0] += delay_s
            totals[1] += max(0.0, delay_s - target_s)
            totals[2] = max(totals[2], delay_s)
        else:
            for edge in range(offsets[place], offsets[place + 1]):
                if free >= pool_s.size:
                    return True
                free = _enqueue(behind[edge], arrived_s, free, heads, tails, lengths, pool_s, following)
                queued += 1
    # Rows that come while the last one is worked on wait for the next period.
    for rest in range(arriving, admitted.size):
        for source in sources:
            if free >= pool_s.size:
                return True
            free = _enqueue(source, admitted[rest], free, heads, tails, lengths, pool_s, following)
    clock[0] = now_s
    state[0], state[1], state[2], state[3] = place, left_of_train, free, np.int64(random)
    return False
