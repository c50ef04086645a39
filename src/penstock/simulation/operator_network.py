"""A network of operators on one CPU, with a queue per operator and operators that feed several others.

This is the engine of the experiments of SEaMLeSS (Pham, Chrysanthis and Labrinidis). The scheduler goes round robin from operator
to operator. Each takes rows from its queue, works on them, and passes them on to all operators behind it with the probability of
its selectivity. An incoming row goes to all sources, if the gate keeps it.
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
from penstock.simulation.outcome import DelayTally, Outcome, PeriodSeries, find_bin
from penstock.simulation.profile import Profile
from penstock.simulation.queue import arrival_times, check_period

__all__ = ["OperatorNetwork", "simulate_network"]

Times = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OperatorNetwork:
    """Operators in topological order: each feeds only later ones.

    Parameters
    ----------
    costs_s
        CPU seconds per row of each operator.
    selectivities
        The probability with which each operator passes a row on.
    children
        The operators behind each operator.
    sources
        The operators that get the incoming rows.

    Examples
    --------
    >>> shared = OperatorNetwork((0.001, 0.002, 0.002), (0.5, 1.0, 1.0), children=((1, 2), (), ()), sources=(0,))
    >>> shared.coefficients()                       # in front: 1 ms + 0.5 * (2 ms + 2 ms)
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
            raise PenstockError("a network needs one cost, one selectivity and one list of children per operator")
        for number, (cost_s, selectivity, behind) in enumerate(zip(self.costs_s, self.selectivities, self.children, strict=True)):
            if not (math.isfinite(cost_s) and cost_s > 0):
                raise PenstockError(f"operator {number}: its cost must be positive, got {cost_s}")
            if not 0 <= selectivity <= 1:
                raise PenstockError(f"operator {number}: its selectivity must lie in [0, 1], got {selectivity}")
            if any(not number < child < count for child in behind):
                raise PenstockError(f"operator {number}: it must feed later operators only, got {list(behind)}")
        if not self.sources or any(not 0 <= source < count for source in self.sources):
            raise PenstockError(f"sources must name operators, got {list(self.sources)}")

    def coefficients(self) -> tuple[float, ...]:
        """Return the load coefficient of the branch behind each queue (SEaMLeSS, equation 2, summed over sub-paths)."""
        coefficients = [0.0] * len(self.costs_s)
        for number in reversed(range(len(coefficients))):
            behind = sum(coefficients[child] for child in self.children[number])
            coefficients[number] = self.costs_s[number] + self.selectivities[number] * behind
        return tuple(coefficients)

    @property
    def input_coefficient(self) -> float:
        """Seconds of work that an incoming row causes on its way through the whole network."""
        coefficients = self.coefficients()
        return sum(coefficients[source] for source in self.sources)

    @classmethod
    def flat(cls, operators: int, cost_s: float) -> OperatorNetwork:
        """Return a chain of equal operators that drop nothing and cost ``cost_s`` together."""
        return cls(
            costs_s=(cost_s / operators,) * operators,
            selectivities=(1.0,) * operators,
            children=tuple((number + 1,) if number + 1 < operators else () for number in range(operators)),
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

    The delay of an output is counted from the arrival of the row it comes from. ``Observation.completed`` counts rows that were
    output or filtered out, as SEaMLeSS has CTRL count them. Queues are named by the number of their operator.

    Parameters
    ----------
    arrivals
        Arrival times in seconds, sorted.
    network
        The operators.
    controller
        What decides.
    period_s
        The control period.
    headroom
        The share of the CPU that is there for rows.
    cost_factor
        A factor on the costs of all operators.
    stop_s
        When the run ends; by default when the last row has left.
    train
        Rows that the scheduler takes from a queue before it goes on.
    seed
        Seed of the random drops and filters.

    Raises
    ------
    PenstockError
        If the queues grow beyond all bounds.

    Examples
    --------
    >>> from penstock.control import KeepAll
    >>> run = simulate_network([0.0, 0.0], OperatorNetwork.flat(2, 1.0), KeepAll(2.0))
    >>> run.completed, run.max_delay_s           # a train of two rows takes a second in each operator
    (2, 2.0)
    """
    times = arrival_times(arrivals)
    check_period(period_s)
    draws = np.random.default_rng(seed).random(times.size)
    last_s = float(times[-1]) if stop_s is None else stop_s
    tally = DelayTally(controller.delay_target_s)
    share, factor = Profile.of(headroom), Profile.of(cost_factor)
    engine = _Engine(network, share=share, factor=factor, horizon_s=2.0 * last_s + 60.0, train=train, seed=seed)
    periods = math.ceil((last_s + 1e-9) / period_s)
    series = PeriodSeries(periods)
    keep, kept, offered, number = 1.0, 0, 0, 0
    while number < periods or (stop_s is None and engine.has_rows):
        start_s, end_s = number * period_s, (number + 1) * period_s
        end = int(np.searchsorted(times, end_s, side="left"))
        admitted = times[offered:end][draws[offered:end] < keep]
        kept += admitted.size
        period = engine.run(admitted, end_s, tally)
        decision = controller.update(
            Observation(
                batch_id=number,
                start_s=start_s,
                end_s=end_s,
                gates={"in": GateCount(end - offered, admitted.size)},
                keep=keep,
                busy_s=period.work_s,
                mean_arrival_s=None if period.delay_s is None else end_s - period.delay_s,
                backlog_rows={str(operator): int(rows) for operator, rows in enumerate(engine.lengths)},
                completed=period.completed,
            )
        )
        if number < periods:
            series.record(
                number,
                t_s=start_s,
                delay_s=period.delay_s,
                keep=keep,
                rate=(end - offered) / period_s,
                queue=float(engine.lengths.sum()),
                headroom=getattr(controller, "headroom", None),
            )
        keep = keep if decision.keep is None else decision.keep
        offered, number = end, number + 1
    return tally.outcome(int(np.searchsorted(times, last_s, side="right")), kept, series.values)


@dataclass(frozen=True, slots=True)
class _Period:
    """What happened in one control period."""

    completed: int
    work_s: float
    delay_s: float | None


class _Engine:
    """The state between two periods: rows in linked lists, one per queue, from one pool."""

    def __init__(
        self, network: OperatorNetwork, *, share: Profile, factor: Profile, horizon_s: float, train: int, seed: int
    ) -> None:
        if share.cell_s != factor.cell_s:
            raise PenstockError(f"headroom and cost must change on one grid, got cells of {share.cell_s} and {factor.cell_s} s")
        self._shares, self._factors = share.grid(horizon_s), factor.grid(horizon_s)
        self._cell_s, self._train = share.cell_s, train
        count = len(network.costs_s)
        self._costs = np.array(network.costs_s, dtype=np.float64)
        self._selectivities = np.array(network.selectivities, dtype=np.float64)
        self._behind = np.array([child for behind in network.children for child in behind], dtype=np.int64)
        self._offsets = np.concatenate([[0], np.cumsum([len(behind) for behind in network.children])]).astype(np.int64)
        self._sources = np.array(network.sources, dtype=np.int64)
        self._heads, self._tails = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
        self.lengths = np.zeros(count, dtype=np.int64)
        self._pool_s, self._next = np.empty(_POOL), np.arange(1, _POOL + 1, dtype=np.int64)
        # Where the CPU is: its time; its operator, the rows left in the train, the first free row, the random state.
        self._clock = np.zeros(1)
        self._state = np.array([0, 0, 0, (seed * 2 + 1) & 0x7FFFFFFFFFFFFFFF], dtype=np.int64)

    @property
    def has_rows(self) -> bool:
        """Whether any row is inside."""
        return bool(self.lengths.any())

    def run(self, admitted: Times, end_s: float, tally: DelayTally) -> _Period:
        """Let the CPU work until ``end_s``."""
        sums = np.zeros(4)  # rows that left, seconds of work, outputs, sum of their delays
        is_full = _work(
            admitted, end_s, self._shares, self._factors, self._cell_s, self._train, self._costs, self._selectivities,
            self._behind, self._offsets, self._sources, self._heads, self._tails, self.lengths, self._pool_s, self._next,
            self._clock, self._state, tally.counts, tally.totals, tally.target_s, sums,
        )  # fmt: skip
        if is_full:
            raise PenstockError(f"more than {_POOL:,} rows are queued in the simulated network: it has diverged; set stop_s")
        return _Period(int(sums[0]), float(sums[1]), float(sums[3] / sums[2]) if sums[2] else None)


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


# long because numba compiles one loop as a whole
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
    target_s: float,
    sums: Times,
) -> bool:
    """Let the CPU work until ``end_s``; return whether the pool is full. One loop: numba compiles it as a whole."""
    now_s = clock[0]
    operator, left_of_train, free, random = state[0], state[1], state[2], np.uint64(state[3])
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
        if left_of_train == 0 or lengths[operator] == 0:
            operator = (operator + 1) % operators
            while lengths[operator] == 0:
                operator = (operator + 1) % operators
            left_of_train = min(lengths[operator], train)
        row = heads[operator]
        heads[operator] = following[row]
        if heads[operator] < 0:
            tails[operator] = -1
        lengths[operator] -= 1
        left_of_train -= 1
        queued -= 1
        arrived_s = pool_s[row]
        following[row] = free
        free = row
        cell = min(int(now_s / cell_s), shares.size - 1)
        work_s = costs[operator] * factors[cell]
        now_s += work_s / shares[cell]
        sums[1] += work_s
        random ^= random << np.uint64(13)
        random ^= random >> np.uint64(7)
        random ^= random << np.uint64(17)
        if (random >> np.uint64(11)) * (1.0 / 9007199254740992.0) >= selectivities[operator]:
            sums[0] += 1  # filtered out
        elif offsets[operator] == offsets[operator + 1]:
            delay_s = now_s - arrived_s
            sums[0] += 1
            sums[2] += 1
            sums[3] += delay_s
            counts[find_bin(delay_s, counts.size)] += 1
            totals[0] += delay_s
            totals[1] += max(0.0, delay_s - target_s)
            totals[2] = max(totals[2], delay_s)
        else:
            for edge in range(offsets[operator], offsets[operator + 1]):
                if free >= pool_s.size:
                    return True
                free = _enqueue(behind[edge], arrived_s, free, heads, tails, lengths, pool_s, following)
                queued += 1
    # Rows that arrive while the last one is processed wait for the next period.
    for rest in range(arriving, admitted.size):
        for source in sources:
            if free >= pool_s.size:
                return True
            free = _enqueue(source, admitted[rest], free, heads, tails, lengths, pool_s, following)
    clock[0] = now_s
    state[0], state[1], state[2], state[3] = operator, left_of_train, free, np.int64(random)
    return False
