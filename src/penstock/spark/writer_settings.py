"""What a writer was told; Spark has no public way to ask. And triggers as Spark wants them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.duration import is_zero_duration, parse_duration
from penstock.errors import PenstockError
from penstock.spark.hadoop_store import open_session_store
from penstock.storage import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["WriterSettings", "check_trigger", "is_backfill", "parse_backfill", "read_private_field", "trigger_arguments"]

log = logging.getLogger("penstock")

_REFUSED_TRIGGERS = {
    "continuous": "Spark counts no rows there",
    "realTime": "one batch runs for minutes and keeps the table that it began with",
}


class WriterSettings:
    """All that a ``DataStreamWriter`` was told, but for its partitioning columns."""

    def __init__(self, writer: DataStreamWriter) -> None:
        self._writer = writer
        self.java_options = read_private_field(writer._jwrite, "extraOptions")
        self.name = self.option("queryName")
        self._session_root: str | None = writer._spark.conf.get("spark.sql.streaming.checkpointLocation", None)
        self.checkpoint = self.option("checkpointLocation") or self._session_checkpoint()
        self.java_output_mode = read_private_field(writer._jwrite, "outputMode")
        self.output_mode = str(self.java_output_mode.toString()).lower()
        self.format = str(read_private_field(writer._jwrite, "source"))
        self.trigger = read_private_field(writer._jwrite, "trigger")
        check_trigger(self.trigger)

    def option(self, name: str) -> str | None:
        """Return an option; ``None`` if it was not set. Case does not matter."""
        value = self.java_options.get(name)
        return str(value.get()) if value.isDefined() else None

    @property
    def has_checkpoint(self) -> bool:
        """Whether the query keeps its checkpoint, in a place that the user or the session named."""
        return self.checkpoint is not None or bool(self._session_root)

    def find_store(self) -> Store | None:
        """Return where the checkpoint lies; ``None`` if Spark will choose a directory."""
        spark = self._writer._spark
        return None if self.checkpoint is None else open_session_store(spark, self.checkpoint, "the checkpoint")

    @property
    def is_paced(self) -> bool:
        """Whether batches wait for an interval to pass."""
        return "ProcessingTime" in _name_of(self.trigger) and int(self.trigger.intervalMs()) > 0

    @property
    def logs_all_batches(self) -> bool:
        """Whether Spark logs the offsets of every batch before it runs: with asynchronous progress tracking it does not."""
        return (self.option("asyncProgressTrackingEnabled") or "").lower() != "true"

    def new_writer(self, df: DataFrame) -> DataStreamWriter:
        """Return a writer of a DataFrame that was told the same, without a sink."""
        writer = df.writeStream
        writer._jwrite.options(self.java_options.originalMap()).outputMode(self.java_output_mode).trigger(self.trigger)
        return writer

    def move(self, df: DataFrame) -> DataStreamWriter:
        """Return a writer of another DataFrame with the same columns that was told all the same, its sink too."""
        if df is self._writer._df:
            return self._writer
        moved, java = df.writeStream, self._writer._jwrite
        try:
            for field in java.getClass().getDeclaredFields():
                if not str(field.getType().getName()).endswith(".Dataset"):
                    field.setAccessible(True)
                    field.set(moved._jwrite, field.get(java))
        except Exception:  # the DataFrame that the writer has does the same
            log.debug("a writer keeps its DataFrame", exc_info=True)
            return self._writer
        return moved

    def _session_checkpoint(self) -> str | None:
        return f"{self._session_root}/{self.name}" if self._session_root and self.name else None


def check_trigger(trigger: Any) -> None:
    """Refuse a Java trigger under which a query can't be controlled."""
    for name in _REFUSED_TRIGGERS:
        if _name_of(trigger).lower().startswith(name.lower()):
            _refuse(name)


def is_backfill(trigger: Any) -> bool:
    """Whether a query with this Java trigger takes what is there, and ends."""
    return _name_of(trigger).startswith(("AvailableNow", "OneTime"))


def parse_backfill(backfill: str) -> bool:
    """Return whether all rows of a backfill are kept, as the user said.

    >>> parse_backfill("keep"), parse_backfill("shed")
    (True, False)
    """
    if backfill not in ("keep", "shed"):
        raise PenstockError(f"backfill must be 'keep' or 'shed', got {backfill!r}")
    return backfill == "keep"


def trigger_arguments(trigger: str | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the arguments of Spark's trigger, which wants its intervals spelt out.

    >>> trigger_arguments("1.5s")
    {'processingTime': '1500 milliseconds'}
    """
    if not isinstance(trigger, str):
        for name in _REFUSED_TRIGGERS.keys() & (trigger or {}).keys():
            _refuse(name)
        return None if trigger is None else dict(trigger)
    if is_zero_duration(trigger):
        return {"processingTime": "0 seconds"}
    return {"processingTime": f"{max(1, round(1e3 * parse_duration(trigger, 'trigger')))} milliseconds"}


def _refuse(trigger: str) -> None:
    raise PenstockError(
        f"a query with trigger({trigger}=...) can't be controlled: {_REFUSED_TRIGGERS[trigger]}; "
        "use processingTime=, availableNow= or no trigger"
    )


def _name_of(trigger: Any) -> str:
    return str(trigger.getClass().getSimpleName())


def read_private_field(java: Any, name: str) -> Any:
    """Return a private field of a Java object."""
    field = java.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(java)
