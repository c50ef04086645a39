"""Spark 4.0: another package for the statistics of event time, and no functions over Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.spark.versions.spark41 import Spark41

__all__ = ["Spark40"]


class Spark40(Spark41):
    """Spark 4.0."""

    adaptive_streams = None

    def time_accumulator(self, jvm: Any) -> Any:
        """Return the accumulator that Spark uses for watermarks."""
        package = jvm.org.apache.spark.sql.execution.streaming
        return package.EventTimeStatsAccum(package.EventTimeStats(-(2**63), 2**63 - 1, 0.0, 0))

    def arrow_udf(self, function: Callable[..., Any], result: str) -> Any:
        """Return a function over iterators of tuples of Arrow arrays as one over pandas series."""
        from pyspark.sql.pandas.functions import PandasUDFType, pandas_udf  # noqa: PLC0415 - needs pandas

        over_series: Any = _over_series(function)
        return pandas_udf(over_series, result, PandasUDFType.SCALAR_ITER)


def _over_series(function: Callable[..., Any]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the same function for pandas series; a null is a NaN there, and comes back as null."""

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - this runs in a worker

        arrays = (tuple(pa.Array.from_pandas(series) for series in batch) for batch in batches)
        for array in function(arrays):
            yield array.to_pandas()

    return call
