"""The rows of each gate in Spark's own metrics system, as named accumulators that only the driver adds to.

They appear wherever Spark's metrics go: ``/metrics/json`` of the UI, JMX, Graphite, and Spark's Prometheus endpoint. Nothing
happens per row: the driver adds what it has counted when a batch is journaled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.journal.records import BatchRecord, Record
from penstock.journal.state import JournalState
from penstock.metrics.tally import MOST_QUERIES, QueryTally, Sample, TallyBook

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["AccumulatorExporter"]

_SHOWN = ("offered", "kept", "shed")
_REGISTERED: dict[tuple[str, str], Any] = {}
"""By application and name: Spark registers a name once, also where several shedders use it."""


class AccumulatorExporter:
    """Registers ``penstock.<query>.<gate>.rows_offered`` and so on with the session that is active."""

    def __init__(self) -> None:
        self._book = TallyBook()

    def watch(self, query: str, state: JournalState) -> _AccumulatedQuery | None:
        """Return an observer of a query; ``None`` if there are too many, or no session."""
        from pyspark import SparkContext  # noqa: PLC0415 - what this layer is for, and costs nothing here

        context = SparkContext._active_spark_context
        tally = None if context is None else self._book.watch(query, state)
        return None if tally is None or context is None else _AccumulatedQuery(context, tally)


class _AccumulatedQuery:
    def __init__(self, context: SparkContext, tally: QueryTally) -> None:
        self._context, self._tally = context, tally
        self._added: dict[str, float] = {}
        self._accumulators: dict[str, Any] = {}  # at hand, since each call to the JVM takes a tenth of a millisecond

    def record(self, records: Sequence[Record], now_s: float) -> None:
        self._tally.record(records, now_s)
        if any(isinstance(record, BatchRecord) for record in records):
            self._add_new_rows()

    def miss(self, batches: Sequence[BatchRecord], now_s: float) -> None:
        self._tally.miss(batches, now_s)
        self._add_new_rows()

    def fail(self) -> None:
        self._tally.fail()

    def close(self) -> None:
        self._tally.close()

    def _add_new_rows(self) -> None:
        for sample in self._tally.samples():
            if sample.key not in _SHOWN:
                continue
            name, rows = _name(sample), self._tally.since_start(sample)
            new = int(rows - self._added.get(name, 0.0))
            if name not in self._accumulators:
                self._accumulators[name] = self._find_accumulator(name)
            if new:
                self._accumulators[name].add(new)
                self._added[name] = rows

    def _find_accumulator(self, name: str) -> Any:
        key = (str(self._context.applicationId), name)
        if key not in _REGISTERED:
            context = self._context._jsc.sc()
            accumulator = context.longAccumulator(name)
            jvm: Any = self._context._jvm
            named = jvm.PythonUtils.toScalaMap({name: accumulator})
            # The object itself: its class has a method of the same name, so there is no static one.
            source = getattr(jvm.org.apache.spark.metrics.source, "LongAccumulatorSource$")
            getattr(source, "MODULE$").register(context, named)
            while len(_REGISTERED) >= 100 * MOST_QUERIES:
                del _REGISTERED[next(iter(_REGISTERED))]
            _REGISTERED[key] = accumulator
        return _REGISTERED[key]


def _name(sample: Sample) -> str:
    query, gate, *reason = (re.sub(r"[^A-Za-z0-9_-]", "_", label) for label in sample.labels)
    return ".".join(("penstock", query, gate, "_".join(("rows", sample.key, *reason))))
