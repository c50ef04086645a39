"""The producer's log, the ledger and the sink, row by row, through kills of the job and restarts of the broker."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from penstock.drop.hashing import gate_seed, uniform
from penstock.drop.tables import BatchTable, SlotRing
from penstock.journal import DecisionRecord, JournalState, read_journal
from penstock.shed.letters import TopicLetters
from penstock.shed.topics import TopicReader
from penstock.spark.checkpoint import Checkpoint
from penstock.testing.kafka import KafkaBroker

from .kafka_crash_job import KEEPS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("PENSTOCK_KILLS", "3"))
RESTARTS = int(os.environ.get("PENSTOCK_RESTARTS", "1"))
PARTITIONS, ROWS_PER_S = 2, 400
QUICK_JVM = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

Row = tuple[int, int]
"""Partition and offset."""


class LoggingProducer:
    """Writes numbered rows at a steady rate, and logs where each one went and with which timestamp."""

    def __init__(self, address: str, topic: str) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._producer = Producer(settings | {"message.timeout.ms": 120_000, "reconnect.backoff.max.ms": 500})
        self._topic = topic
        self.log: dict[Row, tuple[str, int]] = {}
        """The value and the timestamp in milliseconds of each row."""
        self.sent = 0
        self.failures: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(60)
        assert self._producer.flush(120) == 0
        assert not self.failures, self.failures[0]

    def _run(self) -> None:
        begin_s = time.monotonic()
        while not self._ended.wait(0.01):
            while self.sent < (time.monotonic() - begin_s) * ROWS_PER_S:
                partition, value = self.sent % PARTITIONS, f"{self.sent}".encode()
                self._producer.produce(self._topic, value=value, partition=partition, on_delivery=self._delivered)
                self.sent += 1
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        row = (message.partition(), message.offset())
        assert row not in self.log
        self.log[row] = (message.value().decode(), message.timestamp()[1])


class CrashedJob:
    """Starts the job, kills it at random moments, restarts the broker under it, and lets it come to its end."""

    def __init__(self, mode: str, directory: Path, broker: KafkaBroker, topic: str, connector: str) -> None:
        module = [sys.executable, "-m", "tests.services.kafka_crash_job"]
        self._command = [*module, mode, str(directory), broker.address, topic, connector]
        self._directory, self._broker = directory, broker
        self._checkpoint = Checkpoint(directory / "checkpoint")
        self._dice = random.Random(f"{mode} {KILLS} {RESTARTS}")
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = self.failures = 0

    def run(self, producer: LoggingProducer) -> None:
        # The watchdog of the configuration (pyproject.toml) knows nothing of how many kills were asked for.
        faulthandler.dump_traceback_later(420 + 60 * (KILLS + RESTARTS), exit=True)
        events = [self._kill] * KILLS + [self._restart_broker] * RESTARTS
        self._dice.shuffle(events)
        try:
            for event in events:
                # Half of the time it may commit a batch first, half of the time it is hit in the first batch that it plans.
                self._wait_for(self._dice.choice(["list_planned", "list_committed"]), more=1)
                time.sleep(self._dice.uniform(0.0, 1.2))
                event()
            self._wait_for("list_committed", more=2)
            producer.end()
            self._finish(len(producer.log))
        finally:
            self._kill()

    def _start(self) -> None:
        log = (self._directory / f"log{self.starts}").open("w")
        env = os.environ | QUICK_JVM
        self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True, env=env, cwd=ROOT)
        self.starts += 1

    def _wait_for(self, what: str, more: int) -> None:
        before = len(getattr(self._checkpoint, what)())
        self._until(lambda: len(getattr(self._checkpoint, what)()) >= before + more)

    def _until(self, is_so: Any) -> None:
        deadline = time.monotonic() + 180
        while not is_so():
            if self._process is None or self._process.poll() is not None:
                # A restart of the broker may end a query, as it would without Penstock. What counts is that no row is lost.
                self.failures += self._process is not None and self._process.poll() not in (None, -signal.SIGKILL)
                assert self.failures <= RESTARTS, (self._directory / f"log{self.starts - 1}").read_text()[-3000:]
                self._start()
            assert time.monotonic() < deadline, (self._directory / f"log{self.starts - 1}").read_text()[-3000:]
            time.sleep(0.02)

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _restart_broker(self) -> None:
        self._broker.kill() if self._dice.random() < 0.5 else self._broker.stop()
        time.sleep(self._dice.uniform(0.0, 2.0))
        self._broker.start()

    def _finish(self, rows: int) -> None:
        """Wait until all rows are committed, then let the job stop by itself."""
        self._until(lambda: sum(end for ends in [self._committed_ends()] for end in ends) == rows)
        (self._directory / "stop").touch()
        assert self._process is not None
        assert self._process.wait(90) == 0, (self._directory / f"log{self.starts - 1}").read_text()[-3000:]

    def _committed_ends(self) -> list[int]:
        last = max(self._checkpoint.list_committed(), default=None)
        return [] if last is None else [offset for _, offset in ends_of(self._checkpoint, last)]


def ends_of(checkpoint: Checkpoint, batch_id: int) -> list[tuple[int, int]]:
    (end,) = checkpoint.offsets(batch_id)
    (partitions,) = json.loads(end or "{}").values()
    return sorted((int(partition), offset) for partition, offset in partitions.items())


def rows_of_batches(checkpoint: Checkpoint) -> dict[int, dict[int, range]]:
    """Which offsets each batch took in of each partition, from Spark's offset log."""
    ranges, first = {}, dict.fromkeys(range(PARTITIONS), 0)
    for batch_id in checkpoint.list_committed():
        last = dict(ends_of(checkpoint, batch_id))
        ranges[batch_id] = {partition: range(first[partition], last[partition]) for partition in last}
        first = last
    return ranges


def expected(
    mode: str, topic: str, journal: JournalState, ranges: dict[int, dict[int, range]], log: dict[Row, tuple[str, int]]
) -> dict[int, set[Row]]:
    """Which rows each batch must have kept, from offsets, journal, timestamps and numpy twin alone."""
    ring = SlotRing(1, is_bounded=True)
    ring.merge([(d.from_slot, d.gates["in"]) for d in journal.decisions if d.from_slot is not None and "in" in d.gates])
    kept: dict[int, set[Row]] = {}
    for batch_id, parts in ranges.items():
        kept[batch_id] = set()
        for partition, offsets in parts.items():
            count = len(offsets)
            if not count:
                continue
            micros = np.array([1_000 * log[partition, offset][1] for offset in offsets], np.int64)
            if mode != "by-arrival":
                decision = journal.decision_for(batch_id)
                assert decision is not None, f"batch {batch_id} has no decision"
                keep = table_of(decision).lookup_arrivals(micros)
            else:
                keep = ring.table().lookup_arrivals(micros, ranks=np.arange(count))
            columns = [
                pa.array([topic] * count),
                pa.array(np.full(count, partition, np.int32)),
                pa.array(np.array(offsets, np.int64)),
            ]
            mask = uniform(gate_seed("in"), columns) < keep
            kept[batch_id] |= {(partition, offset) for offset, stays in zip(offsets, mask.tolist(), strict=True) if stays}
    return kept


def table_of(decision: DecisionRecord) -> BatchTable:
    """The table of a batch, as the journal has it."""
    if not decision.older:
        return BatchTable.of(decision.gates["in"])
    old = decision.older["in"]
    return BatchTable.of(decision.gates["in"], older=old.entries, line=old.line)


class Outcome:
    """What the producer, Spark's offset log and the journal say of a run that is over."""

    def __init__(self, mode: str, topic: str, directory: Path, producer: LoggingProducer) -> None:
        self.log = producer.log
        # The producer's log: every row once, and no offset without a row.
        assert sorted(int(value) for value, _ in self.log.values()) == list(range(producer.sent))
        for partition in range(PARTITIONS):
            offsets = sorted(offset for part, offset in self.log if part == partition)
            assert offsets == list(range(len(offsets)))
        self.journal = read_journal(directory / "checkpoint" / "penstock")
        self.ranges = rows_of_batches(Checkpoint(directory / "checkpoint"))
        self.kept = expected(mode, topic, self.journal, self.ranges, self.log)

    def check_ledger(self) -> None:
        """Every row of every batch was offered once, and kept as the journal says."""
        assert self.journal.damage == []
        offered = {batch_id: sum(len(offsets) for offsets in parts.values()) for batch_id, parts in self.ranges.items()}
        ledger = {batch_id: record.gates["in"] for batch_id, record in self.journal.batches.items()}
        want = {batch_id: (offered[batch_id], len(self.kept[batch_id])) for batch_id in self.ranges}
        assert {batch_id: ledger.get(batch_id) for batch_id in want} == want
        assert sum(offered.values()) == len(self.log)
        keeps = {decision.keep for decision in self.journal.decisions}
        assert len(keeps & set(KEEPS)) >= 3, "the table hardly changed"

    def values(self, rows: Iterable[Row]) -> dict[Row, str]:
        return {row: self.log[row][0] for row in rows}

    def describe(self, mode: str, written: int, job: CrashedJob) -> str:
        offered, kept = (sum(record.gates["in"][index] for record in self.journal.batches.values()) for index in (0, 1))
        return (
            f"{mode}: {len(self.log):,} rows produced, {offered:,} offered in {len(self.ranges)} batches, {kept:,} kept, "
            f"{written:,} in the sink, {KILLS} kills, {RESTARTS} restarts of the broker, {job.failures} of them ended the query"
        )


@pytest.mark.parametrize("mode", ["by-batch", pytest.param("by-arrival", marks=pytest.mark.long)])
def test_no_row_is_missing_or_double(
    mode: str, own_broker: KafkaBroker, session: SparkSession, connector: str, tmp_path: Path
) -> None:
    topic = f"truth-{mode}"
    own_broker.create_topic(topic, PARTITIONS)
    producer = LoggingProducer(own_broker.address, topic)
    job = CrashedJob(mode, tmp_path, own_broker, topic, connector)
    job.run(producer)
    outcome = Outcome(mode, topic, tmp_path, producer)
    outcome.check_ledger()
    # The sink: each row kept, once, with its value, and no other.
    sink = session.read.parquet(str(tmp_path / "sink")).selectExpr(
        "partition", "offset", "value", "unix_millis(_metadata.file_modification_time) AS written_ms"
    )
    written = [((row.partition, row.offset), row.value, row.written_ms) for row in sink.collect()]
    assert len(written) == len({row for row, _, _ in written}), "a row came out twice"
    assert {row: value for row, value, _ in written} == outcome.values(row for rows in outcome.kept.values() for row in rows)
    assert job.starts == KILLS + 1 + job.failures
    delays_s = compare_delays(outcome.journal, outcome.kept, {row: written_ms for row, _, written_ms in written}, outcome.log)
    quantiles = ", ".join(f"{name} {np.quantile(delays_s, q):.2f}" for name, q in (("median", 0.5), ("95%", 0.95), ("worst", 1)))
    # pytest -o log_cli=true -o log_cli_level=INFO shows it
    log_line = f"{outcome.describe(mode, len(written), job)}; delay from the producer to the sink, s: {quantiles}"
    logging.getLogger("penstock").info(log_line)


@pytest.mark.long
def test_topics_of_kept_and_shed_rows_are_complements(own_broker: KafkaBroker, connector: str, tmp_path: Path) -> None:
    """Kafka takes rows at least once; who takes the last run of each batch has every row once, kept or shed."""
    topic, mode = "truth-topics", "to-topics"
    for name in (topic, f"{topic}-out", f"{topic}-shed"):
        own_broker.create_topic(name, PARTITIONS)
    producer = LoggingProducer(own_broker.address, topic)
    job = CrashedJob(mode, tmp_path, own_broker, topic, connector)
    job.run(producer)
    outcome = Outcome(mode, topic, tmp_path, producer)
    outcome.check_ledger()
    copies, written = read_last_runs(own_broker.address, f"{topic}-out")
    assert {batch: set(rows) for batch, rows in written.items()} == {batch: rows for batch, rows in outcome.kept.items() if rows}
    out = [row for rows in written.values() for row in rows]
    assert len(out) == len(set(out)), "a row came out twice"
    letters = TopicLetters(own_broker.address, f"{topic}-shed")
    shed: list[Row] = []
    for letter in letters.list_letters():
        table = letters.read(letter)
        shed += zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    assert sorted(out + shed) == sorted(outcome.log), "kept and shed are not all rows, each once"
    logging.getLogger("penstock").info(
        "%s; %d shed in the topic of letters, %d rows in the sink's topic",
        outcome.describe(mode, len(out), job),
        len(shed),
        copies,
    )


def read_last_runs(address: str, topic: str) -> tuple[int, dict[int, list[Row]]]:
    """Return how many rows a topic has, and those of the last run of each batch."""
    reader = TopicReader(address)
    messages = [message for part in reader.list_ranges(topic) for message in reader.read(part)]
    reader.close()
    runs: dict[int, dict[bytes, list[Row]]] = {}
    for message in sorted(messages, key=lambda message: message.timestamp()[1]):
        headers = dict(message.headers())
        partition, offset = map(int, message.key().split())
        runs.setdefault(int(headers["penstock-batch"]), {}).setdefault(headers["penstock-run"], []).append((partition, offset))
    return len(messages), {batch: list(found.values())[-1] for batch, found in runs.items()}


def compare_delays(
    journal: JournalState, kept: dict[int, set[Row]], written_ms: dict[Row, int], log: dict[Row, tuple[str, int]]
) -> NDArray[np.float64]:
    """Return the delay of each row, from the producer's log to the time of its file; the ledger must not say less."""
    delays_s = []
    for batch_id, rows in kept.items():
        if not rows:
            continue
        made_s = np.array([log[row][1] for row in rows]) / 1e3
        batch_s = np.array([written_ms[row] for row in rows]) / 1e3 - made_s
        assert batch_s.min() >= 0.0, f"batch {batch_id} has a row that was written before it was produced"
        delays_s.append(batch_s)
        record = journal.batches[batch_id]
        if record.mean_arrival_s is not None:
            assert record.mean_arrival_s == pytest.approx(made_s.mean(), abs=0.002), f"batch {batch_id}"
        if record.delay_s is not None:
            assert record.delay_s >= batch_s.mean() - 0.1, f"batch {batch_id}: the ledger has less than the sink"
    return np.concatenate(delays_s)
