"""Load-aware shedding on Spark: calls are timed where they run, and the next batch sheds what costs most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import StructType

from penstock.control import Controller, controller_named
from penstock.drop.shares import WorkReading
from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.las.bucket_keeps import BucketKeeps
from penstock.las.knapsack import How
from penstock.las.work_controller import WorkController
from penstock.spark.catalyst import seeded_hash
from penstock.spark.columns import column_named
from penstock.spark.gates.specification import Buckets, GateSpecification
from penstock.spark.load_aware_worker import BUCKET_COLUMN, FunctionKind, TimedFunction, WorkParam
from penstock.spark.shedder import Shedder
from penstock.spark.worker_python import check_worker_python

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.journal import Report

__all__ = ["LoadAware", "load_aware"]

_SEED = 0x1A5


def load_aware(
    function: Callable[..., Any], *, key: str | Column, delay_target: str | float | timedelta, **options: Any
) -> LoadAware:
    """Wrap a function whose cost depends on the row, so that what costs most is shed first; see ``LoadAware``."""
    return LoadAware(function, key=key, delay_target=delay_target, **options)


class LoadAware:
    """Holds a job at its delay target by dropping the rows that cost most.

    Costs are learnt by hashed key, as in LAS (Rivetti et al.), and a knapsack over the buckets decides what to keep. Dear keys
    lose most; weights keep counts and sums unbiased. What was learnt is part of the journal and survives a restart, and a batch
    that is replayed drops the same rows again.

    Parameters
    ----------
    function
        By ``kind``:

        - ``row``: takes the values of ``columns`` of one row and returns one value of type ``returns``;
        - ``pandas``, ``arrow``: takes them as Series or Arrow arrays, and returns one;
        - ``map_in_arrow``: takes and returns an iterator of record batches of ``schema``, as for ``DataFrame.mapInArrow``;
        - ``native``: takes and returns a DataFrame, without any Python on its rows.

        Row functions are timed call by call. Others are timed for several rows together: a batch is divided into four by bucket,
        at random, and what a row of each bucket costs is learnt by regression, which takes longer to tell buckets apart.
    key
        A column or an expression. Keys are hashed into ``buckets``, and null has one of its own.
    delay_target
        As for ``Shedder``, like ``controller`` and ``journal``. The controller says how much of the *work* fits.
    output
        The name of the result column.
    how
        ``"threshold"`` keeps the cheapest buckets whole, ``"root"`` all in proportion to one over the root of their cost,
        ``"uniform"`` all alike.
    floor
        The least keep of each bucket, so that its cost stays known.

    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        key: str | Column,
        delay_target: str | float | timedelta,
        kind: FunctionKind = "row",
        columns: str | Sequence[str] | None = None,
        returns: str | None = None,
        output: str = "result",
        schema: str | StructType | None = None,
        buckets: int | None = None,
        how: How = "threshold",
        floor: float = 0.02,
        controller: str | Controller = "micro-batch",
        journal: str | Path | None = None,
    ) -> None:
        if not callable(function):
            raise PenstockError(f"load_aware() needs a function, got {function!r}")
        if kind not in get_args(FunctionKind):
            raise PenstockError(f"kind must be one of {', '.join(get_args(FunctionKind))}, got {kind!r}")
        if how not in get_args(How):
            raise PenstockError(f"how must be one of {', '.join(get_args(How))}, got {how!r}")
        self._columns = (columns,) if isinstance(columns, str) else tuple(columns or ())
        if kind in ("row", "pandas", "arrow") and not (self._columns and returns):
            raise PenstockError(f"kind {kind!r} needs columns=, what the function takes, and returns=, a type such as 'double'")
        if kind == "map_in_arrow" and schema is None:
            raise PenstockError("kind 'map_in_arrow' needs schema=, what the function returns")
        self._function, self._kind, self._key = function, kind, key
        self._returns, self._output, self._schema = returns, output, schema
        self._buckets = (32 if kind == "native" else 512) if buckets is None else buckets
        delay_target_s = parse_duration(delay_target, "delay_target")
        # One bucket more than hashes reach: null's.
        self.model = BucketKeeps(self._buckets + 1, how=how, floor=floor)
        inner = controller_named(controller, delay_target_s) if isinstance(controller, str) else controller
        self._controller = WorkController(inner, self.model, is_timed=kind != "native")
        self.shedder = Shedder(delay_target_s, controller=self._controller, journal=journal)

    def __call__(
        self,
        df: DataFrame,
        *,
        name: str = "load_aware",
        arrival: str | None = None,
        identity: str | Sequence[str] | None = None,
        weight_column: str | None = None,
    ) -> DataFrame:
        """Return the DataFrame with a gate behind it and the function behind the gate; options as for ``Shedder.gate``."""
        self._check_columns(df)
        key = column_named(self._key) if isinstance(self._key, str) else self._key
        hashed = F.pmod(seeded_hash(df.sparkSession, _SEED, [key]), F.lit(self._buckets)).cast("int")
        bucket = F.when(key.isNull(), F.lit(self._buckets)).otherwise(hashed)
        is_native = self._kind == "native"
        work = df.sparkSession.sparkContext.accumulator(None, WorkParam())
        specification = GateSpecification(
            name=name,
            arrival=arrival,
            identity=(identity,) if isinstance(identity, str) else tuple(df.columns if identity is None else identity),
            weight_column=weight_column,
            buckets=Buckets(BUCKET_COLUMN, self.model, is_counted=is_native, take_work=partial(_take_work, work)),
        )
        gated = self.shedder.add_gate(df.withColumn(BUCKET_COLUMN, bucket), specification)
        if is_native:
            result: DataFrame = self._function(gated.drop(BUCKET_COLUMN))
            return result
        self._controller.cores = df.sparkSession.sparkContext.defaultParallelism
        return self._map(gated, work)

    def _check_columns(self, df: DataFrame) -> None:
        missing = [column for column in self._columns if column not in df.columns]
        if missing:
            raise PenstockError(f"load_aware: there is no column {missing[0]!r}; the columns are {', '.join(df.columns)}")
        if isinstance(self._key, str) and self._key not in df.columns:
            raise PenstockError(f"load_aware: there is no key column {self._key!r}; the columns are {', '.join(df.columns)}")

    def _map(self, gated: DataFrame, work: Accumulator[WorkReading | None]) -> DataFrame:
        check_worker_python(gated.sparkSession, "load_aware")
        function = TimedFunction(
            self._function,
            self._kind,
            work,
            columns=self._columns,
            output=self._output,
            output_type=self._output_type(),
            buckets=self._buckets + 1,
            names=tuple(gated.columns),
        )
        # PySpark's mapInArrow reads dots and backticks in names as syntax, so the columns go to the workers under plain ones.
        plain = gated.toDF(*(f"c{number}" for number in range(len(gated.columns))))
        return plain.mapInArrow(function, self._output_schema(gated))

    def time_only(self, df: DataFrame) -> DataFrame:
        """Return the function timed as ever, without a gate: to compare with, or to look at costs before shedding by them."""
        work = df.sparkSession.sparkContext.accumulator(None, WorkParam())
        return self._map(df.withColumn(BUCKET_COLUMN, F.lit(0).cast("int")), work)

    def _output_schema(self, gated: DataFrame) -> str | StructType:
        if self._kind == "map_in_arrow":
            assert self._schema is not None  # noqa: S101 - checked above
            return self._schema
        if self._output in gated.columns:
            raise PenstockError(f"load_aware: there is a column {self._output!r} already; choose another output=")
        fields = [field for field in gated.schema.fields if field.name != BUCKET_COLUMN]
        return StructType(fields).add(self._output, self._spark_type())

    def _spark_type(self) -> Any:
        from pyspark.sql.types import _parse_datatype_string  # noqa: PLC0415 - PySpark's own way to read a type

        try:
            return _parse_datatype_string(str(self._returns))
        except Exception as error:
            raise PenstockError(f"returns= must be a type such as 'double', got {self._returns!r}") from error

    def _output_type(self) -> pa.DataType | None:
        if self._kind in ("map_in_arrow", "native"):
            return None
        from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - only here

        return to_arrow_type(self._spark_type())

    def foreach_batch(self, df: DataFrame, function: Callable[[DataFrame, int], Any], **options: Any) -> StreamingQuery:
        """Start a query, as ``Shedder.foreach_batch`` does."""
        return self.shedder.foreach_batch(df, function, **options)

    def write(self, df: DataFrame, format: str, path: str | Path | None = None, **options: Any) -> StreamingQuery:  # noqa: A002
        """Start a query, as ``Shedder.write`` does."""
        return self.shedder.write(df, format, path, **options)

    def report(self) -> Report:
        """Return what was offered, kept and shed."""
        return self.shedder.report()

    def stop(self) -> None:
        """Stop all queries."""
        self.shedder.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _take_work(work: Accumulator[WorkReading | None]) -> WorkReading | None:
    """Read what the tasks behind one gate have measured since the last call."""
    measured, work.value = work.value, None
    return measured
