"""What benchmarks in the simulator share: runs over seeds, and averages over runs and over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from benchmarks.support.results import Row
from penstock.simulation.outcome import Outcome

__all__ = ["average_row", "mean_between", "run_seeds"]


def run_seeds(run: Callable[[int], Outcome], seeds: int) -> list[Outcome]:
    """Run once per seed. SEaMLeSS (Pham et al.) reports the average of five runs."""
    return [run(seed) for seed in range(seeds)]


def average_row(name: str, outcomes: Sequence[Outcome], **more: float | str | None) -> Row:
    """Return a row of a result: means over the runs, and the worst violation of all of them."""
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
    """Return the mean of a series between two times; nan if the series has no value there."""
    times, values = run.series["t_s"], run.series[what]
    inside = values[(times >= start_s) & (times < end_s) & np.isfinite(values)]
    return float(inside.mean()) if inside.size else float("nan")


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
