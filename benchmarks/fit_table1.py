"""Staying FIT (Tatbul et al.), table 1: five plans for two nodes.

Loads and throughputs of both nodes of figure 1's network under each plan. An overloaded node serves its subqueries
round robin, tuple by tuple, so all of them get the same throughput unless fewer tuples arrive.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.support.motivating_example import PLANS, figure1, format_rates, parse_fractions
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from penstock.planning import Exact, Greedy

__all__ = ["round_robin", "run"]


def round_robin(rates: Sequence[float], costs: Sequence[float], capacity: float = 1.0) -> list[float]:
    """Return the throughput of each subquery of a node that serves them tuple by tuple in turn.

    >>> [round(rate, 3) for rate in round_robin([1.0, 0.1], [1.0, 1.0])]
    [0.9, 0.1]
    """
    throughput, left = list(rates), capacity
    by_rate = sorted(range(len(rates)), key=lambda number: rates[number])
    for index, number in enumerate(by_rate):
        waiting = by_rate[index:]
        turn = left / sum(costs[other] for other in waiting)
        if rates[number] >= turn:
            for other in waiting:
                throughput[other] = turn
            break
        left -= rates[number] * costs[number]
    return throughput


def run(*, quick: bool, say: Say) -> Result:  # noqa: ARG001 - it takes no time
    """Work out the five plans."""
    rows: list[Row] = []
    is_equal = True
    for number, rates, *paper in PLANS:
        a_load = rates[0] * 1.0 + rates[1] * 2.0
        a_out = round_robin(rates, (1.0, 2.0)) if a_load > 1 + 1e-9 else list(rates)
        b_load = a_out[0] * 3.0 + a_out[1] * 1.0
        b_out = round_robin(a_out, (3.0, 1.0)) if b_load > 1 + 1e-9 else a_out
        ours = (a_load, *a_out, b_load, *b_out)
        printed = [value for cell in paper for value in parse_fractions(cell)]
        is_equal &= all(abs(value - expected) < 1e-9 for value, expected in zip(ours, printed, strict=True))
        rows.append(
            {
                "plan": str(number),
                "rates at A": format_rates(rates),
                "A load": a_load,
                "A load, paper": paper[0],
                "A throughput": format_rates(a_out),
                "A throughput, paper": paper[1],
                "B load": b_load,
                "B load, paper": paper[2],
                "B throughput": format_rates(b_out),
                "B throughput, paper": paper[3],
                "score": sum(b_out),
            }
        )
    plan, local = Exact(figure1()).plan({"i1": 1.0, "i2": 1.0}), Greedy(figure1()).plan({"i1": 1.0, "i2": 1.0})
    claims = [
        Claim("all loads and throughputs of the table", "as printed", "the same" if is_equal else "different", is_equal),
        Claim(
            "the best plan keeps 1/5 and 2/5",
            "1/5, 2/5, total 3/5",
            f"{plan.keep['i1']:.6f}, {plan.keep['i2']:.6f}, total {plan.score:.6f}",
            abs(plan.keep["i1"] - 0.2) + abs(plan.keep["i2"] - 0.4) + abs(plan.score - 0.6) < 1e-9,
        ),
        Claim(
            "on its own, A would choose plan 2",
            "1, 0",
            f"{local.keep['i1']:g}, {local.keep['i2']:g}, total {local.score:.3f}",
            local.keep["i1"] == 1.0 and local.keep["i2"] == 0.0,
        ),
    ]
    return Result("fit-table1", rows, claims=claims)
