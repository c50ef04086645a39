"""What an arm of the demo did, and its summary: delay, violation, rows, goodput. Needs no Spark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ArmRun", "Batch", "Demo", "Settings", "Summary", "summarise"]

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that ended before the time was up. Times are seconds since the trace began."""

    start_s: float
    end_s: float
    offered: int
    kept: int
    keep: float
    delay_s: float
    """Its end minus the mean arrival time of the rows that it kept."""
    line_s: float = -math.inf
    """Rows that arrived before this had a keep of their own, mostly none."""
    expired: int = 0
    """Rows shed of those."""


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One arm until its time was up."""

    label: str
    seconds: float
    batches: tuple[Batch, ...]
    keep: float = 1.0
    """The keep in force when the time was up."""
    errors: tuple[str, ...] = ()
    query: Mapping[str, Any] | None = field(default=None, repr=False)
    """What its journal says, for the page."""

    @property
    def offered(self) -> int:
        """Rows that reached the gate in batches that ended."""
        return sum(batch.offered for batch in self.batches)

    @property
    def kept(self) -> int:
        """Rows of these that the gate kept."""
        return sum(batch.kept for batch in self.batches)


@dataclass(frozen=True, slots=True)
class Summary:
    """The results of one arm. Rows arrived = kept + shed + queued."""

    label: str
    batches: int
    mean_delay_s: float
    p99_delay_s: float
    mean_violation_s: float
    max_violation_s: float
    arrived: int
    kept: int
    shed: int
    queued: int
    """Rows that had arrived but were in no finished batch when the time was up."""
    goodput_rows_per_s: float
    goodput_of_capacity: float


def summarise(run: ArmRun, arrivals_s: Times, target_s: float, capacity_rows_per_s: float, from_s: float = 0.0) -> Summary:
    """Return the summary of an arm.

    The delay of a row is the end of its batch minus its arrival, and at least its age if it is still queued. Batches take rows in
    the order of arrival, and the gate drops at random, so each row counts with the share of its batch that was kept, on its side
    of the line between old and new rows. A queued row counts with the keep in force at the end, so that all arms are treated
    alike.

    Parameters
    ----------
    run
        The arm.
    arrivals_s
        The arrival time of every row, in order.
    target_s
        The delay target.
    capacity_rows_per_s
        What the job can process.
    from_s
        Leave out what happened before this time.

    """
    arrived = int(np.searchsorted(arrivals_s, run.seconds, side="right"))
    ends_s, shares = np.full(arrived, run.seconds), np.full(arrived, run.keep)
    position = 0
    for batch in run.batches:
        rows = slice(position, min(position + batch.offered, arrived))
        ends_s[rows], shares[rows] = batch.end_s, _shares(batch, arrivals_s[rows])
        position = rows.stop
    included = arrivals_s[:arrived] >= from_s
    delays_s, weights = (ends_s - arrivals_s[:arrived])[included], shares[included]
    violations_s = np.maximum(delays_s - target_s, 0.0)
    early = int(np.searchsorted(arrivals_s, from_s, side="left"))
    kept = round(float(shares[early:position].sum())) if position > early else 0
    offered = max(0, position - early)
    goodput = sum(batch.kept for batch in run.batches if batch.end_s >= from_s) / (run.seconds - from_s)
    return Summary(
        label=run.label,
        batches=len(run.batches),
        mean_delay_s=_mean(delays_s, weights),
        p99_delay_s=_quantile(delays_s, weights, 0.99),
        mean_violation_s=_mean(violations_s, weights),
        max_violation_s=float(violations_s[weights > 0].max(initial=0.0)),
        arrived=arrived - early,
        kept=kept,
        shed=offered - kept,
        queued=arrived - early - offered,
        goodput_rows_per_s=goodput,
        goodput_of_capacity=goodput / capacity_rows_per_s,
    )


def _shares(batch: Batch, arrivals_s: Times) -> Times:
    """Return the share that was kept of the rows like each row."""
    is_old = arrivals_s < batch.line_s
    old = int(is_old.sum())
    kept_of_old = max(0, old - batch.expired)
    kept_of_new = max(0, batch.kept - kept_of_old)
    return np.where(is_old, kept_of_old / max(1, old), kept_of_new / max(1, batch.offered - old))


def _mean(values: Times, weights: Times) -> float:
    return float(np.average(values, weights=weights)) if weights.sum() > 0 else 0.0


def _quantile(values: Times, weights: Times, share: float) -> float:
    """Return the least value such that at least this share of the weight lies at or below it."""
    if not weights.sum() > 0:
        return 0.0
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    index = min(int(np.searchsorted(cumulative, share * cumulative[-1])), len(order) - 1)
    return float(values[order[index]])


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the demo."""

    seconds: float = 45.0
    target_s: float = 2.0
    overload: float = 2.5
    seed: int = 1
    bias: float = 0.6
    """The bias of the b-model: 0.5 is smooth; with 0.6 a second can hold two to three times the mean."""
    source: str = "replay"
    """Where rows come from: the replay source, or a topic of a Kafka broker that the demo starts (``"kafka"``)."""


@dataclass(frozen=True, slots=True, eq=False)
class Demo:
    """The results of the demo."""

    settings: Settings
    row_cost_s: float
    capacity_rows_per_s: float
    overhead_s: float
    arrivals_s: Times
    runs: Sequence[ArmRun]

    @property
    def summaries(self) -> list[Summary]:
        """The summary of each arm."""
        return [summarise(run, self.arrivals_s, self.settings.target_s, self.capacity_rows_per_s) for run in self.runs]

    @property
    def table(self) -> Sequence[tuple[str, Sequence[str]]]:
        """The table to show: the name of each line, and one value per arm."""
        summaries = self.summaries
        return [
            ("mean delay", [f"{s.mean_delay_s:.2f} s" for s in summaries]),
            ("p99 delay", [f"{s.p99_delay_s:.2f} s" for s in summaries]),
            ("mean violation of the target", [f"{s.mean_violation_s:.3f} s" for s in summaries]),
            ("worst violation", [f"{s.max_violation_s:.2f} s" for s in summaries]),
            ("rows arrived", [f"{s.arrived:,}" for s in summaries]),
            ("kept", [_format_share(s.kept, s.arrived) for s in summaries]),
            ("shed", [_format_share(s.shed, s.arrived) for s in summaries]),
            ("still queued at the end", [_format_share(s.queued, s.arrived) for s in summaries]),
            ("goodput", [f"{s.goodput_rows_per_s:,.0f} rows/s ({s.goodput_of_capacity:.0%} of capacity)" for s in summaries]),
        ]

    def to_dict(self) -> Mapping[str, Any]:
        """Return settings and results as plain JSON values."""
        return {
            "settings": asdict(self.settings),
            "row_cost_s": self.row_cost_s,
            "capacity_rows_per_s": self.capacity_rows_per_s,
            "overhead_s": self.overhead_s,
            "arms": [asdict(summary) for summary in self.summaries],
        }


def _format_share(rows: int, total: int) -> str:
    return f"{rows:,} ({rows / total:.1%})" if total else "0"
