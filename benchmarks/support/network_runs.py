"""Figure 1 of Staying FIT (Tatbul et al.) as real Spark applications: runs and their results."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.protocol import Say
from penstock.cluster.fleet import LocalFleet
from penstock.coordination.measurements import Measurements, apply_measurements, entries_of, remove_rate_bounds
from penstock.errors import PenstockError
from penstock.journal import read_journal
from penstock.journal.state import JournalState
from penstock.network import Network, load_network
from penstock.planning import Exact
from penstock.spark.checkpoint import Checkpoint

__all__ = ["NetworkRun", "UNIT_S", "best_score", "figure1_file", "run_network"]

UNIT_S = 0.004
"""The time unit of figure 1: costs 1 and 2 on A, 3 and 1 on B. One tuple per unit arrives at each input: 250 per second."""
_STARTING_S = 90.0

Options = Mapping[str, str | float]


def figure1_file(path: Path, traffic: Mapping[str, Options], unit_s: float = UNIT_S, *, capped: bool = False) -> Network:
    """Write figure 1's network with delay operators and this traffic, and load it; ``capped`` lets B read one batch at a time."""
    lines = ["nodes: {A: {capacity: 1.0}, B: {capacity: 1.0}}", "inputs:"]
    for name, options in traffic.items():
        shown = ", ".join(f"{key}: {value}" for key, value in {"partitions": 1, **options}.items())
        lines.append(f"  {name}: {{max_rate: {8 / unit_s:g}, format: penstock-replay, arrival: arrival, options: {{{shown}}}}}")
    lines.append("operators:")
    for name, node, source, cost in (("a1", "A", "i1", 1), ("a2", "A", "i2", 2), ("b1", "B", "a1", 3), ("b2", "B", "a2", 1)):
        lines.append(f"  {name}: {{node: {node}, kind: delay, from: {source}, cost: {cost * unit_s:g}}}")
    lines.append("outputs: {q1: {from: b1, format: noop}, q2: {from: b2, format: noop}}")
    if capped:
        lines.append("links: {a1->b1: {max_batches: 1}, a2->b2: {max_batches: 1}}")
    path.write_text("\n".join(lines) + "\n")
    return load_network(path)


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """The results of one run, from the end of its warm-up on."""

    network: Network
    start_s: float
    end_s: float
    written: Sequence[Mapping[str, Any]]
    status: Mapping[str, Mapping[str, Any]]
    journals: Mapping[str, JournalState]
    """By query."""
    played_s: Mapping[str, float]
    """By input: when its trace began."""

    @property
    def seconds(self) -> float:
        """The length of the measurement."""
        return self.end_s - self.start_s

    def rate(self, output: str) -> float:
        """Return the rows per second that reached an output, from the end of one batch to the end of another."""
        return _rate(
            [(line["end_s"], line["rows"]) for line in self.written if line["output"] == output], self.start_s, self.end_s
        )

    @property
    def throughput(self) -> float:
        """Weighted rows per second at all outputs."""
        return sum(output.weight * self.rate(name) for name, output in self.network.outputs.items())

    def delays(self) -> tuple[float, float]:
        """Return the mean delay of the rows that reached an output, and the worst delay."""
        lines = [
            x for x in self.written if x["rows"] and x["mean_delay_s"] is not None and self.start_s < x["end_s"] <= self.end_s
        ]
        rows = sum(line["rows"] for line in lines)
        if not rows:
            return float("nan"), float("nan")
        return sum(line["rows"] * line["mean_delay_s"] for line in lines) / rows, max(line["worst_delay_s"] for line in lines)

    def gate_rates(self, gate: str) -> tuple[float, float]:
        """Return the rows per second offered to a gate and kept by it."""
        for state in self.journals.values():
            batches = [(b.end_s, *b.gates[gate]) for b in state.batches.values() if gate in b.gates and b.end_s is not None]
            if batches:
                offered = _rate([(end, count) for end, count, _ in batches], self.start_s, self.end_s)
                kept = _rate([(end, count) for end, _, count in batches], self.start_s, self.end_s)
                return offered, kept
        return 0.0, 0.0

    def measurements(self) -> dict[str, Measurements]:
        """Return what the nodes measured about themselves, with their full capacity."""
        measured = {node: Measurements.from_body(status["measurements"]) for node, status in self.status.items()}
        return {
            node: Measurements(node, self.network.nodes[node].capacity, measurements.operators, measurements.rates)
            for node, measurements in measured.items()
        }

    def cost(self, operator: str) -> float:
        """Return the measured seconds per tuple."""
        return self.measurements()[self.network.operators[operator].node].operators[operator].cost


def _rate(batches: Sequence[tuple[float, int]], start_s: float, end_s: float) -> float:
    """Return the rows per second between the ends of the first and the last batch of a period."""
    inside = sorted((end, rows) for end, rows in batches if start_s < end <= end_s)
    if len(inside) < 2:
        return sum(rows for _, rows in inside) / (end_s - start_s)
    before = max((end for end, _ in batches if end <= start_s), default=None)
    if before is None:
        before, inside = inside[0][0], inside[1:]
    return sum(rows for _, rows in inside) / (inside[-1][0] - before)


def best_score(run: NetworkRun, rates: Mapping[str, float]) -> float:
    """Return the linear program's optimum for the measured costs, with the nodes' full capacity."""
    return Exact(remove_rate_bounds(apply_measurements(run.network, run.measurements()))).plan(rates).score


def run_network(
    traffic: Mapping[str, Options],
    manager: str,
    *,
    say: Say,
    warm_s: float,
    measure_s: float,
    pace_s: float = 2.0,
    keep: Mapping[str, float] | None = None,
    unit_s: float = UNIT_S,
) -> NetworkRun:
    """Run the network, wait until it has warmed up, measure, stop."""
    with tempfile.TemporaryDirectory(prefix="penstock-network-", ignore_cleanup_errors=True) as directory:
        root = Path(directory)
        network = figure1_file(root / "network.yaml", traffic, unit_s, capped=keep is not None)
        fleet = LocalFleet(root / "network.yaml", network, root / "run", manager=manager, pace=f"{pace_s}s", keep=keep)
        fleet.start()
        try:
            _wait_for(fleet, lambda: all(fleet.status(node) is not None for node in network.nodes), _STARTING_S)
            say(f"{manager}: warming up")
            _wait_for(fleet, lambda: False, warm_s)
            start_s = time.time()
            say(f"{manager}: measuring")
            _wait_for(fleet, lambda: False, measure_s)
            end_s = time.time()
        finally:
            fleet.stop()
        return _collect(network, fleet, start_s, end_s)


def _wait_for(fleet: LocalFleet, condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        fleet.collect_failures()
        if fleet.failures:
            name, message = next(iter(fleet.failures.items()))
            raise PenstockError(f"{name}: {message}")
        time.sleep(0.1)


def _collect(network: Network, fleet: LocalFleet, start_s: float, end_s: float) -> NetworkRun:
    written: list[Mapping[str, Any]] = []
    status: dict[str, Mapping[str, Any]] = {}
    journals: dict[str, JournalState] = {}
    played: dict[str, float] = {}
    for node in network.nodes:
        folder = fleet.run_directory.node(node)
        reported = fleet.status(node)
        if reported is None:
            raise PenstockError(f"node {node!r} has not reported its status")
        status[node] = reported
        for journal in sorted(folder.glob("queries/*/penstock")):
            journals[journal.parent.name] = read_journal(journal)
            written += _list_outputs(journals[journal.parent.name])
        for name in entries_of(network, node):
            if name in network.inputs:  # each has its own query here, named after its operator
                checkpoint = Checkpoint(folder / "queries" / network.consumers[name][0])
                offset = checkpoint.offsets(max(checkpoint.list_planned()))[0]
                played[name] = float(json.loads(offset or "{}")["t0"])
    return NetworkRun(network, start_s, end_s, written, status, journals, played)


def _list_outputs(journal: JournalState) -> list[Mapping[str, Any]]:
    """Return what each batch wrote to each output."""
    return [
        {"output": name, "end_s": batch.end_s, **asdict(output)}
        for batch in journal.batches.values()
        for name, output in (batch.outputs or {}).items()
        if batch.end_s is not None and output.rows is not None
    ]
