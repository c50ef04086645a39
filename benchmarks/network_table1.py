"""Staying FIT (Tatbul et al.), table 1, on Spark: two applications, five plans, three managers.

Nodes A and B run as two applications, with five fixed plans, and with three managers in steady overload. One tuple per
time unit arrives at each input, as in the table; a unit is 4 ms. With a fixed plan an overloaded node would read larger
and larger batches, so an input delivers at most what arrives in one pace, and an arc delivers one batch at a time; the
rest waits, as with any cap. Loads are what arrives, by the measured costs; a node with a load above 1 processes what it
can.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.support.motivating_example import PLANS, format_rates, parse_fractions
from benchmarks.support.network_runs import UNIT_S, NetworkRun, best_score, run_network
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from penstock.simulation.plotting import grouped_bars

__all__ = ["plot", "run"]

_RATE = 1.0 / UNIT_S
_PACE_S = 4.0  # about 0.12 s of each batch are overhead: the longer the pace, the smaller its share
_MANAGERS = ("local", "exact", "d-fit")


def run(*, quick: bool, say: Say) -> Result:
    """Run every plan and every manager."""
    warm_s, measure_s = (24.0, 24.0) if quick else (60.0, 60.0)
    plans = [plan for plan in PLANS if plan[0] in (2, 4)] if quick else PLANS
    managers = ("local", "exact") if quick else _MANAGERS
    rows: list[Row] = []
    runs: dict[str, NetworkRun] = {}
    for number, rates, *paper in plans:
        say(f"plan {number}")
        name = f"plan {number}"
        keep = {"i1": rates[0], "i2": rates[1]}
        runs[name] = run_network(
            _traffic(capped=True), "none", say=say, warm_s=warm_s, measure_s=measure_s, pace_s=_PACE_S, keep=keep
        )
        rows.append(_row(name, runs[name], rates, paper))
    for manager in managers:
        runs[manager] = run_network(_traffic(capped=False), manager, say=say, warm_s=warm_s, measure_s=measure_s, pace_s=_PACE_S)
        rows.append(_row(manager, runs[manager], None, None))
    return Result("network-table1", rows, _bars(runs), _claims(runs))


def _bars(runs: Mapping[str, NetworkRun]) -> list[Bar]:
    exact, local = runs["exact"], runs["local"]
    best = best_score(exact, {"i1": _RATE, "i2": _RATE})
    # Rows that B still had from the warm-up do not count for A's plan, so take the smaller of the rows in and the rows out.
    admitted = sum(exact.gate_rates(name)[1] for name in ("i1", "i2"))
    bars = [
        Bar.at_least(
            "exact plans: throughput relative to the LP's optimum for the measured costs",
            min(admitted, exact.throughput) / best,
            0.90,
        ),
        Bar.at_least("coordinated (exact) relative to local shedding: throughput", exact.throughput / local.throughput, 1.3),
    ]
    if "d-fit" in runs:
        bars.append(
            Bar.at_least(
                "coordinated (D-FIT) relative to local shedding: throughput", runs["d-fit"].throughput / local.throughput, 1.3
            )
        )
    return bars


def _claims(runs: Mapping[str, NetworkRun]) -> list[Claim]:
    totals = {name: run.throughput / _RATE for name, run in runs.items()}
    return [
        Claim(
            "plan 4 is the best of the five",
            "0.6 against 1/2, 1/2, 1/3, 1/2",
            ", ".join(f"{name} {total:.3f}" for name, total in totals.items() if name.startswith("plan")),
            totals["plan 4"] == max(total for name, total in totals.items() if name.startswith("plan")),
        ),
        Claim(
            "coordination beats nodes that decide alone",
            "0.6 against 1/3",
            f"{totals['exact']:.3f} against {totals['local']:.3f}",
            totals["exact"] > totals["local"],
        ),
        Claim("exact plans relative to the optimum for the nominal costs", "-", f"{totals['exact'] / 0.6:.3f}", None),
    ]


def _traffic(*, capped: bool) -> dict[str, dict[str, str | float]]:
    options: dict[str, str | float] = {"generator": "constant", "rate": _RATE, "duration": "600s"}
    if capped:
        options["max_rows_per_batch"] = int(_PACE_S * _RATE)
    return {"i1": {**options, "seed": 1}, "i2": {**options, "seed": 2}}


def _row(name: str, run: NetworkRun, rates: tuple[float, float] | None, paper: list[str] | None) -> Row:
    """Build a row in units of the table: tuples per time unit."""
    unit = UNIT_S
    a_out = [run.gate_rates(gate)[1] * unit for gate in ("i1", "i2")]  # all selectivities are 1
    arriving = list(rates) if rates is not None else a_out
    b_out = [run.rate(output) * unit for output in ("q1", "q2")]
    printed = paper or ["-", "-", "-", "-"]
    mean_s, worst_s = run.delays()
    return {
        "plan": name,
        "rates at A": format_rates(arriving),
        "A load": (arriving[0] * run.cost("a1") + arriving[1] * run.cost("a2")) / unit,
        "A load, paper": printed[0],
        "A throughput": format_rates(a_out),
        "A throughput, paper": printed[1],
        "B load": (a_out[0] * run.cost("b1") + a_out[1] * run.cost("b2")) / unit,
        "B load, paper": printed[2],
        "B throughput": format_rates(b_out),
        "B throughput, paper": printed[3],
        "score": sum(b_out),
        "mean delay, s": mean_s,
        "worst delay, s": worst_s,
    }


def plot(result: Result, path: Path) -> None:
    """Draw the output rates by plan, measured and in the paper."""
    groups = [str(row["plan"]) for row in result.rows]
    measured = [float(row["score"] or 0.0) for row in result.rows]
    paper = [
        None if row["B throughput, paper"] == "-" else sum(parse_fractions(str(row["B throughput, paper"])))
        for row in result.rows
    ]
    grouped_bars(
        groups,
        {"measured on Spark": measured, "table 1": paper},
        path,
        title="Table 1 on Spark: what reaches the outputs",
        label="tuples per time unit, both outputs",
    )
