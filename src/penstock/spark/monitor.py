"""From Spark's progress and plans to an ``Observation``.

Rows are counted where Spark counts them anyway: a gate is two filters, and each filter's output rows are a metric of its plan.
While ``foreachBatch`` runs, the plan of the batch is at hand, and mostly it still is when a native sink's batch is reported.
Where it is not, the SQL status store has the counts by execution.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.control.base import GateCount
from penstock.spark.gate import Gate
from penstock.spark.offsets import rows_between

__all__ = ["PlanCounter", "Progress", "counts_from_store"]

log = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Progress:
    """What Spark reports of one batch."""

    batch_id: int
    run_id: str
    start_s: float
    end_s: float
    busy_s: float
    backlog_rows: dict[str, int]
    skipped: bool = False
    """The batch had input but nothing was run: after a crash, its sink had it already."""

    @classmethod
    def parse(cls, text: str) -> Progress | None:
        """Read Spark's JSON; ``None`` for a report of a trigger that ran no batch."""
        report = json.loads(text)
        durations = report.get("durationMs", {})
        if "addBatch" not in durations or "triggerExecution" not in durations:
            return None
        start_s = datetime.fromisoformat(report["timestamp"]).timestamp()
        duration_s = durations["triggerExecution"] / 1e3
        sources = enumerate(report.get("sources", []))
        backlog = {f"source{place}": _backlog(source, duration_s) for place, source in sources}
        return cls(
            batch_id=report["batchId"],
            run_id=report["runId"],
            start_s=start_s,
            end_s=start_s + duration_s,
            busy_s=durations["addBatch"] / 1e3,
            backlog_rows=backlog,
            skipped=not report.get("numInputRows") and any(s.get("startOffset") != s.get("endOffset") for s in report["sources"]),
        )


def _backlog(source: dict[str, Any], duration_s: float) -> int:
    """Rows that wait at a source when a batch ends.

    What Spark calls the latest offset was taken when the batch was planned, so it shows only what a cap on the batch's size left
    behind. The rows that came while the batch ran are put at the rate at which its own rows came.
    """
    left = rows_between(_as_text(source.get("endOffset")), _as_text(source.get("latestOffset"))) or 0
    return left + round((source.get("inputRowsPerSecond") or 0.0) * duration_s)


def _as_text(offset: Any) -> str | None:
    """Offsets come as JSON text or as JSON values, by source."""
    return offset if offset is None or isinstance(offset, str) else json.dumps(offset)


class PlanCounter:
    """Counts at the gates of one query, read from the plan of the batch that has just run.

    Every look at a plan is a call to the JVM, so it is remembered where the filters stood, and checked that they still do.
    """

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = gates
        self._places: dict[int, list[int]] = {}
        self._looks = 0

    def read(self, plan: Any) -> dict[str, GateCount]:
        """Return offered and kept rows of each gate; zero where a gate is not in the plan, as in a batch without data."""
        rows = {tag: sum(_rows(node) for node in nodes) for tag, nodes in self._find(plan).items()}
        return _gate_counts(self._gates, rows)

    def learn_partitions(self, plan: Any, counts: dict[str, GateCount]) -> None:
        """Find out how many tasks a batch has at each bounded gate: in the first batches, for a small one may have fewer."""
        for gate in self._gates:
            if gate.bounded and counts[gate.name].offered and self._looks < _LOOKS:
                self._looks += 1
                tasks = sum(int(node.execute().getNumPartitions()) for node in self._find(plan)[gate.kept_tag])
                gate.partitions = max(tasks, gate.partitions or 1)

    def reset(self, plan: Any) -> None:
        """Set the counts of a plan back to zero."""
        for nodes in self._find(plan).values():
            for node in nodes:
                node.metrics().apply("numOutputRows").reset()

    def _find(self, plan: Any) -> dict[int, list[Any]]:
        if self._places:
            found = {tag: [plan.apply(place) for place in places] for tag, places in self._places.items()}
            if all(_is_tagged(node, tag) for tag, nodes in found.items() for node in nodes):
                return found
        tags = [tag for gate in self._gates for tag in (gate.offered_tag, gate.kept_tag)]
        found, self._places = {tag: [] for tag in tags}, {}
        places: dict[int, list[int]] = {tag: [] for tag in tags}
        numbered = True
        for place, node in enumerate(_walk(plan)):
            name = node.nodeName()
            numbered = numbered and name != "AdaptiveSparkPlan"  # Spark numbers the nodes outside of it only
            if name == "Filter":
                condition = node.condition().toString()
                for tag in (tag for tag in tags if f"-{tag})" in condition):
                    found[tag].append(node)
                    places[tag].append(place)
        if numbered and all(places.values()):
            self._places = places
        return found


def _gate_counts(gates: Sequence[Gate], rows: dict[int, int]) -> dict[str, GateCount]:
    """Turn rows by tag into counts by gate; a gate that is in no plan had no rows."""
    return {gate.name: GateCount(rows.get(gate.offered_tag, 0), rows.get(gate.kept_tag, 0)) for gate in gates}


def _rows(node: Any) -> int:
    return int(node.metrics().apply("numOutputRows").value())


def _is_tagged(node: Any, tag: int) -> bool:
    if node is None:
        return False
    line = node.simpleString(_FIELDS)
    return line.startswith("Filter ") and f"-{tag})" in line


def _walk(node: Any) -> Iterator[Any]:
    """The nodes of a physical plan in Spark's own order, and through the wrappers of adaptive execution."""
    yield node
    name = node.nodeName()
    if name == "AdaptiveSparkPlan":
        yield from _walk(node.executedPlan())
    elif name.endswith("QueryStage"):
        yield from _walk(node.plan())
    else:
        children = node.children()
        for i in range(children.size()):
            yield from _walk(children.apply(i))


def counts_from_store(
    store: Any, gates: Sequence[Gate], run_id: str, batch_id: int, wait_s: float = 2.0
) -> dict[str, GateCount] | None:
    """Return the counts of a batch from the SQL status store; ``None`` if it has let go of the batch."""
    deadline = time.monotonic() + wait_s
    while True:
        executions = _executions(store, run_id, batch_id)
        # Their events come on another queue than the progress: wait for the last of them.
        if executions and all(execution.completionTime().isDefined() for execution in executions):
            break
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)
    # A sink may run executions of its own within the batch's: only one of them has the gates' counts.
    rows: dict[int, int] = {}
    for execution in executions:
        for tag, count in _execution_rows(store, execution.executionId(), gates).items():
            rows[tag] = max(rows.get(tag, 0), count)
    return _gate_counts(gates, rows)


def _executions(store: Any, run_id: str, batch_id: int) -> list[Any]:
    count = store.executionsCount()
    recent = store.executionsList(max(0, count - _RECENT_EXECUTIONS), _RECENT_EXECUTIONS)
    wanted, before = (f"runId = {run_id}\nbatch = {number}" for number in (batch_id, batch_id - 1))
    found = []
    # Newest first, up to the batch before: each look is a call to the JVM, and the batch is among the last few.
    for place in range(recent.size() - 1, -1, -1):
        execution = recent.apply(place)
        description = execution.description()
        if description.endswith(before):
            break
        if description.endswith(wanted):
            found.append(execution)
    return found


def _execution_rows(store: Any, execution_id: int, gates: Sequence[Gate]) -> dict[int, int]:
    values = store.executionMetrics(execution_id)
    nodes = store.planGraph(execution_id).allNodes()
    rows: dict[int, int] = {}
    for i in range(nodes.size()):
        node = nodes.apply(i)
        if node.name() != "Filter":
            continue
        description = node.desc()
        for tag in (tag for gate in gates for tag in (gate.offered_tag, gate.kept_tag)):
            if f"-{tag})" in description:
                rows[tag] = rows.get(tag, 0) + _output_rows(node, values)
    return rows


_RECENT_EXECUTIONS = 64
_LOOKS = 20
_FIELDS = 25  # Spark's own limit for a line of a plan; a condition is not cut by it


def _output_rows(node: Any, values: Any) -> int:
    metrics = node.metrics()
    for i in range(metrics.size()):
        metric = metrics.apply(i)
        if metric.name() == "number of output rows":
            value = values.get(metric.accumulatorId())
            return int(value.get().replace(",", "")) if value.isDefined() else 0
    return 0
