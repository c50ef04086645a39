"""One query of a node under its agent: what the agent decides, how batches are sized, counted and timed."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from penstock.cluster.deployment import DeployedQuery
from penstock.cluster.gate_units import equalize
from penstock.cluster.transport import DirectoryTransport
from penstock.control.base import Controller, Decision, GateCount, Observation
from penstock.coordination.agent import Agent
from penstock.decision import ByBatch
from penstock.errors import PenstockError
from penstock.journal.records import OutputRecord
from penstock.network.model import arc_name
from penstock.spark.batch_driver import BatchCounts, BatchDriver, BatchHooks
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.plan_counts import PlanCounter
from penstock.spark.running_query import RunningQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["AgentController", "drive_query"]

log = logging.getLogger("penstock")

_COLD_BATCHES = 2
_DENSITIES = 5
_STAGES_REMEMBERED = 10_000


class AgentController(Controller):
    """Lets a node's agent decide for one query: a keep for each of its gates, from the rows that wait at its entries."""

    def __init__(self, agent: Agent, query: DeployedQuery, counter: NodeCounter) -> None:
        super().__init__(agent.pace_s)
        self._agent, self._query, self._counter = agent, query.plan.name, counter
        self._gates = frozenset(gate.name for gate in query.gates)
        self._units = query.units

    def update(self, observation: Observation) -> Decision:
        """Tell the agent what the last batch took, and ask it for the next."""
        self.learn()
        offered = {name: rows for name, rows in observation.backlog_rows.items() if name in self._gates}
        decided = self._agent.decide_batch(self._query, offered, observation.taken_s)
        keeps = equalize({name: decided.get(name, 1.0) for name in self._gates}, self._units)
        total = sum(offered.values())
        keep = sum(rows * keeps[name] for name, rows in offered.items()) / total if total else 1.0
        return Decision(min(1.0, keep), gates=keeps)

    def learn(self) -> None:
        """Tell the agent what the last batch took, now that Spark has it all together."""
        measured = self._counter.take_measured()
        if measured is not None:
            self._agent.learn(self._query, *measured)

    def learnt(self) -> dict[str, float]:
        """Return what the query costs, once a batch has told. How long a batch may take is a matter of the whole node."""
        known = self._agent.describe_query(self._query)
        values = {"cost_s": known["cost"], "overhead_s": known["overhead_s"]} if known["batches"] else {}
        return {name: float(f"{value:.6g}") for name, value in values.items()}

    def snapshot(self) -> dict[str, Any]:
        """Return what the agent has learnt from this query."""
        return self._agent.snapshot(self._query)

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Continue from a snapshot, and return the controller."""
        self._agent.restore(state)
        return self


class NodeSizes:
    """The rows of a batch at each entry of a query. Spark has logged its offsets, and the files they mean, before it runs.

    A source whose offsets say nothing is taken to bring as much as in the batch before.
    """

    rows_per_byte: Mapping[str, float] = MappingProxyType({})
    """Nothing is estimated from bytes."""

    def __init__(self, query: DeployedQuery) -> None:
        self._query = query
        self._before: Mapping[str, GateCount] = {}
        self._sizes: dict[str, int | None] = {}
        self._densities: dict[str, deque[float]] = {}

    def note(self, counts: Mapping[str, GateCount]) -> None:
        """Remember the counts of a batch, and how many rows its offsets had: in Kafka, a transaction's end takes one too."""
        self._before = counts
        for name, count in counts.items():
            size = self._sizes.get(name)
            if size and count.offered <= size:
                self._densities.setdefault(name, deque([1.0], maxlen=_DENSITIES)).append(count.offered / size)

    def read(self, checkpoint: Checkpoint, batch_id: int) -> dict[str, int]:
        """Return the rows by entry."""
        entries = self._query.plan.entries
        try:
            rows = checkpoint.count_rows(batch_id, entries, DirectoryTransport.count_rows)
        except (OSError, ValueError, PenstockError):
            log.debug("the size of batch %d is not known", batch_id, exc_info=True)
            rows = dict.fromkeys(entries)
        self._sizes = rows
        dense = {name: max(self._densities.get(name, (1.0,))) for name in entries}  # the densest, so that a bound stays one
        rows = {name: None if count is None else math.ceil(count * dense[name]) for name, count in rows.items()}
        before = {name: count.offered for name, count in self._before.items()}
        return {name: count if count is not None else before.get(name, 0) for name, count in rows.items()}


class NodeCounter:
    """Counts at the gates of a query, also at those behind splits, and measures what its operators did."""

    persists = False

    def __init__(self, query: DeployedQuery, sizes: NodeSizes) -> None:
        self._query = query
        self._sizes = sizes
        self._counter = PlanCounter(tuple(query.entry_gates.values()))
        self._stages = StageTimes(query)
        self._rows: tuple[dict[str, int], dict[str, int]] | None = None
        self._running: RunningQuery | None = None
        self.cold_batches = _COLD_BATCHES
        """Batches with rows until times say something: the first ones start workers and compile code."""

    def begin(self) -> None:
        """Nothing to do: a node's executors are in its own process."""

    def count(self, running: RunningQuery, df: DataFrame) -> Callable[[], BatchCounts]:  # noqa: ARG002 - the plan has the counts
        """Return what reads the counts of the batch."""
        return partial(self._read, running)

    def _read(self, running: RunningQuery) -> BatchCounts:
        query = self._query
        counts = self._counter.read(running.plan()) if query.entry_gates else {}
        readings = {name: gate.take_reading() for name, gate in query.entry_gates.items()}
        rows_in, rows_out, split = query.take_counts({name: count.kept for name, count in counts.items()})
        counts |= {name: GateCount(offered, kept) for name, (offered, kept) in split.items()}
        self._rows, self._running = (rows_in, rows_out), running
        self._sizes.note(counts)
        written = {
            target: split[arc][1] if (arc := arc_name(source, target)) in split else rows_out.get(source)
            for source, target in query.plan.ends
        }
        outputs = {
            name: output if output.rows is not None else OutputRecord(written[name], output.mean_delay_s, output.worst_delay_s)
            for name, output in query.output_records.items()
        }
        return BatchCounts(counts, readings, outputs or None)

    def take_measured(self) -> tuple[dict[str, int], dict[str, int], float | None] | None:
        """Return rows into and out of each operator in the last batch, and the seconds they took, once."""
        if self._rows is None or self._running is None:
            return None
        (rows_in, rows_out), self._rows = self._rows, None
        try:
            busy_s = self._stages.take(self._running)
        except Exception:  # Spark may have let go of a stage: the batch is counted all the same
            log.debug("the time of a batch is not known", exc_info=True)
            busy_s = None
        if self.cold_batches:
            self.cold_batches -= any(rows_in.values())
            busy_s = None
        return rows_in, rows_out, busy_s


class StageTimes:
    """Seconds of task time, from Spark's status store."""

    def __init__(self, query: DeployedQuery) -> None:
        self._spark = query.spark
        self._jobs: set[int] = set()
        self._stages: set[int] = set()

    def take(self, running: RunningQuery) -> float | None:
        """Return the seconds of the jobs since the last call; ``None`` if there were none."""
        store = self._spark._jsc.sc().statusStore()
        current = set(running.job_ids())
        total_ms, has_stages = 0, False
        for job in current - self._jobs:
            stages = store.job(job).stageIds()
            for index in range(stages.size()):
                stage = stages.apply(index)
                if stage not in self._stages:
                    self._stages.add(stage)
                    total_ms += int(store.lastStageAttempt(stage).executorRunTime())
                    has_stages = True
        self._jobs = current  # Spark forgets old ones, and so may we
        self._stages = {stage for stage in self._stages if stage > max(self._stages) - _STAGES_REMEMBERED}
        return total_ms / 1e3 if has_stages else None


def drive_query(query: DeployedQuery, agent: Agent) -> tuple[BatchDriver, AgentController]:
    """Return the driver of a node's query, and the controller by which its agent decides."""
    sizes = NodeSizes(query)
    counter = NodeCounter(query, sizes)
    name = query.plan.name
    controller = AgentController(agent, query, counter)

    def note_size(rows: Mapping[str, int] | None) -> None:
        query.expected_rows = None if rows is None else sum(rows.values())

    def end_batch(batch_id: int) -> None:  # noqa: ARG001 - the agent knows which one runs
        if not counter.cold_batches:
            agent.end_batch(name)

    driver = BatchDriver(
        query.spark,
        query,
        query.gates,
        ByBatch([gate.state for gate in query.gates], controller, name),
        is_paced=True,
        counter=counter,
        sizes=sizes,
        hooks=BatchHooks(sized=note_size, ended=end_batch),
    )
    return driver, controller
