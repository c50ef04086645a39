"""Rows offered and kept at the gates of a batch, read from the metrics that Spark keeps anyway.

A gate is two filters, and Spark counts the output rows of each filter in the plan. While ``foreachBatch`` runs, the plan of the
batch is available, and usually it still is when a batch by arrival is reported. If it is not, the SQL status store has
the counts per execution.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.control.base import GateCount
from penstock.spark.gates import Gate
from penstock.spark.writer_settings import read_private_field

__all__ = ["PlanCounter", "read_stored_counts"]

_RECENT_EXECUTIONS = 64
_TASK_LOOKUPS = 20
_FIELDS = 25  # Spark's default limit for a line of a plan; it does not cut a condition


class PlanCounter:
    """Reads the counts at the gates of one query from the plan of the batch that has just run.

    Every access to a plan is a call to the JVM, so the positions of the filters are remembered, and checked before each use.
    """

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = gates
        self._positions: dict[int, list[int]] = {}
        self._task_lookups = 0

    def read(self, plan: Any) -> dict[str, GateCount]:
        """Return the rows offered and kept at each gate; zero if a gate is not in the plan, as in a batch without data."""
        rows = {tag: sum(_read_rows(node) for node in nodes) for tag, nodes in self._find_filters(plan).items()}
        return _to_gate_counts(self._gates, rows)

    def count_tasks(self, plan: Any, counts: Mapping[str, GateCount]) -> dict[str, int]:
        """Return how many tasks the batch had at each bounded gate; only in the first batches, because it calls the JVM."""
        tasks = {}
        for gate in self._gates:
            if gate.specification.is_bounded_by_arrival and counts[gate.name].offered and self._task_lookups < _TASK_LOOKUPS:
                self._task_lookups += 1
                tasks[gate.name] = sum(int(node.execute().getNumPartitions()) for node in self._find_filters(plan)[gate.kept_tag])
        return tasks

    def reset(self, plan: Any) -> None:
        """Set the counts of a plan back to zero."""
        for nodes in self._find_filters(plan).values():
            for node in nodes:
                node.longMetric("numOutputRows").reset()

    def count_exchanges(self, plan: Any) -> dict[str, GateCount]:
        """Run the stages ahead of shuffles that have gates in them once more, alone; return the counts of those gates.

        What the stages wrote before is forgotten first, else Spark would leave them out. Nothing else of the batch runs.
        """
        filters, shuffles = self._find_filters(plan), _find_shuffles(plan, self._tags)
        for tag, exchanges in shuffles.items():
            for node in filters[tag] if exchanges else []:
                node.longMetric("numOutputRows").reset()
        context = self._gates[0].spark._jsc.sc()
        tracker = read_private_field(context.dagScheduler(), "mapOutputTracker")  # py4j can't look into SparkEnv of Spark 4.3
        dependencies = {}
        for exchanges in shuffles.values():
            for node in exchanges:
                dependency = node.shuffleDependency()
                dependencies[int(dependency.shuffleId())] = dependency
        for number, dependency in sorted(dependencies.items()):  # those further ahead in the plan were made first
            tracker.unregisterAllMapAndMergeOutput(number)
            context.submitMapStage(dependency).get()
        counts = self.read(plan)
        return {gate.name: counts[gate.name] for gate in self._gates if shuffles[gate.kept_tag]}

    def count_rest(self, plan: Any, evaluate: Callable[[], None]) -> dict[str, GateCount]:
        """Evaluate the batch once more; return the counts of the gates that are ahead of no shuffle of its plan."""
        filters, shuffles = self._find_filters(plan), _find_shuffles(plan, self._tags)
        gates = [gate for gate in self._gates if filters[gate.kept_tag] and not shuffles[gate.kept_tag]]
        if not gates:
            return {}
        for gate in gates:
            for node in filters[gate.offered_tag] + filters[gate.kept_tag]:
                node.longMetric("numOutputRows").reset()
        evaluate()
        counts = self.read(plan)
        return {gate.name: counts[gate.name] for gate in gates}

    @property
    def _tags(self) -> list[int]:
        return [tag for gate in self._gates for tag in (gate.offered_tag, gate.kept_tag)]

    def _find_filters(self, plan: Any) -> dict[int, list[Any]]:
        if self._positions:
            remembered = {tag: [plan.apply(position) for position in positions] for tag, positions in self._positions.items()}
            if all(_is_tagged(node, tag) for tag, nodes in remembered.items() for node in nodes):
                return remembered
        tags = self._tags
        self._positions = {}
        filters: dict[int, list[Any]] = {tag: [] for tag in tags}
        positions: dict[int, list[int]] = {tag: [] for tag in tags}
        is_numbered = True
        for position, node in enumerate(_walk(plan)):
            name = node.nodeName()
            is_numbered = is_numbered and name != "AdaptiveSparkPlan"  # Spark numbers only the nodes outside of it
            if name == "Filter":
                condition = node.condition().toString()
                for tag in (tag for tag in tags if f"-{tag})" in condition):
                    filters[tag].append(node)
                    positions[tag].append(position)
        if is_numbered and all(positions.values()):
            self._positions = positions
        return filters


def _to_gate_counts(gates: Sequence[Gate], rows: dict[int, int]) -> dict[str, GateCount]:
    """Turn rows by tag into counts by gate; a gate that no plan has had no rows."""
    return {gate.name: GateCount(rows.get(gate.offered_tag, 0), rows.get(gate.kept_tag, 0)) for gate in gates}


def _read_rows(node: Any) -> int:
    return int(node.longMetric("numOutputRows").value())


def _is_tagged(node: Any, tag: int) -> bool:
    if node is None:
        return False
    line = node.simpleString(_FIELDS)
    return line.startswith("Filter ") and f"-{tag})" in line


def _walk(node: Any) -> Iterator[Any]:
    """Yield the nodes of a physical plan in Spark's own order, also those inside the wrappers of adaptive execution."""
    yield node
    for child in _list_children(node):
        yield from _walk(child)


def _list_children(node: Any) -> list[Any]:
    name = node.nodeName()
    if name == "AdaptiveSparkPlan":
        return [node.executedPlan()]
    if name.endswith("QueryStage"):
        return [node.plan()]
    children = node.children()
    return [children.apply(position) for position in range(children.size())]


def _find_shuffles(plan: Any, tags: Sequence[int]) -> dict[int, list[Any]]:
    """Return by tag the shuffles that filters write to: the nearest one above each."""
    shuffles: dict[int, list[Any]] = {tag: [] for tag in tags}

    def visit(node: Any, shuffle: Any) -> None:
        name = node.nodeName()
        if name == "Filter" and shuffle is not None:
            condition = node.condition().toString()
            for tag in (tag for tag in tags if f"-{tag})" in condition):
                shuffles[tag].append(shuffle)
        for child in _list_children(node):
            visit(child, node if name == "Exchange" else shuffle)

    visit(plan, None)
    return shuffles


def read_stored_counts(
    store: Any, gates: Sequence[Gate], run_id: str, batch_id: int, wait_s: float = 2.0
) -> dict[str, GateCount] | None:
    """Return the counts of a batch from the SQL status store; ``None`` if it no longer has them after ``wait_s``."""
    deadline = time.monotonic() + wait_s
    while True:
        executions = _find_executions(store, run_id, batch_id)
        # Their events come on another queue than the progress report: wait for the last of them.
        if executions and all(execution.completionTime().isDefined() for execution in executions):
            break
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)
    # A sink may run further executions within that of the batch; only one of them has the counts of the gates.
    rows: dict[int, int] = {}
    for execution in executions:
        for tag, count in _read_execution(store, execution.executionId(), gates).items():
            rows[tag] = max(rows.get(tag, 0), count)
    return _to_gate_counts(gates, rows)


def _find_executions(store: Any, run_id: str, batch_id: int) -> list[Any]:
    count = store.executionsCount()
    recent = store.executionsList(max(0, count - _RECENT_EXECUTIONS), _RECENT_EXECUTIONS)
    description_end, previous_end = (f"runId = {run_id}\nbatch = {number}" for number in (batch_id, batch_id - 1))
    executions = []
    # Newest first, back to the previous batch: each access is a call to the JVM, and the batch is among the last few.
    for position in range(recent.size() - 1, -1, -1):
        execution = recent.apply(position)
        description = execution.description()
        if description.endswith(previous_end):
            break
        if description.endswith(description_end):
            executions.append(execution)
    return executions


def _read_execution(store: Any, execution_id: int, gates: Sequence[Gate]) -> dict[int, int]:
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
                rows[tag] = rows.get(tag, 0) + _read_output_rows(node, values)
    return rows


def _read_output_rows(node: Any, values: Any) -> int:
    metrics = node.metrics()
    for i in range(metrics.size()):
        metric = metrics.apply(i)
        if metric.name() == "number of output rows":
            value = values.get(metric.accumulatorId())
            return int(value.get().replace(",", "")) if value.isDefined() else 0
    return 0
