"""The parts of a gate that use Spark's internals: a table that a running query reads, and counters that it fills.

All of it needs classic PySpark; what differs between its versions is in ``versions/``. The rest of the package works with columns
and plain numbers.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.drop.tables import SCALE, KeepTable, raise_rank, round_up
from penstock.spark.columns import bigint
from penstock.spark.versions import internals_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "ENTRIES",
    "MeterPanel",
    "RowMeter",
    "Switch",
    "TableCell",
    "TimeMeter",
    "compute",
    "fixed_index",
    "has_switch",
    "new_tag",
    "one_call_site",
    "seeded_hash",
    "tag_condition",
    "to_integer",
    "unpack",
]

# Unique in the driver, so that gates of several shedders in one query can be distinguished; far from the small numbers that a
# filter of the user might contain.
_TAGS = itertools.count(1_000_000_001)
_FREE_BITS = 3
"""The highest bits of a partition's number, which are never set: a stage has fewer than 2^29 partitions."""
_SWITCH = re.compile(r"\b(?:true|false)\.get\b")
_VALUE = re.compile(r"value: (-?\d+)\)")
"""The sum in what an accumulator says of itself."""


class TableCell:
    """A table of keep probabilities inside the plan of a running query, which the driver can replace between micro-batches.

    The table is an ``UnsafeArrayData`` that the generated code holds by reference. ``publish`` points it at new bytes: one call,
    whatever the size. Spark optimises each micro-batch and serialises its tasks again, so each carries the table in force,
    without a restart and without new code. The index of an entry must be one that the optimiser can't evaluate, as
    ``fixed_index`` is; otherwise it would replace the entry by its current value. It must be right by construction.

    Parameters
    ----------
    spark
        The session.
    table
        The first table in force.
    keeps
        How many columns of the table are keep probabilities; one after them is a bound. With none at all, entries are doubles.
    is_shared
        Whether several slots may share a row, so that ``start`` must be asked where a slot's entries begin.
    """

    def __init__(self, spark: SparkSession, table: KeepTable, keeps: int = 1, *, is_shared: bool = False) -> None:
        self._spark, self._jvm = spark, _jvm(spark)
        self._array = self._jvm.org.apache.spark.sql.catalyst.expressions.UnsafeArrayData()
        self._base = self._jvm.org.apache.spark.unsafe.Platform.BYTE_ARRAY_OFFSET
        self._keeps, self._is_shared = keeps, is_shared
        self.publish(table)

    def publish(self, table: KeepTable) -> None:
        """Put a table in force for every micro-batch that starts from now on."""
        packed = _pack(table, self._keeps, is_shared=self._is_shared)
        self._array.pointTo(packed, self._base, len(packed))

    def oldest(self) -> Column:
        """Return the oldest slot of the table in force or, set by batch, the moment before which rows are old."""
        return self._entry(fixed_index(0))

    def latest(self) -> Column:
        """Return the moment after which rows come from the future."""
        return self._entry(fixed_index(1))

    def last(self) -> Column:
        """Return the index of the last slot of the table in force."""
        return self._entry(fixed_index(3))

    def start(self, age: Column) -> Column:
        """Return at which element the entries of a slot begin, where several slots may share them: an integer."""
        index = compute(self._spark, "Add", to_integer(self._spark, self._entry(fixed_index(2))), age)
        return to_integer(self._spark, self._entry(index))

    def threshold(self, element: Column) -> Column:
        """Return a keep of the table in force: a bigint, keep times ``SCALE``. The first entry is element ``ENTRIES``."""
        return self._entry(element)

    def bound(self, element: Column) -> Column:
        """Return an entry of the table in force that is a bound: a bigint."""
        return self._entry(element)

    def power(self, element: Column) -> Column:
        """Return the entry behind a bound, which is its power: a double."""
        return self._entry(element, "double")

    def whole(self) -> Column:
        """Return a table without keeps as an array of doubles, to be read with ``unpack``."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        kind = self._jvm.org.apache.spark.sql.types.DataType.fromJson(
            '{"type": "array", "elementType": "double", "containsNull": false}'
        )
        nothing = self._jvm.PythonUtils.toSeq([])
        propagate_null, nullable, is_constant = False, False, False
        literal = expressions.Literal.fromObject(self._array)
        call = expressions.objects.Invoke(literal, "copy", kind, nothing, nothing, propagate_null, nullable, is_constant)
        return _column(self._spark, call)

    def _entry(self, index: Column, kind: Literal["long", "double"] = "long") -> Column:
        """Return an element, without a call to a method: that would send the class of its argument along with every task."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        types = self._jvm.org.apache.spark.sql.types
        literal = expressions.Literal(self._array, types.ArrayType(types.DataType.fromJson(f'"{kind}"'), False))
        raises = False
        item = expressions.GetArrayItem(literal, _expression(self._spark, index), raises)
        return _column(self._spark, expressions.KnownNotNull(item))


def fixed_index(number: int) -> Column:
    """Return the index of an entry that is the same for all rows: a number that the optimiser can't evaluate.

    It is computed from what the generated code has at hand, and not read from an object for every row. Zero and numbers whose
    bits are all ones take the fewest expressions.
    """
    partition = F.spark_partition_id()  # from zero on
    zero = F.shiftright(partition, 31)
    if number == 0:
        return zero
    bits = number.bit_length()
    if number == (1 << bits) - 1 and bits <= _FREE_BITS:
        return F.shiftrightunsigned(F.bitwise_not(partition), 32 - bits)
    return zero.bitwiseOR(F.lit(number))


def _ask(spark: SparkSession, target: Any, method: str, kind: str, *, deterministic: bool) -> Any:
    """Return a call of a method that takes nothing and answers with a value of Spark's."""
    jvm = _jvm(spark)
    nothing = jvm.PythonUtils.toSeq([])
    result = jvm.org.apache.spark.sql.types.DataType.fromJson(f'"{kind}"')
    propagate_null, nullable = False, False
    invoke = jvm.org.apache.spark.sql.catalyst.expressions.objects.Invoke
    return invoke(target, method, result, nothing, nothing, propagate_null, nullable, deterministic)


class Switch:
    """A condition that is set before a query starts and stays as it is: the optimiser removes what it rules out.

    In the plan it is a call that Spark may evaluate while it optimises, which it does anew for every micro-batch.
    """

    def __init__(self, spark: SparkSession, *, is_on: bool = False) -> None:
        self._spark = spark
        self._flag = _jvm(spark).java.util.concurrent.atomic.AtomicBoolean(is_on)
        self.is_on = is_on

    def turn(self, *, is_on: bool) -> None:
        """Set it."""
        self._flag.set(is_on)
        self.is_on = is_on

    def column(self) -> Column:
        """Return the condition."""
        literal = _jvm(self._spark).org.apache.spark.sql.catalyst.expressions.Literal.fromObject(self._flag)
        return _column(self._spark, _ask(self._spark, literal, "get", "boolean", deterministic=True))


def has_switch(text: str) -> bool:
    """Whether Spark's description of a plan or a part of it has a switch in it.

    >>> has_switch("Filter (NOT invoke(false.get()) OR (a#1 > 3))")
    True
    """
    return _SWITCH.search(text) is not None


ENTRIES = 4
"""Elements of a table before its entries; the third is the first of those that say where each slot's begin, if any do."""


def _pack(table: KeepTable, keeps: int, *, is_shared: bool) -> bytearray:
    """Lay a table out as a Spark array without nulls: the length, one null bit per element in whole words, then 8 bytes each."""
    entries = np.array(table.keeps, dtype="<f8")
    if keeps:  # whole numbers
        bounds = np.floor(entries[:, keeps:])
        entries.view("<i8")[:, :keeps] = round_up(entries[:, :keeps]) * SCALE
        entries.view("<i8")[:, keeps:] = bounds
        entries = np.hstack([entries, raise_rank(bounds)])
    rows = table.row_by_slot()
    starts = np.array(ENTRIES + rows * entries.shape[1] if is_shared else [], dtype="<i8")
    length = ENTRIES + entries.size + starts.size
    null_words = (length + 63) // 64
    header = struct.pack("<qqqq", table.oldest, table.latest, ENTRIES + entries.size if is_shared else 0, len(rows) - 1)
    return bytearray(struct.pack("<q", length) + bytes(8 * null_words) + header + entries.tobytes() + starts.tobytes())


def unpack(whole: np.ndarray) -> np.ndarray:
    """Return the entries of a table from what ``TableCell.whole`` gave."""
    return whole[ENTRIES:]


class RowMeter:
    """Counts the rows that reach an expression and sums up a value, at about a nanosecond per row.

    ``MeterPanel`` reads the sums.

    ``Dataset.observe`` takes the rows out of the generated code and costs 15 to 60 ns per row. This is an accumulator that the
    generated code calls directly. Catalyst has no expression for a call without a result. The expression that fills a Java bean
    can call any method with one argument, and that is what is used here.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._jvm = spark, _jvm(spark)
        self.accumulator = spark._jsc.sc().longAccumulator()
        self._counted = 0

    def add(self, value: Column) -> Column:
        """Return a condition that is always true and adds ``value`` for each row that reaches it: a bigint, never null."""
        # Used for its effect: after an addition the accumulator is never in its zero state.
        return ~self._add_and_call(value, "isZero", "boolean", deterministic=True)

    def rank(self) -> Column:
        """Return the rank of each row among the rows of its task that reach this expression: 1, 2, 3, ...

        Each task has a copy of the accumulator that starts at zero. Spark's ``monotonically_increasing_id`` would do, but
        streaming queries refuse it. The same rows in the same partitions have the same ranks, so a replay repeats them.
        """
        return self._add_and_call(bigint(0), "count", "long", deterministic=False)

    def _add_and_call(self, value: Column, method: str, kind: str, *, deterministic: bool) -> Column:
        """Add a value to the accumulator, then return what a method of it answers."""
        objects = self._jvm.org.apache.spark.sql.catalyst.expressions.objects
        literal = self._jvm.org.apache.spark.sql.catalyst.expressions.Literal.fromObject(self.accumulator)
        arguments = self._jvm.PythonUtils.toScalaMap({"add": _expression(self._spark, value)})
        accumulator = objects.InitializeJavaBean(literal, arguments)
        return _column(self._spark, _ask(self._spark, accumulator, method, kind, deterministic=deterministic))

    def take(self) -> int:
        """Return the count since the last call."""
        now = int(self.accumulator.count())
        count, self._counted = now - self._counted, now
        return count


class MeterPanel:
    """Reads the sums of several meters with one call to the JVM, however many there are."""

    def __init__(self, spark: SparkSession, meters: Sequence[RowMeter]) -> None:
        self._meters = meters
        self._accumulators = _jvm(spark).java.util.ArrayList()
        for meter in meters:
            self._accumulators.add(meter.accumulator)
        self._last = [0] * len(meters)

    def take(self) -> list[int]:
        """Return the sum of each meter since the last call."""
        now = [int(value) for value in _VALUE.findall(str(self._accumulators.toString()))]
        if len(now) != len(self._meters):  # a version of Spark whose accumulators say something else
            now = [int(meter.accumulator.sum()) for meter in self._meters]
        sums = [new - old for new, old in zip(now, self._last, strict=True)]
        self._last = now
        return sums


class TimeMeter(RowMeter):
    """Notes the latest of the times that reach it, in microseconds, with the accumulator that Spark uses for watermarks."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._jvm = spark, _jvm(spark)
        self.accumulator = internals_of(spark).time_accumulator(self._jvm)
        spark._jsc.sc().register(self.accumulator)

    def latest(self) -> int | None:
        """Return the latest time so far; ``None`` before the first."""
        statistics = self.accumulator.value()
        return int(statistics.max()) if int(statistics.count()) else None


def seeded_hash(spark: SparkSession, seed: int, columns: Sequence[Column]) -> Column:
    """Return Spark's ``xxhash64`` of the columns with the given seed instead of its fixed 42."""
    jvm = _jvm(spark)
    children = jvm.PythonUtils.toSeq([_expression(spark, column) for column in columns])
    return _column(spark, jvm.org.apache.spark.sql.catalyst.expressions.XxHash64(children, seed))


def compute(
    spark: SparkSession, operation: Literal["Add", "Subtract", "Multiply", "Divide"], left: Column, right: Column
) -> Column:
    """Return an operation on numbers of one type that can't fail, without the check that Spark's ANSI mode puts there.

    The checks and what they would say of a failure are a tenth of a gate's time per row.
    """
    kind = getattr(_jvm(spark).org.apache.spark.sql.catalyst.expressions, operation)
    operands = [_expression(spark, column) for column in (left, right)]
    return _column(spark, kind(*operands, internals_of(spark).unchecked(_jvm(spark))))


def to_integer(spark: SparkSession, column: Column) -> Column:
    """Return a number of 64 bits that fits into 32 as such, without a check."""
    jvm = _jvm(spark)
    expressions, kind = (
        jvm.org.apache.spark.sql.catalyst.expressions,
        jvm.org.apache.spark.sql.types.DataType.fromJson('"integer"'),
    )
    no_zone, unchecked = jvm.scala.Option.empty(), expressions.EvalMode.LEGACY()
    return _column(spark, expressions.Cast(_expression(spark, column), kind, no_zone, unchecked))


@contextmanager
def one_call_site(spark: SparkSession) -> Iterator[None]:
    """Give all expressions that are made meanwhile, in this thread, one call site.

    Else Spark keeps a stack trace with each of them, and sends them all with every stage.
    """
    site = internals_of(spark).call_site(F.lit(0))
    if site is None:
        yield
        return
    current = _jvm(spark).org.apache.spark.sql.catalyst.trees.CurrentOrigin
    before = current.get()
    current.set(site)
    try:
        yield
    finally:
        current.set(before)


def new_tag() -> int:
    """Return a unique number that marks a condition in a plan."""
    return next(_TAGS)


def tag_condition(tag: int, condition: Column | None = None) -> Column:
    """Return a condition that carries a number by which it can be recognised in the plan; without a condition, always true.

    ``spark_partition_id() > -tag`` is always true, but nondeterministic to Spark. So the optimiser neither merges the filter with
    another one nor moves it past one, and the filter's row count is that of the gate alone.
    """
    always = F.spark_partition_id() > F.lit(-tag)
    return always if condition is None else always == condition


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


def _column(spark: SparkSession, expression: Any) -> Column:
    return Column(internals_of(spark).column(_jvm(spark), expression))


def _expression(spark: SparkSession, column: Column) -> Any:
    return internals_of(spark).expression(_jvm(spark), column)
