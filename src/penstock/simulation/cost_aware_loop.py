"""``CostAware`` and its operator as one compiled loop over a stream."""

from __future__ import annotations

import math

import numpy as np

from penstock.las import arrival_costs, cost_aware, work_under_way
from penstock.simulation.compiled import compiled

__all__ = ["read_rules", "run_cost_aware"]


def read_rules() -> tuple[float, ...]:
    """Return the constants of the classes that the loop repeats.

    They are arguments, because the compiler keeps its work in files by the time of this one: a constant that it had compiled in
    would outlive a change.
    """
    return (
        cost_aware.GUARD,
        cost_aware.LOWEST,
        cost_aware.WIDTH_TAU,
        cost_aware.WIDTH_COST,
        cost_aware.STORE,
        cost_aware.BLIND_STORE,
        cost_aware.BLIND,
        cost_aware.BLIND_AIM,
        cost_aware.RATE_GAIN,
        cost_aware.DECAY,
        work_under_way.SCALE_GAIN,
        work_under_way.REMAINS,
        work_under_way.PATIENCE,
        arrival_costs.MEMORY,
        float(arrival_costs.BLOCK),
        float(arrival_costs.FIRST_BLOCK),
        float(arrival_costs.BINS),
        float(arrival_costs.BINS_PER_OCTAVE),
        float(arrival_costs.FIRST_OCTAVE),
    )


@compiled
def _estimate(f, w, cells, key, mean):  # type: ignore[no-untyped-def]  # compiled
    """Return ``CostSketch.estimate(weighted=True)`` of a key."""
    shares = weighted = 0.0
    for r in range(cells.shape[1]):
        count = f[cells[key, r]]
        if count > 0:
            part = 1.0 / count
            shares += part
            weighted += part * (w[cells[key, r]] / count)
    return weighted / shares if shares > 0 else mean


@compiled
def _bin_of(cost, bins, per_octave, first_octave):  # type: ignore[no-untyped-def]  # compiled
    """Return ``arrival_costs.bin_of``."""
    if not cost > 0:
        return 0
    mantissa, exponent = math.frexp(cost)
    number = (exponent - first_octave) * per_octave + int((mantissa - 0.5) * (2 * per_octave))
    return min(max(number, 0), bins - 1)


@compiled
def _add_up(work, count, new_work, new_count, below, size, memory):  # type: ignore[no-untyped-def]  # noqa: PLR0917 - compiled
    """Add a block of arrivals to the histogram of ``ArrivalCosts``; return the work of all and its spread."""
    total = 0.0
    for b in range(work.size):
        work[b] = work[b] * memory + new_work[b]
        count[b] = count[b] * memory + new_count[b]
        new_work[b] = new_count[b] = 0.0
        total += work[b]
        below[b] = (total - 0.5 * work[b]) / size
    sums = counts = 0.0
    for b in range(work.size):
        sums += work[b]
        counts += count[b]
        if sums >= 0.5 * total:
            cheap = counts - count[b]
            if work[b] > 0:
                cheap += count[b] * ((0.5 * total - (sums - work[b])) / work[b])
            return total, max(2.0 * cheap / size - 1.0, 0.0)
    return total, 0.0


# long because numba compiles one loop as a whole
@compiled
def run_cost_aware(  # type: ignore[no-untyped-def]  # noqa: PLR0912, PLR0915, PLR0917 - one loop: numba compiles it as a whole
    arrivals,
    keys,
    costs,
    cells,
    constraint,
    tau,
    window,
    f_warm,
    w_warm,
    mean_warm,
    count_warm,
    coins,
    floor,
    aim,
    rules,
):
    """Return how long each tuple waits, -1 for those that are dropped.

    The parameters are those of ``run_las``, and ``rules`` is what ``read_rules`` returns.
    """
    guard, lowest, width_tau, width_cost, store, blind_store, least_spread, blind_aim, rate_gain = rules[:9]
    decay, scale_gain, remains, patience, memory, block, first_block = rules[9:16]
    bins, per_octave, first_octave = int(rules[16]), int(rules[17]), int(rules[18])
    n = keys.size
    waits = np.full(n, -1.0)
    # The operator: its queue and its sketches. The shedder's notes on tuples under way stand beside the queue.
    q_done, q_index, q_request = np.empty(n), np.empty(n, np.int32), np.empty(n)
    q_estimate, q_wait, q_work = np.empty(n), np.empty(n), np.empty(n)
    head = tail = 0
    left_of_window = window
    clock = 0.0
    f_new, w_new = f_warm.copy(), w_warm.copy()
    count_new, total_new = count_warm, mean_warm * count_warm
    # The shedder: the sketches as it knows them, what is under way, its constraint, the arrivals.
    f_known, w_known, mean_known, knows = f_warm.copy(), w_warm.copy(), mean_warm, count_warm > 0
    estimates = np.full(cells.shape[0], -1.0)  # by key, -1 until it is asked for
    first = 0
    start = work = 0.0
    scale, mean_cost, mean_estimate, silent = 1.0, mean_warm, mean_warm, True
    total = 0.0
    taken = 0
    ring = np.zeros(window if constraint == 2 else 1)
    a_work, a_count, a_new, a_new_count, below = np.zeros(bins), np.zeros(bins), np.zeros(bins), np.zeros(bins), np.zeros(bins)
    size = mean_arrival = spread = 0.0
    fresh, ready = 0, False
    gap = last = 0.0
    for i in range(n):
        now = arrivals[i]
        while head < tail and q_done[head] <= now:
            key, cost = keys[q_index[head]], costs[q_index[head]]
            left_of_window -= 1
            silent = False
            if head >= first:
                done = q_request[head] + (q_done[head] - q_request[head])
                if head == first:
                    taken_s = max(done - start, 0.0)
                    if mean_cost <= 0.0:
                        mean_cost = mean_estimate = taken_s
                    mean_cost += (taken_s - mean_cost) * scale_gain
                    mean_estimate += ((q_estimate[head] if q_estimate[head] > 0.0 else taken_s) - mean_estimate) * scale_gain
                    if mean_estimate > 0.0:
                        scale = mean_cost / mean_estimate
                first = head + 1
                start = done
                if first < tail:
                    error = max(done - arrivals[q_index[first]], 0.0) - q_wait[first]
                    if constraint == 1:
                        total += error
                    elif constraint == 2 and taken - first <= window:
                        ring[first % window] += error
                        total += error
            head += 1
            if left_of_window == 0:
                left_of_window = window
                f_known[:] = f_new
                w_known[:] = w_new
                mean_known, knows = total_new / count_new if count_new > 0 else 0.0, count_new > 0
                estimates[:] = -1.0
                f_new *= decay
                w_new *= decay
                count_new *= decay
                total_new *= decay
            for r in range(cells.shape[1]):
                f_new[cells[key, r]] += 1.0
                w_new[cells[key, r]] += cost
            count_new += 1.0
            total_new += cost
        # The arrival, what it should cost, and how long it would wait.
        if i > 0:
            gap += (now - last - gap) * max(rate_gain, 1.0 / i)
        last = now
        estimate = mean_cost
        if knows:
            estimate = estimates[keys[i]]
            if estimate < 0.0:
                estimate = _estimate(f_known, w_known, cells, keys[i], mean_known)  # type: ignore[no-untyped-call]
                estimates[keys[i]] = estimate
        number = _bin_of(estimate, bins, per_octave, first_octave)  # type: ignore[no-untyped-call]
        a_new[number] += estimate
        a_new_count[number] += 1.0
        fresh += 1
        if fresh >= (block if ready else first_block):
            size = size * memory + fresh
            total_work, spread = _add_up(a_work, a_count, a_new, a_new_count, below, size, memory)  # type: ignore[no-untyped-call]
            mean_arrival = total_work / size
            fresh, ready = 0, True
        while first < tail:
            end = start + scale * q_estimate[first]
            if now < end + (0.0 if silent else patience * mean_cost + 2.0 * tau):
                break
            silent = True
            first += 1
            start = max(end, arrivals[q_index[first]]) if first < tail else end
        q = 0.0
        if first < tail:
            left = scale * q_estimate[first]
            q = max(start + left - now, remains * left) + scale * (work - q_work[first])
        # The constraint, and what fits.
        if constraint == 0:
            credit = 0.0
        elif constraint == 2 and taken >= window:
            credit = guard * tau * (window - 1) - (total - ring[taken % window])
        else:
            credit = guard * tau * taken - total
        if q > max(guard * tau + credit, lowest * tau):
            continue
        if first < tail and ready and gap > 0.0:
            mean = scale * mean_arrival
            blind = max(1.0 - spread / least_spread, 0.0)
            level = aim * tau
            if constraint == 0:
                level += blind_aim * blind * tau
            elif credit > 0.0:
                level += min(credit, math.sqrt(2.0 * (store + blind_store * blind) * mean * credit))
            else:
                level = max(level + credit, 0.8 * lowest * tau)
            width = width_tau * tau + width_cost * mean
            if scale * below[number] / gap > 1.0 + (level - q) / width and (floor <= 0.0 or coins[i] >= floor):
                continue
        if constraint == 2:
            if taken >= window:
                total -= ring[taken % window]
            ring[taken % window] = q
        total += q
        taken += 1
        if first == tail:
            start = now
        work += estimate
        begin = max(now, clock)
        clock = begin + costs[i]
        waits[i] = begin - now
        q_done[tail], q_index[tail], q_request[tail] = clock, i, now + q + scale * estimate
        q_estimate[tail], q_wait[tail], q_work[tail] = estimate, q, work
        tail += 1
    return waits
