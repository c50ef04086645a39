"""Spark's reports over Connect: they reach the client, as JSON."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ConnectListener", "add_listener", "fetch_reports", "fetch_reports_before", "read_observed", "report_text"]


class ConnectListener(StreamingQueryListener):
    """Calls ``on_report(run id, JSON)`` after each batch and ``on_end(run id)`` when a query ends, in the client."""

    def __init__(self, on_report: Callable[[str, str], None], on_end: Callable[[str], None]) -> None:
        self._on_report, self._on_end = on_report, on_end

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Pass a report on."""
        self._on_report(str(event.progress.runId), report_text(event.progress))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Pass the end of a query on."""
        self._on_end(str(event.runId))


def add_listener(spark: SparkSession, listener: StreamingQueryListener) -> None:
    """Ask Spark for reports. Where that fails PySpark only warns, and nothing would ever be decided.

    Raises
    ------
    PenstockError
        If no reports can be had.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spark.streams.addListener(listener)
    for warning in caught:
        text = str(warning.message)
        if "listener is not added" in text:
            raise PenstockError(f"Spark Connect sends no reports, so nothing can be controlled: {text.splitlines()[0]}")
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def report_text(progress: Any) -> str:
    """Return a report as JSON, in the form that listeners get.

    Connect may give it as a dictionary. One that is asked for has no number of rows, and its observations are rows with their
    schema instead of names with values.

    >>> observed = {"seen": {"values": [7], "schema": {"fields": [{"name": "rows"}]}}}
    >>> report_text({"batchId": 0, "sources": [{"numInputRows": 7}], "observedMetrics": observed})
    '{"batchId": 0, "sources": [{"numInputRows": 7}], "observedMetrics": {"seen": {"rows": 7}}, "numInputRows": 7}'
    """
    report = json.loads(str(progress.json)) if hasattr(progress, "json") else dict(progress)
    observed = report.get("observedMetrics") or {}
    report["observedMetrics"] = {name: _name_values(row) for name, row in observed.items()}
    if report.get("numInputRows") is None:
        report["numInputRows"] = sum(source.get("numInputRows") or 0 for source in report.get("sources", []))
    return json.dumps(report)


def fetch_reports(query: StreamingQuery, after: int) -> list[str]:
    """Ask for the reports of batches after one, as far as Spark still has them; they may not have come by themselves."""
    if query.lastProgress is None:
        return []
    last = json.loads(report_text(query.lastProgress))
    if last["batchId"] - (not _has_run(last)) <= after:
        return []
    reports = [json.loads(report_text(progress)) for progress in query.recentProgress]
    return [json.dumps(report) for report in reports if report["batchId"] > after and _has_run(report)]


def _has_run(report: Mapping[str, Any]) -> bool:
    """Whether a report is about a batch: a query that has nothing to do reports, from time to time, that the next one waits."""
    return "addBatch" in report.get("durationMs", {})


def fetch_reports_before(query: StreamingQuery | None, text: str, after: int) -> list[str]:
    """Ask for the reports of the batches between one and that of a report, if there are any.

    They may have been sent before the listener knew the query, or come in another order: it asks for the first ones itself.
    """
    batch_id = int(json.loads(text)["batchId"])
    if query is None or batch_id <= after + 1:
        return []
    return [each for each in fetch_reports(query, after) if json.loads(each)["batchId"] < batch_id]


def read_observed(text: str) -> Mapping[str, Mapping[str, Any]]:
    """Return what the observations of a batch counted, by name, from its report."""
    return json.loads(text).get("observedMetrics") or {}


def _name_values(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of an observation by name."""
    if set(row) != {"values", "schema"}:
        return row
    return {field["name"]: value for field, value in zip(row["schema"]["fields"], row["values"], strict=True)}
