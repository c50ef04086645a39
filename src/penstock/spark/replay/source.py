"""The data source that Spark registers as ``penstock-replay``."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from penstock.spark.replay.options import parse_options
from penstock.spark.replay.reader import ReplayReader
from penstock.spark.replay.registration import REPLAY
from penstock.spark.replay.replayed_trace import build_schema

__all__ = ["ReplaySource"]


class ReplaySource(DataSource):
    """Rows from a generator or a trace, played against the wall clock: the same rows every time.

    The rows of a generator have the columns ``arrival timestamp, seq bigint, key bigint, cost_s double, payload binary``. Those
    of a trace have ``arrival, seq``, then ``key`` unless the trace has one, then the columns of the trace without ``t``.

    ====================  ==========================================================================================
    option                meaning (default)
    ====================  ==========================================================================================
    generator             constant, step, ramp, sine, exponential, pareto, b-model or on-off, with the options of
                          each: rate, duration (``60s``) and so on, see ``penstock.simulation.traffic``
    path                  instead of a generator: a .csv, .csv.gz or .parquet file with a column ``t`` of seconds
    seed                  of arrivals, keys, costs and payload (0)
    speed                 time compression: 10 plays an hour in six minutes (1)
    repeat                copies of each event, each with a seq (and a generated key) of its own (1)
    skip                  how much to skip at the beginning, such as ``10s`` (0)
    loop                  start over at the end; otherwise the stream stays idle there (false)
    start                 the time of t = 0 in epoch seconds; in the past it makes a backlog (the time of the first start)
    partitions            tasks per batch (2)
    max_rows_per_batch    admission control: the most rows of a batch (no cap)
    max_rows_file         a file with the same number, read for every batch: backpressure from outside (no cap while
                          the file holds no number)
    keys                  uniform or zipf (uniform); key_count says how many (1000), key_exponent is for zipf (1.0)
    cost_classes          costs such as ``100us,1ms``: each key has one of them, always the same (0)
    payload_bytes         size of the payload of random bytes (16)
    ====================  ==========================================================================================

    Raises
    ------
    PenstockError
        If an option is unknown or its value is wrong; the message names both.

    Examples
    --------
    >>> ReplaySource({"generator": "constant", "rate": "5", "duration": "60s"}).schema().fieldNames()
    ['arrival', 'seq', 'key', 'cost_s', 'payload']
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._options = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return REPLAY

    def schema(self) -> StructType:
        """Return the schema of the rows; a trace is loaded and checked here."""
        return build_schema(self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader."""
        return ReplayReader(self._options, schema)
