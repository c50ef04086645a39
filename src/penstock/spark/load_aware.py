"""Load-aware shedding on Spark: calls are timed where they run, and the next batch sheds what costs most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from penstock.control import Controller
from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.las.bucket_keeps import BucketKeeps
from penstock.las.knapsack import How
from penstock.las.shedder_state import Bound
from penstock.spark.columns import column_named
from penstock.spark.connect.detection import refuse_connect
from penstock.spark.gates.specification import GateSpecification
from penstock.spark.load_aware_policies import ClockPolicy, KnapsackPolicy, LoadPolicy, PolicyName
from penstock.spark.load_aware_worker import FunctionKind, Recorder, TimedFunction
from penstock.spark.shedder import Shedder
from penstock.spark.worker_python import check_worker_python

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.journal import Report

__all__ = ["LoadAware", "load_aware"]


def load_aware(
    function: Callable[..., Any], *, key: str | Column, delay_target: str | float | timedelta, **options: Any
) -> LoadAware:
    """Wrap a function whose cost depends on the row, so that what costs most is shed first; see ``LoadAware``."""
    return LoadAware(function, key=key, delay_target=delay_target, **options)


class LoadAware:
    """Holds a job at its delay target by dropping rows in front of a function whose cost depends on the row.

    By default it drops the rows that cost most: costs are learnt by hashed key, and a knapsack over the buckets decides what to
    keep. Dear keys lose most; weights keep counts and sums unbiased. The other policies are those of LAS (Rivetti et al.). They
    bound the time until the function begins with a row, and drop whichever row arrives while the queue is too long.

    What was learnt is part of the journal and survives a restart, and a batch that is replayed drops the same rows again.

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
    policy
        ``"cost-aware"``, ours; ``"las"``, costs from the paper's sketches; ``"straw-man"``, the mean cost for every row;
        ``"full-knowledge"``, the cost that ``cost`` says.
    output
        The name of the result column.
    how
        For ``cost-aware``. ``"threshold"`` keeps the cheapest buckets whole, ``"root"`` all in proportion to one over the root of
        their cost, ``"uniform"`` all alike.
    floor
        For ``cost-aware``: the least keep of each bucket, so that its cost stays known.
    tau, constraint
        For the others: the bound on the time from a row's arrival until the function begins with it, by default half of the delay
        target, since the row comes out when its batch ends. ``"abs"`` holds it for every row, ``"avg"`` for the mean of all.
    cost
        For ``full-knowledge``, a column or an expression: the seconds that a row will take. For ``straw-man`` the mean, a number;
        by default it is learnt.
    epsilon, delta, window, mu
        For the others: precision of the sketches and its probability of failure (4 rows and 54 columns by default), and after how
        many rows the operator looks whether they are stable, up to which relative error.

    Raises
    ------
    PenstockError
        If an option is wrong, or belongs to another policy.

    Examples
    --------
    The paper's shedder, every row within a second of its arrival in the function, and out within two::

        aware = load_aware(
            score, key="sender", delay_target="2s", policy="las", constraint="abs", columns="payload", returns="double"
        )
        query = aware.write(aware(rows, arrival="timestamp"), "parquet", "/data/scores", checkpoint="/data/checkpoint")

    References
    ----------
    Rivetti, Anceaume, Busnel, Querzoni and Sericola, *Load-Aware Shedding in Stream Processing Systems* (LAS), 2016.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        key: str | Column,
        delay_target: str | float | timedelta,
        policy: PolicyName = "cost-aware",
        kind: FunctionKind = "row",
        columns: str | Sequence[str] | None = None,
        returns: str | None = None,
        output: str = "result",
        schema: str | StructType | None = None,
        buckets: int | None = None,
        how: How | None = None,
        floor: float | None = None,
        controller: str | Controller | None = None,
        tau: str | float | timedelta | None = None,
        constraint: Bound | None = None,
        cost: str | float | Column | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        window: int | None = None,
        mu: float | None = None,
        journal: str | Path | None = None,
    ) -> None:
        ours = {"buckets": buckets, "how": how, "floor": floor, "controller": controller}
        theirs = {"tau": tau, "constraint": constraint, "cost": cost}
        theirs |= {"epsilon": epsilon, "delta": delta, "window": window, "mu": mu}
        if not callable(function):
            raise PenstockError(f"load_aware() needs a function, got {function!r}")
        if policy not in get_args(PolicyName):
            raise PenstockError(f"policy must be one of {', '.join(get_args(PolicyName))}, got {policy!r}")
        if kind not in get_args(FunctionKind):
            raise PenstockError(f"kind must be one of {', '.join(get_args(FunctionKind))}, got {kind!r}")
        delay_target_s = parse_duration(delay_target, "delay_target")
        self.policy: LoadPolicy = _build_policy(policy, kind, delay_target_s, ours, theirs)
        self._columns = (columns,) if isinstance(columns, str) else tuple(columns or ())
        if kind in ("row", "pandas", "arrow") and not (self._columns and returns):
            raise PenstockError(f"kind {kind!r} needs columns=, what the function takes, and returns=, a type such as 'double'")
        if kind == "map_in_arrow" and schema is None:
            raise PenstockError("kind 'map_in_arrow' needs schema=, what the function returns")
        self._function, self._kind, self._key = function, kind, key
        self._returns, self._output, self._schema = returns, output, schema
        self.shedder = Shedder(delay_target_s, controller=self.policy.controller, journal=journal)

    @property
    def model(self) -> BucketKeeps:
        """What is known of each bucket, for the policy ``cost-aware``."""
        if not isinstance(self.policy, KnapsackPolicy):
            raise PenstockError("only the policy 'cost-aware' has buckets")
        return self.policy.model

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
        _refuse_connect(df)
        self._check_columns(df)
        key = column_named(self._key) if isinstance(self._key, str) else self._key
        specification = GateSpecification(
            name=name,
            arrival=arrival,
            identity=(identity,) if isinstance(identity, str) else tuple(df.columns if identity is None else identity),
            weight_column=weight_column,
        )
        gated, recorder = self.policy.gate(df, key, specification, self.shedder.add_gate)
        if self._kind == "native":
            result: DataFrame = self._function(gated.drop(*recorder.columns))
            return result
        return self._map(gated, recorder)

    def _check_columns(self, df: DataFrame) -> None:
        missing = [column for column in self._columns if column not in df.columns]
        if missing:
            raise PenstockError(f"load_aware: there is no column {missing[0]!r}; the columns are {', '.join(df.columns)}")
        if isinstance(self._key, str) and self._key not in df.columns:
            raise PenstockError(f"load_aware: there is no key column {self._key!r}; the columns are {', '.join(df.columns)}")

    def _map(self, gated: DataFrame, recorder: Recorder) -> DataFrame:
        loaded = ["penstock.spark.load_aware_worker", *(["pandas"] if self._kind == "pandas" else [])]
        check_worker_python(gated.sparkSession, "load_aware", *loaded)
        function = TimedFunction(
            self._function,
            self._kind,
            recorder,
            columns=self._columns,
            output=self._output,
            output_type=self._output_type(),
            names=tuple(gated.columns),
        )
        # PySpark's mapInArrow reads dots and backticks in names as syntax, so the columns go to the workers under plain ones.
        plain = gated.toDF(*(f"c{number}" for number in range(len(gated.columns))))
        return plain.mapInArrow(function, self._output_schema(gated, recorder))

    def time_only(self, df: DataFrame) -> DataFrame:
        """Return the function timed as ever, without a gate: to compare with, or to look at costs before shedding by them."""
        if not isinstance(self.policy, KnapsackPolicy):
            raise PenstockError("time_only() is for the policy 'cost-aware'")
        _refuse_connect(df)
        return self._map(*self.policy.time_only(df))

    def _output_schema(self, gated: DataFrame, recorder: Recorder) -> str | StructType:
        if self._kind == "map_in_arrow":
            assert self._schema is not None  # noqa: S101 - checked above
            return self._schema
        if self._output in gated.columns:
            raise PenstockError(f"load_aware: there is a column {self._output!r} already; choose another output=")
        fields = [field for field in gated.schema.fields if field.name not in recorder.columns]
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


def _refuse_connect(df: DataFrame) -> None:
    refuse_connect(df, "load_aware()", "use a classic Spark session")


def _build_policy(
    policy: PolicyName, kind: FunctionKind, delay_target_s: float, ours: dict[str, Any], theirs: dict[str, Any]
) -> LoadPolicy:
    """Return the policy of that name; ``None`` stands for an option that was not given."""
    own, others = (ours, theirs) if policy == "cost-aware" else (theirs, ours)
    misplaced = [option for option, value in others.items() if value is not None]
    if misplaced:
        raise PenstockError(f"{misplaced[0]} is no option of policy {policy!r}; its options are {', '.join(own)}")
    given = {option: value for option, value in own.items() if value is not None}
    if policy == "cost-aware":
        return KnapsackPolicy(delay_target_s, is_timed=kind != "native", **given)
    if kind == "native":
        raise PenstockError(f"policy {policy!r} times rows in Python, and kind 'native' runs none there: use 'cost-aware'")
    return ClockPolicy(policy, delay_target_s, **given)
