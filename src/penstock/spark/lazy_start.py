"""Starts queries without adaptive execution.

Adaptive execution runs the stages ahead of a shuffle to learn their sizes, before Spark calls the function of
``foreachBatch``. By batch, rows would be judged by the table of the batch before. From Spark 4.1 on it does so for streams
without state. It is turned off for the query's own plan; what the user's function plans is not affected.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.spark.versions import internals_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["start_lazily", "without_adaptive_streams"]

_STARTING = threading.Lock()


def start_lazily(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query whose table is set by batch, so that none of a batch's work begins before its function is called."""
    with without_adaptive_streams(writer._spark):
        return writer.start()


@contextmanager
def without_adaptive_streams(session: SparkSession) -> Iterator[None]:
    """Keep adaptive execution away from queries that start meanwhile: Spark copies the session's settings for each of them."""
    setting = internals_of(session).adaptive_streams
    if setting is None:
        yield
        return
    with _STARTING:
        before = session.conf.get(setting, None)
        session.conf.set(setting, "false")
        try:
            yield
        finally:
            if before is None:
                session.conf.unset(setting)
            else:
                session.conf.set(setting, before)
