"""The filter of a gate that decides row by row, as LAS does: the order of rows matters, so Python marks what is kept.

The state of the shedders is in the plan, as every gate's table is, and reaches the worker with the first row of a partition. Only
the key's hash, the arrival and, for Full Knowledge, the cost travel to the worker, and a number per row comes back. A native
filter on that number drops the rows, so they are counted as at every gate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.decision.clock_gate import ClockGate
from penstock.las.countmin import CostSketch
from penstock.las.micro_batch_las import ClockReading
from penstock.las.shedder_state import ShedderState
from penstock.las.task_shedder import TaskShedder
from penstock.spark.catalyst import RowMeter, TableCell, seeded_hash, tag_condition, unpack
from penstock.spark.columns import arrival_micros, bigint, column_named
from penstock.spark.gates.class_index import class_index_of
from penstock.spark.gates.meters import GateMeters, is_negative
from penstock.spark.versions import internals_of
from penstock.spark.worker_delay import PADDING

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

    from penstock.spark.gates.specification import Clocked, GateSpecification

__all__ = ["CLOCK_COLUMN", "ClockFilter", "HASH_COLUMN", "KEY_SEED"]

HASH_COLUMN = "__penstock_hash"
"""The key's hash."""
CLOCK_COLUMN = "__penstock_clock"
"""When the operator should begin with a row, in seconds since the epoch; null if the row is dropped."""
KEY_SEED = 0x1A5
_STATE_COLUMN = "__penstock_state"

Marker = Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]]


class ClockFilter:
    """Builds the filter."""

    def __init__(self, spark: SparkSession, specification: GateSpecification, clocked: Clocked, base_s: float) -> None:
        assert specification.arrival is not None  # noqa: S101 - the specification checked it
        self._spark, self._clocked, self._arrival = spark, clocked, specification.arrival
        self.state = ClockGate(specification.name, clocked.las)
        self.state.arrival_column = self._arrival
        self._cell = TableCell(spark, self.state.everything(), keeps=0)
        self.cells = (self._cell,)
        self.meters = GateMeters(spark, self._arrival, base_s, class_index_of(specification), 1)

    def event_time(self) -> int | None:
        """Rows have no event time that matters here."""
        return None

    def apply(self, df: DataFrame, offered_tag: int, kept_tag: int, weight_column: str | None) -> DataFrame:  # noqa: ARG002 - none
        """Return the DataFrame behind the gate, with the columns that the operator needs to answer."""
        micros = F.unix_micros(column_named(self._arrival))
        cost = F.lit(None).cast("double") if self._clocked.cost is None else self._clocked.cost.cast("double")
        is_first = RowMeter(self._spark).rank() == bigint(1)
        offered = df.where(tag_condition(offered_tag))
        offered = offered.withColumn(HASH_COLUMN, seeded_hash(self._spark, KEY_SEED, [self._clocked.key]))
        offered = offered.withColumn(_STATE_COLUMN, F.when(is_first, self._cell.whole()))
        marker = _make_marker(self._clocked.las.new_sketch(), self._clocked.readings)
        mark = internals_of(self._spark).arrow_udf(marker, "double").asNondeterministic()
        columns = (F.col(HASH_COLUMN), micros, cost, F.col(_STATE_COLUMN))
        marked = offered.withColumn(CLOCK_COLUMN, mark(*columns)).drop(_STATE_COLUMN)
        may_lack = df.schema[self._arrival].nullable
        arrival = arrival_micros(self._arrival, may_lack=may_lack)
        lacks = is_negative(arrival) if may_lack else None
        counted = self.meters.count_kept(arrival, None, arrival <= self._cell.latest(), lacks)
        return marked.where(tag_condition(kept_tag, F.col(CLOCK_COLUMN).isNotNull() & counted))


def _make_marker(sketch: CostSketch, readings: Accumulator[ClockReading | None]) -> Marker:
    """Return what runs on the workers."""

    def mark(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        partition = TaskContext.get().partitionId()  # type: ignore[union-attr] # there is one in a task
        shedder, begin_us, late_s = None, 0, 0.0
        for hashes, micros, costs, states in batches:
            if shedder is None and len(hashes):
                entries = unpack(states[0].values.to_numpy(zero_copy_only=False)).tolist()
                state = ShedderState.from_entries(entries, sketch)
                shedder, begin_us = TaskShedder(state, partition), state.begin_us
                late_s = time.time() - begin_us / 1e6 - state.instance(partition).offset_s
            if shedder is None:
                yield pa.array([], pa.float64())
                continue
            arrivals_s = (micros.to_numpy(zero_copy_only=False) - begin_us) / 1e6
            begins_s = shedder.decide(
                hashes.to_numpy(zero_copy_only=False), arrivals_s, costs.to_numpy(zero_copy_only=False).astype(np.float64)
            )
            yield pa.array(begins_s + begin_us / 1e6, pa.float64(), from_pandas=True)
        if shedder is not None:
            measured = ClockReading(instances={partition: shedder.instance}, looks_s={partition: late_s})
            measured.bad_costs[partition] = shedder.bad_costs
            readings.add(measured)

    mark.padding = PADDING  # type: ignore[attr-defined] # it travels along
    return mark
