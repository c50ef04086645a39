"""Rows offered and kept at the gates of a batch, read from where Spark counts them anyway.

A gate is two filters, and each filter's output rows are a metric of its plan. While ``foreachBatch`` runs, the plan of the batch
is at hand, and mostly it still is when a native sink's batch is reported. Where it is not, the SQL status store has the counts by
execution.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.control.base import GateCount
from penstock.spark.gates import Gate

__all__ = ["PlanCounter", "counts_from_store"]

_RECENT_EXECUTIONS = 64
_LOOKS = 20
_FIELDS = 25  # Spark's own limit for a line of a plan; a condition is not cut by it


class PlanCounter:
    """Counts at the gates of one query, read from the plan of the batch that has just run.

    Every look at a plan is a call to the JVM, so the numbers of the filters' nodes are remembered, and checked.
    """

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = gates
        self._positions: dict[int, list[int]] = {}
        self._looks = 0

    def read(self, plan: Any) -> dict[str, GateCount]:
        """Return offered and kept rows of each gate; zero where a gate is not in the plan, as in a batch without data."""
        rows = {tag: sum(_rows(node) for node in nodes) for tag, nodes in self._find(plan).items()}
        return _gate_counts(self._gates, rows)

    def tasks(self, plan: Any, counts: Mapping[str, GateCount]) -> dict[str, int]:
        """Return how many tasks the batch had at each bounded gate; looked up in the first batches only, since it costs calls."""
        tasks = {}
        for gate in self._gates:
            if gate.specification.is_bounded and counts[gate.name].offered and self._looks < _LOOKS:
                self._looks += 1
                tasks[gate.name] = sum(int(node.execute().getNumPartitions()) for node in self._find(plan)[gate.kept_tag])
        return tasks

    def reset(self, plan: Any) -> None:
        """Set the counts of a plan back to zero."""
        for nodes in self._find(plan).values():
            for node in nodes:
                node.metrics().apply("numOutputRows").reset()

    def _find(self, plan: Any) -> dict[int, list[Any]]:
        if self._positions:
            remembered = {tag: [plan.apply(position) for position in positions] for tag, positions in self._positions.items()}
            if all(_is_tagged(node, tag) for tag, nodes in remembered.items() for node in nodes):
                return remembered
        tags = [tag for gate in self._gates for tag in (gate.offered_tag, gate.kept_tag)]
        self._positions = {}
        filters: dict[int, list[Any]] = {tag: [] for tag in tags}
        positions: dict[int, list[int]] = {tag: [] for tag in tags}
        is_numbered = True
        for position, node in enumerate(_walk(plan)):
            name = node.nodeName()
            is_numbered = is_numbered and name != "AdaptiveSparkPlan"  # Spark numbers the nodes outside of it only
            if name == "Filter":
                condition = node.condition().toString()
                for tag in (tag for tag in tags if f"-{tag})" in condition):
                    filters[tag].append(node)
                    positions[tag].append(position)
        if is_numbered and all(positions.values()):
            self._positions = positions
        return filters


def _gate_counts(gates: Sequence[Gate], rows: dict[int, int]) -> dict[str, GateCount]:
    """Turn rows by tag into counts by gate; a gate in no plan had no rows."""
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
    executions = []
    # Newest first, up to the batch before: each look is a call to the JVM, and the batch is among the last few.
    for position in range(recent.size() - 1, -1, -1):
        execution = recent.apply(position)
        description = execution.description()
        if description.endswith(before):
            break
        if description.endswith(wanted):
            executions.append(execution)
    return executions


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


def _output_rows(node: Any, values: Any) -> int:
    metrics = node.metrics()
    for i in range(metrics.size()):
        metric = metrics.apply(i)
        if metric.name() == "number of output rows":
            value = values.get(metric.accumulatorId())
            return int(value.get().replace(",", "")) if value.isDefined() else 0
    return 0
