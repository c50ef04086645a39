"""Networks as running queries: what they give, what they count, and what goes wrong."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from penstock.cluster.node import NodeRuntime, RunDirectory
from penstock.cluster.transport import DirectoryTransport
from penstock.coordination import Fixed, Manager, NoShedding
from penstock.drop.hashing import gate_seed, uniform
from penstock.errors import PenstockError
from penstock.journal import read_journal
from penstock.network import Network, parse_network
from penstock.spark.versions import internals_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 4_000
PLAYED = "{generator: constant, rate: 1000, duration: 4s, partitions: 1}"
SOURCE = f"{{format: penstock-replay, arrival: arrival, watermark: 1s, options: {PLAYED}}}"
EVERYTHING = f"""
nodes: {{A: }}
inputs: {{i: {SOURCE}, j: {SOURCE}}}
operators:
  s:     {{node: A, kind: map, from: i, cost: 0, select: [seq, arrival, seq % 10 as k]}}
  even:  {{node: A, kind: filter, from: s, cost: 0, where: k % 2 = 0}}
  big:   {{node: A, kind: filter, from: s, cost: 0, where: k >= 5}}
  both:  {{node: A, kind: union, from: [even, big], cost: 0}}
  n:     {{node: A, kind: aggregate, from: s, cost: 0, group: ["window(arrival, '1 second')", k], agg: [count(*) as n]}}
  d:     {{node: A, kind: map, from: j, cost: 0, function: "tests.spark.broken_operators:doubled"}}
  small: {{node: A, kind: filter, from: s, cost: 0, where: seq < 500}}
  m:     {{node: A, kind: aggregate, from: j, cost: 0, group: ["window(arrival, '1 second')"], agg: [count(*) as n]}}
  w:
    node: A
    kind: join
    from: [small, d]
    cost: 0
    selectivity: 0.001
    windows: [1000, 1000]
    on: left.seq = right.twice AND left.arrival BETWEEN right.arrival - INTERVAL 1 HOUR AND right.arrival + INTERVAL 1 HOUR
    select: [left.seq, right.twice]
outputs: {{q: {{from: both}}, windows: {{from: n}}, pairs: {{from: w}}, ticks: {{from: m}}}}
"""


def run_in_thread(runtime: NodeRuntime, spark: SparkSession) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def target() -> None:
        try:
            runtime.run(spark=spark)
        except BaseException as error:  # shown by the test
            errors.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    return thread, errors


def until(condition: Callable[[], Any], thread: threading.Thread, errors: list[BaseException], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert thread.is_alive(), errors
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def rows_of(place: Path) -> list[dict[str, Any]]:
    tables = [pq.read_table(path) for path in sorted(place.glob("batch_id=*.parquet"))] if place.exists() else []
    return pa.concat_tables(tables).to_pylist() if tables else []


def node(network: Network, name: str, root: Path, manager: Manager | None = None, **options: Any) -> NodeRuntime:
    chosen = manager if manager is not None else NoShedding(network, name)
    return NodeRuntime(network, name, RunDirectory(root), chosen, pace_s=options.pop("pace_s", 0.2), **options)


def test_all_kinds_of_operators_give_what_they_should(session: SparkSession, tmp_path: Path) -> None:
    runtime = node(parse_network(EVERYTHING), "A", tmp_path)
    thread, errors = run_in_thread(runtime, session)
    outputs = tmp_path / "outputs"
    expected = sorted([seq for seq in range(ROWS) if seq % 2 == 0] + [seq for seq in range(ROWS) if seq % 10 >= 5])
    pairs = sorted(range(0, 500, 2))
    until(
        lambda: len(rows_of(outputs / "q")) == len(expected) and len(rows_of(outputs / "pairs")) == len(pairs),
        thread,
        errors,
    )
    until(lambda: len(rows_of(outputs / "windows")) >= 10, thread, errors)
    runtime.stop()
    thread.join()
    assert not errors
    assert sorted(row["seq"] for row in rows_of(outputs / "q")) == expected
    assert sorted(row["seq"] for row in rows_of(outputs / "pairs")) == pairs
    windows = rows_of(outputs / "windows")
    # A thousand rows a second, so a hundred of each k in a whole window; the first may be a part.
    whole = [row for row in windows if row["window"]["start"] > min(other["window"]["start"] for other in windows)]
    assert all(row["n"] == 100 for row in whole)
    queries = {path.name for path in (tmp_path / "nodes" / "A" / "queries").iterdir()}
    assert queries == {"s", "n", "w", "j", "m"}, "a query for each group, and one for what has memory behind a split"
    status = json.loads((tmp_path / "nodes" / "A" / "status.json").read_text())
    assert status["measurements"]["operators"]["even"][2] == pytest.approx(0.5, abs=0.05), "its selectivity"
    assert {name: kept for name, (_, kept) in status["gates"].items()} == {
        "i": ROWS,
        "j": ROWS,
        "s->even": ROWS,
        "s->big": ROWS,
        "s->n": ROWS,
        "s->small": ROWS,
        "j->d": ROWS,
        "j->m": ROWS,
    }
    offsets = (tmp_path / "nodes" / "A" / "queries" / "m" / "offsets" / "0").read_text()
    assert "logOffset" in offsets, "what is cut off reads what its gate let through, not the input again"


def test_gates_behind_a_split_drop_their_own_share(session: SparkSession, tmp_path: Path) -> None:
    network = parse_network(
        f"""
nodes: {{A: }}
inputs: {{i: {SOURCE}}}
operators:
  s: {{node: A, kind: map, from: i, cost: 0, select: [seq]}}
  x: {{node: A, kind: map, from: s, cost: 0, select: [seq]}}
  y: {{node: A, kind: map, from: s, cost: 0, select: [seq]}}
outputs: {{q: {{from: x}}, r: {{from: y}}}}
"""
    )
    runtime = node(network, "A", tmp_path, Fixed(network, "A", {"i": 0.5, "s->x": 0.25}))
    thread, errors = run_in_thread(runtime, session)
    status = tmp_path / "nodes" / "A" / "status.json"
    until(lambda: status.exists() and json.loads(status.read_text())["gates"].get("i", [0])[0] == ROWS, thread, errors)
    runtime.stop()
    thread.join()
    assert not errors
    found = {name: sorted(row["seq"] for row in rows_of(tmp_path / "outputs" / name)) for name in ("q", "r")}
    passed = pa.array(found["r"])
    assert 0.42 * ROWS < len(passed) < 0.58 * ROWS
    assert found["q"] == passed.filter(pa.array(uniform(gate_seed("s->x"), [passed]) < 0.25)).to_pylist()
    gates = json.loads(status.read_text())["gates"]
    assert gates == {"i": [ROWS, len(passed)], "s->x": [len(passed), len(found["q"])], "s->y": [len(passed), len(passed)]}
    journal = read_journal(tmp_path / "nodes" / "A" / "queries" / "s" / "penstock")
    for record in journal.batches.values():
        assert record.gates["s->x"][0] == record.gates["i"][1]


TWO = f"""
nodes: {{A: , B: }}
inputs: {{i: {SOURCE}}}
operators:
  a: {{node: A, kind: map, from: i, cost: 0, select: [seq, arrival]}}
  b: {{node: B, kind: map, from: a, cost: 0, select: [seq]}}
outputs: {{q: {{from: b}}}}
"""


def test_rows_cross_nodes_exactly_once_whoever_restarts(session: SparkSession, tmp_path: Path) -> None:
    network = parse_network(TWO)
    a, b = node(network, "A", tmp_path), node(network, "B", tmp_path)
    threads = [run_in_thread(a, session), run_in_thread(b, session)]
    out = tmp_path / "outputs" / "q"
    until(lambda: len(rows_of(out)) > 300, *threads[1])
    b.stop()
    threads[1][0].join()
    a.stop()
    threads[0][0].join()
    again = [node(network, name, tmp_path) for name in ("A", "B")]
    threads = [run_in_thread(runtime, session) for runtime in again]
    until(lambda: len(rows_of(out)) >= ROWS, *threads[1])
    for runtime in again:
        runtime.stop()
    for thread, errors in threads:
        thread.join()
        assert not errors
    assert sorted(row["seq"] for row in rows_of(out)) == list(range(ROWS))


def test_a_large_batch_says_how_large_it_is(session: SparkSession, tmp_path: Path) -> None:
    transport = DirectoryTransport(tmp_path)
    transport.write("a->b", session.range(60_000), 1, 60_000)
    files = list((transport.directory("a->b") / "batch_id=000000001").glob("*.parquet"))
    assert sum(transport.count_rows(f"file://{path}") or 0 for path in files) == 60_000


def test_a_batch_that_is_replayed_is_written_once(session: SparkSession, tmp_path: Path) -> None:
    transport = DirectoryTransport(tmp_path)
    df = session.range(100)
    for _ in range(2):
        transport.write("a->b", df, 7, 100)
        transport.write("a->b", session.range(5), 8, None)
        transport.write("a->b", session.range(0), 9, 0)
    place = transport.directory("a->b")
    assert sorted(path.name for path in place.iterdir()) == ["batch_id=000000007", "batch_id=000000008"]
    assert [path.name for path in (place / "batch_id=000000007").iterdir()] == ["rows-100-0.parquet"]
    assert transport.count_rows("x/rows-100-0.parquet") == 100
    assert transport.count_rows("x/part-0.parquet") is None


def test_columns_may_have_dots_and_backticks_in_their_names(session: SparkSession, tmp_path: Path) -> None:
    times = pa.array([1_700_000_000_000_000 + 1_000 * n for n in range(ROWS)], pa.timestamp("us", tz="UTC"))
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"at.time": times, "the`n.o": list(range(ROWS))}), tmp_path / "in" / "rows.parquet")
    network = parse_network(
        f"""
nodes: {{A: , B: }}
inputs:
  i:
    format: parquet
    schema: "`at.time` TIMESTAMP, `the``n.o` BIGINT"
    arrival: at.time
    watermark: 1s
    options: {{path: {tmp_path / "in"}}}
operators:
  a: {{node: A, kind: delay, from: i, cost: 0, selectivity: 0.5}}
  b: {{node: B, kind: map, from: a, cost: 0, select: ["`at.time`", "`the``n.o` as n"]}}
outputs: {{q: {{from: b}}}}
"""
    )
    runtimes = [node(network, name, tmp_path / "run") for name in ("A", "B")]
    threads = [run_in_thread(runtime, session) for runtime in runtimes]
    status = tmp_path / "run" / "nodes" / "B" / "status.json"
    until(lambda: status.exists() and json.loads(status.read_text())["gates"].get("a->b", [0])[0], *threads[1])
    for runtime in runtimes:
        runtime.stop()
    for thread, errors in threads:
        thread.join()
        assert not errors
    numbers = [row["n"] for row in rows_of(tmp_path / "run" / "outputs" / "q")]
    assert len(set(numbers)) == len(numbers)
    assert 0.45 * ROWS < len(numbers) < 0.55 * ROWS


BROKEN = "tests.spark.broken_operators"


def broken(work: str, later: str = "select: [seq]") -> Network:
    return parse_network(
        f"nodes: {{A: }}\ninputs: {{i: {SOURCE}}}\noperators:\n  a: {{node: A, from: i, cost: 0, {work}}}\n"
        f"  b: {{node: A, from: a, cost: 0, {later}}}\noutputs: {{q: {{from: b}}}}"
    )


@pytest.mark.parametrize(
    ("work", "message"),
    [
        ("", "line 4: operator 'a' of kind map doesn't say what it does: give it 'select' or 'function'"),
        ("where: seq > 1", "line 4: operator 'a' of kind map has no 'where': there are select, function"),
        ("select: [number]", "line 4: operator 'a' needs column 'number', which 'i' doesn't give: it gives arrival, seq, key"),
        (
            f"function: '{BROKEN}:renamed'",
            "line 5: operator 'b' needs column 'seq', which 'a' doesn't give: it gives arrival, number",
        ),
        (f"function: '{BROKEN}:raises_when_built'", "operator 'a': its function raised RuntimeError: not today"),
        (f"function: '{BROKEN}:returns_nothing'", "operator 'a': its function must return a DataFrame, it returned None"),
        (f"function: '{BROKEN}:missing'", "operator 'a': its function .* can't be found"),
        ("function: 'no.such.module:f'", "operator 'a': its function .* can't be found: No module named 'no'"),
        ("select: ['seq +']", "operator 'a': .*PARSE_SYNTAX_ERROR"),
    ],
)
def test_an_operator_that_does_not_fit_is_named(session: SparkSession, tmp_path: Path, work: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as found:
        node(broken(work), "A", tmp_path).run(spark=session)
    assert "\n" not in str(found.value)


def test_an_operator_that_fails_while_it_runs_is_named(session: SparkSession, tmp_path: Path) -> None:
    runtime = node(broken(f"function: '{BROKEN}:raises_when_run'"), "A", tmp_path)
    with pytest.raises(PenstockError, match=r"node 'A': operator 'a' failed: ValueError: a row of \d+ is bad") as found:
        runtime.run(seconds=60, spark=session)
    assert "\n" not in str(found.value)


def test_what_can_be_planned_but_not_run_is_refused(session: SparkSession, tmp_path: Path) -> None:
    lonely = parse_network(TWO.replace("B: }", "B: , C: }"))
    with pytest.raises(PenstockError, match="node 'C' runs no operator: place one there, or remove the node"):
        node(lonely, "A", tmp_path / "1").run(spark=session)
    unread = parse_network(TWO.replace("format: penstock-replay, ", ""))
    with pytest.raises(PenstockError, match=r"input 'i': say with 'format' and 'options' how to read it"):
        node(unread, "A", tmp_path / "2").run(spark=session)
    wrong = parse_network(TWO.replace("generator: constant", "generator: magic"))
    with pytest.raises(PenstockError, match=r"input 'i' can't be read: .*magic") as found:
        node(wrong, "A", tmp_path / "3").run(spark=session)
    assert "\n" not in str(found.value)
    with pytest.raises(PenstockError, match="there is no node 'Z'; there are A, B"):
        node(parse_network(TWO), "Z", tmp_path / "4", NoShedding(parse_network(TWO), "A"))


def test_an_older_spark_without_the_replay_source_is_said(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internals_of(session), "has_replay", False, raising=False)
    with pytest.raises(PenstockError, match=r"input 'i': the replay source needs Spark 4\.2 or later.*: read Kafka") as found:
        node(parse_network(TWO), "A", tmp_path).run(spark=session)
    assert "\n" not in str(found.value)


def test_a_transport_that_cant_be_written_is_said(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "arcs").write_text("in the way")
    with pytest.raises(PenstockError, match=r"the transport directory .*arcs can't be written: "):
        node(parse_network(TWO), "A", tmp_path / "run").run(spark=session)
    (tmp_path / "file").write_text("")
    with pytest.raises(PenstockError, match=r"the directory .*file can't be used: "):
        node(parse_network(TWO), "A", tmp_path / "file")


def test_a_node_is_one_process_and_one_network(tmp_path: Path) -> None:
    network = parse_network(TWO)
    first = node(network, "A", tmp_path)
    with pytest.raises(PenstockError, match=r"node 'A' runs already in .*: a node is one process"):
        node(network, "A", tmp_path)
    changed = parse_network(TWO.replace("select: [seq]}", "select: [seq, 1 as one]}"))
    with pytest.raises(
        PenstockError, match=r"the network has changed since .* was made: operator b: select was .* and is .*--reset"
    ):
        node(changed, "B", tmp_path)
    with pytest.raises(PenstockError, match=r"node 'A' is running in .*: stop it before --reset"):
        node(changed, "B", tmp_path, reset=True)
    first._lock.release()
    (tmp_path / "outputs" / "q").mkdir(parents=True)
    node(changed, "B", tmp_path, reset=True)
    assert (tmp_path / "outputs-1" / "q").exists(), "answers are put aside"
    (tmp_path / "network.json").write_text("{torn")
    with pytest.raises(PenstockError, match=r"network.json is damaged: .*--reset"):
        node(changed, "A", tmp_path)
    RunDirectory(tmp_path / "other").claim(changed)
    (tmp_path / "other" / "network.json").write_text("{torn")
    RunDirectory(tmp_path / "other").claim(changed, reset=True)
    (tmp_path / "network.json").write_bytes((tmp_path / "other" / "network.json").read_bytes())
    dearer = parse_network(TWO.replace("select: [seq]}", "select: [seq, 1 as one]}").replace("cost: 0", "cost: 1"))
    node(dearer, "A", tmp_path)
