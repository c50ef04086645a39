"""Spark's reports on queries, handed on as they come.

PySpark turns every report into Python objects, some sixty calls to the JVM a batch. The control loops want the JSON, which is
two, and only for queries with native sinks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

__all__ = ["ReportListener"]

_RUN_ID = re.compile(r'"runId"\s*:\s*"([^"]+)"')


class ReportListener(StreamingQueryListener):
    """Calls ``on_report(run id, JSON)`` after a batch and ``on_end(run id)`` after a query; neither may raise or take long.

    ``wanted`` says whether anybody waits for reports at all.
    """

    def __init__(self, on_report: Callable[[str, str], None], on_end: Callable[[str], None], wanted: Callable[[], bool]) -> None:
        self._calls = _Calls(on_report, on_end, wanted)
        self._wrapped: Any = None

    @property
    def _jlistener(self) -> Any:
        """What Spark gets: the calls themselves instead of PySpark's translation of them."""
        if self._wrapped is None:
            jvm: Any = SparkContext._jvm
            self._wrapped = jvm.PythonStreamingQueryListenerWrapper(self._calls)
        return self._wrapped

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Not called: see ``_jlistener``."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Not called: see ``_jlistener``."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Not called: see ``_jlistener``."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Not called: see ``_jlistener``."""


class _Calls:
    """The Java interface that PySpark's own listeners implement."""

    def __init__(self, on_report: Callable[[str, str], None], on_end: Callable[[str], None], wanted: Callable[[], bool]) -> None:
        self._on_report = on_report
        self._on_end = on_end
        self._wanted = wanted

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        if self._wanted():
            text = str(event.progress().json())
            if found := _RUN_ID.search(text):
                self._on_report(found.group(1), text)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self._on_end(str(event.runId().toString()))

    class Java:
        """Tells py4j what this implements."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
