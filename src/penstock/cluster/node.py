"""One node of a network as an application: its queries under its agent."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.deployment import DeployedQuery, Deployment
from penstock.cluster.failures import describe_failure
from penstock.cluster.node_query import AgentController, drive_query
from penstock.cluster.run_directory import RunDirectory
from penstock.cluster.status import write_status
from penstock.cluster.transport import DirectoryTransport
from penstock.coordination import DirectoryMailbox, Manager
from penstock.coordination.agent import Agent
from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.spark.batch_driver import BatchDriver
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.replay import register_replay
from penstock.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NodeRuntime", "stop_on_signals"]

log = logging.getLogger("penstock")

_EXCHANGE_S = 0.05


class NodeRuntime:
    """Runs one node until it is told to stop or one of its queries fails."""

    def __init__(
        self,
        network: Network,
        node: str,
        run_directory: RunDirectory,
        manager: Manager,
        *,
        pace_s: float = 2.0,
        reset: bool = False,
        conf: Mapping[str, str] | None = None,
        parent: int | None = None,
    ) -> None:
        if node not in network.nodes:
            raise PenstockError(f"there is no node {node!r}; there are {', '.join(network.nodes)}")
        self.network, self.node, self.run_directory, self.pace_s = network, node, run_directory, pace_s
        self._fingerprint = run_directory.claim(network, reset=reset)
        self._directory = run_directory.node(node)
        taken = f"node {node!r} runs already in {run_directory.root}: a node is one process"
        self._lock = run_directory.lock(self._directory, taken)
        self._manager = manager
        self._conf = dict(conf or {})
        self._parent = parent
        self._stop = threading.Event()
        self._running: list[tuple[DeployedQuery, BatchDriver, AgentController]] = []

    def stop(self, *_: Any) -> None:
        """Stop after the batches that are running."""
        self._stop.set()

    def run(
        self, seconds: float | None = None, on_ready: Callable[[], None] | None = None, spark: SparkSession | None = None
    ) -> None:
        """Start the queries and serve them; returns when stopped, raises one line when a query fails.

        Without a session of the caller's it starts one of its own, with as many cores as the node has capacity.
        """
        cores = max(1, math.ceil(self.network.nodes[self.node].capacity))
        transport = DirectoryTransport(self.run_directory.arcs)
        session = spark
        if session is None:
            session = local_session(f"node-{self.node}", cores=cores, scratch=self._directory / "spark", **self._conf)
        try:
            register_replay(session)
            deployment = Deployment(session, self.network, self.node, transport, self.run_directory.outputs)
            for note in deployment.notes:
                log.warning("%s", note)
            mailbox = None
            if self._manager.peers:
                mailbox = DirectoryMailbox(self.run_directory.messages, self.node, self._manager.peers, self._fingerprint)
            operators = {query.plan.name: query.plan.operators for query in deployment.queries}
            agent = Agent(self.network, self.node, self._manager, mailbox, self.pace_s, queries=operators)
            self._serve(deployment, agent, seconds, on_ready)
        finally:
            self._shut()
            if spark is None:
                session.stop()
            self._lock.release()

    def _serve(self, deployment: Deployment, agent: Agent, seconds: float | None, on_ready: Callable[[], None] | None) -> None:
        for query in deployment.queries:
            self._open(query, agent)
        agent.exchange_messages()  # with what was learnt before a restart, from all journals
        for query, driver, _ in self._running:
            self._start(query, driver)
        if on_ready is not None:
            on_ready()
        began, shown = time.monotonic(), 0.0
        while not self._stop.wait(_EXCHANGE_S):
            agent.exchange_messages()
            self._check_queries()
            if time.monotonic() - shown > min(1.0, self.pace_s):
                self._show(agent)
                shown = time.monotonic()
            if seconds is not None and time.monotonic() - began > seconds:
                break
            if self._parent is not None and os.getppid() != self._parent:  # whoever started it is gone
                break
        for _, driver, controller in self._running:
            driver.stop()
            driver.guard("learn from the last batch", controller.learn)
        self._show(agent)

    def _open(self, query: DeployedQuery, agent: Agent) -> None:
        """Open a query's journal, which holds what the agent has learnt from it."""
        driver, controller = drive_query(query, agent)
        checkpoint = str(self._checkpoint_of(query))
        query_id = Checkpoint(checkpoint).query_id()
        driver.open_journal(f"{checkpoint}/penstock", query_id, is_new=query_id is None)
        self._running.append((query, driver, controller))

    def _start(self, query: DeployedQuery, driver: BatchDriver) -> None:
        writer = query.df.writeStream.foreachBatch(driver).queryName(f"{self.node}.{query.plan.name}")
        writer = writer.option("checkpointLocation", str(self._checkpoint_of(query))).outputMode("append")
        driver.attach(writer.trigger(processingTime=f"{self.pace_s} seconds").start())

    def _checkpoint_of(self, query: DeployedQuery) -> Path:
        return self._directory / "queries" / query.plan.name.replace("->", "--")

    def _check_queries(self) -> None:
        for query, driver, _ in self._running:
            if driver.query is not None and not driver.query.isActive:
                error = str(driver.query.exception())
                raise PenstockError(f"node {self.node!r}: {describe_failure(self.network, query.plan, error)}")

    def _show(self, agent: Agent) -> None:
        """Write what a person may want to see."""
        states = {driver.label: driver.journal.state.copy() for _, driver, _ in self._running}
        gates: dict[str, tuple[int, int]] = {}
        outputs: dict[str, dict[str, Any]] = {}
        for state in states.values():
            gates |= state.totals()
            outputs |= {name: asdict(total) for name, total in state.output_totals().items()}
        batches = {label: len(state.batches) + state.compacted_batches for label, state in states.items()}
        status = {**agent.status(), "batches": batches, "gates": gates, "outputs": outputs, "pid": os.getpid()}
        write_status(self._directory / "status.json", status)

    def _shut(self) -> None:
        for _, driver, _ in self._running:
            if driver.query is not None and driver.query.isActive:
                driver.query.stop()
            driver.finish()


def stop_on_signals(runtime: NodeRuntime) -> None:
    """Let Ctrl-C and a polite kill end a node between two batches."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, runtime.stop)
