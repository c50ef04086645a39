"""The shedders of LAS as one compiled loop over a stream: ``BaseLine``, ``StrawMan``, ``FullKnowledge`` and ``Las``."""

from __future__ import annotations

import math

import numpy as np

from penstock.simulation.compiled import compiled

__all__ = ["run_las"]


# long because numba compiles one loop as a whole
@compiled
def run_las(  # type: ignore[no-untyped-def]  # noqa: PLR0912, PLR0915, PLR0917 - one loop: numba compiles it as a whole
    method,
    arrivals,
    keys,
    costs,
    cells,
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
):
    """Return how long each tuple waits, -1 for those that are dropped.

    ``method`` is 0 to 3 in the order above, ``constraint`` 0 to 2 for ABS, AVG and sliding. ``cells`` has for each key its
    cell in every row of the sketches, which are flat; all times are in seconds.
    """
    count = keys.size
    rows, size = cells.shape[1], f_warm.size
    waits = np.full(count, -1.0)
    # The operator: its queue, its sketches, its state.
    q_done, q_index, q_request = np.empty(count), np.empty(count, np.int32), np.empty(count)
    head = tail = 0
    clock = 0.0
    f_new, w_new, snapshot = np.zeros(size), np.zeros(size), np.zeros(size)
    count_new = total_new = 0.0
    left_of_window, stabilizing = window, False
    # The shedder: what it knows of each key, its clock, its constraint.
    f_known, w_known, mean_known = f_warm.copy(), w_warm.copy(), mean_warm
    state = 0 if count_warm == 0.0 else 1  # NOP, SEND, RUN
    estimates = np.full(cells.shape[0] if method == 3 else 0, -1.0)  # by key, -1 until it is asked for
    guess = total = 0.0
    taken = 0
    ring = np.zeros(window if constraint == 2 else 1)
    for i in range(count):
        now = arrivals[i]
        while method == 3 and head < tail and q_done[head] <= now:
            key, cost = keys[q_index[head]], costs[q_index[head]]
            left_of_window -= 1
            if not math.isnan(q_request[head]):
                guess += q_done[head] - q_request[head]
            head += 1
            if left_of_window == 0:
                left_of_window = window
                changed = before = 0.0
                for cell in range(size):
                    ratio = w_new[cell] / f_new[cell] if f_new[cell] > 0 else 0.0
                    changed += abs(snapshot[cell] - ratio)
                    before += snapshot[cell]
                if stabilizing and before > 0 and changed / before <= mu:
                    f_known[:] = f_new
                    w_known[:] = w_new
                    mean_known = total_new / count_new if count_new > 0 else 0.0
                    estimates[:] = -1.0
                    state = 1
                    f_new[:] = 0.0
                    w_new[:] = 0.0
                    count_new = total_new = 0.0
                    stabilizing = False
                else:
                    for cell in range(size):
                        snapshot[cell] = w_new[cell] / f_new[cell] if f_new[cell] > 0 else 0.0
                    stabilizing = True
            for r in range(rows):
                f_new[cells[key, r]] += 1.0
                w_new[cells[key, r]] += cost
            count_new += 1.0
            total_new += cost
        request = np.nan
        if method == 0:
            if coins[i] < share:
                continue
        elif method != 3 or state != 0:
            guess = max(guess, now)
            q = guess - now
            if constraint == 0:
                violated = q > tau
            elif constraint == 2 and taken >= window:
                violated = (total - ring[taken % window] + q) / window > tau
            else:
                violated = (total + q) / (taken + 1) > tau
            if violated:
                continue
            if method == 1:
                estimate = mean_cost
            elif method == 2:
                estimate = costs[i]
            else:
                estimate = estimates[keys[i]]
                if estimate < 0.0:
                    best = cells[keys[i], 0]
                    for r in range(1, rows):
                        if f_known[cells[keys[i], r]] < f_known[best]:
                            best = cells[keys[i], r]
                    estimate = (w_known[best] / f_known[best] if f_known[best] > 0 else mean_known) * (1.0 + margin)
                    estimates[keys[i]] = estimate
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
        start = max(now, clock)
        clock = start + costs[i]
        waits[i] = start - now
        if method == 3:
            q_done[tail], q_index[tail], q_request[tail] = clock, i, request
            tail += 1
    return waits
