"""Starts a query whose table is set by batch, so that none of a batch's work begins before its function is called.

Adaptive execution runs the stages ahead of a shuffle to learn their sizes, before Spark calls the function of ``foreachBatch``.
Rows would be judged by the table of the batch before. From Spark 4.1 on it does so for streams without state. It is turned off
for this query's own plan; what the user's function plans is not affected.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.spark.versions import internals_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["start_lazily"]

_STARTING = threading.Lock()


def start_lazily(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query. Spark copies the session's settings for it, so they are changed only meanwhile."""
    session = writer._spark
    setting = internals_of(session).adaptive_streams
    if setting is None:
        return writer.start()
    with _STARTING:
        before = session.conf.get(setting, None)
        session.conf.set(setting, "false")
        try:
            return writer.start()
        finally:
            if before is None:
                session.conf.unset(setting)
            else:
                session.conf.set(setting, before)
