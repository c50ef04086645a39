"""A real job, killed at random moments and started again: what must be in the sink is recomputed and compared, row by row."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="the replay source needs Spark 4.2")

from penstock.drop.hashing import gate_seed, uniform, xxhash64
from penstock.drop.tables import BatchTable, SlotRing
from penstock.drop.units import WholeWindows, WindowRing
from penstock.journal import DecisionRecord, JournalState, read_journal
from penstock.las import AVG, CostSketch, Las
from penstock.las.shedder_state import ShedderState
from penstock.simulation.traffic import b_model
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.gates.clock_filter import KEY_SEED
from penstock.spark.offsets import rows_between

from .crash_job import DURATION_S, FLOOR, KEEPS, KEYS, RATE

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("PENSTOCK_KILLS", "3"))
"""Kills of the modes that decide most; every start of a JVM takes several seconds."""
# A job that lives for seconds is better off without the optimising compiler.
QUICK_JVM = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
JOB = Path(__file__).with_name("crash_job.py")


MODES = {"by-batch": (11, KILLS), "by-arrival": (11, KILLS), "files": (14, 1), "window": (12, 2), "join": (13, 1), "las": (15, 1)}
"""Seed and kills of each mode. Of "files", Spark's own file sink runs by batch."""


BATCHES_AT_LAST = {"window": 10}
"""How many batches the run that is not killed commits. A window that is decided late is delivered later still."""


@dataclass(frozen=True)
class Crashed:
    """A job that was killed several times and has then come to its end."""

    mode: str
    directory: Path
    start_s: float


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Crashed]]]:
    """All modes that tests want, two at a time: most of a run is a JVM that starts."""
    wanted = {item.callspec.params["crashed"] for item in request.session.items if "crashed" in getattr(item, "fixturenames", ())}

    def run(mode: str) -> Crashed:
        directory = tmp_path_factory.mktemp(mode)
        return Crashed(mode, directory, run_with_kills(mode, directory, *MODES[mode]))

    with ThreadPoolExecutor(2) as pool:
        yield {mode: pool.submit(run, mode) for mode in MODES if mode in wanted}


@pytest.fixture
def crashed(request: pytest.FixtureRequest, runs: dict[str, Future[Crashed]]) -> Crashed:
    """The run of a mode."""
    return runs[request.param].result()


def run_with_kills(mode: str, directory: Path, seed: int, kills: int) -> float:
    """Start the job, kill it with SIGKILL at a random moment, several times; then let it end. Return the trace's start."""
    dice = random.Random(seed)
    start_s = time.time() + 4.0
    stop_file = directory / "stop"
    command = [sys.executable, str(JOB), mode, str(directory), repr(start_s), str(stop_file)]
    for attempt in range(kills + 1):
        with (directory / f"log{attempt}").open("w") as log:
            job = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=os.environ | QUICK_JVM)
        # Half of the time it may commit a batch first, half of the time it is killed in the first batch that it plans.
        seen = dice.choice(["list_planned", "list_committed"]) if attempt < kills else "list_committed"
        more = 1 if attempt < kills else BATCHES_AT_LAST.get(mode, 4)
        checkpoint = Checkpoint(directory / "checkpoint")
        before = len(getattr(checkpoint, seen)())
        deadline = time.monotonic() + 120
        try:
            while len(getattr(checkpoint, seen)()) < before + more:
                assert job.poll() is None, f"the job ended by itself: {(directory / f'log{attempt}').read_text()[-3000:]}"
                assert time.monotonic() < deadline, "the job commits nothing"
                time.sleep(0.02)
            if attempt < kills:
                time.sleep(dice.uniform(0.0, 1.2))
                assert job.poll() is None
            else:
                stop_file.touch()
                assert job.wait(timeout=60) == 0, (directory / f"log{attempt}").read_text()[-3000:]
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
    return start_s


def rows_of_batches(checkpoint: Checkpoint) -> dict[int, range]:
    """Which rows each batch took in, from Spark's offset log."""
    ranges, first = {}, 0
    for batch_id in checkpoint.list_committed():
        (end,) = checkpoint.offsets(batch_id)
        last = rows_between(None, end)
        assert last is not None
        ranges[batch_id] = range(first, last)
        first = last
    return ranges


def expected(mode: str, journal: JournalState, ranges: dict[int, range], start_s: float) -> dict[int, np.ndarray]:
    """Which rows each batch must have kept, from offsets, journal and numpy twin alone."""
    times = start_s + b_model(RATE, DURATION_S, bias=0.565, seed=5)
    ring = SlotRing(1, is_bounded=mode == "by-arrival")
    ring.merge([(d.from_slot, d.gates["in"]) for d in journal.decisions if d.from_slot is not None and "in" in d.gates])
    kept = {}
    for batch_id, rows in ranges.items():
        seq = np.arange(rows.start, rows.stop)
        micros = np.floor(times[seq] * 1e6).astype(np.int64)
        if mode in ("by-batch", "files"):
            decision = journal.decision_for(batch_id)
            assert decision is not None or not len(seq), f"batch {batch_id} has no decision"
            keep = table_of(decision).lookup_arrivals(micros)
        else:
            keep = ring.table().lookup_arrivals(micros, ranks=ranks_of(rows))
        kept[batch_id] = seq[uniform(gate_seed("in"), [pa.array(seq)]) < keep]
    return kept


def table_of(decision: DecisionRecord | None) -> BatchTable:
    """The table of a batch, as the journal has it."""
    if decision is None or not decision.older:
        return BatchTable.of(decision.gates["in"] if decision else [1.0])
    old = decision.older["in"]
    return BatchTable.of(decision.gates["in"], older=old.entries, line=old.line)


def ranks_of(rows: range, partitions: int = 2) -> np.ndarray:
    """The place of each row in its partition: the replay source cuts a batch into contiguous ranges of about the same size."""
    count = max(1, min(partitions, len(rows)))
    sizes = np.diff([len(rows) * i // count for i in range(count + 1)])
    return np.concatenate([np.arange(size) for size in sizes])


@pytest.mark.parametrize("crashed", ["by-batch", "by-arrival", pytest.param("files", marks=pytest.mark.apart)], indirect=True)
def test_every_row_has_the_fate_the_journal_gives_it(crashed: Crashed) -> None:
    mode, tmp_path, start_s = crashed.mode, crashed.directory, crashed.start_s
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    journal = read_journal(tmp_path / "checkpoint" / "penstock")
    assert journal.damage == []
    ranges = rows_of_batches(checkpoint)
    kept = expected(mode, journal, ranges, start_s)
    shed = sum(len(rows) for rows in ranges.values()) - sum(len(rows) for rows in kept.values())
    assert len(ranges) > KILLS
    assert shed > 0
    if mode == "by-arrival":  # the bound has mattered
        bounds = {decision.gates["in"][1] for decision in journal.decisions if "in" in decision.gates}
        assert min(bounds) < 200

    # The ledger has every committed batch once, with the very counts.
    ledger = {batch_id: record.gates["in"] for batch_id, record in journal.batches.items() if batch_id in ranges}
    assert ledger == {batch_id: (len(rows), len(kept[batch_id])) for batch_id, rows in ranges.items()}

    if mode != "by-arrival":  # both rules of age have mattered, and the rows that they shed are counted
        times = np.floor((start_s + b_model(RATE, DURATION_S, bias=0.565, seed=5)) * 1e6)
        floors = set()
        for batch_id, rows in ranges.items():
            old = (((decision := journal.decision_for(batch_id)) and decision.older) or {}).get("in")
            is_old = [seq for seq in rows if old is not None and times[seq] < old.line]
            assert (journal.batches[batch_id].expired or {}).get("in", 0) == len(set(is_old) - set(kept[batch_id].tolist()))
            floors |= {old.entries[0] for _ in is_old[:1] if old is not None}
        assert floors == {0.0, FLOOR}

    # The sink holds exactly the rows that were kept, none twice, none missing.
    if mode == "by-batch":
        assert_letters(tmp_path / "shed", journal, ranges, kept)
        in_bucket: dict[int, Counter[int]] = {}
        for batch_id, rows in kept.items():
            for seq in rows.tolist():
                in_bucket.setdefault(seq // 64, Counter())[seq] += 1
            written = pq.read_table(tmp_path / "sink" / f"batch_id={batch_id}").to_pylist()
            assert {row["bucket"]: Counter(row["seqs"]) for row in written} == {
                bucket: in_bucket[bucket] for bucket in {seq // 64 for seq in rows.tolist()}
            }, f"batch {batch_id}"
    else:
        written = Counter(seq for row in native_sink(tmp_path / "sink") for seq in row["seqs"])
        times = start_s + b_model(RATE, DURATION_S, bias=0.565, seed=5)
        everything = np.concatenate(list(kept.values()))
        closed_s = max(row["window"]["end"].timestamp() for row in native_sink(tmp_path / "sink"))
        assert written == Counter(everything[times[everything] < closed_s].tolist())
        assert len(written) > 0


def assert_letters(path: Path, journal: JournalState, ranges: dict[int, range], kept: dict[int, np.ndarray]) -> None:
    """The dead letters of every committed batch are the rows that it shed, each once, and they say if they were too old."""
    for batch_id, rows in ranges.items():
        files = list(path.glob(f"*/penstock_gate=in/penstock_batch={batch_id}/*.parquet"))
        letters = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
        assert sorted(row["seq"] for row in letters) == sorted(set(rows) - set(kept[batch_id].tolist())), f"batch {batch_id}"
        expired = sum(row["penstock_reason"] == "expired" for row in letters)
        assert expired == (journal.batches[batch_id].expired or {}).get("in", 0)


def native_sink(path: Path) -> list[dict[str, object]]:
    """The rows that Spark's file sink has committed: those in its own log, not those that a crash left lying about."""
    import json

    files: set[str] = set()
    for entry in sorted((path / "_spark_metadata").iterdir()):
        if not entry.name.startswith("."):
            files |= {json.loads(line)["path"] for line in entry.read_text().splitlines()[1:]}
    tables = [pq.read_table(file.removeprefix("file://")) for file in sorted(files)]
    return pa.concat_tables(tables).to_pylist()


@pytest.mark.apart
@pytest.mark.parametrize("crashed", ["window"], indirect=True)
def test_windows_stay_whole_through_crashes(crashed: Crashed) -> None:
    tmp_path, start_s = crashed.directory, crashed.start_s
    journal = read_journal(tmp_path / "checkpoint" / "penstock")
    times = np.floor((start_s + b_model(RATE, DURATION_S, bias=0.565, seed=5)) * 1e6).astype(np.int64)
    unit = WholeWindows("arrival", "1s", "500ms")
    ring = WindowRing(unit, gate_seed("in"))
    for decision in journal.decisions:
        if len(decision.gates["in"]) == 2:
            ring.decide(int(decision.gates["in"][1]), decision.gates["in"][0])
    delivered: dict[int, list[int]] = {}
    for path in sorted((tmp_path / "sink").glob("batch_id=*")):
        for row in pq.read_table(path).to_pylist():
            start = int(np.datetime64(row["window"]["start"].replace(tzinfo=None), "us").astype(np.int64))
            assert start not in delivered
            delivered[start] = sorted(row["seqs"])
    for start, seqs in delivered.items():
        assert seqs == np.flatnonzero((times >= start) & (times < start + unit.length)).tolist()
    ordinals = np.arange(unit.ordinal(int(times[0])) - 1, unit.ordinal(max(delivered)) + 1)
    kept = {unit.start(number) for number, fate in zip(ordinals.tolist(), ring.fate(ordinals).tolist(), strict=True) if fate}
    assert set(delivered) == {start for start in kept if ((times >= start) & (times < start + unit.length)).any()}
    assert len(kept) < len(ordinals), "some were dropped"


@pytest.mark.apart
@pytest.mark.parametrize("crashed", ["join"], indirect=True)
def test_keys_of_a_join_stay_whole_through_crashes(crashed: Crashed) -> None:
    tmp_path = crashed.directory
    pairs = [row for path in (tmp_path / "sink").glob("batch_id=*") for row in pq.read_table(path).to_pylist()]
    seen = Counter(row["left_seq"] for row in pairs)
    assert set(seen.values()) == {1}, "none twice"
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    ends = checkpoint.offsets(max(checkpoint.list_committed()))
    read = min(rows_between(None, end) or 0 for end in ends)
    u = uniform(gate_seed("key "), [pa.array(np.arange(KEYS))])
    always = set(np.flatnonzero(u < min(KEEPS)).tolist())
    assert always
    assert {seq for seq in seen if seq % KEYS in always and seq < read} == {seq for seq in range(read) if seq % KEYS in always}


@pytest.mark.apart
@pytest.mark.parametrize("crashed", ["las"], indirect=True)
def test_las_drops_the_same_rows_through_a_crash(crashed: Crashed) -> None:
    """The plain class of LAS, given what the journal says was known, drops the very rows that are not in the sink."""
    tmp_path = crashed.directory
    journal = read_journal(tmp_path / "checkpoint" / "penstock")
    times = crashed.start_s + b_model(RATE, DURATION_S, bias=0.565, seed=5)
    shed, sketch, states = 0, CostSketch(0.05, 0.1), {}
    for decision in journal.decisions:
        state = ShedderState.from_entries(decision.gates["in"], sketch)
        states[decision.batch_id], sketch = state, state.sketch
    for batch_id, rows in rows_of_batches(Checkpoint(tmp_path / "checkpoint")).items():
        state, kept = states[batch_id], set(rows)
        ranks = ranks_of(rows)
        partitions = np.cumsum(ranks == 0) - 1
        micros = np.floor(times[rows.start : rows.stop] * 1e6).astype(np.int64)
        hashes = xxhash64(KEY_SEED, [pa.array(np.arange(rows.start, rows.stop) % KEYS, pa.int64())]).view(np.int64)
        for partition in set(partitions.tolist()) if state.phase != "NOP" else ():
            instance, constraint = state.instance(partition), AVG(state.tau_s)
            constraint._total_s, constraint._count = instance.total_s, instance.count
            oracle = Las(constraint, state.sketch)
            oracle.clock_s = instance.offset_s
            for place in np.flatnonzero(partitions == partition).tolist():
                if oracle.shed(int(hashes[place]), min(0.0, (int(micros[place]) - state.begin_us) / 1e6)):
                    kept.discard(rows.start + place)
        written = pq.read_table(tmp_path / "sink" / f"batch_id={batch_id}").column("seq").to_pylist() if kept else []
        assert sorted(written) == sorted(kept), f"batch {batch_id}"
        assert journal.batches[batch_id].gates["in"] == (len(rows), len(kept))
        shed += len(rows) - len(kept)
    assert shed > 0
    assert {state.phase for state in states.values()} >= {"NOP", "SEND"}
