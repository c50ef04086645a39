"""Starts a query over Spark Connect under control."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.control.base import Controller
from penstock.decision import ByArrival
from penstock.decision.handover import ContinuedByBatch
from penstock.errors import PenstockError
from penstock.filesystem import resolve
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.connect.batch_tables import directory_of
from penstock.spark.connect.connect_batch_driver import ConnectBatchDriver
from penstock.spark.connect.connect_driver import MARGIN_S, ConnectDriver
from penstock.spark.connect.connect_gate import ConnectGate
from penstock.spark.connect.file_check import check_files
from penstock.spark.lazy_start import without_adaptive_streams

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.spark.driver_registry import DriverRegistry

__all__ = ["ConnectSettings", "find_connect_gates", "is_connect_backfill", "start_over_connect"]

log = logging.getLogger("penstock")

_REFUSED = {"continuous_checkpoint_interval": "continuous", "real_time_batch_duration": "realTime"}


@dataclass(frozen=True, slots=True)
class ConnectSettings:
    """What a writer was told, as far as it matters here."""

    name: str | None
    checkpoint: str | None
    is_paced: bool = False
    """Whether batches wait for an interval to pass."""
    logs_all_batches: bool = True
    """Whether Spark logs the offsets of every batch before it runs: with asynchronous progress tracking it does not."""

    @classmethod
    def read(cls, writer: DataStreamWriter) -> ConnectSettings:
        """Read them from the request that the writer would send.

        Raises
        ------
        PenstockError
            If its trigger is one under which a query can't be controlled.
        """
        request: Any = writer._write_proto  # type: ignore[attr-defined] # Connect's writer has it
        trigger = request.WhichOneof("trigger")
        if trigger in _REFUSED:
            raise PenstockError(
                f"a query with trigger({_REFUSED[trigger]}=...) can't be controlled: "
                "use processingTime=, availableNow= or no trigger"
            )
        options = {key.lower(): value for key, value in request.options.items()}
        interval = request.processing_time_interval if trigger == "processing_time_interval" else "0"
        return cls(
            request.query_name or options.get("queryname"),
            options.get("checkpointlocation"),
            is_paced=any(character in "123456789" for character in interval),
            logs_all_batches=options.get("asyncprogresstrackingenabled", "").lower() != "true",
        )


def find_connect_gates(writer: DataStreamWriter, gates: Mapping[str, Any], query: str | None) -> Sequence[ConnectGate]:
    """Return the gates that a query reads, by the observations in its plan; refuse one that reads none."""
    request: Any = writer._write_stream.command(writer._session.client)  # type: ignore[attr-defined] # as above
    plan = request.SerializeToString()
    found = [gate for gate in gates.values() if isinstance(gate, ConnectGate) and gate.kept_name.encode() in plan]
    if not found:
        known = ", ".join(gates) or "none yet"
        what = f"query {query!r}" if query else "the query"
        raise PenstockError(
            f"{what} reads no gate of this shedder (gates: {known}): build it on the DataFrame that gate() returned"
        )
    return found


def is_connect_backfill(writer: DataStreamWriter) -> bool:
    """Whether a query takes what is there, and ends."""
    request: Any = writer._write_proto  # type: ignore[attr-defined] # Connect's writer has it
    return request.WhichOneof("trigger") in ("available_now", "once")


def start_over_connect(
    writer: DataStreamWriter,
    by: str | None,
    gates: Mapping[str, Any],
    registry: DriverRegistry,
    *,
    controller: Controller,
    max_loss: float,
    table: str | None = None,
) -> StreamingQuery:
    """Start a query with its loop in this process."""
    if by not in (None, "batch", "arrival"):
        raise PenstockError(f"by must be 'batch' or 'arrival', got {by!r}")
    settings = ConnectSettings.read(writer)
    read = find_connect_gates(writer, gates, settings.name)
    label = registry.label(settings.name)
    if by == "batch":
        driver: ConnectDriver | ConnectBatchDriver = _batch_driver(read, controller, label, settings, max_loss=max_loss)
    else:
        core = ByArrival([gate.state for gate in read], controller, label, max_loss=max_loss, margin_s=MARGIN_S)
        driver = ConnectDriver(read, core, registry.by_label, _find_checkpoint(settings.checkpoint))
    registry.refuse_taken_gates(driver)
    with registry.enlist(driver):
        if isinstance(driver, ConnectBatchDriver):
            query_id = driver.checkpoint.query_id()  # none before the first run
            driver.open_journal(_journal_of(read, label), query_id, is_new=query_id is None)
            driver.begin()
        else:
            driver.open_journal(_journal_of(read, label), None, is_new=False)
        if settings.checkpoint is None:
            driver.warn(f"{driver.label}: without checkpointLocation nothing is left of the query after a restart")
        with nullcontext() if _has_exchange(writer) else without_adaptive_streams(read[0].spark):
            return registry.launch(driver, read[0].spark, lambda: writer.start() if table is None else writer.toTable(table))


def _journal_of(gates: Sequence[ConnectGate], label: str) -> str:
    return f"{gates[0].directory}/{label}"


def _batch_driver(
    gates: Sequence[ConnectGate], controller: Controller, label: str, settings: ConnectSettings, *, max_loss: float
) -> ConnectBatchDriver:
    """Return the driver of a query by batch.

    Raises
    ------
    PenstockError
        If Spark and this process don't see the same files, or if batches begin before their offsets are logged.
    """
    if settings.checkpoint is None:
        raise PenstockError("by='batch' over Spark Connect needs checkpointLocation, a directory that this process sees too")
    if "://" in settings.checkpoint.removeprefix("file://"):
        raise PenstockError(
            f"by='batch' over Spark Connect needs a checkpoint that this process sees, got {settings.checkpoint}: "
            "mount the place, or leave by= out"
        )
    if not settings.logs_all_batches:
        raise PenstockError("asyncProgressTrackingEnabled starts batches before their offsets are logged: leave by='batch' out")
    slot_gates = [gate.state for gate in gates]
    core = ContinuedByBatch(slot_gates, controller, label, max_loss=max_loss, slot_gates=slot_gates)
    check_files(gates[0], directory_of(gates[0].directory, label), settings.checkpoint)
    return ConnectBatchDriver(gates, core, settings.checkpoint, is_paced=settings.is_paced)


def _find_checkpoint(location: str | None) -> Checkpoint | None:
    """Return the checkpoint, if this process may see it."""
    if location is None or "://" in location.removeprefix("file://"):
        return None
    return Checkpoint(resolve(location, "the checkpoint")[1])


def _has_exchange(writer: DataStreamWriter) -> bool:
    """Whether the query has a shuffle or a broadcast that adaptive execution might plan better; also where that is not known.

    If it has none, adaptive execution would do nothing for it. It would adapt every batch all the same, because the table of a
    gate is a subquery, and that takes 10 to 20 ms.
    """
    from pyspark.sql.connect.dataframe import DataFrame  # noqa: PLC0415 - needs the packages of Spark Connect

    connect: Any = writer
    try:
        return "Exchange" in DataFrame(connect._write_stream._child, connect._session)._explain_string(mode="simple")
    except Exception:  # nothing but time depends on it
        log.debug("the plan of a query could not be looked at", exc_info=True)
        return True
