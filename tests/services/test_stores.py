"""Journals and checkpoints in real interfaces of S3, Google's storage and HDFS: crashes, slow and failing storage, two jobs."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from penstock import Controller, Decision, Observation, Shedder
from penstock.cli import app
from penstock.drop.hashing import gate_seed, uniform
from penstock.drop.tables import slot_of
from penstock.errors import JournalError, PenstockError
from penstock.journal import BatchRecord, DecisionRecord, Journal, read_journal
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.hadoop_store import HadoopStore, open_session_store
from penstock.spark.versions import internals_of
from penstock.storage import Lease, Store
from penstock.testing.gcs import GcsServer, fetch_gcs_connector
from penstock.testing.hdfs import HdfsCluster
from penstock.testing.s3 import S3Server
from penstock.testing.stores import SharedStoreContract, StoreContract
from tests.services.conftest import find_s3a
from tests.spark.test_crash import QUICK_JVM, expected, rows_of_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NUMBERS = itertools.count(1)
ROOT = Path(__file__).parents[2]


def wait_until(is_so: Callable[[], object], query: Any = None, seconds: float = 60.0) -> None:
    end_s = time.monotonic() + seconds
    while not is_so():
        assert query is None or query.isActive, f"the query ended: {query.exception()}"
        assert time.monotonic() < end_s, "it never came"
        time.sleep(0.02)


class TestS3(SharedStoreContract):
    @pytest.fixture(autouse=True)
    def _place(self, s3: S3Server, spark: SparkSession) -> None:
        self.place, self.spark = s3.url, spark

    def new_store(self) -> Store:
        return open_session_store(self.spark, f"{self.place}/contract/{next(_NUMBERS)}", "the journal")


class TestHdfs(SharedStoreContract):
    @pytest.fixture(autouse=True)
    def _place(self, hdfs: HdfsCluster, spark: SparkSession) -> None:
        self.place, self.spark = hdfs.url, spark

    def new_store(self) -> Store:
        return open_session_store(self.spark, f"{self.place}/contract/{next(_NUMBERS)}", "the journal")


class TestGcs(SharedStoreContract):
    @pytest.fixture(autouse=True)
    def _place(self, gcs: GcsServer, spark: SparkSession) -> None:
        self.place, self.spark = gcs.url, spark

    def new_store(self) -> Store:
        return open_session_store(self.spark, f"{self.place}/contract/{next(_NUMBERS)}", "the journal")


class TestRenamesAfterDeleting(StoreContract):
    """A filesystem for which Hadoop deletes a file before it renames another one over it, as Azure's: that of S3, if it must."""

    @pytest.fixture(autouse=True)
    def _place(self, s3: S3Server, spark: SparkSession) -> None:
        self.place, self.spark = s3.url, spark

    def new_store(self) -> Store:
        return RenamingStore.open(self.spark, f"{self.place}/contract/{next(_NUMBERS)}")


class RenamingStore(HadoopStore):
    """Writes as on a filesystem that nothing is known of."""

    @classmethod
    def open(cls, spark: SparkSession, location: str, *unset: str) -> RenamingStore:
        jvm: Any = spark._jvm
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        for name in unset:
            conf.unset(name)
        return cls(jvm, jvm.org.apache.hadoop.fs.Path(location).getFileSystem(conf), conf, location, internals_of(spark))

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._writer.creates_whole = False

    def below(self, folder: str) -> RenamingStore:
        return RenamingStore(self._jvm, self._fs, self._conf, f"{self.location}/{folder}", self._internals)


class TestKnownToFileSystemAlone(SharedStoreContract):
    """A vendor's filesystem for which there is no ``FileContext``: Spark's manager leaves what it should replace as it is."""

    @pytest.fixture(autouse=True)
    def _place(self, hdfs: HdfsCluster, spark: SparkSession) -> None:
        self.place, self.spark = hdfs.url, spark

    def new_store(self) -> Store:
        location = f"{self.place}/contract/{next(_NUMBERS)}"
        return RenamingStore.open(self.spark, location, "fs.AbstractFileSystem.hdfs.impl")


@pytest.fixture(params=["s3", "gcs", "hdfs"])
def url(request: pytest.FixtureRequest) -> str:
    """A directory that no other test uses, in each kind of storage."""
    server = request.getfixturevalue(request.param)
    return f"{server.url}/test{next(_NUMBERS)}"


# -- crashes ---------------------------------------------------------------------------------------------------------------


def run_with_kills(command: list[str], directory: Path, checkpoint: Checkpoint, kills: int, seed: int) -> None:
    """Start the job, kill it with SIGKILL at a random moment, several times; then let it end."""
    dice = random.Random(seed)
    for attempt in range(kills + 1):
        log = directory / f"log{attempt}"
        with log.open("w") as stream:
            job = subprocess.Popen(
                command, stdout=stream, stderr=stream, start_new_session=True, cwd=ROOT, env=os.environ | QUICK_JVM
            )
        seen = dice.choice(["list_planned", "list_committed"]) if attempt < kills else "list_committed"
        before, more = len(getattr(checkpoint, seen)()), 1 if attempt < kills else 3
        deadline = time.monotonic() + 90
        try:
            while len(getattr(checkpoint, seen)()) < before + more:
                assert job.poll() is None, f"the job ended by itself: {log.read_text()[-3000:]}"
                assert time.monotonic() < deadline, f"the job commits nothing: {log.read_text()[-3000:]}"
                time.sleep(0.05)
            if attempt < kills:
                time.sleep(dice.uniform(0.0, 1.0))
                assert job.poll() is None
            else:
                (directory / "stop").touch()
                assert job.wait(timeout=60) == 0, log.read_text()[-3000:]
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("s3", "rows"),
        pytest.param("hdfs", "buckets", marks=pytest.mark.long),
        pytest.param("gcs", "rows", marks=pytest.mark.long),
    ],
)
def test_every_row_has_the_fate_the_journal_gives_it(
    kind: str, mode: str, request: pytest.FixtureRequest, session: SparkSession, tmp_path: Path
) -> None:
    """Rows with a checkpoint in S3, 20 ms a request, and with state as well in HDFS.

    In Google's storage the journal alone: Spark's checkpoint renames files, which fake-gcs-server does not do in batches.
    """
    server = request.getfixturevalue(kind)
    settings: dict[str, str] = {}
    url, root = f"{server.url}/crash", ""
    if kind == "s3":
        settings = server.settings() | {"spark.driver.extraClassPath": find_s3a()}
        server.set(latency_s=0.02)
    elif kind == "gcs":
        settings = server.settings() | {"spark.driver.extraClassPath": fetch_gcs_connector()}
        url, root = str(tmp_path / "checkpoint"), url
    start_s = time.time() + 4.0
    arguments = [mode, url, root, str(tmp_path), repr(start_s), str(tmp_path / "stop"), json.dumps(settings)]
    checkpoint = Checkpoint(open_session_store(session, url, "the checkpoint"))
    command = [sys.executable, "-m", "tests.services.store_crash_job", *arguments]
    run_with_kills(command, tmp_path, checkpoint, kills=2, seed=21)
    place = open_session_store(session, f"{root}/query1", "the journal") if root else checkpoint.store.below("penstock")
    journal = read_journal(place)
    assert journal.damage == []
    ranges = rows_of_batches(checkpoint)
    kept = expected("by-batch", journal, ranges, start_s)
    ledger = {number: record.gates["in"] for number, record in journal.batches.items() if number in ranges}
    assert ledger == {number: (len(rows), len(kept[number])) for number, rows in ranges.items()}
    assert sum(len(rows) for rows in kept.values()) < sum(len(rows) for rows in ranges.values())
    if mode == "rows":
        for number, rows in kept.items():
            written = pq.read_table(tmp_path / "sink" / f"batch_id={number}")["seq"].to_pylist()
            assert Counter(written) == Counter(rows.tolist()), f"batch {number}"
    else:
        everything = np.concatenate(list(kept.values()))
        found: dict[int, list[int]] = {}
        for number in sorted(kept):
            rows = pq.read_table(tmp_path / "sink" / f"batch_id={number}").to_pylist()
            found |= {row["bucket"]: row["seqs"] for row in rows}
        assert Counter(seq for seqs in found.values() for seq in seqs) == Counter(everything.tolist())


# -- slow and failing storage ----------------------------------------------------------------------------------------------


class Cycle(Controller):
    """Another keep in every batch."""

    def __init__(self) -> None:
        super().__init__(2.0)

    def update(self, observation: Observation) -> Decision:
        return Decision(keep=(0.1, 0.5, 0.9)[observation.batch_id % 3])


def ticks(session: SparkSession) -> DataFrame:
    return session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1_000).option("numPartitions", 1).load()


def collect_into(seen: dict[int, int], begun_s: list[float] | None = None) -> Callable[[DataFrame, int], None]:
    """Return a function that counts the rows of each batch and, if asked, notes when each began."""

    def collect(df: DataFrame, number: int) -> None:
        if begun_s is not None:
            begun_s.append(time.monotonic())
        seen[number] = len(df.collect())

    return collect


def test_a_batch_waits_for_one_request(session: SparkSession, s3: S3Server, tmp_path: Path) -> None:
    """All else happens beside it. The checkpoint is local, so all requests are the journal's."""
    seen: dict[int, int] = {}
    begun_s: list[float] = []
    note = collect_into(seen, begun_s)
    with Shedder("2s", controller=Cycle(), journal=f"{s3.url}/waits") as shedder:
        gated = shedder.gate(ticks(session), name="in", identity="value")
        query = shedder.foreach_batch(gated, note, checkpoint=tmp_path / "cp", name="q")
        wait_until(lambda: len(seen) > 5, query)
        s3.requests()
        first = len(seen)
        s3.set(latency_s=0.5)
        wait_until(lambda: len(seen) > first + 10, query)
        s3.set()
    between_s = np.diff(begun_s[first + 1 : first + 11])
    assert 0.5 < np.median(between_s) < 1.0, f"a batch waits for one request, not for two: {between_s}"
    requests = [(verb, path) for verb, path in s3.requests() if "lease" not in path and "list" not in path]
    assert requests, "the journal is there"
    names = Counter(path.rsplit("/", 1)[-1] for verb, path in requests)
    assert max(names.values()) == 1, f"each file is one request: {requests}"
    state = read_journal(open_session_store(session, f"{s3.url}/waits/q", "the journal"))
    assert {number: record.gates["in"] for number, record in state.batches.items()} == {
        number: (1_000, count) for number, count in seen.items()
    }


def test_a_slow_hdfs_costs_time_and_nothing_else(session: SparkSession, hdfs: HdfsCluster, tmp_path: Path) -> None:
    seen: dict[int, int] = {}
    begun_s: list[float] = []
    note = collect_into(seen, begun_s)
    place = f"{hdfs.url}/slow"
    with Shedder("2s", controller=Cycle(), journal=place) as shedder:
        gated = shedder.gate(ticks(session), name="in", identity="value")
        query = shedder.foreach_batch(gated, note, checkpoint=tmp_path / "cp", name="q")
        wait_until(lambda: len(seen) > 15, query)  # the first ones take longer, and are left out
        first = len(seen)
        with hdfs.slowed(0.2):
            wait_until(lambda: len(seen) > first + 6, query)
    slow_s, quick_s = np.median(np.diff(begun_s[first + 1 : first + 6])), np.median(np.diff(begun_s[first - 7 : first]))
    assert slow_s > quick_s + 0.4, f"each batch waited: {slow_s} s instead of {quick_s} s"
    assert shedder.report().errors == [], "that is no failure"
    state = read_journal(open_session_store(session, f"{place}/q", "the journal"))
    assert {number: record.gates["in"] for number, record in state.batches.items()} == {
        number: (1_000, count) for number, count in seen.items()
    }
    for number, count in seen.items():
        decision = state.decision_for(number)
        assert decision is not None
        ids = np.arange(1_000 * number, 1_000 * (number + 1))
        assert count == (uniform(gate_seed("in"), [pa.array(ids)]) < decision.keep).sum(), number


def test_hdfs_is_asked_again_soon_whether_a_file_is_closed(session: SparkSession, hdfs: HdfsCluster) -> None:
    """By default its client waits for 0.4 s, before every other batch; who has set it otherwise is heard."""
    setting = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms"
    store = open_session_store(session, f"{hdfs.url}/soon", "the journal")
    assert isinstance(store, HadoopStore)
    store.make()
    took_s = []
    for number in range(20):
        begun_s = time.monotonic()
        store.create(f"file{number}", b"x")
        took_s.append(time.monotonic() - begun_s)
    assert np.quantile(took_s, 0.9) < 0.3, took_s
    retries = "dfs.client.block.write.locateFollowingBlock.retries"
    for given, value, other in ((setting, "700", retries), (retries, "10", setting)):
        before = store._conf.get(other)
        session.conf.set(given, value)
        try:
            theirs = open_session_store(session, f"{hdfs.url}/soon", "the journal")
        finally:
            session.conf.unset(given)
        assert isinstance(theirs, HadoopStore)
        assert theirs._conf.get(given) == value
        assert theirs._conf.get(other) != before, "one goes with the other, so neither is changed alone"


@pytest.fixture(params=["s3", "hdfs"])
def outage(request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """A directory, and how its storage goes away and comes back: one that refuses, one that does not answer."""
    server = request.getfixturevalue(request.param)
    begin, end = (partial(server.set, status=503), server.set) if request.param == "s3" else (server.pause, server.resume)
    yield f"{server.url}/fails", begin, end
    end()


def test_storage_that_fails_for_a_while(
    session: SparkSession, outage: tuple[str, Callable[[], None], Callable[[], None]], tmp_path: Path
) -> None:
    place, begin, end = outage
    seen: dict[int, int] = {}
    with Shedder("2s", controller=Cycle(), journal=place) as shedder:
        gated = shedder.gate(ticks(session), name="in", identity="value")
        query = shedder.foreach_batch(gated, collect_into(seen), checkpoint=tmp_path / "cp", name="q")
        wait_until(lambda: len(seen) > 3, query)
        begin()
        mark = len(seen)
        wait_until(lambda: len(seen) > mark + 8, query)
        during = range(mark + 2, mark + 8)
        end()
        mark = len(seen)
        wait_until(lambda: len(seen) > mark + 3, query)
        wait_until(lambda: len({seen[number] for number in sorted(seen)[-4:]}) > 2, query)
    state = read_journal(open_session_store(session, f"{place}/q", "the journal"))
    assert {number: record.gates["in"] for number, record in state.batches.items()} == {
        number: (1_000, count) for number, count in seen.items()
    }, "no count is lost"
    shares = {seen[number] / 1_000 for number in during}
    assert max(shares) - min(shares) < 0.06, "the last table stayed"
    for number, count in seen.items():
        decision = state.decision_for(number)
        assert decision is not None, f"the journal says what held in batch {number}"
        assert count / 1_000 == pytest.approx(decision.keep, abs=0.06)
    assert any("can't be written" in line for line in shedder.report().errors)


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> list[Lease]:
    """The leases that jobs take during a test; they hold for two seconds."""
    taken: list[Lease] = []
    acquire = Lease.acquire

    def note(self: Lease) -> None:
        acquire(self)
        taken.append(self)

    monkeypatch.setattr(Lease, "acquire", note)
    monkeypatch.setattr(Lease.__init__, "__defaults__", (2.0,))
    return taken


def fail_beyond_the_lease(s3: S3Server, leases: list[Lease], is_enough: Callable[[], bool]) -> tuple[float, float]:
    """Let storage fail until the lease has expired, and a little longer; return from when to when."""
    assert leases[-1].is_fresh
    s3.set(status=503, only="outlasts")
    begin_s = time.time()
    wait_until(lambda: not leases[-1].is_fresh)
    time.sleep(leases[-1].lease_s)
    wait_until(is_enough)
    end_s = time.time()
    s3.set()
    wait_until(lambda: leases[-1].is_fresh)
    assert [lease.number for lease in leases] == [1], "nobody took it meanwhile"
    return begin_s, end_s


def test_storage_that_fails_for_longer_than_the_lease_holds(
    session: SparkSession, s3: S3Server, leases: list[Lease], tmp_path: Path
) -> None:
    place, seen = f"{s3.url}/outlasts{next(_NUMBERS)}", {}
    with Shedder("2s", controller=Cycle(), journal=place) as shedder:
        gated = shedder.gate(ticks(session), name="in", identity="value")
        trigger = {"processingTime": "300 milliseconds"}
        query = shedder.foreach_batch(gated, collect_into(seen), checkpoint=tmp_path / "cp", name="q", trigger=trigger)
        wait_until(lambda: len(seen) > 3, query)
        first = len(seen)
        fail_beyond_the_lease(s3, leases, lambda: len(seen) > first + 6)
        last = len(seen)
        wait_until(lambda: len({round(seen[number] / 1_000, 1) for number in sorted(seen)[last:][-3:]}) == 3, query)
    state = read_journal(open_session_store(session, f"{place}/q", "the journal"))
    assert {number: record.gates["in"] for number, record in state.batches.items()} == {
        number: (1_000, count) for number, count in seen.items()
    }, "no count is lost"
    during = {seen[number] / 1_000 for number in range(first + 2, last)}
    assert max(during) - min(during) < 0.06, "the last table stayed"
    for number, count in seen.items():
        decision = state.decision_for(number)
        assert decision is not None
        ids = np.arange(1_000 * number, 1_000 * (number + 1))
        assert count == (uniform(gate_seed("in"), [pa.array(ids)]) < decision.keep).sum(), number


def test_storage_that_fails_for_longer_than_the_lease_holds_by_arrival(
    session: SparkSession, s3: S3Server, leases: list[Lease], tmp_path: Path
) -> None:
    place = f"{s3.url}/outlasts{next(_NUMBERS)}"
    source = session.readStream.format("rate").option("rowsPerSecond", 1_000).option("numPartitions", 1).load()

    def count_decisions() -> int:
        return len(read_journal(open_session_store(session, f"{place}/q", "the journal")).decisions)

    with Shedder("2s", controller=Cycle(), journal=place) as shedder:
        gated = shedder.gate(source, name="in", identity="value", arrival="timestamp", bounded=False)
        writer = gated.writeStream.format("parquet").option("path", str(tmp_path / "rows")).queryName("q")
        writer = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(processingTime="300 milliseconds")
        query = shedder.start(writer, by="arrival")
        wait_until(lambda: count_decisions() > 3, query)
        begin_s, end_s = fail_beyond_the_lease(s3, leases, lambda: True)
        before = count_decisions()
        wait_until(lambda: count_decisions() > before + 3, query)
    state = read_journal(open_session_store(session, f"{place}/q", "the journal"))
    rows = session.read.parquet(str(tmp_path / "rows"))
    values = sorted((row[1].timestamp(), row[0]) for row in rows.select("value", "timestamp").collect())
    offered, kept = state.totals()["in"]
    assert kept == len(values) == len(set(values)) < offered, "no count is lost, and no row twice"
    # A decision that was made just before may still begin; after that, one table holds until the storage is back.
    during = [value for arrival_s, value in values if begin_s + 1.5 < arrival_s < end_s]
    in_force = [decision for decision in state.decisions if decision.from_slot <= slot_of(begin_s + 1.5)][-1]
    ids = np.arange(during[0], during[-1] + 1)
    assert len(ids) > 1_000
    assert during == ids[uniform(gate_seed("in"), [pa.array(ids)]) < in_force.keep].tolist(), "the last table stayed"
    assert len({decision.keep for decision in state.decisions if decision.from_slot > slot_of(end_s)}) > 1, "decisions go on"


@pytest.mark.long
def test_a_write_whose_answer_is_lost(session: SparkSession, s3: S3Server) -> None:
    store = open_session_store(session, f"{s3.url}/lost", "the journal")
    journal = Journal(store, "job")
    s3.set(status=503, only="00000000000", drops=True)
    with pytest.raises(JournalError, match="can't be written"):
        journal.append(DecisionRecord({"in": (0.1,)}, 0.1, batch_id=7))
    journal.append_later(DecisionRecord({"in": (0.9,)}, 0.9, batch_id=7))
    s3.set()
    journal.append(BatchRecord(7, {"in": (10, 9)}))
    journal.close()
    state = read_journal(store)
    assert [decision.keep for decision in state.decisions] == [0.1, 0.9], "it had arrived, and what held stands behind it"
    assert state.batches[7].gates == {"in": (10, 9)}


# -- who may, and where ----------------------------------------------------------------------------------------------------


def test_two_applications_on_one_checkpoint(url: str, session: SparkSession) -> None:
    store = open_session_store(session, url, "the journal")
    first = Journal(store, "job")
    with pytest.raises(JournalError, match=r"is in use by another job \(a driver on .* is alive\)"):
        Journal(open_session_store(session, url, "the journal"), "job")
    first.append(DecisionRecord({"in": (0.5,)}, 0.5, batch_id=0))
    first.close()
    second = Journal(store, "job")
    assert second.state.decision_for(0) is not None
    second.close()


def test_a_second_application_is_refused_while_the_first_goes_on(session: SparkSession, s3: S3Server, tmp_path: Path) -> None:
    """In a process of its own, on one checkpoint in S3."""
    url, seen = f"{s3.url}/shared{next(_NUMBERS)}", {}
    settings = s3.settings() | {"spark.driver.extraClassPath": find_s3a()}
    arguments = ["rows", url, "", str(tmp_path), repr(time.time()), str(tmp_path / "stop"), json.dumps(settings)]
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(session), name="in", identity="value")
        trigger = {"processingTime": "300 milliseconds"}
        query = shedder.foreach_batch(gated, collect_into(seen), checkpoint=url, name="q", trigger=trigger)
        wait_until(lambda: len(seen) > 2, query)
        command = [sys.executable, "-m", "tests.services.store_crash_job", *arguments]
        second = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ | QUICK_JVM, timeout=120
        )
        last = len(seen)
        wait_until(lambda: len(seen) > last + 3, query)
    assert second.returncode == 1, second.stderr[-3000:]
    line = second.stderr.rstrip().splitlines()[-1]
    assert line.startswith(f"penstock.errors.JournalError: the journal in {url}/penstock is in use by another job (a driver on ")
    assert line.endswith(f"(process {os.getpid()}) holds it and is alive): give each job a journal of its own")
    assert not (tmp_path / "sink").exists()
    state = read_journal(open_session_store(session, f"{url}/penstock", "the journal"))
    assert {number: record.gates["in"] for number, record in state.batches.items()} == {
        number: (1_000, count) for number, count in seen.items()
    }


def test_a_lease_of_a_driver_that_died_elsewhere(
    session: SparkSession, s3: S3Server, leases: list[Lease], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next start waits for as long as a lease holds, says so in one line, and takes it."""
    place, seen = f"{s3.url}/dead{next(_NUMBERS)}", {}
    store = open_session_store(session, f"{place}/q", "the journal")
    gone = {"holder": "gone", "host": "far", "machine": "another", "process": 7, "started": "1", "stamp": "s"}
    store.create(".lease/000000000004.json", json.dumps(gone | {"expires_s": time.time() + 2.0, "released": False}).encode())
    with Shedder("2s", controller=Cycle(), journal=place) as shedder:
        gated = shedder.gate(ticks(session), name="in", identity="value")
        begun_s = time.monotonic()
        query = shedder.foreach_batch(gated, collect_into(seen), checkpoint=tmp_path / "cp", name="q")
        assert 2.0 < time.monotonic() - begun_s < 20.0
        wait_until(lambda: len(seen) > 2, query)
    said = [record.getMessage() for record in caplog.records if "lease" in record.getMessage() or "held" in record.getMessage()]
    assert said == [f"{place}/q is held by a driver on far (process 7), which may be dead: waiting up to 2 s"]
    assert [lease.lease_s for lease in leases] == [2.0]
    assert read_journal(store).totals()["in"] == (1_000 * len(seen), sum(seen.values()))


def test_no_permission_on_the_journals_place(session: SparkSession, s3: S3Server, tmp_path: Path) -> None:
    s3.set(status=403, only="forbidden")
    with Shedder("2s", journal=f"{s3.url}/forbidden") as shedder:
        gated = shedder.gate(ticks(session), name="in", identity="value")
        with pytest.raises(JournalError, match=r"the journal in s3a://rows/forbidden/q can't be written: .*403") as caught:
            shedder.foreach_batch(gated, lambda *_: None, checkpoint=tmp_path / "cp", name="q")
    assert "\n" not in str(caught.value)
    assert not session.streams.active


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("abfss://rows@account.dfs.core.windows.net/cp", "no connector for abfss; add org.apache.hadoop:hadoop-azure:"),
        ("dbfs:/checkpoints/cp", "no connector for dbfs; it exists only on Databricks"),
        ("oss://bucket/cp", "no connector for oss; add the jar of its connector to spark.jars"),
    ],
)
def test_a_session_without_the_connector(session: SparkSession, address: str, advice: str) -> None:
    with Shedder("2s") as shedder:
        gated = shedder.gate(ticks(session), name="in", identity="value")
        with pytest.raises(PenstockError, match=advice) as caught:
            shedder.foreach_batch(gated, lambda *_: None, checkpoint=address, name="q")
    assert address in str(caught.value)
    assert "\n" not in str(caught.value)


def test_commands_read_what_lies_far_away(
    session: SparkSession, s3: S3Server, hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(open_session_store(session, f"{s3.url}/seen/penstock", "the journal"), "job")
    journal.append(BatchRecord(3, {"in": (10, 4)}))
    journal.close()
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(app, ["watch", f"{s3.url}/seen", "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["gates"] == {"in": [10, 4]}
    missing = CliRunner().invoke(app, ["watch", f"{s3.url}/nothing", "--json"])
    assert missing.exit_code != 0
    command = [sys.executable, "-m", "penstock", "watch", f"{hdfs.url}/x", "--json"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert refused.returncode == 2
    assert "can't be reached without Spark" in refused.stderr
    assert refused.stderr.count("\n") == 1
