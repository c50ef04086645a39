"""Spark 4.0: other packages for event-time statistics and checkpoint managers, plainer arithmetic, no Arrow functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.spark.versions.spark41 import Spark41

__all__ = ["Spark40"]


class Spark40(Spark41):
    """Spark 4.0."""

    adaptive_streams = None
    checkpoint_managers = "org.apache.spark.sql.execution.streaming.CheckpointFileManager"

    def time_accumulator(self, jvm: Any) -> Any:
        """Return the accumulator that Spark uses for watermarks."""
        package = jvm.org.apache.spark.sql.execution.streaming
        return package.EventTimeStatsAccum(package.EventTimeStats(-(2**63), 2**63 - 1, 0.0, 0))

    def unchecked(self, jvm: Any) -> Any:
        """Return how an expression computes that checks for no overflow, whatever the session's mode."""
        return jvm.org.apache.spark.sql.catalyst.expressions.EvalMode.LEGACY()

    def arrow_udf(self, function: Callable[..., Any], result: str) -> Any:
        """Return a function over iterators of tuples of Arrow arrays as one over pandas series."""
        import pandas as pd  # noqa: PLC0415 - only these versions need it here
        from pyspark.sql.pandas.functions import pandas_udf  # noqa: PLC0415

        over_series: Any = _over_series(function)
        # Spark reads the kind of a function from its hints, which must be types and not their names.
        over_series.__annotations__ = {"batches": Iterator[tuple[pd.Series, ...]], "return": Iterator[pd.Series]}
        return pandas_udf(over_series, result)  # type: ignore[call-overload] # it reads the function's hints


def _over_series(function: Callable[..., Any]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the same function for pandas series; a null is a NaN there, and comes back as null."""

    def call(batches):  # type: ignore[no-untyped-def]
        import pyarrow as pa  # noqa: PLC0415 - this runs in a worker

        arrays = (tuple(pa.Array.from_pandas(series) for series in batch) for batch in batches)
        for array in function(arrays):
            yield array.to_pandas()

    return call
