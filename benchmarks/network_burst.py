"""Figure 1 of Staying FIT (Tatbul et al.) on Spark under a bursty trace: no manager, local, coordinator, D-FIT.

The trace is a b-model, with another seed for each of the two inputs: 110 tuples per second each on average, which loads
A to 1.3 and B to 1.8 times its capacity, with bursts of several times that. The optimum is the linear program's for the
rates of each pace and the measured costs, as if the nodes had nothing else to do and could not store anything.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.support.network_runs import NetworkRun, best_score, run_network
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from penstock.simulation.plotting import by_panel, lines
from penstock.simulation.traffic import b_model

__all__ = ["plot", "run"]

_MANAGERS = ("none", "local", "exact", "d-fit")
_RATE, _BIAS, _SEEDS = 110.0, 0.65, {"i1": 11, "i2": 12}
_PACE_S = 2.0
_PERIOD_S = 240.0


def run(*, quick: bool, say: Say) -> Result:
    """Run every manager with the same trace."""
    warm_s, measure_s = (16.0, 40.0) if quick else (24.0, 64.0)
    runs: dict[str, NetworkRun] = {}
    rows: list[Row] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for manager in ("local", "exact") if quick else _MANAGERS:
        run = runs[manager] = run_network(_traffic(), manager, say=say, warm_s=warm_s, measure_s=measure_s, pace_s=_PACE_S)
        best = _optimum(run)
        offered = sum(run.gate_rates(name)[0] for name in _SEEDS)
        mean_s, worst_s = run.delays()
        rows.append(
            {
                "manager": manager,
                "throughput per second": run.throughput,
                "of the optimum": run.throughput / best,
                "mean delay, s": mean_s,
                "worst delay, s": worst_s,
                "loss": 1.0 - run.throughput / offered if offered else None,
                "lost at A's gates": _lost(run, ("i1", "i2")),
                "lost at B's gates": _lost(run, ("a1->b1", "a2->b2")),
            }
        )
        for panel, (xs, ys) in _curves(run).items():
            curves[f"{manager}|{panel}"] = (xs, ys)
    exact, local = runs["exact"].throughput, runs["local"].throughput
    claims = [
        Claim("coordinated shedding beats local shedding", "claimed", f"{exact / local:.2f} times the throughput", exact > local),
    ]
    if "d-fit" in runs:
        fit = runs["d-fit"].throughput
        claims.append(Claim("so does D-FIT", "claimed", f"{fit / local:.2f} times the throughput", fit > local))
    bars = [Bar.at_least("coordinated (exact) relative to local shedding, bursty trace: throughput", exact / local, 1.3)]
    return Result("network-burst", rows, bars, claims, curves)


def _traffic() -> dict[str, dict[str, str | float]]:
    options: dict[str, str | float] = {
        "generator": "b-model",
        "rate": _RATE,
        "duration": f"{_PERIOD_S:g}s",
        "bias": _BIAS,
        "loop": "true",
    }
    return {name: {**options, "seed": seed} for name, seed in _SEEDS.items()}


def _lost(run: NetworkRun, gates: tuple[str, str]) -> float | None:
    counts = [run.gate_rates(gate) for gate in gates]
    offered = sum(count[0] for count in counts)
    return 1.0 - sum(count[1] for count in counts) / offered if offered else None


def _optimum(run: NetworkRun) -> float:
    """Return the mean, over the measured paces, of the best score at the rates of each."""
    paces = np.arange(0.0, run.seconds, _PACE_S)
    counts = {}
    for name, seed in _SEEDS.items():
        arrivals = b_model(_RATE, _PERIOD_S, _BIAS, seed)
        since = run.start_s - run.played_s[name]
        ends = [np.searchsorted(arrivals, np.clip(paces + since + shift, 0.0, _PERIOD_S)) for shift in (0.0, _PACE_S)]
        counts[name] = (ends[1] - ends[0]) / _PACE_S
    scores = [best_score(run, {name: float(rates[k]) for name, rates in counts.items()}) for k in range(paces.size)]
    return float(np.mean(scores))


def _curves(run: NetworkRun) -> dict[str, tuple[list[float], list[float]]]:
    """Return the delay and the cumulative rows at the outputs over time."""
    batches = sorted((x for x in run.written if run.start_s < x["end_s"] <= run.end_s and x["rows"]), key=lambda x: x["end_s"])
    times = [float(x["end_s"]) - run.start_s for x in batches]
    delays = [float(x["mean_delay_s"]) for x in batches]
    rows = np.cumsum([x["rows"] for x in batches]).astype(float).tolist()
    return {"rows at the outputs": (times, rows), "mean delay of a batch, s": (times, delays)}


def plot(result: Result, path: Path) -> None:
    """Draw rows and delays at the outputs over time."""
    lines(by_panel(result.lines), path, title="Figure 1's network under a bursty trace")
