"""One node of a network as an application: its queries under its agent."""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.deployment import DeployedQuery, Deployment, Written
from penstock.cluster.transport import DirectoryTransport
from penstock.control import KeepAll
from penstock.control.base import GateCount
from penstock.coordination import DirectoryMailbox, Manager
from penstock.coordination.agent import Agent
from penstock.coordination.fingerprint import describe_changes, describe_network, fingerprint
from penstock.errors import PenstockError
from penstock.journal.journal import DecisionRecord
from penstock.journal.report import QueryLedger
from penstock.network.model import Network, arc_name
from penstock.spark.by_batch import BatchLoop
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.monitor import PlanCounter
from penstock.spark.replay import register_replay
from penstock.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["NodeRuntime", "RunDirectory", "read_status", "stop_on_signals", "write_status"]

log = logging.getLogger("penstock")

_EXCHANGE_S = 0.05
_STAGES = 10_000
_COLD_BATCHES = 2
_LOG_BYTES = 20_000_000


class RunDirectory:
    """The directory in which a network runs: what every process of it must agree on.

    ``network.json`` says which network it is; ``arcs``, ``outputs``, ``messages`` and ``nodes/<name>`` hold the rest.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    @property
    def arcs(self) -> Path:
        """Where micro-batches travel between nodes."""
        return self.root / "arcs"

    @property
    def outputs(self) -> Path:
        """Where answers are written by default."""
        return self.root / "outputs"

    @property
    def messages(self) -> Path:
        """Where nodes and coordinator exchange messages."""
        return self.root / "messages"

    def node(self, name: str) -> Path:
        """What belongs to one node."""
        return self.root / "nodes" / name

    def claim(self, network: Network, *, reset: bool = False) -> str:
        """See that this place is this network's, or make it so; its fingerprint."""
        path = self.root / "network.json"
        now = json.loads(json.dumps(describe_network(network)))
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            before = json.loads(path.read_text()) if path.exists() else None
        except OSError as error:
            raise PenstockError(f"the directory {self.root} can't be used: {error.strerror}") from error
        except ValueError as error:
            if not reset:
                raise PenstockError(f"{path} is damaged: {error}; start anew with --reset") from error
            before = None
        changed = describe_changes(before, now) if before is not None else []
        if changed and not reset:
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            raise PenstockError(
                f"the network has changed since {self.root} was made: {changed[0]}{more}; "
                "start anew with --reset, which forgets what is under way there"
            )
        if reset:
            self._forget()
        if before is None or reset:
            try:
                temporary = path.with_name(f".network.json.{os.getpid()}")
                temporary.write_text(json.dumps(now, indent=1))
                temporary.replace(path)
            except OSError as error:
                raise PenstockError(f"the directory {self.root} can't be written: {error.strerror}") from error
        return fingerprint(network)

    def _forget(self) -> None:
        """Remove what is under way; answers are put aside."""
        locks = [*self.root.glob("nodes/*/lock"), *self.root.glob("coordinator/lock")]
        busy = [path.parent.name for path in locks if _is_locked(path)]
        if busy:
            who = "the coordinator" if busy[0] == "coordinator" else f"node {busy[0]!r}"
            raise PenstockError(f"{who} is running in {self.root}: stop it before --reset")
        if self.outputs.exists():
            number = 1 + len(list(self.root.glob("outputs-*")))
            self.outputs.rename(self.root / f"outputs-{number}")
        for place in (self.arcs, self.messages, self.root / "nodes", self.coordinator):
            shutil.rmtree(place, ignore_errors=True)

    @property
    def coordinator(self) -> Path:
        """What belongs to the coordinator."""
        return self.root / "coordinator"

    def lock(self, place: Path, taken: str) -> int:
        """Be the only process of a place; what to say if another is."""
        try:
            place.mkdir(parents=True, exist_ok=True)
            handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise PenstockError(f"the directory {place} can't be written: {error.strerror}") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise PenstockError(taken) from error
        return handle


def _is_locked(path: Path) -> bool:
    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


class _PieceLoop(BatchLoop):
    """One query of a node: the agent decides, by batch, as in any other loop; what it measures goes to the agent."""

    def __init__(self, query: DeployedQuery, agent: Agent, pace_s: float, on_written: Callable[[list[Written]], None]) -> None:
        super().__init__(query, query.gates, KeepAll(pace_s), pace_s, query.piece.name)
        self.piece_query = query
        self._agent = agent
        self._on_written = on_written
        self._stream_counter = PlanCounter(tuple(query.entry_gates.values()))
        self._pending: tuple[dict[str, int], dict[str, int]] | None = None
        self._stages: set[int] = set()
        self._cold_batches = _COLD_BATCHES
        self._jobs_done: set[int] = set()
        self.paced = True

    @property
    def _session(self) -> SparkSession:
        return self.piece_query.spark

    def _set_table(self, batch_id: int) -> None:
        self._account()
        rows = self.guarded("read the size of a batch", self._entry_rows, batch_id)
        self.piece_query.expected = None if rows is None else sum(rows.values())
        journaled = self.journal.state.decision_for(batch_id)
        if journaled is None:
            gates = {gate.name for gate in self.gates}
            offered = {name: count for name, count in (rows or {}).items() if name in gates}
            keeps = self._agent.decide_batch(self.label, offered)
            total = sum(offered.values())
            keep = sum(count * keeps.get(name, 1.0) for name, count in offered.items()) / total if total else 1.0
            journaled = DecisionRecord({name: (keeps.get(name, 1.0),) for name in gates}, keep, batch_id=batch_id)
            self.journal.append(journaled)
        self.publish(journaled)

    def _entry_rows(self, batch_id: int) -> dict[str, int]:
        """How many rows the batch has at each entry; Spark has written its offsets, and the files they mean, before.

        A source whose offsets say nothing is taken to bring as much as in the batch before.
        """
        found = self._checkpoint.entry_rows(batch_id, self.piece_query.piece.entries, DirectoryTransport.rows_of)
        before = self._last.gates if self._last is not None else {}
        return {name: rows if rows is not None else before.get(name, (0, 0))[0] for name, rows in found.items()}

    def _settle(self, df: DataFrame, batch_id: int) -> None:  # noqa: ARG002 - the plan has the counts
        plan = self._stream.lastExecution().executedPlan()
        counts = self._stream_counter.read(plan) if self.piece_query.entry_gates else {}
        readings = {name: gate.meters.take() for name, gate in self.piece_query.entry_gates.items()}
        into, out, split = self.piece_query.counts({name: count.kept for name, count in counts.items()})
        counts |= {name: GateCount(offered, kept) for name, (offered, kept) in split.items()}
        record = self.batch_record(batch_id, counts, readings, end_s=time.time())
        self._last = record
        self._pending = (into, out)
        if not self._cold_batches:
            self._agent.end_batch(self.label)
        self.journal.append(record)
        rows = {
            target: split[arc][1] if (arc := arc_name(source, target)) in split else out.get(source)
            for source, target in self.piece_query.piece.ends
        }
        written = [one if one.rows is not None else replace(one, rows=rows[one.output]) for one in self.piece_query.written]
        self._on_written(written)

    def _account(self) -> None:
        """Give the agent what the batch before took, now that Spark has it all together."""
        if self._pending is None:
            return
        into, out = self._pending
        self._pending = None
        busy_s = self.guarded("read the time of a batch", self._busy_s)
        if self._cold_batches:  # the first batches with rows start workers and compile code: their time says nothing
            self._cold_batches -= any(into.values())
            busy_s = None
        self._agent.learn(self.label, into, out, busy_s)

    def _busy_s(self) -> float | None:
        """Seconds of task time of the jobs since the last call, from Spark's status store."""
        store = self._session._jsc.sc().statusStore()
        current = set(self._tracker.getJobIdsForGroup(self._run_id))
        jobs = current - self._jobs_done
        total_ms, found = 0, False
        for job in jobs:
            stages = store.job(job).stageIds()
            for place in range(stages.size()):
                stage = stages.apply(place)
                if stage in self._stages:
                    continue
                self._stages.add(stage)
                total_ms += int(store.lastStageAttempt(stage).executorRunTime())
                found = True
        self._jobs_done = current  # Spark forgets old ones, and so may we
        self._stages = {stage for stage in self._stages if stage > max(self._stages) - _STAGES}
        return total_ms / 1e3 if found else None


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
        self._mark = run_directory.claim(network, reset=reset)
        self._place = run_directory.node(node)
        self._lock = run_directory.lock(self._place, f"node {node!r} runs already in {run_directory.root}: a node is one process")
        self._manager = manager
        self._conf = dict(conf or {})
        self._parent = parent
        self._stop = threading.Event()
        self._loops: list[_PieceLoop] = []
        self._totals: dict[str, dict[str, float]] = {}
        self._written = threading.Lock()

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
        own = spark is None
        if spark is None:
            spark = local_session(f"node-{self.node}", cores=cores, scratch=self._place / "spark", **self._conf)
        try:
            register_replay(spark)
            deployment = Deployment(spark, self.network, self.node, transport, self.run_directory.outputs)
            mailbox = None
            if self._manager.peers:
                mailbox = DirectoryMailbox(self.run_directory.messages, self.node, self._manager.peers, self._mark)
            queries = {query.piece.name: query.piece.operators for query in deployment.queries}
            agent = Agent(self.network, self.node, self._manager, mailbox, self.pace_s, queries=queries)
            self._restore(agent)
            self._serve(deployment, agent, seconds, on_ready)
        finally:
            self._shut()
            if own:
                spark.stop()
            os.close(self._lock)

    def _serve(self, deployment: Deployment, agent: Agent, seconds: float | None, on_ready: Callable[[], None] | None) -> None:
        agent.exchange_messages()
        for query in deployment.queries:
            self._start(query, agent)
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
        for loop in self._loops:
            loop.stop()
        for loop in self._loops:
            loop._account()
        self._show(agent)

    def _start(self, query: DeployedQuery, agent: Agent) -> None:
        checkpoint = self._place / "queries" / query.piece.name.replace("->", "--")
        loop = _PieceLoop(query, agent, self.pace_s, self._note_written)
        query_id = Checkpoint(str(checkpoint)).query_id()
        loop.open_journal(f"{checkpoint}/penstock", query_id, fresh=query_id is None)
        writer = query.df.writeStream.foreachBatch(loop).queryName(f"{self.node}.{query.piece.name}")
        writer = writer.option("checkpointLocation", str(checkpoint)).outputMode("append")
        loop.query = writer.trigger(processingTime=f"{self.pace_s} seconds").start()
        self._loops.append(loop)

    def _check_queries(self) -> None:
        for loop in self._loops:
            query = loop.query
            if query is not None and not query.isActive:
                error = query.exception()
                raise PenstockError(f"node {self.node!r}: {_blamed(self.network, loop.piece_query, str(error))}")

    def _note_written(self, written: list[Written]) -> None:
        with self._written:
            lines = []
            for one in written:
                total = self._totals.setdefault(
                    one.output, {"rows": 0, "delay_rows": 0, "delay_sum_s": 0.0, "worst_delay_s": 0.0}
                )
                total["rows"] += one.rows or 0
                if one.rows and one.mean_delay_s is not None:
                    total["delay_rows"] += one.rows
                    total["delay_sum_s"] += one.rows * one.mean_delay_s
                    total["worst_delay_s"] = max(total["worst_delay_s"], one.worst_delay_s or 0.0)
                line = {"output": one.output, "rows": one.rows, "mean_delay_s": one.mean_delay_s}
                lines.append(json.dumps({**line, "worst_delay_s": one.worst_delay_s, "end_s": one.end_s}))
            if lines:
                path = self._place / "written.jsonl"
                if path.exists() and path.stat().st_size > _LOG_BYTES:
                    path.replace(path.with_suffix(".1.jsonl"))
                with path.open("a") as stream:
                    stream.write("\n".join(lines) + "\n")

    def _show(self, agent: Agent) -> None:
        """Write what a person may want to see, and what a restart takes up."""
        batches = {loop.label: len(loop.journal.state.batches) for loop in self._loops}
        gates: dict[str, tuple[int, int]] = {}
        for loop in self._loops:
            gates |= QueryLedger(loop.label, loop.how, self.pace_s, loop.journal.state.copy()).totals()
        status = {**agent.status(), "batches": batches, "gates": gates, "outputs": self._totals, "pid": os.getpid()}
        write_status(self._place / "status.json", status)
        write_status(self._place / "learnt.json", agent.snapshot())

    def _restore(self, agent: Agent) -> None:
        before = read_status(self._place / "status.json")
        if before is not None:
            self._totals = before.get("outputs", {})
        try:
            agent.restore(json.loads((self._place / "learnt.json").read_text()))
        except (OSError, ValueError, KeyError, TypeError):
            log.debug("node %s starts from declared values", self.node)

    def _shut(self) -> None:
        for loop in self._loops:
            if loop.query is not None and loop.query.isActive:
                loop.query.stop()
            loop.close()


def _blamed(network: Network, query: DeployedQuery, message: str) -> str:
    """Name the operator whose function is in the traceback, or those that may be meant."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    named = []
    for name in query.piece.operators:
        given = network.work.get(name, {}).get("function")
        module = str(given).partition(":")[0] if isinstance(given, str) else getattr(given, "__module__", None)
        source = getattr(sys.modules.get(str(module)), "__file__", None)
        if given is not None and source is not None and source in message:
            named.append(name)
    if not named:
        named = [name for name in query.piece.operators if "function" in network.work.get(name, {})] or list(
            query.piece.operators
        )
    who = f"operator {named[0]!r}" if len(named) == 1 else f"one of the operators {', '.join(map(repr, named))}"
    errors = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception")) and "py4j" not in line]
    said = errors[-1] if errors else lines[0] if lines else "it ended without a word"
    return f"{who} failed: {said}"


def read_status(path: Path) -> dict[str, Any] | None:
    """What a process last wrote of itself; ``None`` if it has written nothing yet."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found


def write_status(path: Path, content: Mapping[str, Any]) -> None:
    """Write what a person may want to see, whole; it is a view, so a full disk is no reason to stop."""
    try:
        temporary = path.with_name(f".{path.name}")
        temporary.write_text(json.dumps(content))
        temporary.replace(path)
    except OSError as error:
        log.warning("%s could not be written: %s", path, error.strerror)


def stop_on_signals(runtime: NodeRuntime) -> None:
    """Let Ctrl-C and a polite kill end a node between two batches."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, runtime.stop)
