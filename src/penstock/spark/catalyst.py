"""The parts of a gate that touch Spark's internals: a table that a running query reads, and counters that it fills.

Everything here exists in classic PySpark only. The rest of the package sees columns and plain numbers.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.drop.tables import KeepTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RowMeter", "SCALE", "TableCell", "TimeMeter", "new_tag", "seeded_hash", "tagged"]

# Unique in the driver, so that gates of several shedders in one query are told apart; far from small numbers that a user's own
# filter might hold.
_TAGS = itertools.count(1_000_000_001)


SCALE = 2.0**53
"""A row passes if the top 53 bits of its hash are below keep times this: a comparison without a multiplication."""


class TableCell:
    """A table of keep probabilities inside the plan of a running query that the driver can replace between micro-batches.

    The table is an ``UnsafeArrayData`` that the generated code holds by reference; ``publish`` points it at new bytes, one call
    whatever the size. Each micro-batch is optimised and its tasks are serialised anew, so it carries the table of the
    moment, with no restart and no new code. It is read by a call that Spark takes for nondeterministic: else the optimiser
    would write the value of the moment into the code. Such a call checks no bounds, so the index must be right by construction.
    """

    def __init__(self, spark: SparkSession, table: KeepTable) -> None:
        self._jvm = _jvm(spark)
        self._array = self._jvm.org.apache.spark.sql.catalyst.expressions.UnsafeArrayData()
        self._base = self._jvm.org.apache.spark.unsafe.Platform.BYTE_ARRAY_OFFSET
        self.publish(table)

    def publish(self, table: KeepTable) -> None:
        """Put a new table in force for every micro-batch that starts from now on."""
        packed = _pack(table)
        self._array.pointTo(packed, self._base, len(packed))

    def oldest(self) -> Column:
        """Return the oldest slot of the table in force."""
        return self._call("getLong", "long", F.lit(0))

    def threshold(self, entry: Column) -> Column:
        """Return an entry of the table in force: keep times ``SCALE``; null where ``entry`` is null."""
        return self._call("getDouble", "double", entry + F.lit(1))

    def _call(self, method: str, kind: str, index: Column) -> Column:
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        types = self._jvm.org.apache.spark.sql.types.DataType
        arguments = self._jvm.PythonUtils.toSeq([_expression(self._jvm, index)])
        argument_kinds = self._jvm.PythonUtils.toSeq([types.fromJson('"integer"')])
        literal = expressions.Literal.fromObject(self._array)
        propagate_null, nullable, deterministic = True, False, False
        call = expressions.objects.Invoke(
            literal, method, types.fromJson(f'"{kind}"'), arguments, argument_kinds, propagate_null, nullable, deterministic
        )
        return _column(self._jvm, call)


def _pack(table: KeepTable) -> bytearray:
    """Spark's layout of an array without nulls: the length, one null bit per element in whole words, then 8 bytes each."""
    thresholds = np.ascontiguousarray(table.keeps.ravel() * SCALE, dtype="<f8")
    length = 1 + len(thresholds)
    null_words = (length + 63) // 64
    return bytearray(struct.pack("<q", length) + bytes(8 * null_words) + struct.pack("<q", table.oldest) + thresholds.tobytes())


class RowMeter:
    """A count and a sum over rows that pass an expression, at about a nanosecond per row.

    ``Dataset.observe`` takes the rows out of the generated code and costs 15 to 60 ns per row. This is an accumulator that the
    generated code calls directly. Catalyst has no expression for a call without a result; the one that fills a Java bean
    calls any one-argument method of an object it is given, and that is what is used here.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = _jvm(spark)
        self._accumulator = spark._jsc.sc().longAccumulator()
        self._counted = self._summed = 0

    def counting(self, value: Column) -> Column:
        """Return a condition that is always true and adds ``value``, a long and never null, for each row that reaches it."""
        # Used for its effect: after an addition the accumulator is never in its zero state.
        return ~self._after_adding(value, "isZero", "boolean", deterministic=True)

    def ranking(self) -> Column:
        """Return the rank of each row among those of its task that reach this: 1, 2, 3, ...

        A task has a copy of the accumulator that begins at zero. Spark's own ``monotonically_increasing_id`` would do, but is
        refused in streaming queries. The same rows in the same partitions have the same ranks, so a replay repeats them.
        """
        return self._after_adding(F.lit(0).cast("bigint"), "count", "long", deterministic=False)

    def _after_adding(self, value: Column, method: str, kind: str, *, deterministic: bool) -> Column:
        objects = self._jvm.org.apache.spark.sql.catalyst.expressions.objects
        literal = self._jvm.org.apache.spark.sql.catalyst.expressions.Literal.fromObject(self._accumulator)
        arguments = self._jvm.PythonUtils.toScalaMap({"add": _expression(self._jvm, value)})
        added = objects.InitializeJavaBean(literal, arguments)
        nothing = self._jvm.PythonUtils.toSeq([])
        result = self._jvm.org.apache.spark.sql.types.DataType.fromJson(f'"{kind}"')
        propagate_null, nullable = False, False
        call = objects.Invoke(added, method, result, nothing, nothing, propagate_null, nullable, deterministic)
        return _column(self._jvm, call)

    def take(self) -> int:
        """Return the count since the last call."""
        now = int(self._accumulator.count())
        count, self._counted = now - self._counted, now
        return count

    def take_sum(self) -> int:
        """Return the sum since the last call."""
        now = int(self._accumulator.sum())
        total, self._summed = now - self._summed, now
        return total


class TimeMeter(RowMeter):
    """The greatest of some times, in microseconds: the accumulator that Spark itself keeps for watermarks."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = _jvm(spark)
        stateful = self._jvm.org.apache.spark.sql.execution.streaming.operators.stateful
        self._accumulator = stateful.EventTimeStatsAccum(stateful.EventTimeStats(-(2**63), 2**63 - 1, 0.0, 0))
        spark._jsc.sc().register(self._accumulator)

    def latest(self) -> int | None:
        """Return the greatest so far; ``None`` before the first."""
        statistics = self._accumulator.value()
        return int(statistics.max()) if int(statistics.count()) else None


def seeded_hash(spark: SparkSession, seed: int, columns: Sequence[Column]) -> Column:
    """Return Spark's ``xxhash64`` of the columns with a seed of ours instead of its fixed 42."""
    jvm = _jvm(spark)
    children = jvm.PythonUtils.toSeq([_expression(jvm, column) for column in columns])
    return _column(jvm, jvm.org.apache.spark.sql.catalyst.expressions.XxHash64(children, seed))


def new_tag() -> int:
    """Return a number by which something can be found in a plan."""
    return next(_TAGS)


def tagged(tag: int, condition: Column | None = None) -> Column:
    """Mark a condition with a number that can be found again in the plan, and hold it where it stands.

    ``spark_partition_id() > -tag`` is always true, but Spark takes it for nondeterministic. So the optimiser neither merges the
    filter with another nor moves it past one, and its row count stays the gate's own.
    """
    always = F.spark_partition_id() > F.lit(-tag)
    return always if condition is None else always == condition


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


def _column(jvm: Any, expression: Any) -> Column:
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def _expression(jvm: Any, column: Column) -> Any:
    return jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc)
