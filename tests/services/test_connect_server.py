"""A Spark Connect server, and what talks to it: a client without a JVM, the jobs that people run, a declarative pipeline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")

from penstock.drop.hashing import gate_seed, uniform
from penstock.drop.tables import SlotRing
from penstock.journal import JournalState, read_journal
from penstock.testing.connect_server import ConnectServer
from penstock.testing.maven import UnavailableError
from penstock.testing.spark_versions import find_client_python

from .connect_operations import ALL, SOME

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[ConnectServer]:
    settings = {"spark.sql.pipelines.execution.streamstate.pollingInterval": "1"}
    try:
        started = ConnectServer(settings=settings, paths=(ROOT / "src", ROOT)).start()
    except UnavailableError as error:
        pytest.skip(str(error))
    try:
        yield started
    finally:
        started.stop()


def run(server: ConnectServer, python: str, *arguments: str, **environment: str) -> str:
    """Run a process against the server, and return what it wrote; it must end well."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    settings = {**os.environ, "PYTHONPATH": paths, "SPARK_REMOTE": server.address, **environment}
    done = subprocess.run(
        [python, *arguments], env=settings, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def client() -> tuple[str, dict[str, str]]:
    """A Python with pyspark-client, and an environment without Java."""
    try:
        return find_client_python(), {"PATH": "/nonexistent", "JAVA_HOME": ""}
    except UnavailableError as error:
        pytest.skip(str(error))


def test_a_client_without_a_jvm(server: ConnectServer, client: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    """pyspark-client: no Java, no jars, no py4j; gates, journal, report and functions are the same."""
    python, environment = client
    look = "import pyspark, shutil, sys; print(hasattr(pyspark, 'SparkContext'), shutil.which('java'), sys.modules['py4j'])"
    assert run(server, python, "-c", look, **environment).split() == ["False", "None", "None"]
    refused = "import penstock.spark.session as s\ntry: s.local_session('x')\nexcept s.PenstockError as error: print(error)"
    assert "only Spark's client is installed here" in run(server, python, "-c", refused, **environment)
    run(server, python, "-m", "tests.services.connect_job", str(tmp_path), "check", **environment)
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert "nothing" not in answer["refusals"].values()
    assert answer["all"]["counted"] == {"0": 3_334, "1": 3_333, "2": 3_333}
    assert "10,000" in answer["all"]["report"]
    assert sum(answer["function"]["written"]) == 10_000
    assert answer["function"]["counted"] == answer["function"]["written"]


@pytest.mark.parametrize("names", [SOME, pytest.param(ALL, marks=pytest.mark.long)], ids=["some", "all"])
def test_what_people_put_behind_a_gate(names: tuple[str, ...], server: ConnectServer, tmp_path: Path) -> None:
    """At keep 1 as without a gate, at keep 0.5 as over the rows that were kept; and the ledger has just those."""
    write_files(tmp_path / "files")
    run(server, sys.executable, "-m", "tests.services.connect_job", str(tmp_path), "operations", *names)
    assert json.loads((tmp_path / "answer.json").read_text()) == dict.fromkeys(names, "fine")


def write_files(directory: Path) -> None:
    from tests.services.test_operations import FILES, KEYS, ROWS, START_US

    directory.mkdir()
    for number in range(FILES):
        ids = np.arange(ROWS * number, ROWS * (number + 1))
        times = pa.array(START_US + ids * 10_000).cast(pa.timestamp("us", tz="UTC"))
        columns = {"id": ids, "t": times, "k": (ids * 7919 % KEYS).astype(np.int32), "v": ids / 8.0}
        pq.write_table(pa.table(columns), directory / f"{number}.parquet")
        os.utime(directory / f"{number}.parquet", (1_700_000_000 + number, 1_700_000_000 + number))


# -- a declarative pipeline -------------------------------------------------------------------------------------------------

SPEC = """\
name: packets
storage: file://{root}/storage
libraries:
  - glob:
      include: definitions/**
"""
DEFINITIONS = '''\
"""One table without a gate, one behind a gate that sheds, one behind a gate that need not, and one that reads another."""
from pathlib import Path

from pyspark import pipelines as dp

from penstock import Controller, Decision, PenstockError, Shedder

ROOT = Path({root!r})


class Half(Controller):
    def update(self, observation):
        return Decision(keep=0.5)


def read():
    return spark.readStream.schema("id bigint, t timestamp").parquet(str(ROOT / "files"))


shedder = Shedder("60s", controller=Half(60.0), journal=ROOT / "journal", backfill="shed")
calm = Shedder("60s", controller=Half(60.0), journal=ROOT / "calm")
before = calm.gate(read(), name="calm", arrival="t", identity="id")


@dp.table
def plain():
    return read()


@dp.table
def shed():
    return shedder.gate(read(), name="in", arrival="t", identity="id", weight_column="w")


@dp.table
def kept():
    return before


@dp.table
def onwards():
    return spark.readStream.table("shed").select("id")


try:
    calm.gate(spark.readStream.table("nowhere"), name="wrong", arrival="t")
except PenstockError as error:
    (ROOT / "refusal.txt").write_text(str(error))
'''


def write_rows(root: Path, number: int, first: int, start_s: float) -> np.ndarray:
    """Write a file of rows that arrive every millisecond, and return when, in microseconds."""
    ids, micros = np.arange(first, first + 1_000), int(start_s * 1e6) + np.arange(1_000) * 1_000
    (root / "files").mkdir(exist_ok=True)
    table = pa.table({"id": ids, "t": pa.array(micros).cast(pa.timestamp("us", tz="UTC"))})
    pq.write_table(table, root / "files" / f"{number}.parquet")
    return micros


def run_pipeline(server: ConnectServer, root: Path) -> None:
    said = run(server, sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(root / "pipeline.yml"))
    assert "Traceback" not in said, said
    (root / "said.txt").write_text(said)


def read_table(server: ConnectServer, name: str) -> pa.Table:
    return pq.read_table(server.directory / "warehouse" / name).sort_by("id")


def read_only_journal(directory: Path) -> JournalState:
    (journal,) = [path for path in directory.iterdir() if path.name != "tables"]
    return read_journal(journal)


def test_a_declarative_pipeline(server: ConnectServer, tmp_path: Path) -> None:
    """Runs take what is there. What one decides holds for the rows that arrive after it, which the next one reads."""
    pytest.importorskip("pyspark.pipelines", reason="declarative pipelines came with Spark 4.1")
    (tmp_path / "definitions").mkdir()
    (tmp_path / "pipeline.yml").write_text(SPEC.format(root=tmp_path))
    (tmp_path / "definitions" / "packets.py").write_text(DEFINITIONS.format(root=str(tmp_path)))
    first = write_rows(tmp_path, 0, 0, time.time() - 60.0)
    run_pipeline(server, tmp_path)
    assert read_table(server, "shed").drop(["w"]) == read_table(server, "plain"), "nothing was decided yet"
    assert "the columns behind gate 'wrong' can't be found: " in (tmp_path / "refusal.txt").read_text()
    second = write_rows(tmp_path, 1, 1_000, time.time() + 1.0)
    time.sleep(2.0)  # until they have arrived: rows from the future are warned of
    run_pipeline(server, tmp_path)

    state, shed = read_only_journal(tmp_path / "journal"), read_table(server, "shed")
    ring = SlotRing(classes=1)
    ring.merge((int(d.from_slot or 0), d.gates["in"]) for d in state.decisions if "in" in d.gates)
    keeps = ring.table().lookup_arrivals(np.concatenate([first, second]))
    ids = np.arange(2_000)
    passes = uniform(gate_seed("in"), [pa.array(ids)]) < keeps
    assert keeps.tolist() == [1.0] * 1_000 + [0.5] * 1_000
    assert shed["id"].to_pylist() == ids[passes].tolist(), "what the journal says is what came out"
    assert shed["w"].to_pylist() == (1.0 / keeps[passes]).tolist()
    assert read_table(server, "onwards")["id"].to_pylist() == ids[passes].tolist()
    counts = [record.gates["in"] for _, record in sorted(state.batches.items()) if record.gates["in"][0]]
    assert counts == [(1_000, 1_000), (1_000, int(passes[1_000:].sum()))]
    assert not state.errors

    calm = read_only_journal(tmp_path / "calm")
    assert read_table(server, "kept")["id"].to_pylist() == ids.tolist(), "a run that ends by itself is no overload"
    assert calm.totals()["calm"] == (2_000, 2_000)
    shutil.rmtree(tmp_path / "files")
