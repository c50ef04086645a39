"""What the operators of a network do, as DataFrames."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import TimestampType

from penstock.drop.hashing import gate_seed
from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.network.model import Network, Operator
from penstock.spark.catalyst import SCALE, seeded_hash
from penstock.spark.columns import column_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["add_watermark", "apply_operator", "arrival_column", "build_frames", "open_stream"]

_BUSY = "__penstock_busy"
_SPIN_NICE = 10
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "filter": ("where", "function"),
    "map": ("select", "function"),
    "aggregate": ("agg", "function"),
    "join": ("on", "function"),
}
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "filter": ("where", "function"),
    "map": ("select", "function"),
    "aggregate": ("group", "agg", "function"),
    "join": ("on", "how", "select", "function"),
    "union": ("function",),
    "delay": ("busy",),
}


def open_stream(spark: SparkSession, network: Network, name: str) -> DataFrame:
    """Open an input as its ``format``, ``options`` and ``schema`` say."""
    work = network.work.get(name, {})
    if "format" not in work:
        raise PenstockError(f"{_line_of(network.inputs[name])}input {name!r}: say with 'format' and 'options' how it is read")
    reader = spark.readStream.format(str(work["format"]))
    if "schema" in work:
        reader = reader.schema(str(work["schema"]))
    for key, value in dict(work.get("options", {})).items():
        reader = reader.option(key, str(value))
    try:
        df = reader.load()
        if "watermark" in work:
            seconds = parse_duration(str(work["watermark"]), f"input {name!r}: watermark")
            df = df.withWatermark(_arrival_column(network, name), f"{seconds} seconds")
        arrival = work.get("arrival")
        if arrival is not None and (arrival not in df.columns or not isinstance(df.schema[arrival].dataType, TimestampType)):
            columns = ", ".join(df.columns)
            raise PenstockError(f"input {name!r}: its arrival column {arrival!r} must be one of its timestamps among {columns}")
    except PySparkException as error:
        raise PenstockError(f"input {name!r} can't be read: {_first_line(error)}") from error
    return df


def _arrival_column(network: Network, name: str) -> str:
    column = network.work.get(name, {}).get("arrival")
    if column is None:
        raise PenstockError(f"input {name!r}: a watermark needs 'arrival', the column with the time")
    return str(column)


def arrival_column(network: Network, df: DataFrame) -> str | None:
    """The column with the time at which rows came into the network, if it has come so far."""
    names = {str(work["arrival"]) for name, work in network.work.items() if name in network.inputs and "arrival" in work}
    kept = [name for name in df.columns if name in names and isinstance(df.schema[name].dataType, TimestampType)]
    return kept[0] if kept else None


def add_watermark(network: Network, df: DataFrame) -> DataFrame:
    """Give a stream that came through the transport the watermark that its inputs have, if their time column has come so far."""
    delays = [
        parse_duration(str(work["watermark"]), f"input {name!r}: watermark")
        for name, work in network.work.items()
        if name in network.inputs and "watermark" in work
    ]
    column = arrival_column(network, df)
    return df.withWatermark(column, f"{max(delays)} seconds") if delays and column is not None else df


def build_frames(spark: SparkSession, network: Network) -> dict[str, DataFrame]:
    """Build the whole network without gates: what each input and operator gives. Nothing runs; what does not fit shows here."""
    frames = {name: open_stream(spark, network, name) for name in network.inputs}
    for name in network.order:
        operator = network.operators[name]
        frames[name] = apply_operator(network, operator, [frames[source] for source in operator.sources])
    return frames


def apply_operator(network: Network, operator: Operator, frames: Sequence[DataFrame]) -> DataFrame:
    """Do what an operator does; an error names the operator and what it was given."""
    work = network.work.get(operator.name, {})
    _check_work(operator, work)
    try:
        return _KINDS[operator.kind](operator, work, frames)
    except AnalysisException as error:
        raise _describe_misfit(network, operator, frames, error) from error
    except PenstockError:
        raise
    except Exception as error:
        if "function" not in work:
            raise
        message = f"its function raised {type(error).__name__}: {_first_line(error)}"
        raise PenstockError(f"{_line_of(operator)}operator {operator.name!r}: {message}") from error


def _check_work(operator: Operator, work: Mapping[str, Any]) -> None:
    where = f"{_line_of(operator)}operator {operator.name!r} of kind {operator.kind}"
    known = _KNOWN[operator.kind]
    wrong = [key for key in work if key not in known]
    if wrong:
        raise PenstockError(f"{where} has no {wrong[0]!r}: there are {', '.join(known)}")
    needs = _NEEDS.get(operator.kind)
    if needs is not None and not any(key in work for key in needs):
        raise PenstockError(f"{where} doesn't say what it does: give it {' or '.join(repr(key) for key in needs)}")


def _describe_misfit(
    network: Network, operator: Operator, frames: Sequence[DataFrame], error: AnalysisException
) -> PenstockError:
    where = f"{_line_of(operator)}operator {operator.name!r}"
    parameters = error.getMessageParameters() or {}
    if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        columns = dict.fromkeys(column for frame in frames for column in frame.columns)
        given = " and ".join(repr(source) for source in operator.sources)
        wanted = parameters.get("objectName", "?").replace("`", "")
        makers = [name for name in network.order if name != operator.name and wanted in _texts(network.work.get(name, {}))]
        hint = f"; {makers[-1]!r} mentions it" if makers else ""
        return PenstockError(f"{where} needs column {wanted!r}, which {given} doesn't give: it gives {', '.join(columns)}{hint}")
    return PenstockError(f"{where}: {_first_line(error)}")


def _texts(work: Mapping[str, Any]) -> str:
    return " ".join(str(value) for value in work.values())


def _function(operator: Operator, work: Mapping[str, Any]) -> Callable[..., DataFrame]:
    """The user's function: itself, or ``module:name``."""
    given = work["function"]
    if callable(given):
        return given  # type: ignore[no-any-return]
    module, _, name = str(given).partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise PenstockError(
            f"{_line_of(operator)}operator {operator.name!r}: its function {given!r}, as 'module:name', can't be found: "
            f"{_first_line(error)}"
        ) from error
    return found  # type: ignore[no-any-return]


def _call_function(operator: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame as Frame  # noqa: PLC0415 - for the check alone

    found = _function(operator, work)(*frames)
    if not isinstance(found, Frame):
        raise PenstockError(
            f"{_line_of(operator)}operator {operator.name!r}: its function must return a DataFrame, it returned {found!r}"
        )
    return found


def _filter(operator: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    return _call_function(operator, work, frames) if "function" in work else frames[0].where(F.expr(str(work["where"])))


def _map(operator: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    return _call_function(operator, work, frames) if "function" in work else frames[0].selectExpr(*_several(work["select"]))


def _aggregate(operator: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    if "function" in work:
        return _call_function(operator, work, frames)
    groups = [F.expr(text) for text in _several(work.get("group", ()))]
    return frames[0].groupBy(*groups).agg(*(F.expr(text) for text in _several(work["agg"])))


def _join(operator: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    if "function" in work:
        return _call_function(operator, work, frames)
    left, right = frames
    joined = left.alias("left").join(right.alias("right"), F.expr(str(work["on"])), str(work.get("how", "inner")))
    if "select" in work:
        return joined.selectExpr(*_several(work["select"]))
    both = [name for name in left.columns if name in right.columns]
    if both:
        raise PenstockError(
            f"{_line_of(operator)}operator {operator.name!r}: both sides have a column {both[0]!r}: say with 'select' what to "
            f"take, such as left.{both[0]}"
        )
    return joined


def _union(operator: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    if "function" in work:
        return _call_function(operator, work, frames)
    found = frames[0]
    for frame in frames[1:]:
        found = found.unionByName(frame)
    return found


def _delay(operator: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    """The papers' own operator: hold the CPU for a time a tuple, then let it go on or not, by its selectivity."""
    if operator.selectivity > 1:
        raise PenstockError(
            f"{_line_of(operator)}operator {operator.name!r}: a delay lets tuples go on or not, so its selectivity is at most 1"
        )
    df = frames[0]
    seconds = F.expr(str(work.get("busy", operator.cost))).cast("double")
    held = df.withColumn(_BUSY, F.coalesce(seconds, F.lit(0.0)))
    held = held.mapInArrow(_hold, held.schema).drop(_BUSY)
    if operator.selectivity == 1:
        return held
    hashed = seeded_hash(df.sparkSession, gate_seed(f"delay {operator.name}"), [column_named(name) for name in df.columns])
    return held.where(F.shiftrightunsigned(hashed, 11).cast("double") < F.lit(operator.selectivity * SCALE))


def _hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Be busy for as long as the rows say. By the wall clock, as in the paper: what else the machine does makes it no longer.

    And below everybody else: the nodes of a test share a machine, and what spins must not slow down those who work.
    """
    os.nice(max(0, _SPIN_NICE - os.nice(0)))
    for batch in batches:
        end = time.perf_counter() + (pc.sum(batch.column(_BUSY)).as_py() or 0.0)
        while time.perf_counter() < end:
            pass
        yield batch


_KINDS: Mapping[str, Callable[..., DataFrame]] = {
    "filter": _filter,
    "map": _map,
    "aggregate": _aggregate,
    "join": _join,
    "union": _union,
    "delay": _delay,
}


def _several(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(str(text) for text in value)


def _line_of(value: Any) -> str:
    return f"line {value.line}: " if value.line is not None else ""


def _first_line(error: BaseException) -> str:
    """What an error says; of a traceback from a worker, its end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback") or line.endswith("Traceback (most recent call last):") for line in lines):
        said = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and " " not in line.split(":")[0]]
        return said[-1].partition(": ")[2] or said[-1] if said else lines[0]
    return lines[0] if lines else type(error).__name__
