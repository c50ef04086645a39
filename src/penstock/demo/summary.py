"""What an arm of the demo did, and what that comes to: delay, violation, rows, goodput. No Spark here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ArmRun", "Batch", "Demo", "Settings", "Summary", "summarise"]

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that ended in time; times are seconds since the trace began."""

    start_s: float
    end_s: float
    offered: int
    kept: int
    keep: float
    delay_s: float
    """Its end minus the mean arrival of the rows it kept."""


@dataclass(frozen=True, slots=True)
class ArmRun:
    """What one arm did until its time was up."""

    label: str
    seconds: float
    batches: tuple[Batch, ...]
    keep: float = 1.0
    """In force when the time was up."""
    errors: tuple[str, ...] = ()

    @property
    def offered(self) -> int:
        """Rows that reached the gate in a batch that ended."""
        return sum(batch.offered for batch in self.batches)

    @property
    def kept(self) -> int:
        """Rows of those that were processed."""
        return sum(batch.kept for batch in self.batches)


@dataclass(frozen=True, slots=True)
class Summary:
    """One line of the demo's table. Rows arrived = kept + shed + queued."""

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
    """Rows that had arrived and were not in a finished batch when the time was up."""
    goodput_rows_per_s: float
    goodput_of_capacity: float


def summarise(run: ArmRun, arrivals_s: Times, target_s: float, capacity_rows_per_s: float, from_s: float = 0.0) -> Summary:
    """Take the delay of every row: the end of its batch minus its arrival; of those still queued, their age: it is at least that.

    A batch has the next rows in the order of arrival, and the gate drops at random, so each of them counts with the share of its
    batch that was kept; a queued row with the share that the gate would let through now, so that all arms are treated alike. Rows
    that arrived before ``from_s`` don't count, nor does that time.
    """
    arrived = int(np.searchsorted(arrivals_s, run.seconds, side="right"))
    ends_s, shares = np.full(arrived, run.seconds), np.full(arrived, run.keep)
    at = 0
    for batch in run.batches:
        rows = slice(at, min(at + batch.offered, arrived))
        ends_s[rows], shares[rows] = batch.end_s, batch.kept / max(1, batch.offered)
        at = rows.stop
    counted = arrivals_s[:arrived] >= from_s
    delays_s, weights = (ends_s - arrivals_s[:arrived])[counted], shares[counted]
    violations_s = np.maximum(delays_s - target_s, 0.0)
    early = int(np.searchsorted(arrivals_s, from_s, side="left"))
    kept = round(float(shares[early:at].sum())) if at > early else 0
    offered = max(0, at - early)
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


def _mean(values: Times, weights: Times) -> float:
    return float(np.average(values, weights=weights)) if weights.sum() > 0 else 0.0


def _quantile(values: Times, weights: Times, share: float) -> float:
    """The least value that at least this share of the weight does not exceed."""
    if not weights.sum() > 0:
        return 0.0
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weights[order])
    place = min(int(np.searchsorted(cumulated, share * cumulated[-1])), len(order) - 1)
    return float(values[order[place]])


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose."""

    seconds: float = 45.0
    target_s: float = 2.0
    overload: float = 2.5
    seed: int = 1
    bias: float = 0.6
    """Of the b-model: 0.5 is smooth, 0.6 has bursts of two to three times the mean over a second."""


@dataclass(frozen=True, slots=True, eq=False)
class Demo:
    """All that a run of the demo found."""

    settings: Settings
    row_cost_s: float
    capacity_rows_per_s: float
    overhead_s: float
    arrivals_s: Times
    runs: Sequence[ArmRun]

    @property
    def summaries(self) -> list[Summary]:
        """A line an arm."""
        return [summarise(run, self.arrivals_s, self.settings.target_s, self.capacity_rows_per_s) for run in self.runs]

    @property
    def table(self) -> Sequence[tuple[str, Sequence[str]]]:
        """The table as a person reads it: a name and a value an arm."""
        found = self.summaries
        return [
            ("mean delay", [f"{s.mean_delay_s:.2f} s" for s in found]),
            ("p99 delay", [f"{s.p99_delay_s:.2f} s" for s in found]),
            ("mean violation of the target", [f"{s.mean_violation_s:.3f} s" for s in found]),
            ("worst violation", [f"{s.max_violation_s:.2f} s" for s in found]),
            ("rows arrived", [f"{s.arrived:,}" for s in found]),
            ("kept", [_share(s.kept, s.arrived) for s in found]),
            ("shed", [_share(s.shed, s.arrived) for s in found]),
            ("still queued at the end", [_share(s.queued, s.arrived) for s in found]),
            ("goodput", [f"{s.goodput_rows_per_s:,.0f} rows/s ({s.goodput_of_capacity:.0%} of capacity)" for s in found]),
        ]

    def to_dict(self) -> Mapping[str, Any]:
        """Return the table as plain JSON values."""
        return {
            "settings": asdict(self.settings),
            "row_cost_s": self.row_cost_s,
            "capacity_rows_per_s": self.capacity_rows_per_s,
            "overhead_s": self.overhead_s,
            "arms": [asdict(summary) for summary in self.summaries],
        }


def _share(rows: int, of: int) -> str:
    return f"{rows:,} ({rows / of:.1%})" if of else "0"
