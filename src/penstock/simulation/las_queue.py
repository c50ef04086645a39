"""A queue of tuples with different costs, behind the shedders of ``penstock.las``.

Tuples arrive at given times, and the operator processes them one by one. A shedder decides when a tuple arrives, from what the
operator has sent until then. ``simulate_plain`` runs the classes of ``penstock.las`` themselves. ``simulate_las`` is the same in
one compiled loop, and tests check that both drop the same tuples.
"""

# long because the compiled loop stands beside the classes that it repeats, and tests hold them against each other

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.las.constraint import ABS
from penstock.las.cost_aware import AIM, DECAY, GAIN, POWER, REACH, SYNC_EVERY
from penstock.las.countmin import CostSketch
from penstock.las.operator_sketches import Operator
from penstock.las.tuple_shedder import TupleShedder
from penstock.simulation.compiled import compiled

__all__ = ["LasRun", "Method", "Stream", "phases", "simulate_las", "simulate_plain", "synthetic", "zipf_at"]

Method = Literal["base-line", "straw-man", "full-knowledge", "las", "cost-aware"]
_METHODS = {"base-line": 0, "straw-man": 1, "full-knowledge": 2, "las": 3, "cost-aware": 4}
_CONSTRAINTS = {"ABS": 0, "AVG": 1, "sliding": 2}


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Tuples: arrival time, key and cost of each; all times in seconds."""

    arrivals_s: NDArray[np.float64]
    keys: NDArray[np.int64]
    costs_s: NDArray[np.float64]

    @property
    def mean_cost_s(self) -> float:
        """The mean cost of a tuple."""
        return float(self.costs_s.mean())


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
        """The share that was dropped (alpha)."""
        return float(1.0 - self.kept.mean())

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


def synthetic(
    *,
    seed: int,
    permutation: int = 0,
    tuples: int = 32_768,
    keys: int = 4_096,
    alpha: float | None = 1.0,
    values: int = 64,
    w_min_s: float = 0.1e-3,
    w_max_s: float = 6.4e-3,
    under: float = 0.25,
) -> Stream:
    """Return the stream of the experiments of LAS: Zipf keys, each with one of several evenly spaced costs.

    Parameters
    ----------
    seed, permutation
        ``permutation`` draws which key costs what, ``seed`` the order of the tuples.
    tuples, keys
        How many there are.
    alpha
        The exponent of the Zipf distribution; ``None`` means uniform keys.
    values, w_min_s, w_max_s
        How many costs there are, the least and the largest.
    under
        The share by which the operator is too slow: tuples arrive every ``(1 - under) * mean cost``.

    Examples
    --------
    >>> stream = synthetic(seed=1, tuples=1000)
    >>> round(stream.mean_cost_s / float(np.diff(stream.arrivals_s).mean()), 3)
    1.333
    """
    if keys % values:
        raise PenstockError(f"the number of keys must be a multiple of the {values} costs, got {keys}")
    costs = np.random.default_rng([permutation, 1]).permutation(np.repeat(np.linspace(w_min_s, w_max_s, values), keys // values))
    uniforms = np.random.default_rng([seed, permutation, 2]).random(tuples)
    chosen = (uniforms * keys).astype(np.int64) if alpha is None else zipf_at(uniforms, keys, alpha)
    costs_s = costs[chosen]
    arrivals_s = np.arange(tuples, dtype=np.float64) * (float(costs_s.mean()) * (1.0 - under))
    return Stream(arrivals_s, chosen, costs_s)


def zipf_at(uniforms: NDArray[np.float64], keys: int, exponent: float = 1.0) -> NDArray[np.int64]:
    """Turn uniform numbers into Zipf keys; key 0 is the most frequent.

    >>> zipf_at(np.array([0.0, 0.99]), keys=2).tolist()
    [0, 1]
    """
    weights = np.cumsum(np.arange(1, keys + 1) ** -exponent)
    chosen: NDArray[np.int64] = np.searchsorted(weights / weights[-1], uniforms).astype(np.int64)
    return chosen


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
    ABS(tau_s)  # raises if it is not valid
    sketch = CostSketch(epsilon, delta, seed)
    if warm is not None and method in ("las", "cost-aware"):
        sketch.add(warm.keys, warm.costs_s)
    buckets = sketch.hash.buckets(np.arange(int(stream.keys.max()) + 1))
    waits = _run(  # type: ignore[no-untyped-call]  # compiled
        _METHODS[method],
        stream.arrivals_s,
        stream.keys,
        stream.costs_s,
        np.ascontiguousarray(buckets),
        _CONSTRAINTS[constraint],
        tau_s,
        window,
        mu,
        sketch.frequency,
        sketch.duration,
        sketch.mean_s or 0.0,
        float(warm.keys.size) if warm is not None else 0.0,
        stream.mean_cost_s if mean_cost_s is None else mean_cost_s,
        share,
        np.random.default_rng([seed, 3]).random(stream.keys.size),
        epsilon if margin is None else margin,
        floor,
        aim,
    )
    return LasRun(waits, stream.costs_s)


# long because numba compiles one loop as a whole
@compiled
def _run(  # type: ignore[no-untyped-def]  # noqa: PLR0912, PLR0915, PLR0917 - one loop: numba compiles it as a whole
    method,
    arrivals,
    keys,
    costs,
    buckets,
    constraint,
    tau,
    window,
    mu,
    f_warm,
    w_warm,
    mean_warm,
    count_warm,
    mean_cost,
    share,
    coins,
    margin,
    floor,
    aim,
):
    count = keys.size
    rows, columns = f_warm.shape
    waits = np.full(count, -1.0)
    # The operator: its queue, its sketches, its state.
    q_done, q_key, q_cost, q_request = np.empty(count), np.empty(count, np.int64), np.empty(count), np.empty(count)
    head = tail = 0
    clock = 0.0
    f_new, w_new, snapshot = np.zeros((rows, columns)), np.zeros((rows, columns)), np.zeros((rows, columns))
    count_new = total_new = 0.0
    executed, stabilizing = 0, False
    if method == 4:
        f_new[:] = f_warm
        w_new[:] = w_warm
        count_new, total_new = count_warm, mean_warm * count_warm
    # The shedder: the operator's sketches as it knows them, its clock, its constraint.
    f_known, w_known = f_warm.copy(), w_warm.copy()
    mean_known = mean_warm
    state = 0 if count_warm == 0.0 else 1  # NOP, SEND, RUN
    guess = 0.0
    total = 0.0
    taken = 0
    ring = np.zeros(window)
    theta = mean_warm
    aim_s = max(aim * tau, 1e-12)
    since_sync = SYNC_EVERY
    for i in range(count):
        now = arrivals[i]
        while method >= 3 and head < tail and q_done[head] <= now:
            key, cost = q_key[head], q_cost[head]
            executed += 1
            if not math.isnan(q_request[head]):
                guess += q_done[head] - q_request[head]
            head += 1
            if executed % window == 0:
                if method == 4:
                    f_known[:] = f_new
                    w_known[:] = w_new
                    mean_known = total_new / count_new if count_new > 0 else 0.0
                    if theta <= 0.0:
                        theta = mean_known
                    f_new *= DECAY
                    w_new *= DECAY
                    count_new *= DECAY
                    total_new *= DECAY
                else:
                    changed = before = 0.0
                    for r in range(rows):
                        for c in range(columns):
                            ratio = w_new[r, c] / f_new[r, c] if f_new[r, c] > 0 else 0.0
                            changed += abs(snapshot[r, c] - ratio)
                            before += snapshot[r, c]
                    if stabilizing and before > 0 and changed / before <= mu:
                        f_known[:] = f_new
                        w_known[:] = w_new
                        mean_known = total_new / count_new if count_new > 0 else 0.0
                        state = 1
                        f_new[:] = 0.0
                        w_new[:] = 0.0
                        count_new = total_new = 0.0
                        stabilizing = False
                    else:
                        for r in range(rows):
                            for c in range(columns):
                                snapshot[r, c] = w_new[r, c] / f_new[r, c] if f_new[r, c] > 0 else 0.0
                        stabilizing = True
            for r in range(rows):
                f_new[r, buckets[r, key]] += 1.0
                w_new[r, buckets[r, key]] += cost
            count_new += 1.0
            total_new += cost
        request = np.nan
        if method == 0:
            if coins[i] < share:
                continue
        elif method != 3 or state != 0:
            guess = max(guess, now)
            q = guess - now
            if method == 4:
                theta *= math.exp(GAIN * max(-4.0, (aim_s - q) / aim_s))
                theta = min(max(theta, mean_known / REACH), mean_known * REACH)
            if constraint == 0:
                violated = q > tau
            elif constraint == 1:
                violated = (total + q) / (taken + 1) > tau
            elif taken >= window:
                violated = (total - ring[taken % window] + q) / window > tau
            else:
                violated = (total + q) / (taken + 1) > tau
            if violated:
                continue
            if method == 1:
                estimate = mean_cost
            elif method == 2:
                estimate = costs[i]
            elif method == 3:
                best = 0
                for r in range(1, rows):
                    if f_known[r, buckets[r, keys[i]]] < f_known[best, buckets[best, keys[i]]]:
                        best = r
                cell = buckets[best, keys[i]]
                estimate = (w_known[best, cell] / f_known[best, cell] if f_known[best, cell] > 0 else mean_known) * (1.0 + margin)
            else:
                shares = weighted = 0.0
                for r in range(rows):
                    f = f_known[r, buckets[r, keys[i]]]
                    if f > 0:
                        shares += 1.0 / f
                        weighted += (1.0 / f) * (w_known[r, buckets[r, keys[i]]] / f)
                estimate = weighted / shares if shares > 0 else mean_known
                limit = theta * (max(q, 1e-3 * aim_s) / aim_s) ** -POWER
                if estimate > limit and coins[i] >= floor:
                    continue
            if constraint == 2:
                if taken >= window:
                    total -= ring[taken % window]
                ring[taken % window] = q
            total += q
            taken += 1
            guess += estimate
            if method == 3 and state == 1:
                request = guess
                state = 2
            if method == 4:
                since_sync += 1
                if since_sync >= SYNC_EVERY:
                    since_sync = 0
                    request = guess
        start = max(now, clock)
        clock = start + costs[i]
        waits[i] = start - now
        q_done[tail], q_key[tail], q_cost[tail], q_request[tail] = clock, keys[i], costs[i], request
        tail += 1
    return waits


def phases(seed: int, *, length: int = 20_000) -> tuple[Stream, Sequence[str]]:
    """Return the stream of LAS, figure 9, and the names of its phases, A to G."""
    rng = np.random.default_rng([seed, 9])
    keys, values = 4_096, 64
    base = rng.permutation(np.repeat(np.linspace(0.1e-3, 6.4e-3, values), keys // values))
    expensive = int(np.flatnonzero(base == base.max())[-1])
    under = {"A": 0.0, "B": 0.5, "C": 0.0, "D": 0.0, "E": -0.5, "F": 0.0, "G": 0.0}
    arrivals, chosen, costs = [], [], []
    # LAS sets the throughput by the mean cost at the start: later changes of costs or keys do not change it.
    mean_s = float(base[zipf_at(rng.random(length), keys)].mean())
    begin_s = 0.0
    for name, short in under.items():
        phase = zipf_at(rng.random(length), keys)
        if name == "D":
            phase = np.where(phase == 0, expensive, np.where(phase == expensive, 0, phase))
        gap_s = mean_s * (1.0 - short)
        arrivals.append(begin_s + gap_s * np.arange(length))
        begin_s += gap_s * length
        chosen.append(phase)
        costs.append(base[phase] * (2.0 if name == "F" else 1.0))
    return Stream(np.concatenate(arrivals), np.concatenate(chosen), np.concatenate(costs)), tuple(under)
