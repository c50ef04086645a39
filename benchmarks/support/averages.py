"""What experiments in the simulator share: averages over seeds and over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from benchmarks.support.results import Row
from penstock.simulation.outcome import Outcome

__all__ = ["averaged", "mean_between", "over_seeds"]


def over_seeds(run: Callable[[int], Outcome], seeds: int) -> list[Outcome]:
    """Run with each seed in turn; paper 002 reports the average of five runs."""
    return [run(seed) for seed in range(seeds)]


def averaged(name: str, outcomes: Sequence[Outcome], **more: float | str | None) -> Row:
    """One row of a result: the mean over the runs, and the worst violation of all of them."""
    return {
        "arm": name,
        **more,
        "mean delay s": _mean(run.mean_delay_s for run in outcomes),
        "p99 s": _mean(run.p99_delay_s for run in outcomes),
        "mean violation s": _mean(run.mean_violation_s for run in outcomes),
        "max violation s": max(run.max_violation_s for run in outcomes),
        "loss %": 100.0 * _mean(run.loss for run in outcomes),
    }


def mean_between(run: Outcome, start_s: float, end_s: float, what: str = "delay_s") -> float:
    """Mean of a series over a stretch of time; nan if nothing came out in it."""
    times, values = run.series["t_s"], run.series[what]
    chosen = values[(times >= start_s) & (times < end_s) & np.isfinite(values)]
    return float(chosen.mean()) if chosen.size else float("nan")


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
