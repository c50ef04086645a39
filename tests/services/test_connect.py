"""Spark Connect: the same rows as anywhere else, through kills, and refusals by name."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
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
from penstock.errors import JournalError
from penstock.journal import JournalState, read_journal
from penstock.spark.checkpoint import Checkpoint, find_open_batch
from penstock.spark.connect.connect_batch_driver import find_decision
from penstock.testing.connect_server import ConnectServer

from .connect_job import KEYS, LATER, RATE, USERS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
KILLS = min(3, int(os.environ.get("PENSTOCK_KILLS", "1")))


def start(root: Path, *arguments: str, remote: str = "local[2]") -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path, "SPARK_REMOTE": remote}
    command = [sys.executable, "-m", "tests.services.connect_job", str(root), *arguments]
    with (root / "log.txt").open("ab") as log:
        return subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log, start_new_session=True)


def kill(job: subprocess.Popen[bytes]) -> None:
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def count_batches(root: Path) -> int:
    try:
        return len(read_journal(root / "journal" / "job").batches)
    except JournalError:  # there is none yet
        return 0


def list_sink(root: Path) -> pa.Table:
    """Read what Spark's file sink has committed; other files in its directory are left over from kills."""
    log = root / "sink" / "_spark_metadata"
    files = {json.loads(line)["path"] for part in log.glob("[0-9]*") for line in part.read_text().splitlines()[1:]}
    return pa.concat_tables([pq.read_table(path.removeprefix("file://")) for path in sorted(files)])


def run_with_kills(what: str, root: Path) -> None:
    for number in range(KILLS):
        goal = count_batches(root) + 3 + number
        job = start(root, what, "1000")
        deadline = time.monotonic() + 150.0
        while count_batches(root) < goal:
            assert job.poll() is None, (root / "log.txt").read_text()[-3000:]
            assert time.monotonic() < deadline, (root / "log.txt").read_text()[-3000:]
            time.sleep(0.05)
        kill(job)
    job = start(root, what, "4")
    assert job.wait(timeout=200) == 0, (root / "log.txt").read_text()[-3000:]


def read_keeps(state: JournalState, first_us: int, rows: int) -> np.ndarray:
    """Return what the journal says for each row of the source."""
    ring = SlotRing(classes=1)
    ring.merge((int(d.from_slot or 0), d.gates["in"]) for d in state.decisions if "in" in d.gates)
    return ring.table().lookup_arrivals(first_us + np.arange(rows) * (1_000_000 // RATE))


@pytest.mark.long
def test_state_has_the_rows_that_the_journal_keeps_through_kills(tmp_path: Path) -> None:
    """An aggregation, and a function that the server calls: a batch that is replayed brings the same rows again."""
    run_with_kills("run-with-state", tmp_path)
    offsets = Checkpoint(tmp_path / "checkpoint")
    seconds = int(offsets.offsets(offsets.list_committed()[-1])[0] or 0)
    totals = pq.read_table(tmp_path / "totals")
    (first,) = {*totals["first"].to_pylist(), *totals["last"].to_pylist()}
    everything = np.arange(seconds * RATE)
    keeps = read_keeps(read_journal(tmp_path / "journal" / "job"), first, len(everything))
    kept = everything[uniform(gate_seed("in"), [pa.array(everything)]) < keeps]
    assert len(set(np.round(keeps, 6))) >= 3, "several decisions were in force"
    found = {row["key"]: (row["rows"], row["sum"]) for row in totals.to_pylist()}
    assert found == {key: (int((kept % KEYS == key).sum()), int(kept[kept % KEYS == key].sum())) for key in range(KEYS)}


def check_rows_by_arrival(root: Path) -> set[int]:
    """Hold what came out against the journal; return the batches that are missing in the ledger, which says so."""
    state = read_journal(root / "journal" / "job")
    rows = list_sink(root)
    numbers = rows["value"].to_numpy()
    micros = rows["timestamp"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
    assert len(np.unique(numbers)) == len(numbers), "no row comes out twice"
    first = np.unique(micros - numbers * (1_000_000 // RATE))
    assert len(first) == 1, "a row per millisecond"

    everything = np.arange(numbers.max() + 1)
    keeps = read_keeps(state, first[0], len(everything))
    expected = everything[uniform(gate_seed("in"), [pa.array(everything)]) < keeps]
    assert set(expected) == set(numbers), "what the journal says is what came out"
    assert len(set(np.round(keeps, 6))) >= 3, "several decisions were in force"
    np.testing.assert_allclose(rows["weight"].to_numpy(), 1.0 / keeps[numbers])

    missing = set(range(max(state.batches) + 1)) - set(state.batches)
    counted = sum(kept for record in state.batches.values() for _, kept in record.gates.values())
    assert counted == len(numbers) if not missing else counted <= len(numbers), "the ledger is what came out, but for those"
    assert list_noted(state) == missing, "and the ledger says so"
    return missing


def test_every_row_is_judged_by_the_journal_through_kills(tmp_path: Path) -> None:
    run_with_kills("run", tmp_path)
    missing = check_rows_by_arrival(tmp_path)
    assert len(missing) <= 2 * KILLS, "at most those that ran around a kill are missing in the ledger"


def test_by_arrival_the_last_table_stays_in_force_while_there_is_no_client(tmp_path: Path) -> None:
    """Only the client is killed. What Spark runs meanwhile is judged by the journal, and missing in the ledger."""
    with ConnectServer() as server:
        job = start(tmp_path, "run", "1000", remote=server.address)
        wait_for(lambda: count_batches(tmp_path) >= 4, job, tmp_path)
        kill(job)
        left = count_planned(tmp_path)
        wait_for(lambda: count_planned(tmp_path) >= left + 3, None, tmp_path)
        job = start(tmp_path, "run", "3", remote=server.address)
        assert job.wait(timeout=200) == 0, (tmp_path / "log.txt").read_text()[-3000:]
    missing = check_rows_by_arrival(tmp_path)
    assert missing >= {left, left + 1}, "those that began without a client and ended before it was back"
    assert missing == set(range(min(missing), max(missing) + 1))


def list_noted(state: JournalState) -> set[int]:
    """Return the batches of which the ledger says that they are missing."""
    noted = [re.search(r"batch(?:es)? (\d+)(?: to (\d+))? (?:ran while|has no counts)", note) for note in state.errors]
    return {number for match in noted if match for number in range(int(match[1]), int(match[2] or match[1]) + 1)}


def count_planned(root: Path) -> int:
    return max(Checkpoint(root / "checkpoint").list_planned(), default=-1) + 1


def wait_for(condition: Callable[[], bool], job: subprocess.Popen[bytes] | None, root: Path) -> None:
    deadline = time.monotonic() + 150.0
    while not condition():
        assert job is None or job.poll() is None, (root / "log.txt").read_text()[-3000:]
        assert time.monotonic() < deadline, (root / "log.txt").read_text()[-3000:]
        time.sleep(0.05)


def test_by_batch_every_row_is_judged_by_its_batch_through_kills(tmp_path: Path) -> None:
    """First the client is killed, while Spark goes on, then the client and Spark. The last client comes to its end."""
    with ConnectServer() as server:
        job = start(tmp_path, "run-by-batch", "1000", remote=server.address)
        wait_for(lambda: count_batches(tmp_path) >= 4, job, tmp_path)
        kill(job)
        left = count_planned(tmp_path)
        wait_for(lambda: count_planned(tmp_path) >= left + 3, None, tmp_path)
        job = start(tmp_path, "run-by-batch", "1000", remote=server.address)
        goal = count_batches(tmp_path) + 3
        wait_for(lambda: count_batches(tmp_path) >= goal, job, tmp_path)
        kill(job)
        server.kill()
    with ConnectServer() as server:
        job = start(tmp_path, "run-by-batch", "3", remote=server.address)
        assert job.wait(timeout=200) == 0, (tmp_path / "log.txt").read_text()[-3000:]

    state, offsets = read_journal(tmp_path / "journal" / "job"), Checkpoint(tmp_path / "checkpoint")
    ends = [0] + [int(offsets.offsets(batch)[0] or 0) * RATE for batch in offsets.list_committed()]
    keeps = np.ones(ends[-1])
    for batch, (first, last) in enumerate(pairwise(ends)):
        decision = state.decision_for(batch)
        assert decision is not None, "also about batches that nobody has counted"
        keeps[first:last] = decision.keep
    everything = np.arange(ends[-1])
    expected = everything[uniform(gate_seed("in"), [pa.array(everything)]) < keeps]
    rows = list_sink(tmp_path).sort_by("value")
    assert rows["value"].to_pylist() == expected.tolist(), "what the journal says is what came out, each row once"
    np.testing.assert_allclose(rows["weight"].to_numpy(), 1.0 / keeps[expected])
    for batch, record in state.batches.items():
        size = ends[batch + 1] - ends[batch]
        passed = int(((expected >= ends[batch]) & (expected < ends[batch + 1])).sum())
        assert record.gates["in"] == (size, passed), "the ledger is exact for what it has"
    missing = set(range(max(state.batches))) - set(state.batches)
    assert len(missing) >= 3, "of those that ran without a client"
    assert list_noted(state) == missing, "and the ledger says so"
    assert len({decision.keep for decision in state.decisions}) == 4


@pytest.mark.long
def test_by_batch_a_join_has_the_keys_of_its_batches_through_a_kill(tmp_path: Path) -> None:
    """Two gates of whole keys and state: client and Spark are killed in the middle of a batch, which is replayed."""
    with ConnectServer() as server:
        job = start(tmp_path, "run-join", "1000", remote=server.address)
        wait_for(lambda: count_batches(tmp_path) >= 4, job, tmp_path)
        wait_for(lambda: find_open_batch(tmp_path / "checkpoint") is not None, job, tmp_path)
        server.kill()
        kill(job)
    with ConnectServer() as server:
        job = start(tmp_path, "run-join", "4", remote=server.address)
        assert job.wait(timeout=200) == 0, (tmp_path / "log.txt").read_text()[-3000:]

    state, offsets = read_journal(tmp_path / "journal" / "job"), Checkpoint(tmp_path / "checkpoint")
    batches = offsets.list_committed()
    ends = np.array([[0, 0], *([int(one or 0) * RATE for one in offsets.offsets(batch)] for batch in batches)])
    u = uniform(gate_seed("key "), [pa.array(np.arange(USERS))])[np.arange(ends.max()) % USERS]
    passes = {name: np.zeros(len(u), bool) for name in ("left", "right")}
    for batch in batches:
        decision = find_decision(state, batch)
        assert decision is not None
        for side, name in enumerate(passes):
            part = slice(ends[batch][side], ends[batch + 1][side])
            passes[name][part] = u[part] < decision.gates[name][0]
            if batch in state.batches:
                assert state.batches[batch].gates[name] == (part.stop - part.start, passes[name][part].sum()), batch
    pairs = np.flatnonzero(passes["left"][:-LATER] & passes["right"][LATER:])
    assert list_sink(tmp_path).sort_by("left_value")["left_value"].to_pylist() == pairs.tolist(), "each pair once"
    assert 0 < len(pairs) < len(u) - LATER
    assert list_noted(state) == set(range(max(state.batches))) - set(state.batches)
    assert len({decision.keep for decision in state.decisions}) == 4


def test_what_cannot_be_had_is_refused_and_all_rows_pass_at_keep_1(tmp_path: Path) -> None:
    job = start(tmp_path, "check")
    assert job.wait(timeout=240) == 0, (tmp_path / "log.txt").read_text()[-3000:]
    answer = json.loads((tmp_path / "answer.json").read_text())
    said = answer["refusals"]
    assert "needs journal=" in said["no journal"]
    assert "needs arrival=" in said["no arrival"]
    assert "needs a classic Spark session" in said["windows"]
    assert "bounded=True needs a classic" in said["bounded"]
    assert "shed_to= needs a classic" in said["shed_to"]
    assert "needs a function" in said["foreach_batch"]
    assert "there is no write()" in said["write"]
    assert "needs checkpointLocation" in said["by batch without checkpoint"]
    assert "a checkpoint that this process sees, got s3a://bucket/cp" in said["by batch far away"]
    assert "starts batches before their offsets are logged: leave by='batch' out" in said["by batch with late offsets"]
    assert said["neither"] == "by must be 'batch' or 'arrival', got 'hand'"
    assert "reads no gate" in said["no gate"]
    assert "streaming DataFrame is needed" in said["static"]
    assert "trigger(continuous=...)" in said["continuous"]
    assert "there is no attach(): start the query with start(writer)" in said["attach"]
    for name in ("load_aware", "las", "time_only"):
        assert said[name] == "over Spark Connect there is no load_aware(): use a classic Spark session"
    assert "there is no metrics='spark': take 'prometheus' or 'opentelemetry'" in said["spark's metrics"]
    assert "must be local files, got s3a://bucket/journal" in said["object store"]
    assert answer["all"]["counted"] == {"0": 3_334, "1": 3_333, "2": 3_333}
    assert "10,000" in answer["all"]["report"]
    assert "rows without an arrival time in column 'arrival' are always kept" in answer["all"]["report"]
    assert sum(answer["function"]["written"]) == 10_000
    assert answer["function"]["counted"] == answer["function"]["written"]
    assert answer["adaptive"] == {"plain": False, "shuffled": True}
