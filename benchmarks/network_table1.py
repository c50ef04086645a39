"""Paper 000, table 1, on Spark: nodes A and B as two applications, five fixed plans, and three managers in steady overload.

One tuple a time unit comes at each input, as in the table, and a unit is 4 ms. With a fixed plan an overloaded node would take
ever larger batches, so there an input gives at most what comes in a pace, and an arc one batch at a time: the rest waits, as with
any cap. Loads are what arrives, by the costs that were
measured; a node that is loaded above 1 does what it can.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fit_table1 import PLANS
from benchmarks.support.network_runs import UNIT_S, NetworkRun, best_score, run_network
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from penstock.simulation.plotting import grouped_bars

__all__ = ["plot", "run"]

_RATE = 1.0 / UNIT_S
_PACE_S = 4.0  # of a batch about 0.12 s are the engine's: the longer the pace, the less that is
_MANAGERS = ("local", "exact", "d-fit")


def run(*, quick: bool, say: Say) -> Result:
    """Measure each plan in a run of its own."""
    warm_s, measure_s = (24.0, 24.0) if quick else (60.0, 60.0)
    plans = [plan for plan in PLANS if plan[0] in (2, 4)] if quick else PLANS
    managers = ("local", "exact") if quick else _MANAGERS
    rows: list[Row] = []
    found: dict[str, NetworkRun] = {}
    for number, rates, *paper in plans:
        say(f"plan {number}")
        name = f"plan {number}"
        keep = {"i1": rates[0], "i2": rates[1]}
        found[name] = run_network(
            _traffic(capped=True), "none", say=say, warm_s=warm_s, measure_s=measure_s, pace_s=_PACE_S, keep=keep
        )
        rows.append(_row(name, found[name], rates, paper))
    for manager in managers:
        found[manager] = run_network(_traffic(capped=False), manager, say=say, warm_s=warm_s, measure_s=measure_s, pace_s=_PACE_S)
        rows.append(_row(manager, found[manager], None, None))
    exact, local = found["exact"], found["local"]
    best = best_score(exact, {"i1": _RATE, "i2": _RATE})
    # What B still had from the warm-up does not count for A's plan: the lesser of what came in and what went out.
    taken = sum(exact.gate_rates(name)[1] for name in ("i1", "i2"))
    bars = [
        Bar.at_least(
            "exact plans: throughput against the LP's optimum for the measured costs", min(taken, exact.throughput) / best, 0.90
        ),
        Bar.at_least("coordinated (exact) against local shedding: throughput", exact.throughput / local.throughput, 1.3),
    ]
    if "d-fit" in found:
        bars.append(
            Bar.at_least(
                "coordinated (D-FIT) against local shedding: throughput", found["d-fit"].throughput / local.throughput, 1.3
            )
        )
    ideal = 0.6 * _RATE
    totals = {name: run.throughput / _RATE for name, run in found.items()}
    claims = [
        Claim(
            "plan 4 is the best of the five",
            "0.6 against 1/2, 1/2, 1/3, 1/2",
            ", ".join(f"{name} {total:.3f}" for name, total in totals.items() if name.startswith("plan")),
            totals["plan 4"] == max(total for name, total in totals.items() if name.startswith("plan")),
        ),
        Claim(
            "coordination beats each node for itself",
            "0.6 against 1/3",
            f"{totals['exact']:.3f} against {totals['local']:.3f}",
            totals["exact"] > totals["local"],
        ),
        Claim("exact plans against the optimum of the delays themselves", "-", f"{exact.throughput / ideal:.3f}", None),
    ]
    return Result("network-table1", rows, bars, claims)


def _traffic(*, capped: bool) -> dict[str, dict[str, str | float]]:
    options: dict[str, str | float] = {"generator": "constant", "rate": _RATE, "duration": "600s"}
    if capped:
        options["max_rows_per_batch"] = int(_PACE_S * _RATE)
    return {"i1": {**options, "seed": 1}, "i2": {**options, "seed": 2}}


def _row(name: str, run: NetworkRun, rates: tuple[float, float] | None, paper: list[str] | None) -> Row:
    """In units of the table: tuples a time unit."""
    unit = UNIT_S
    a_out = [run.gate_rates(gate)[1] * unit for gate in ("i1", "i2")]  # all selectivities are 1
    arriving = list(rates) if rates is not None else a_out
    b_out = [run.rate(output) * unit for output in ("q1", "q2")]
    told = paper or ["-", "-", "-", "-"]
    mean_s, worst_s = run.delays()
    return {
        "plan": name,
        "rates at A": _pair(arriving),
        "A load": (arriving[0] * run.cost("a1") + arriving[1] * run.cost("a2")) / unit,
        "A load, paper": told[0],
        "A throughput": _pair(a_out),
        "A throughput, paper": told[1],
        "B load": (a_out[0] * run.cost("b1") + a_out[1] * run.cost("b2")) / unit,
        "B load, paper": told[2],
        "B throughput": _pair(b_out),
        "B throughput, paper": told[3],
        "score": sum(b_out),
        "mean delay, s": mean_s,
        "worst delay, s": worst_s,
    }


def _pair(values: list[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def plot(result: Result, path: Path) -> None:
    """Draw output rates by plan, measured beside the paper's."""
    groups = [str(row["plan"]) for row in result.rows]
    measured = [float(row["score"] or 0.0) for row in result.rows]
    paper = [_total(str(row["B throughput, paper"])) for row in result.rows]
    grouped_bars(
        groups,
        {"measured on Spark": measured, "table 1": paper},
        path,
        title="Table 1 on Spark: what reaches the outputs",
        label="tuples a time unit, both outputs",
    )


def _total(text: str) -> float | None:
    if text == "-":
        return None
    total = 0.0
    for item in text.split(", "):
        top, _, bottom = item.partition("/")
        total += float(top) / float(bottom or 1)
    return total
