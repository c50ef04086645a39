"""Executors and nodes in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.fleet import LocalFleet
from penstock.network import parse_network
from penstock.testing.maven import UnavailableError
from penstock.testing.standalone import StandaloneCluster

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_it_works_on_executors_of_their_own(tmp_path: Path) -> None:
    """Executors in separate JVMs get the table of the moment, and their counts come back."""
    code = textwrap.dedent(
        """
        import time
        import numpy as np, pyarrow as pa
        from penstock import Controller, Decision, Priorities, Shedder, read_journal
        from penstock.drop.hashing import gate_seed, uniform
        from penstock.spark.session import local_session

        spark = local_session("cluster", master="local-cluster[2,1,1024]")
        keeps = [0.9, 0.1, 0.5]

        class Cycle(Controller):
            def update(self, observation):
                return Decision(keep=keeps[(observation.batch_id + 1) % 3])

        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).option("numPartitions", 4).load()
        with Shedder("2s", controller=Cycle(2.0)) as shedder:
            gated = shedder.gate(source, name="in", arrival="timestamp", identity="value")
            seen = {}
            def write(df, number):
                seen[number] = sorted(df.select("value").toArrow()["value"].to_pylist())
            query = shedder.foreach_batch(gated, write, checkpoint="CHECKPOINT")
            deadline = time.monotonic() + 90
            while len(seen) < 6 and time.monotonic() < deadline and query.exception() is None:
                time.sleep(0.1)
        decisions = read_journal("CHECKPOINT/penstock")
        for number, values in sorted(seen.items())[:6]:
            keep = decisions.decision_for(number).gates["in"][0]
            ids = np.arange(1000 * number, 1000 * number + 1000)
            assert values == ids[uniform(gate_seed("in"), [pa.array(ids)]) < keep].tolist(), number
            assert decisions.batches[number].gates["in"] == (1000, len(values)), decisions.batches[number]
            assert decisions.batches[number].mean_arrival_s is not None
        assert len(seen) >= 6 and len({d.keep for d in decisions.decisions}) == 3
        print("fine")
        """
    ).replace("CHECKPOINT", str(tmp_path / "checkpoint"))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, env=environment, timeout=240)
    assert run.stdout.strip().endswith("fine"), run.stderr[-3000:]


@pytest.fixture(scope="module")
def cluster() -> Iterator[StandaloneCluster]:
    """A master and two workers, in JVMs of their own."""
    try:
        started = StandaloneCluster(workers=2).start()
    except UnavailableError as error:
        pytest.skip(str(error))
    yield started
    started.stop()


def run_killed_job(arm: str, directory: Path, kills: int, *words: str) -> dict[str, Any]:
    """In a process of its own: the session of the other tests runs in this one."""
    run = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "killed_job.py"), arm, str(directory), str(kills), *words],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        timeout=280,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("arm", "kills", "words"),
    [
        ("aggregate", 2, ["miscounted"]),
        ("arrival", 2, ["miscounted"]),
        pytest.param("function", 2, ["speculation"], marks=pytest.mark.long),
        pytest.param("function", 3, ["decommissioning"], marks=pytest.mark.long),
        pytest.param("aggregate", 2, ["allocation"], marks=pytest.mark.long),
        pytest.param("function", 2, ["speculation", "decommissioning", "allocation"], marks=pytest.mark.long),
    ],
    ids=["killed", "killed by arrival", "speculation", "decommissioning", "allocation", "everything"],
)
def test_every_row_counts_once_whatever_becomes_of_executors(arm: str, kills: int, words: list[str], tmp_path: Path) -> None:
    found = run_killed_job(arm, tmp_path, kills, *words)
    assert (found["wrong_rows"], found["wrong_counts"]) == (0, 0), found
    assert found["lossy_batches"] >= 1, "no executor was lost in the middle of a batch"
    reasons = " ".join(found["gone"]).lower()
    happened = {
        "miscounted": found["miscounts"] >= 1,  # by Spark, so that the counts would be wrong without the repair
        "speculation": found["speculated_tasks"] >= 1,
        "decommissioning": "decommission" in reasons,
        "allocation": "killed by driver" in reasons,
    }
    # With both, idle executors are decommissioned by the allocation as well, and nothing tells who asked for it.
    told = [word for word in words if word != "allocation" or "decommissioning" not in words]
    assert [word for word in told if not happened[word]] == [], found


@pytest.mark.long
def test_counts_are_wrong_where_nobody_counts_again(tmp_path: Path) -> None:
    """Else the test above would prove nothing. The rows are right in any case."""
    found = run_killed_job("function", tmp_path, 8, "unrepaired")
    assert found["wrong_rows"] == 0
    assert found["wrong_counts"] >= 1, found


def make_python(directory: Path, *paths: str) -> str:
    """Make a Python like this one, with no packages but those below these paths."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (next(directory.glob("lib/python*/site-packages")) / "rest.pth").write_text("\n".join(paths))
    return str(directory / "bin" / "python")


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python like this one, but without Penstock: what executors often have."""
    python = make_python(tmp_path_factory.mktemp("bare"), sysconfig.get_paths()["purelib"])
    if subprocess.run([python, "-c", "import penstock"], check=False, capture_output=True, env={}).returncode == 0:
        pytest.skip("Penstock is installed here, and not linked: no Python without it can be made of this one")
    return python


@pytest.mark.parametrize(
    ("kind", "is_sent", "is_empty", "last"),
    [
        ("gate", False, False, "fine"),
        ("load_aware", False, False, "can't import penstock: send it there with --py-files or --archives, or install it"),
        ("load_aware", True, False, "fine"),
        ("load_aware", True, True, "can't import numpy: send it there with --archives, or install it"),
        ("replay", False, False, "can't import penstock: send it there with --py-files or --archives, or install it"),
        ("replay", True, False, "fine"),
    ],
)
@pytest.mark.long
def test_submitted_to_executors_without_penstock(
    kind: str, is_sent: bool, is_empty: bool, last: str, cluster: StandaloneCluster, bare_python: str, tmp_path: Path
) -> None:
    """A gate needs nothing there. What runs in Python workers says so in one line, or is sent along."""
    import pyspark

    package = shutil.make_archive(str(tmp_path / "penstock"), "zip", ROOT / "src", "penstock")
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.master]
    settings = ["spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.executor.memory=512m"]
    sent = ["--py-files", package] if is_sent else []
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PYSPARK_PYTHON": make_python(tmp_path / "empty") if is_empty else bare_python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    options = [part for setting in settings for part in ("--conf", setting)]
    job = str(Path(__file__).parent / "submitted_job.py")
    run = subprocess.run(
        [*submit, *options, *sent, job, kind, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=200,
    )
    assert run.stdout.strip().endswith(last), run.stdout + run.stderr[-3000:]


FLEET = """
nodes: {A: , B: }
inputs:
  i:
    max_rate: 1000
    format: penstock-replay
    arrival: arrival
    options: {generator: constant, rate: 400, duration: 300s, partitions: 1}
operators:
  a: {node: A, kind: delay, from: i, cost: 0.002}
  b: {node: B, kind: delay, from: a, cost: 0.008}
outputs: {q: {from: b}}
"""


@pytest.mark.long
def test_a_fleet_outlives_one_of_its_processes_and_stops_together(tmp_path: Path) -> None:
    """The real thing: ``penstock run`` with a coordinator, a node killed and started again, Ctrl-C."""
    path = tmp_path / "network.yaml"
    path.write_text(FLEET)
    network = parse_network(FLEET)
    run = tmp_path / "run"
    command = [sys.executable, "-m", "penstock", "run", str(path), "--dir", str(run), "--pace", "1s"]
    fleet = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    helper = LocalFleet(path, network, run, pace="1s")

    def status(name: str) -> dict[str, Any]:
        place = run / "nodes" / name / "status.json"
        return json.loads(place.read_text()) if place.exists() else {}

    def wait(condition: Callable[[], Any], seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert fleet.poll() is None, fleet.communicate()[0].decode()
            assert time.monotonic() < deadline, (status("A"), status("B"))
            time.sleep(0.1)

    try:
        wait(lambda: status("A").get("reason", "").startswith("plan") and status("B").get("outputs"))
        victim = status("B")["pid"]
        os.kill(victim, signal.SIGKILL)
        batches = sum(status("A")["batches"].values())
        wait(lambda: sum(status("A")["batches"].values()) > batches + 1)
        helper.start_process("B")
        wait(lambda: status("B").get("pid") not in (None, victim) and status("B")["outputs"])
        state = json.loads((run / "coordinator" / "status.json").read_text())
        assert state["reporting"] == ["A", "B"]
        assert state["plan"]
    finally:
        helper.stop()
        fleet.send_signal(signal.SIGINT)
        said = fleet.communicate(timeout=90)[0].decode()
    assert fleet.returncode == 1, "one of them was killed, and that is said"
    assert "node 'B' stopped" in said
    pids = [status(name)["pid"] for name in ("A", "B")]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    costs = status("A")["measurements"]["operators"]
    assert costs["a"][0] == pytest.approx(0.002, rel=0.5)


CLUSTERED = """
nodes: {A: , B: , C: }
clusters: {south: [B, C]}
inputs:
  i:
    max_rate: 1000
    format: penstock-replay
    arrival: arrival
    options: {generator: constant, rate: 400, duration: 300s, partitions: 1}
operators:
  a: {node: A, kind: delay, from: i, cost: 0.0005}
  b: {node: B, kind: delay, from: a, cost: 0.008}
  c: {node: C, kind: union, from: [a, b], cost: 0.0005}
  d: {node: C, kind: delay, from: c, cost: 0.004}
outputs: {q: {from: d}}
"""


@pytest.mark.long
def test_a_cluster_that_is_no_tree_plans_as_one_between_the_others(tmp_path: Path) -> None:
    """``penstock run --manager d-fit``: A feeds B and C, B feeds C; the coordinator of the cluster ends and starts again."""
    path = tmp_path / "network.yaml"
    path.write_text(CLUSTERED)
    fleet = LocalFleet(path, parse_network(CLUSTERED), tmp_path / "run", manager="d-fit", pace="1s")

    def wait(condition: Callable[[], Any], seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            fleet.collect_failures()
            assert not fleet.failures
            assert time.monotonic() < deadline, {name: fleet.status(name) for name in fleet.processes}
            time.sleep(0.1)

    def reason(name: str) -> str:
        return (fleet.status(name) or {}).get("reason", "")

    def follows(name: str) -> bool:
        """Whether a node has a plan of its cluster; once the nodes before it shed, it may not need it."""
        return bool((fleet.status(name) or {}).get("manager", {}).get("plan"))

    fleet.start()
    try:
        wait(lambda: reason("south") == "exact plan" and follows("B") and follows("C"))
        wait(lambda: reason("A").startswith("exact plan") and (fleet.status("C") or {}).get("outputs"))
        fleet.processes["south"].terminate()
        fleet.processes["south"].wait(30)
        before = fleet.status("south")
        fleet.start_process("south")
        wait(lambda: (fleet.status("south") or {}).get("plan") and fleet.status("south") != before)
        wait(lambda: reason("south") == "exact plan" and (fleet.status("south") or {})["reporting"] == ["B", "C"])
    finally:
        fleet.stop()
    status = fleet.status("A")
    assert status is not None
    offered, kept = status["gates"]["i"]
    assert 0 < kept < 0.9 * offered
