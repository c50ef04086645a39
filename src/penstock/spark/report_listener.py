"""Spark's progress reports, passed on as JSON.

PySpark turns every report into Python objects, which takes some sixty calls to the JVM per batch. The control loops need only the
JSON, which takes two calls, and only for queries by arrival.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

__all__ = ["ReportListener"]

_RUN_ID = re.compile(r'"runId"\s*:\s*"([^"]+)"')


class ReportListener(StreamingQueryListener):
    """Calls ``on_report(run id, JSON)`` after each batch and ``on_end(run id)`` when a query ends.

    Parameters
    ----------
    on_report, on_end
        Must neither raise nor take long: they hold up Spark's listener bus.
    is_wanted
        Returns whether anybody waits for reports; without that they are not even read.
    """

    def __init__(
        self, on_report: Callable[[str, str], None], on_end: Callable[[str], None], is_wanted: Callable[[], bool]
    ) -> None:
        self._callbacks = _JavaCallbacks(on_report, on_end, is_wanted)
        self._wrapped: Any = None

    @property
    def _jlistener(self) -> Any:
        """What Spark gets: our callbacks, without PySpark's translation."""
        if self._wrapped is None:
            from pyspark import SparkContext  # noqa: PLC0415 - the client of Spark Connect has none

            jvm: Any = SparkContext._jvm
            self._wrapped = jvm.PythonStreamingQueryListenerWrapper(self._callbacks)
        return self._wrapped

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Not called: see ``_jlistener``."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Not called: see ``_jlistener``."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Not called: see ``_jlistener``."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Not called: see ``_jlistener``."""


class _JavaCallbacks:
    """Implements the Java interface that PySpark's own listeners implement."""

    def __init__(
        self, on_report: Callable[[str, str], None], on_end: Callable[[str], None], is_wanted: Callable[[], bool]
    ) -> None:
        self._on_report = on_report
        self._on_end = on_end
        self._is_wanted = is_wanted

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        if self._is_wanted():
            text = str(event.progress().json())
            if match := _RUN_ID.search(text):
                self._on_report(match.group(1), text)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self._on_end(str(event.runId().toString()))

    class Java:
        """Tells py4j what this implements."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
