"""What a network that sheds puts out is part of what it puts out otherwise, row for row: windows and joins, over two nodes."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from penstock.cluster.deployment import Deployment
from penstock.cluster.operators import apply_operator
from penstock.cluster.transport import DirectoryTransport
from penstock.coordination import Fixed, Limits, Manager
from penstock.drop.hashing import gate_seed, uniform
from penstock.drop.units import WholeWindows, WindowRing
from penstock.errors import PenstockError
from penstock.journal import read_journal
from penstock.network import Network, parse_network
from penstock.network.drops import derive_drops
from tests.spark.test_network_run import node, rows_of, run_in_thread, until

from .conftest import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

START = 1_700_000_000
FILES = 3  # of four seconds each
TOTAL = FILES * 400
KEYS = 97
AHEAD = 120  # rows
NETWORK = """
nodes: {A: , B: }
inputs:
  i: {SOURCE, options: {path: ROOT/i, maxFilesPerTrigger: 1}}
  k: {SOURCE, options: {path: ROOT/k, maxFilesPerTrigger: 1}}
  x: {SOURCE, options: {path: ROOT/x, maxFilesPerTrigger: 1}}
  y: {SOURCE, options: {path: ROOT/y, maxFilesPerTrigger: 1}}
operators:
  u: {node: A, kind: union, from: [i, k], cost: 0}
  n:
    node: B
    kind: aggregate
    from: u
    cost: 0
    group: ["window(t, '500 milliseconds')"]
    agg: [count(*) as n, sum(seq) as total]
  a: {node: A, kind: map, from: x, cost: 0, select: [seq as number, t]}
  w:
    node: B
    kind: join
    from: [a, y]
    cost: 0
    selectivity: 0.01
    windows: [1s, 1s]
    on: left.number = right.seq AND left.t BETWEEN right.t - INTERVAL 1 SECOND AND right.t + INTERVAL 1 SECOND
    select: [left.number, left.t as l, right.t as r]
outputs: {windows: {from: n}, pairs: {from: w}}
""".replace("SOURCE", 'format: parquet, schema: "t TIMESTAMP, seq BIGINT", arrival: t, watermark: 1s')


def write_inputs(root: Path) -> None:
    """A row every ten milliseconds; i and k have a file for each batch, with k windows ahead, and x and y have keys."""
    for name, shift_us in (("i", 0), ("k", AHEAD * 10_000), ("x", 0), ("y", 5_000)):
        (root / name).mkdir()
        for number, seq in enumerate(np.split(np.arange(TOTAL), FILES if name in "ik" else 1)):
            micros = START * 1_000_000 + seq * 10_000 + shift_us
            keys = seq % KEYS if name in "xy" else seq
            table = pa.table({"t": pa.array(micros, pa.timestamp("us", tz="UTC")), "seq": pa.array(keys, pa.int64())})
            path = root / name / f"{number}.parquet"
            pq.write_table(table, path)
            os.utime(path, (START + number, START + number))


class Restless(Manager):
    """Other shares of i and k with every batch, and half of x."""

    name: ClassVar[str] = "restless"
    is_guarded = False

    def __init__(self, network: Network, node: str, shares: Sequence[float]) -> None:
        super().__init__(network, node)
        self._shares = cycle(shares)

    def decide(self, rates: Mapping[str, float]) -> Limits:
        return Limits(keep={"i": next(self._shares), "k": next(self._shares), "x": 0.5})


def run(session: SparkSession, network: Network, root: Path, managers: Sequence[Manager]) -> dict[str, Any]:
    """Run both nodes until all rows are through; return what came out, the ledgers and the journals."""
    keeps = [manager.node for manager in managers]
    runtimes = {manager.node: node(network, manager.node, root, manager, pace_s=0.1) for manager in managers}
    threads = {name: run_in_thread(runtime, session) for name, runtime in runtimes.items()}

    def ledger() -> dict[str, list[int]]:
        paths = [path for name in keeps if (path := root / "nodes" / name / "status.json").exists()]
        gates = {path.parent.name: json.loads(path.read_text())["gates"] for path in paths}
        return {f"{name} {gate}": counts for name, of_node in gates.items() for gate, counts in of_node.items()}

    def is_done() -> bool:
        rows = defaultdict(lambda: [0, 0], ledger())  # a gate is in the ledger from its first batch on
        if any(rows[gate][0] < TOTAL for gate in ("A i", "A k", "A x", "B y")):
            return False
        is_through = rows["B u->n"][0] == rows["A i"][1] + rows["A k"][1] and rows["B a->w"][0] == rows["A x"][1]
        return is_through and len(rows_of(root / "outputs" / "windows")) >= 6  # the first windows are kept, and have ended

    try:
        until(is_done, *threads["B"])
    finally:
        for runtime in runtimes.values():
            runtime.stop()
        for thread, _ in threads.values():
            thread.join()
    assert not [error for _, errors in threads.values() for error in errors]
    return {
        **{name: rows_of(root / "outputs" / name) for name in network.outputs},
        "ledger": ledger(),
        "journals": {
            f"{path.parts[-4]} {path.parts[-2]}": read_journal(path) for path in root.glob("nodes/*/queries/*/penstock")
        },
    }


def run_at_once(session: SparkSession, network: Network) -> dict[str, list[dict[str, Any]]]:
    """What the operators make of all rows, without gates, nodes or micro-batches."""
    frames: dict[str, DataFrame] = {}
    for name in network.inputs:
        work = network.work[name]
        frames[name] = session.read.schema(str(work["schema"])).parquet(str(work["options"]["path"]))
    for name in network.order:
        operator = network.operators[name]
        frames[name] = apply_operator(network, operator, [frames[source] for source in operator.sources])
    return {name: to_arrow(frames[output.source]).to_pylist() for name, output in network.outputs.items()}


def count_windows(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter((row["window"]["start"].timestamp(), row["n"], row["total"]) for row in rows)


def count_pairs(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter((row["number"], row["l"].timestamp(), row["r"].timestamp()) for row in rows)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    root = tmp_path_factory.mktemp("inputs")
    write_inputs(root)
    return parse_network(NETWORK.replace("ROOT", str(root)))


def compute_fates(journal: Any, gate: str, seed_name: str) -> tuple[np.ndarray, list[tuple[float, ...]]]:
    """Return which rows a gate of windows keeps by its journal, and what was decided, computed without Spark.

    The rows of i are the first ``TOTAL``, those of k the last.
    """
    ring = WindowRing(WholeWindows("t", "500ms"), gate_seed(seed_name))
    decisions = [decision.gates[gate] for decision in journal.decisions]
    for entries in decisions:
        if len(entries) == 2:
            ring.decide(int(entries[1]), entries[0])
    return ring.fate(2 * START + np.arange(TOTAL + AHEAD) // 50), decisions


def test_results_of_a_shed_network_are_a_subset_row_for_row(session: SparkSession, network: Network, tmp_path: Path) -> None:
    whole = run_at_once(session, network)
    keeps = {"A": {"i": 0.5, "k": 0.8, "x": 0.5}, "B": {"y": 0.5, "u->n": 0.9}}  # those of i and k must become one
    shed = run(session, network, tmp_path, [Fixed(network, name, of_node) for name, of_node in keeps.items()])
    all_windows, windows = count_windows(whole["windows"]), count_windows(shed["windows"])
    assert windows < all_windows, "a part of them, each with its full answer"
    # Pairs: exactly those of the keys kept, so half of them and not a quarter.
    units = {gate.name: unit for gate, unit in derive_drops(network).units.items()}
    draws = uniform(gate_seed(f"key {units['x'].group}"), [pa.array(range(KEYS), pa.int64())])
    all_pairs, pairs = count_pairs(whole["pairs"]), count_pairs(shed["pairs"])
    assert pairs == Counter({pair: count for pair, count in all_pairs.items() if draws[pair[0]] < 0.5})
    assert 0.35 < pairs.total() / all_pairs.total() < 0.65
    # The ledger: what each gate let pass is what the hashes say, from what the journal says was decided.
    kept_i, decided_i = compute_fates(shed["journals"]["A u"], "i", units["i"].group)
    kept_k, decided_k = compute_fates(shed["journals"]["A u"], "k", units["k"].group)
    kept_n, _ = compute_fates(shed["journals"]["B n"], "u->n", units["u->n"].group)
    assert decided_i == decided_k
    assert kept_i.tolist() == kept_k.tolist()
    assert 0.3 * TOTAL < kept_i.sum() < TOTAL
    on_n = kept_i & kept_n
    in_keys = int((draws[np.arange(TOTAL) % KEYS] < 0.5).sum())
    assert shed["ledger"] == {
        "A i": [TOTAL, int(kept_i[:TOTAL].sum())],
        "A k": [TOTAL, int(kept_i[AHEAD:].sum())],
        "A x": [TOTAL, in_keys],
        "B y": [TOTAL, in_keys],
        "B a->w": [in_keys, in_keys],
        "B u->n": [int(kept_i[:TOTAL].sum() + kept_i[AHEAD:].sum()), int(on_n[:TOTAL].sum() + on_n[AHEAD:].sum())],
    }
    assert {2 * start for start, _, _ in windows} <= {2 * START + number for number in np.flatnonzero(on_n[::50]).tolist()}


@pytest.mark.apart
def test_linked_gates_of_windows_decide_alike_after_a_crash(
    session: SparkSession, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch fails after its decision, and the node comes back with a manager that would decide otherwise."""
    write, failed = DirectoryTransport.write, []

    def fail_once(transport: DirectoryTransport, arc: str, df: DataFrame, batch_id: int, rows: int | None) -> Any:
        if arc == "u->n" and batch_id == 1 and not failed:
            failed.append(batch_id)
            raise OSError("the disk is gone")
        return write(transport, arc, df, batch_id, rows)

    monkeypatch.setattr(DirectoryTransport, "write", fail_once)
    runtime = node(network, "A", tmp_path, Restless(network, "A", (0.6, 0.9, 0.3)), pace_s=0.1)
    with pytest.raises(PenstockError, match="the disk is gone"):
        runtime.run(seconds=60, spark=session)
    before = read_journal(tmp_path / "nodes" / "A" / "queries" / "u" / "penstock")
    assert before.decision_for(1) is not None, "the decision was journaled before the batch failed"
    shed = run(
        session, network, tmp_path, [Restless(network, "A", (0.15, 0.2, 0.8)), Fixed(network, "B", {"y": 0.5, "u->n": 1.0})]
    )
    after = shed["journals"]["A u"]
    assert after.decision_for(1).gates == before.decision_for(1).gates
    assert len({decision.gates["i"] for decision in after.decisions}) > 1
    group = next(unit.group for gate, unit in derive_drops(network).units.items() if gate.name == "i")
    kept_i, decided_i = compute_fates(after, "i", group)
    kept_k, decided_k = compute_fates(after, "k", group)
    assert decided_i == decided_k
    assert kept_i.tolist() == kept_k.tolist()
    assert shed["ledger"]["A i"] == [TOTAL, int(kept_i[:TOTAL].sum())]
    assert shed["ledger"]["A k"] == [TOTAL, int(kept_i[AHEAD:].sum())]
    assert count_windows(shed["windows"]) < count_windows(run_at_once(session, network)["windows"])


def test_units_that_spark_cant_keep_whole_are_refused(session: SparkSession, tmp_path: Path, network: Network) -> None:
    text = NETWORK.replace("ROOT", str(network.work["i"]["options"]["path"]).removesuffix("/i"))

    def refusal(text: str) -> str:
        with pytest.raises(PenstockError) as found:
            Deployment(session, parse_network(text), "A", DirectoryTransport(tmp_path), tmp_path)
        assert "\n" not in str(found.value)
        return str(found.value)

    before, _, after = text.rpartition("seq BIGINT")
    said = refusal(before + "seq STRING" + after)
    assert said.startswith("gates 'x' and 'y' drop whole keys of different types (bigint and string)")
    said = refusal(text.replace("'500 milliseconds'", "'100 microseconds'"))
    assert said.startswith("gate 'i' remembers what it decided of the last 6,143 windows")


def test_the_gates_at_both_ends_of_an_arc_drop_independently(session: SparkSession, tmp_path: Path, network: Network) -> None:
    """An arc behind a split has a gate on the node of the split and one where it enters the next node."""
    source = NETWORK.partition("  i: {")[2].partition(", options")[0]
    split = parse_network(
        f"""
nodes: {{A: , B: }}
inputs: {{i: {{{source}, options: {{path: {network.work["i"]["options"]["path"]}}}}}}}
operators:
  s: {{node: A, kind: map, from: i, cost: 0, select: [seq]}}
  x: {{node: B, kind: map, from: s, cost: 0, select: [seq]}}
  y: {{node: A, kind: map, from: s, cost: 0, select: [seq]}}
outputs: {{q: {{from: x}}, r: {{from: y}}}}
"""
    )
    df = session.range(4_000).withColumnRenamed("id", "seq")
    for name, of_query in (("A", "arc_gates"), ("B", "entry_gates")):
        deployment = Deployment(session, split, name, DirectoryTransport(tmp_path), tmp_path)
        (gate,) = (gates["s->x"] for query in deployment.queries if "s->x" in (gates := getattr(query, of_query)))
        gate.publish(gate.state.put_in_force(gate.state.entries(0.5)))
        df = gate.apply(df)
    assert 0.2 * 4_000 < df.count() < 0.3 * 4_000
