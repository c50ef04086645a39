"""What is exported: names, units and labels, the same for Prometheus and OpenTelemetry.

The names are OpenTelemetry's. Prometheus' follow from them by the usual translation: dots become underscores, units are spelt
out, a counter ends in ``_total``, a share in ``_ratio``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BOUNDS_S", "COUNTERS", "GAUGES", "HISTOGRAMS", "Instrument"]

BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0)
"""The limits of the buckets of both histograms."""
_BY_GATE = ("query", "gate")
_BY_QUERY = ("query",)
_UNITS = {"s": "seconds", "1": "ratio"}


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric.

    >>> Instrument("penstock.rows.shed", "counter", "{row}", "Rows shed", ("query", "gate", "reason")).prometheus_name
    'penstock_rows_shed'
    >>> Instrument("penstock.delay.target", "gauge", "s", "The delay to hold").prometheus_name
    'penstock_delay_target_seconds'
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    """As OpenTelemetry writes it: in braces where it only says what is counted."""
    help: str
    labels: tuple[str, ...] = _BY_QUERY

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, without the ``_total`` that its library adds to counters."""
        unit = _UNITS.get(self.unit)
        return self.name.replace(".", "_") + (f"_{unit}" if unit is not None else "")


COUNTERS = {
    "offered": Instrument("penstock.rows.offered", "counter", "{row}", "Rows that reached a gate", _BY_GATE),
    "kept": Instrument("penstock.rows.kept", "counter", "{row}", "Rows that a gate kept", _BY_GATE),
    "shed": Instrument(
        "penstock.rows.shed",
        "counter",
        "{row}",
        "Rows that a gate shed: because of an overload, or because they were too old to be in time",
        (*_BY_GATE, "reason"),
    ),
    "batches": Instrument("penstock.batches", "counter", "{batch}", "Batches in the ledger"),
    "errors": Instrument(
        "penstock.decision.errors", "counter", "{error}", "Failures to decide, to count or to journal; the job went on"
    ),
    "journal_errors": Instrument("penstock.journal.errors", "counter", "{error}", "Failures to write the journal"),
}
GAUGES = {
    "target": Instrument("penstock.delay.target", "gauge", "s", "The delay to hold"),
    "reachable": Instrument(
        "penstock.delay.reachable", "gauge", "s", "The delay that is held instead; only while the target is out of reach"
    ),
    "keep": Instrument("penstock.keep", "gauge", "1", "The share of the rows to keep, as last decided"),
    "backlog": Instrument("penstock.backlog.rows", "gauge", "{row}", "Rows that waited at the sources, last known"),
    "active": Instrument("penstock.query.active", "gauge", "{query}", "1 while the query runs, 0 when it has ended"),
    "failing": Instrument(
        "penstock.journal.failing",
        "gauge",
        "{journal}",
        "1 if the last write to the journal failed, or Spark has committed a batch that the journal lacks",
    ),
    "last_write": Instrument("penstock.journal.last_write.timestamp", "gauge", "s", "When the journal was last written"),
    "batch_start": Instrument(
        "penstock.batch.start.timestamp", "gauge", "s", "When the batch that is running began; only while one does, by batch"
    ),
}
HISTOGRAMS = {
    "delay": Instrument("penstock.delay", "histogram", "s", "Mean delay of the rows kept in a batch; one value per batch"),
    "duration": Instrument("penstock.batch", "histogram", "s", "Time that a batch took"),
}
