"""Gates in Declarative Pipelines: Spark starts a pipeline's queries, and the loop takes each one over with its first report.

A pipeline's definitions run in the client, in the process of ``spark-pipelines``, and so does the loop. Spark runs every flow
with ``availableNow``: it takes what is there, and ends. A decision holds for rows that arrive later, which the next run reads.
"""

from __future__ import annotations

import atexit
import copy
import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.control import Controller
from penstock.decision import ByArrival
from penstock.decision.backfill import Backfill
from penstock.errors import JournalError, PenstockError
from penstock.journal import Journal
from penstock.journal.files import OWNER
from penstock.spark.connect.connect_driver import MARGIN_S, ConnectDriver
from penstock.spark.connect.connect_gate import ConnectGate

if TYPE_CHECKING:
    from penstock.spark.driver_registry import DriverRegistry

__all__ = ["PipelineFollower", "PipelineQuery", "call_outside_pipeline", "core_of_flow", "is_in_pipeline", "recall_slots"]

log = logging.getLogger("penstock")

T = TypeVar("T")


def is_in_pipeline() -> bool:
    """Whether this is the definition of a pipeline, run by ``spark-pipelines``."""
    module = sys.modules.get("pyspark.pipelines.graph_element_registry")  # a pipeline has loaded it
    if module is None:
        return False
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only where it is there

    try:
        module.get_active_graph_element_registry()
    except PySparkException:
        return False
    return True


def call_outside_pipeline(call: Callable[[], T], gate: str | None) -> T:
    """Call something that asks Spark about a DataFrame, which a pipeline forbids its table functions.

    It forbids that to the thread, so another thread asks. That one sees what the pipeline reads, but not what it makes.

    Raises
    ------
    PenstockError
        If Spark can't find what the DataFrame reads.
    """
    if not is_in_pipeline():
        return call()
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - pyspark is an extra

    with ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(call).result()
        except AnalysisException as error:
            what = "a gate" if gate is None else f"gate {gate!r}"
            raise PenstockError(
                f"the columns behind {what} can't be found: {str(error).splitlines()[0]} "
                "In a pipeline, put gates on what it reads from outside, not on tables that it makes"
            ) from None


class PipelineQuery:
    """A query of a pipeline, as far as its reports tell: Spark Connect can't be asked about one that it did not start."""

    def __init__(self, report: Mapping[str, Any], ended: threading.Event) -> None:
        self.id, self.runId, self.name = report["id"], report["runId"], report.get("name")
        self.lastProgress: Any = None
        self.recentProgress: Sequence[Any] = ()
        self._ended = ended

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether Spark has not said that it ended."""
        return not self._ended.is_set()

    @property
    def status(self) -> dict[str, bool]:
        """A run takes what is there and ends, so until then a batch runs."""
        return {"isTriggerActive": self.isActive, "isDataAvailable": self.isActive}

    def exception(self) -> None:
        """The pipeline says why one of its queries failed."""

    def stop(self) -> None:
        """The pipeline stops its queries."""


def core_of_flow(
    controller: Controller, max_loss: float, gates: Sequence[Any], *, keeps_all: bool, label: str, margin_s: float
) -> ByArrival:
    """Return the core of a flow. Its run ends by itself, so it keeps all rows unless the user wants to shed there too."""
    mine = copy.deepcopy(controller)
    return ByArrival(gates, Backfill(mine) if keeps_all else mine, label, max_loss=max_loss, margin_s=margin_s)


class PipelineFollower:
    """Takes over the queries of a pipeline that read gates of a shedder.

    Parameters
    ----------
    gates
        The gates of the shedder, by name.
    registry
        Its queries.
    build_core
        Makes the core of a query from gates, a label and a margin.
    """

    def __init__(self, gates: Mapping[str, Any], registry: DriverRegistry, build_core: Callable[..., ByArrival]) -> None:
        self._gates, self._registry, self._build_core = gates, registry, build_core
        self._refused: set[str] = set()
        self._is_following = False

    def follow(self, gate: ConnectGate) -> None:
        """Listen for queries that read a gate; what was decided in earlier runs holds from the first batch on."""
        recall_slots(gate)
        if not self._is_following:
            self._is_following = True
            self._registry.on_stranger = self.take_over
            self._registry.listen(gate.spark)
            atexit.register(self._registry.finish)  # the process of spark-pipelines ends when the run has ended

    def take_over(self, run_id: str, text: str) -> None:
        """Control a query from its first report on, if it reads a gate."""
        if run_id in self._refused:
            return
        report = json.loads(text)
        observed = report.get("observedMetrics") or {}
        gates = [gate for gate in list(self._gates.values()) if gate.kept_name in observed]
        if not gates:
            return
        try:
            driver = self._start_driver(report, gates)
        except (PenstockError, OSError) as error:
            self._refused.add(run_id)
            log.warning("flow %r of the pipeline is not controlled: %s", report.get("name"), error)
            return
        driver.report(text)

    def _start_driver(self, report: Mapping[str, Any], gates: Sequence[ConnectGate]) -> ConnectDriver:
        label = self._registry.label(report.get("name"))
        core = self._build_core([gate.state for gate in gates], label=label, margin_s=MARGIN_S)
        driver = ConnectDriver(gates, core, self._registry.by_label)
        driver.first_batch = int(report["batchId"])
        query: Any = PipelineQuery(report, driver.ended)
        with self._registry.enlist(driver):
            # A full refresh begins a flow anew, as another query: it counts its batches from 0 again.
            driver.open_journal(f"{gates[0].directory}/{label}-{query.id[:8]}", None, is_new=False)
            driver.attach(query)
        return driver


def recall_slots(gate: ConnectGate) -> None:
    """Put in force what the journals of earlier runs have for a gate: its table may be gone. What it lacks is taken back first.

    If one of them is open, its process lives, and looks after the table.
    """
    owners = sorted(Path(gate.directory).glob(f"*/{OWNER}"))
    changes = []
    try:
        for owner in owners:
            journal = Journal(owner.parent)
            for record in gate.find_unwritten(journal.state):
                journal.append(record)
            decisions = journal.state.decisions
            journal.close()
            changes += [(d.from_slot, d.gates[gate.name]) for d in decisions if d.from_slot is not None and gate.name in d.gates]
    except JournalError as error:
        log.debug("the table of gate %r stays as it is: %s", gate.name, error)
        return
    if not changes:
        return
    try:
        gate.publish(gate.state.restore_slots(changes))
    except PenstockError as error:
        raise PenstockError(f"gate {gate.name!r}: {error}; give it another name, or the old weights") from None
