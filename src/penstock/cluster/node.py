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

from penstock.cluster.channels import Channels, ChannelsLostError, open_channels
from penstock.cluster.deployment import DeployedQuery, Deployment
from penstock.cluster.failures import describe_failure
from penstock.cluster.node_query import AgentController, drive_query
from penstock.cluster.run_directory import RunDirectory
from penstock.cluster.status import write_status
from penstock.coordination import Manager
from penstock.coordination.agent import Agent
from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.network.queries import queries_of
from penstock.spark.batch_driver import BatchDriver
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.lazy_start import start_lazily
from penstock.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NodeRuntime", "stop_on_signals"]

log = logging.getLogger("penstock")

_EXCHANGE_S = 0.05
_WATCH_S, _RELEASE_S = 2.0, 20.0


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
        self._channels: Channels = open_channels(network, run_directory)
        run_directory.claim(network, reset=reset)
        if reset:
            self._channels.reset()
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
        clock = _Clock(seconds)
        cores = max(1, math.ceil(self.network.nodes[self.node].capacity))
        session = spark
        if session is None:
            session = local_session(f"node-{self.node}", cores=cores, scratch=self._directory / "spark", **self._conf)
        try:
            while not self._is_over(clock):
                try:
                    self._run_queries(session, clock, on_ready)
                except ChannelsLostError as error:
                    log.warning("%s", error)
                    self._shut()
        finally:
            self._shut()
            if spark is None:
                session.stop()
            self._lock.release()

    def _is_over(self, clock: _Clock) -> bool:
        """Whether it was told to stop, its time is over, or whoever started it is gone."""
        return self._stop.is_set() or clock.is_over or (self._parent is not None and os.getppid() != self._parent)

    def _run_queries(self, session: SparkSession, clock: _Clock, on_ready: Callable[[], None] | None) -> None:
        """Start the queries and serve them until it is over."""
        is_new = not any((self._directory / "queries").glob("*/offsets/[0-9]*"))
        if not self._channels.open(self._list_arcs(), is_new=is_new, is_over=lambda: self._is_over(clock)):
            return
        transport = self._channels.build_transport(self._stop)
        deployment = Deployment(session, self.network, self.node, transport, self.run_directory.outputs)
        for note in deployment.notes:
            log.warning("%s", note)
        peers = self._manager.peers
        mailbox = self._channels.build_mailbox(self.node, peers) if peers else None
        operators = {query.plan.name: query.plan.operators for query in deployment.queries}
        agent = Agent(self.network, self.node, self._manager, mailbox, self.pace_s, queries=operators)
        self._serve(deployment, agent, clock, on_ready)

    def _list_arcs(self) -> list[str]:
        """Return the arcs that this node writes or reads through the channels."""
        plans, part = queries_of(self.network, self.node)
        ends = [end for plan in plans for _, end in plan.ends if end not in self.network.outputs]
        outside = {name for name in part.inputs if name.partition("->")[0] in self.network.inputs}
        return list(dict.fromkeys([*ends, *(entry for plan in plans for entry in plan.entries if entry not in outside)]))

    def _serve(self, deployment: Deployment, agent: Agent, clock: _Clock, on_ready: Callable[[], None] | None) -> None:
        for query in deployment.queries:
            self._open(query, agent)
        agent.exchange_messages()  # with what was learnt before a restart, from all journals
        for query, driver, _ in self._running:
            self._start(query, driver)
        if clock.start() and on_ready is not None:
            on_ready()
        tasks = (
            _Task(min(1.0, self.pace_s), lambda: self._show(agent)),
            _Task(_WATCH_S, self._channels.watch),
            _Task(_RELEASE_S, self._release),
        )
        while not self._stop.wait(_EXCHANGE_S) and not self._is_over(clock):
            agent.exchange_messages()
            self._check_queries()
            for task in tasks:
                task.run_if_due()
        self._stop.set()  # a batch that waits for the channels need not wait any longer
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
        driver.attach(start_lazily(writer.trigger(processingTime=f"{self.pace_s} seconds")))

    def _checkpoint_of(self, query: DeployedQuery) -> Path:
        return self._directory / "queries" / query.plan.name.replace("->", "--")

    def _check_queries(self) -> None:
        for query, driver, _ in self._running:
            if driver.query is not None and not driver.query.isActive:
                error = str(driver.query.exception())
                reason, is_passing = self._channels.judge(error)
                if is_passing:
                    raise ChannelsLostError(f"node {self.node!r}: {reason}")
                raise PenstockError(f"node {self.node!r}: {reason or describe_failure(self.network, query.plan, error)}")

    def _release(self) -> None:
        """Let the channels forget rows that were read, up to the last batch but one: a replay never goes back further."""
        for query, _, _ in self._running:
            checkpoint = Checkpoint(self._checkpoint_of(query))
            committed = checkpoint.list_committed()
            offsets = checkpoint.offsets(committed[-2]) if len(committed) > 1 else []
            for entry, offset in zip(query.plan.entries, offsets, strict=False):
                if entry in self._list_arcs() and offset is not None:
                    try:
                        self._channels.release(entry, offset)
                    except OSError as error:
                        log.debug("%s", error.strerror)

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
        self._running.clear()
        self._channels.close()


class _Clock:
    """How long a node runs: from its first query on, or from the start if it never gets there."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._end_s = time.monotonic() + self._seconds
        self._has_started = False

    def start(self) -> bool:
        """Begin to count; return whether this is the first time."""
        if self._has_started:
            return False
        self._has_started, self._end_s = True, time.monotonic() + self._seconds
        return True

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._end_s


class _Task:
    """Something to do now and then."""

    def __init__(self, every_s: float, action: Callable[[], None]) -> None:
        self._every_s, self._action, self._last_s = every_s, action, 0.0

    def run_if_due(self) -> None:
        if time.monotonic() - self._last_s > self._every_s:
            self._action()
            self._last_s = time.monotonic()


def stop_on_signals(runtime: NodeRuntime) -> None:
    """Let Ctrl-C and a polite kill end a node between two batches."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, runtime.stop)
