"""What a writer was told; Spark has no public way to ask. And triggers as Spark wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.duration import is_zero_duration, parse_duration

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["WriterSettings", "trigger_arguments"]


class WriterSettings:
    """The name, the checkpoint and the output mode of a ``DataStreamWriter``."""

    def __init__(self, writer: DataStreamWriter) -> None:
        options = _private_field(writer._jwrite, "extraOptions")
        self.name = _option(options, "queryName")
        self.checkpoint = _option(options, "checkpointLocation") or self._session_checkpoint(writer)
        self.output_mode = str(_private_field(writer._jwrite, "outputMode").toString()).lower()

    def _session_checkpoint(self, writer: DataStreamWriter) -> str | None:
        root = writer._spark.conf.get("spark.sql.streaming.checkpointLocation", None)
        return f"{root}/{self.name}" if root and self.name else None


def trigger_arguments(trigger: str | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the arguments of Spark's trigger, which wants its intervals spelt out.

    >>> trigger_arguments("1.5s")
    {'processingTime': '1500 milliseconds'}
    """
    if not isinstance(trigger, str):
        return None if trigger is None else dict(trigger)
    if is_zero_duration(trigger):
        return {"processingTime": "0 seconds"}
    return {"processingTime": f"{max(1, round(1e3 * parse_duration(trigger, 'trigger')))} milliseconds"}


def _private_field(java: Any, name: str) -> Any:
    field = java.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(java)


def _option(options: Any, name: str) -> str | None:
    value = options.get(name)
    return str(value.get()) if value.isDefined() else None
