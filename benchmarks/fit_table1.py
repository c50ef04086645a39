"""Paper 000, table 1: five plans for figure 1's network, loads and throughputs of both nodes.

An overloaded node serves its subqueries round robin, tuple by tuple, so all get the same throughput unless less arrives.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from penstock.network import Network, NetworkBuilder
from penstock.planning import Exact, Greedy

__all__ = ["PLANS", "figure1", "round_robin", "run"]

PLANS = (
    (0, (1.0, 1.0), "3", "1/3, 1/3", "4/3", "1/4, 1/4"),
    (1, (1 / 3, 1 / 3), "1", "1/3, 1/3", "4/3", "1/4, 1/4"),
    (2, (1.0, 0.0), "1", "1, 0", "3", "1/3, 0"),
    (3, (0.0, 0.5), "1", "0, 1/2", "1/2", "0, 1/2"),
    (4, (0.2, 0.4), "1", "1/5, 2/5", "1", "1/5, 2/5"),
)


def figure1() -> Network:
    """The network of figure 1: costs (1, 2) on A and (3, 1) on B, the only whole ones that fit all rows of the table."""
    return (
        NetworkBuilder()
        .node("A")
        .node("B")
        .input("i1", max_rate=1.0)
        .input("i2", max_rate=1.0)
        .operator("a1", "A", "i1", cost=1.0)
        .operator("a2", "A", "i2", cost=2.0)
        .operator("b1", "B", "a1", cost=3.0)
        .operator("b2", "B", "a2", cost=1.0)
        .output("q1", "b1")
        .output("q2", "b2")
        .build()
    )


def round_robin(rates: Sequence[float], costs: Sequence[float], capacity: float = 1.0) -> list[float]:
    """What each subquery of a node gets done, tuple by tuple in turn.

    >>> [round(rate, 3) for rate in round_robin([1.0, 0.1], [1.0, 1.0])]
    [0.9, 0.1]
    """
    done, left, open_ones = list(rates), capacity, sorted(range(len(rates)), key=lambda number: rates[number])
    for place, number in enumerate(open_ones):
        waiting = open_ones[place:]
        turn = left / sum(costs[other] for other in waiting)
        if rates[number] >= turn:
            for other in waiting:
                done[other] = turn
            break
        left -= rates[number] * costs[number]
    return done


def run(*, quick: bool, say: Say) -> Result:  # noqa: ARG001 - an instant
    """Walk through the five plans."""
    rows: list[Row] = []
    right = True
    for number, rates, *paper in PLANS:
        a_load = rates[0] * 1.0 + rates[1] * 2.0
        a_out = round_robin(rates, (1.0, 2.0)) if a_load > 1 + 1e-9 else list(rates)
        b_load = a_out[0] * 3.0 + a_out[1] * 1.0
        b_out = round_robin(a_out, (3.0, 1.0)) if b_load > 1 + 1e-9 else a_out
        ours = (a_load, *a_out, b_load, *b_out)
        right &= all(abs(value - told) < 1e-9 for value, told in zip(ours, _numbers(paper), strict=True))
        rows.append(
            {
                "plan": str(number),
                "rates at A": _pair(rates),
                "A load": a_load,
                "A load, paper": paper[0],
                "A throughput": _pair(a_out),
                "A throughput, paper": paper[1],
                "B load": b_load,
                "B load, paper": paper[2],
                "B throughput": _pair(b_out),
                "B throughput, paper": paper[3],
                "score": sum(b_out),
            }
        )
    plan, local = Exact(figure1()).plan({"i1": 1.0, "i2": 1.0}), Greedy(figure1()).plan({"i1": 1.0, "i2": 1.0})
    claims = [
        Claim("all loads and throughputs of the table", "as printed", "the same" if right else "others", right),
        Claim(
            "the best plan keeps 1/5 and 2/5",
            "1/5, 2/5, total 3/5",
            f"{plan.keep['i1']:.6f}, {plan.keep['i2']:.6f}, total {plan.score:.6f}",
            abs(plan.keep["i1"] - 0.2) + abs(plan.keep["i2"] - 0.4) + abs(plan.score - 0.6) < 1e-9,
        ),
        Claim(
            "A for itself would choose plan 2",
            "1, 0",
            f"{local.keep['i1']:g}, {local.keep['i2']:g}, total {local.score:.3f}",
            local.keep["i1"] == 1.0 and local.keep["i2"] == 0.0,
        ),
    ]
    return Result("fit-table1", rows, claims=claims)


def _pair(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def _numbers(texts: Sequence[str]) -> list[float]:
    found = []
    for text in texts:
        for item in text.split(", "):
            top, _, bottom = item.partition("/")
            found.append(float(top) / float(bottom or 1))
    return found
