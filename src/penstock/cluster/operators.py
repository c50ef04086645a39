"""What the operators of a network do, as DataFrames."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import TimestampType

from penstock.drop.hashing import gate_seed
from penstock.drop.tables import SCALE
from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.network.model import Input, Network, Operator
from penstock.spark.catalyst import seeded_hash
from penstock.spark.columns import column_named, quote_name
from penstock.spark.replay import REPLAY, register_replay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["add_watermark", "apply_operator", "build_frames", "find_arrival_column", "open_stream"]

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
    """Open an input as its ``format``, ``options`` and ``schema`` say, with its watermark if it has one.

    Raises
    ------
    PenstockError
        If the input can't be read, or its ``arrival`` is not one of its timestamps.
    """
    work = network.work.get(name, {})
    if "format" not in work:
        raise PenstockError(f"{_line_prefix(network.inputs[name])}input {name!r}: say with 'format' and 'options' how to read it")
    if work["format"] == REPLAY:
        try:
            register_replay(spark)
        except PenstockError as error:
            raise PenstockError(f"{_line_prefix(network.inputs[name])}input {name!r}: {error}") from error
    reader = spark.readStream.format(str(work["format"]))
    if "schema" in work:
        reader = reader.schema(str(work["schema"]))
    for key, value in dict(work.get("options", {})).items():
        reader = reader.option(key, str(value))
    try:
        df = reader.load()
        if "watermark" in work:
            seconds = parse_duration(str(work["watermark"]), f"input {name!r}: watermark")
            df = df.withWatermark(quote_name(_require_arrival(network, name)), f"{seconds} seconds")
        arrival = work.get("arrival")
        if arrival is not None and (arrival not in df.columns or not isinstance(df.schema[arrival].dataType, TimestampType)):
            columns = ", ".join(df.columns)
            raise PenstockError(f"input {name!r}: its arrival column {arrival!r} must be a timestamp among its columns {columns}")
    except PySparkException as error:
        raise PenstockError(f"input {name!r} can't be read: {_summarize_error(error)}") from error
    return df


def _require_arrival(network: Network, name: str) -> str:
    column = network.work.get(name, {}).get("arrival")
    if column is None:
        raise PenstockError(f"input {name!r}: a watermark needs 'arrival', the column with the time")
    return str(column)


def find_arrival_column(network: Network, df: DataFrame) -> str | None:
    """Return the column with the time at which rows entered the network; ``None`` if the operators so far dropped it."""
    names = {str(work["arrival"]) for name, work in network.work.items() if name in network.inputs and "arrival" in work}
    return next((name for name in df.columns if name in names and isinstance(df.schema[name].dataType, TimestampType)), None)


def add_watermark(network: Network, df: DataFrame) -> DataFrame:
    """Return a stream from the transport with the watermark of the inputs, if it still has their arrival column."""
    delays = [
        parse_duration(str(work["watermark"]), f"input {name!r}: watermark")
        for name, work in network.work.items()
        if name in network.inputs and "watermark" in work
    ]
    column = find_arrival_column(network, df)
    return df.withWatermark(quote_name(column), f"{max(delays)} seconds") if delays and column is not None else df


def build_frames(spark: SparkSession, network: Network) -> dict[str, DataFrame]:
    """Return the DataFrame of each input and operator, without gates. Nothing runs, but operators that do not fit raise here."""
    frames = {name: open_stream(spark, network, name) for name in network.inputs}
    for name in network.order:
        operator = network.operators[name]
        frames[name] = apply_operator(network, operator, [frames[source] for source in operator.sources])
    return frames


def apply_operator(network: Network, operator: Operator, frames: Sequence[DataFrame]) -> DataFrame:
    """Return what an operator makes of its sources.

    Raises
    ------
    PenstockError
        If the operator does not fit; the message names it, its line, and what it was given.
    """
    work = network.work.get(operator.name, {})
    _check_work(operator, work)
    try:
        return _call_function(operator, work, frames) if "function" in work else _APPLY[operator.kind](operator, work, frames)
    except AnalysisException as error:
        raise _describe_misfit(network, operator, frames, error) from error
    except PenstockError:
        raise
    except Exception as error:
        if "function" not in work:
            raise
        message = f"its function raised {type(error).__name__}: {_summarize_error(error)}"
        raise PenstockError(f"{_line_prefix(operator)}operator {operator.name!r}: {message}") from error


def _check_work(operator: Operator, work: Mapping[str, Any]) -> None:
    subject = f"{_line_prefix(operator)}operator {operator.name!r} of kind {operator.kind}"
    known = _KNOWN[operator.kind]
    unknown = [key for key in work if key not in known]
    if unknown:
        raise PenstockError(f"{subject} has no {unknown[0]!r}: there are {', '.join(known)}")
    needs = _NEEDS.get(operator.kind)
    if needs is not None and not any(key in work for key in needs):
        raise PenstockError(f"{subject} doesn't say what it does: give it {' or '.join(repr(key) for key in needs)}")


def _describe_misfit(
    network: Network, operator: Operator, frames: Sequence[DataFrame], error: AnalysisException
) -> PenstockError:
    subject = f"{_line_prefix(operator)}operator {operator.name!r}"
    parameters = error.getMessageParameters() or {}
    if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        columns = dict.fromkeys(column for frame in frames for column in frame.columns)
        sources = " and ".join(repr(source) for source in operator.sources)
        missing = parameters.get("objectName", "?").replace("`", "")
        mentions = [name for name in network.order if name != operator.name and _mentions(network.work.get(name, {}), missing)]
        hint = f"; {mentions[-1]!r} mentions it" if mentions else ""
        return PenstockError(
            f"{subject} needs column {missing!r}, which {sources} doesn't give: it gives {', '.join(columns)}{hint}"
        )
    return PenstockError(f"{subject}: {_summarize_error(error)}")


def _mentions(work: Mapping[str, Any], column: str) -> bool:
    return column in " ".join(str(value) for value in work.values())


def _find_function(operator: Operator, work: Mapping[str, Any]) -> Callable[..., DataFrame]:
    """Return the user's function, which is given itself or as ``module:name``."""
    given = work["function"]
    if callable(given):
        return given  # type: ignore[no-any-return]
    module, _, name = str(given).partition(":")
    try:
        function: Callable[..., DataFrame] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise PenstockError(
            f"{_line_prefix(operator)}operator {operator.name!r}: its function {given!r}, as 'module:name', can't be found: "
            f"{_summarize_error(error)}"
        ) from error
    return function


def _call_function(operator: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame as Frame  # noqa: PLC0415 - for the check alone

    result = _find_function(operator, work)(*frames)
    if not isinstance(result, Frame):
        raise PenstockError(
            f"{_line_prefix(operator)}operator {operator.name!r}: its function must return a DataFrame, it returned {result!r}"
        )
    return result


def _apply_filter(_: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    return frames[0].where(F.expr(str(work["where"])))


def _apply_map(_: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    return frames[0].selectExpr(*_to_texts(work["select"]))


def _apply_aggregate(_: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    groups = [F.expr(text) for text in _to_texts(work.get("group", ()))]
    return frames[0].groupBy(*groups).agg(*(F.expr(text) for text in _to_texts(work["agg"])))


def _apply_join(operator: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    left, right = frames
    joined = left.alias("left").join(right.alias("right"), F.expr(str(work["on"])), str(work.get("how", "inner")))
    if "select" in work:
        return joined.selectExpr(*_to_texts(work["select"]))
    both = [name for name in left.columns if name in right.columns]
    if both:
        raise PenstockError(
            f"{_line_prefix(operator)}operator {operator.name!r}: both sides have a column {both[0]!r}: say with 'select' what "
            f"to take, such as left.{both[0]}"
        )
    return joined


def _apply_union(_: Operator, __: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda left, right: left.unionByName(right), frames)


def _apply_delay(operator: Operator, work: Mapping[str, Any], frames: Sequence[DataFrame]) -> DataFrame:
    """Keep the CPU busy for some time per tuple, then pass it on or not, by the selectivity: the operator of "Staying FIT"."""
    if operator.selectivity > 1:
        raise PenstockError(
            f"{_line_prefix(operator)}operator {operator.name!r}: a delay passes tuples on or drops them, so its selectivity is "
            "at most 1"
        )
    df = frames[0]
    seconds = F.expr(str(work.get("busy", operator.cost))).cast("double")
    # Under plain names meanwhile: PySpark's mapInArrow can't read columns with dots or backticks in their names.
    timed = df.withColumn(_BUSY, F.coalesce(seconds, F.lit(0.0))).toDF(*(f"c{i}" for i in range(len(df.columns))), _BUSY)
    delayed = timed.mapInArrow(_spin, timed.schema).drop(_BUSY).toDF(*df.columns)
    if operator.selectivity == 1:
        return delayed
    row_hash = seeded_hash(df.sparkSession, gate_seed(f"delay {operator.name}"), [column_named(name) for name in df.columns])
    return delayed.where(F.shiftrightunsigned(row_hash, 11).cast("double") < F.lit(operator.selectivity * SCALE))


def _spin(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Be busy for as long as the rows say, by the wall clock as in the paper, so that other load does not prolong it.

    It runs at a low priority: the nodes of a test share a machine, and a busy loop must not slow down real work.
    """
    os.nice(max(0, _SPIN_NICE - os.nice(0)))
    for batch in batches:
        end = time.perf_counter() + (pc.sum(batch.column(_BUSY)).as_py() or 0.0)
        while time.perf_counter() < end:
            pass
        yield batch


_APPLY: Mapping[str, Callable[[Operator, Mapping[str, Any], Sequence[DataFrame]], DataFrame]] = {
    "filter": _apply_filter,
    "map": _apply_map,
    "aggregate": _apply_aggregate,
    "join": _apply_join,
    "union": _apply_union,
    "delay": _apply_delay,
}


def _to_texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(str(text) for text in value)


def _line_prefix(part: Input | Operator) -> str:
    return f"line {part.line}: " if part.line is not None else ""


def _summarize_error(error: BaseException) -> str:
    """Return the first line of an error, or the last line of a traceback from a worker."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback") or line.endswith("Traceback (most recent call last):") for line in lines):
        ends = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and " " not in line.split(":")[0]]
        return ends[-1].partition(": ")[2] or ends[-1] if ends else lines[0]
    return lines[0] if lines else type(error).__name__
