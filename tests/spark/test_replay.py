"""The replay source: on time, the same rows again, within the cap."""

from __future__ import annotations

import json
import pickle
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

pytest.importorskip("pyspark")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the replay source needs Spark 4.2")

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from penstock.errors import PenstockError
from penstock.simulation.traffic import b_model, constant
from penstock.spark.offsets import rows_between
from penstock.spark.replay import reader as replay_reader
from penstock.spark.replay import register_replay
from penstock.spark.replay.reader import ReplayReader
from penstock.spark.replay.source import ReplaySource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

GENERATOR = {"generator": "b-model", "rate": "2000", "duration": "60s", "bias": "0.6", "seed": "3"}
T0 = 1_700_000_000.0


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    register_replay(spark)
    yield spark
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A wall clock to set by hand, in seconds after T0."""
    now = [0.0]
    monkeypatch.setattr(replay_reader, "_now_us", lambda: round((T0 + now[0]) * 1e6))
    return now  # type: ignore[return-value]


def reader(**options: Any) -> ReplayReader:
    source = ReplaySource({name: str(value) for name, value in options.items()})
    made = source.streamReader(source.schema())
    assert isinstance(made, ReplayReader)
    return made


def rows(made: ReplayReader, start: int, end: int, t0: float = T0) -> pa.Table:
    parts = made.partitions({"n": start, "t0": t0}, {"n": end, "t0": t0})
    return pa.Table.from_batches([batch for part in parts for batch in made.read(part)])


def stream(session: SparkSession, **options: Any) -> DataFrame:
    return session.readStream.format("penstock-replay").options(**options).load()


def wait_for(what: Any, timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def all_available(df: DataFrame, checkpoint: Path) -> list[pa.Table]:
    """Return the batches of everything that is due."""
    batches: list[pa.Table] = []
    query = (
        df.writeStream.foreachBatch(lambda batch, _: batches.append(batch.toArrow()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(30)
    return batches


def micros(column: pa.ChunkedArray) -> np.ndarray:
    return column.cast(pa.int64()).to_numpy()


class TestOffsets:
    """Without Spark: what is due when."""

    def test_t0_is_the_first_start_and_does_not_move(self, clock: list[float]) -> None:
        made = reader(**GENERATOR)
        assert made.initialOffset() == {"n": 0, "t0": T0}
        clock[0] = 5.0
        assert made.initialOffset() == {"n": 0, "t0": T0}

    def test_a_row_is_due_at_its_time_and_not_before(self, clock: list[float]) -> None:
        made = reader(generator="constant", rate=10, duration="2s")
        start = made.initialOffset()
        due = []
        for clock[0] in (-1.0, 0.0, 0.0499, 0.0501, 0.1499, 0.1501, 1.96, 2.0, 99.0):
            due.append(made.latestOffset(start, ReadAllAvailable())["n"])
        assert due == [0, 0, 0, 1, 1, 2, 20, 20, 20]

    def test_speed_repeat_and_skip(self, clock: list[float]) -> None:
        made = reader(generator="constant", rate=10, duration="20s", speed=10, repeat=3, skip="5s")
        clock[0] = 1.0
        assert made.latestOffset(made.initialOffset() | {"t0": T0}, ReadAllAvailable())["n"] == 300
        after = micros(rows(made, 0, 9)["arrival"]) - round(T0 * 1e6)
        assert after.tolist() == [5_000] * 3 + [15_000] * 3 + [25_000] * 3

    def test_the_limit_of_the_batch_is_kept_and_the_backlog_reported(self, clock: list[float]) -> None:
        made = reader(generator="constant", rate=100, duration="10s", max_rows_per_batch=7)
        start = made.initialOffset()
        assert made.getDefaultReadLimit() == ReadMaxRows(7)
        assert made.reportLatestOffset() is None
        clock[0] = 5.0
        assert made.latestOffset(start, made.getDefaultReadLimit()) == {"n": 7, "t0": T0}
        assert made.reportLatestOffset() == {"n": 500, "t0": T0}
        assert made.latestOffset(start, ReadMaxRows(3))["n"] == 3
        assert made.latestOffset(start, ReadMinRows(501)) == start
        assert made.latestOffset(start, ReadMinRows(500))["n"] == 500
        assert made.latestOffset(start, ReadAllAvailable())["n"] == 500  # Spark's rule: the trigger beats the option

    def test_a_clock_that_is_set_back_takes_no_row_back(self, clock: list[float]) -> None:
        made = reader(generator="constant", rate=100, duration="10s")
        made.initialOffset()
        clock[0] = 1.0
        assert made.latestOffset({"n": 300, "t0": T0}, ReadAllAvailable()) == {"n": 300, "t0": T0}

    def test_available_now_stops_the_clock(self, clock: list[float]) -> None:
        made = reader(generator="constant", rate=100, duration="10s", start=T0)
        clock[0] = 1.0
        made.prepareForTriggerAvailableNow()
        clock[0] = 5.0
        assert made.latestOffset(made.initialOffset(), ReadAllAvailable())["n"] == 100

    def test_loop_goes_on_where_the_lap_ends(self, clock: list[float]) -> None:
        made = reader(generator="constant", rate=2, duration="3s", loop="true", skip="1s")
        start = made.initialOffset()
        clock[0] = 5.0
        assert made.latestOffset(start, ReadAllAvailable())["n"] == 10
        after = micros(rows(made, 0, 10)["arrival"]) - round(T0 * 1e6)
        assert after.tolist() == [250_000 + 500_000 * i for i in range(10)]

    def test_looking_is_cheap(self, clock: list[float]) -> None:
        made = reader(generator="exponential", rate=100_000, duration="20s")
        start = made.initialOffset()
        clock[0] = 13.0
        began = time.perf_counter()
        for _ in range(1000):
            made.latestOffset(start, ReadAllAvailable())
        assert time.perf_counter() - began < 0.5  # about 5 us a look; a pass over the array would take 1 ms

    def test_partitions_cover_the_range_once(self) -> None:
        made = reader(**GENERATOR, partitions=3)
        parts = made.partitions({"n": 10, "t0": 1.0}, {"n": 20, "t0": T0})
        assert [(p.first, p.last) for p in parts] == [(10, 13), (13, 16), (16, 20)]  # type: ignore[attr-defined]
        # Spark asks for a new initial offset if batch 0 is done again; the logged end has the true t0.
        assert {p.t0_us for p in parts} == {round(T0 * 1e6)}  # type: ignore[attr-defined]
        assert made.partitions({"n": 20, "t0": T0}, {"n": 20, "t0": T0}) == []
        assert len(made.partitions({"n": 20, "t0": T0}, {"n": 21, "t0": T0})) == 1

    def test_rows_do_not_depend_on_how_they_are_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        options = GENERATOR | {"keys": "zipf", "key_count": "50", "cost_classes": "1ms,10ms", "payload_bytes": "5"}
        whole = rows(reader(**options, partitions=1), 0, 1000)
        monkeypatch.setattr(replay_reader, "_BATCH_ROWS", 64)
        pieces = [rows(reader(**options, partitions=3), low, low + 100) for low in range(0, 1000, 100)]
        assert pa.concat_tables(pieces).equals(whole)
        assert {len(value.as_py()) for value in whole["payload"]} == {5}
        assert set(whole["cost_s"].to_pylist()) == {0.001, 0.01}

    def test_what_travels_to_a_worker_is_small(self) -> None:
        made = reader(**GENERATOR)
        assert len(pickle.dumps(made)) < 5_000


class TestFiles:
    """Without Spark: columns and types of trace files."""

    def test_columns(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("t,src,empty,n\n0,a,,1\n1,b,,2\n2,,,3\n")
        made = reader(path=tmp_path / "a.csv", repeat=2)
        table = rows(made, 0, 6)
        assert table.schema.equals(to_arrow_schema(made._schema, timezone="UTC"))
        assert table.column_names == ["arrival", "seq", "key", "src", "empty", "n"]
        assert table["seq"].to_pylist() == list(range(6))
        assert table["src"].to_pylist() == ["a", "a", "b", "b", "", ""]
        assert table["n"].to_pylist() == [1, 1, 2, 2, 3, 3]

    def test_skip_and_loop_cut_the_columns_too(self, tmp_path: Path, clock: list[float]) -> None:
        (tmp_path / "a.csv").write_text("t,n\n0,1\n1,2\n2,3\n3,4\n")
        made = reader(path=tmp_path / "a.csv", skip="1s", loop="true")
        table = rows(made, 2, 8)
        assert table["n"].to_pylist() == [4, 2, 3, 4, 2, 3]
        assert (micros(table["arrival"]) - round(T0 * 1e6)).tolist() == [i * 1_000_000 for i in range(2, 8)]
        clock[0] = 4.5
        assert made.latestOffset({"n": 0, "t0": T0}, ReadAllAvailable())["n"] == 5

    def test_the_files_own_key_stays(self, tmp_path: Path) -> None:
        types = {
            "key": pa.array(["x", "y"]).dictionary_encode(),
            "at": pa.array([0, 1], pa.timestamp("ns")),
            "long": pa.array(["p", "q"], pa.large_string()),
            "t": pa.array([0.0, 1.0]),
        }
        parquet.write_table(pa.table(types), tmp_path / "a.parquet")
        made = reader(path=tmp_path / "a.parquet")
        table = rows(made, 0, 2)
        assert table.schema.equals(to_arrow_schema(made._schema, timezone="UTC"))
        assert table.column_names == ["arrival", "seq", "key", "at", "long"]
        assert table["key"].to_pylist() == ["x", "y"]

    def test_a_rewritten_file_is_read_again(self, tmp_path: Path) -> None:
        for content in ("t,n\n0,1\n", "t,n\n0,12\n"):
            (tmp_path / "a.csv").write_text(content)
            assert rows(reader(path=tmp_path / "a.csv"), 0, 1)["n"].to_pylist() == [int(content.split(",")[-1])]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs either the option generator or the option path, got neither"),
        (GENERATOR | {"path": "a.csv"}, "needs either the option generator or the option path, got both"),
        (GENERATOR | {"sped": "2"}, "unknown option sped; with the generator b-model there are: bias, cost_classes, "),
        ({"path": "a.csv", "rate": "2"}, "unknown option rate; with a trace file there are: key_count, key_exponent, "),
        ({"path": "none.csv"}, "none.csv: no such file"),
        ({"generator": "burst"}, "generator must be one of b-model, constant,"),
        (GENERATOR | {"speed": "0"}, "option speed must be positive, got 0"),
        (GENERATOR | {"speed": "nan"}, "option speed must be positive, got nan"),
        (GENERATOR | {"speed": "fast"}, "option speed must be a number, got 'fast'"),
        (GENERATOR | {"repeat": "0"}, "option repeat must be from 1 to 1,000,000, got 0"),
        (GENERATOR | {"repeat": "1.5"}, "option repeat must be a whole number, got '1.5'"),
        (GENERATOR | {"loop": "yes"}, "option loop must be true or false, got 'yes'"),
        (GENERATOR | {"keys": "normal"}, "option keys must be one of uniform, zipf, got 'normal'"),
        (GENERATOR | {"cost_classes": "1ms,much"}, "option cost_classes must be a duration such as"),
        (GENERATOR | {"partitions": "0"}, "option partitions must be from 1 to 10,000, got 0"),
        (GENERATOR | {"max_rows_per_batch": "0"}, "option max_rows_per_batch must be from 1 to"),
        (GENERATOR | {"skip": "61s"}, "nothing to play: 61 s skipped of 60 s"),
    ],
)
def test_bad_options_are_named_in_one_line(options: dict[str, str], message: str) -> None:
    with pytest.raises(PenstockError, match=re.escape(message)) as caught:
        reader(**options).initialOffset()
    assert "\n" not in str(caught.value)


def test_a_trace_with_a_column_of_ours_or_of_one_moment(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,Seq\n0,1\n")
    with pytest.raises(PenstockError, match="rename the column seq"):
        reader(path=tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("t\n0\n0\n")
    with pytest.raises(PenstockError, match="option loop needs events at two different times"):
        reader(path=tmp_path / "b.csv", loop="true")


class TestSpark:
    def test_an_unknown_option_is_named(self, session: SparkSession) -> None:
        with pytest.raises(AnalysisException, match="unknown option sped; with the generator b-model there are: bias"):
            stream(session, **GENERATOR, sped=2)

    def test_no_row_comes_before_its_time_and_none_much_later(self, session: SparkSession, tmp_path: Path) -> None:
        seen: list[tuple[float, pa.Table]] = []

        def note(batch: DataFrame, _: int) -> None:
            now = time.time()
            seen.append((now, batch.select("arrival", "seq").toArrow()))

        query = (
            stream(session, **GENERATOR)
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        wait_for(lambda: len(seen) >= 8)
        query.stop()
        lags = []
        for now, table in seen:
            if not table.num_rows:  # the first batch may come before the first row
                continue
            newest_s = micros(table["arrival"]).max() / 1e6
            assert newest_s <= now
            lags.append(now - newest_s)
        # Between the look at the clock and this function lies only Spark's planning.
        assert np.median(lags[1:]) < 0.5
        seq = np.concatenate([table["seq"].to_numpy() for _, table in seen])
        assert np.array_equal(np.sort(seq), np.arange(seq.size))
        progress = query.lastProgress
        assert progress is not None
        source = progress["sources"][0]
        start, end, latest = (json.dumps(json.loads(source[name])) for name in ("startOffset", "endOffset", "latestOffset"))
        assert rows_between(start, end) == progress["numInputRows"]
        assert latest == end

    @pytest.mark.parametrize(("kind", "fail_at"), [("generator", 0), ("file", 1)])
    def test_the_same_rows_after_a_crash(self, session: SparkSession, tmp_path: Path, kind: str, fail_at: int) -> None:
        times = constant(2000, 60) if kind == "file" else b_model(2000, 60, 0.6, 3)
        options: dict[str, Any] = GENERATOR
        if kind == "file":
            parquet.write_table(pa.table({"t": times, "square": np.arange(times.size) ** 2}), tmp_path / "a.parquet")
            options = {"path": str(tmp_path / "a.parquet"), "seed": 3}
        runs: list[dict[int, pa.Table]] = []

        def run(batches: int, fail_at: int | None) -> None:
            done: dict[int, pa.Table] = {}
            runs.append(done)

            def note(batch: DataFrame, number: int) -> None:
                done[number] = batch.toArrow().sort_by("seq")
                if number == fail_at:
                    raise RuntimeError("crash")

            query = (
                stream(session, **options)
                .writeStream.foreachBatch(note)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .start()
            )
            if fail_at is None:
                wait_for(lambda: len(done) >= batches)
                query.stop()
            else:
                with pytest.raises(StreamingQueryException, match="crash"):
                    query.awaitTermination(30)

        run(0, fail_at)
        time.sleep(0.3)
        run(3, None)
        assert min(runs[1]) == fail_at
        assert runs[1][fail_at].equals(runs[0][fail_at])
        table = pa.concat_tables([(runs[0] | runs[1])[number] for number in range(max(runs[1]) + 1)])
        count = table.num_rows
        assert table["seq"].to_pylist() == list(range(count))
        first_us = micros(table["arrival"])[0] - round(times[0] * 1e6)
        assert np.array_equal(micros(table["arrival"]) - first_us, np.rint(times[:count] * 1e6))
        expected = rows(reader(**options), 0, count, t0=first_us / 1e6)
        assert table.cast(expected.schema).equals(expected)
        if kind == "file":
            assert table["square"].to_pylist() == [i * i for i in range(count)]

    def test_the_cap_holds_in_every_batch_of_a_backlog(self, session: SparkSession, tmp_path: Path) -> None:
        df = stream(session, generator="constant", rate=100, duration="5s", start=T0, max_rows_per_batch=150)
        batches = all_available(df, tmp_path / "checkpoint")
        assert [batch.num_rows for batch in batches] == [150, 150, 150, 50]
        assert [field.simpleString() for field in df.schema] == [
            "arrival:timestamp",
            "seq:bigint",
            "key:bigint",
            "cost_s:double",
            "payload:binary",
        ]

    def test_loop_of_a_file_and_a_restart_with_nothing_new(self, session: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("t,word\n0,a\n1000,b\n2000,c\n")
        start = time.time() - 7_500  # two laps of 3,000 s, and two events of the third
        df = stream(session, path=str(tmp_path / "a.csv"), start=start, loop=True)
        table = pa.concat_tables(all_available(df, tmp_path / "checkpoint")).sort_by("seq")
        assert table["word"].to_pylist() == list("abcabcab")
        assert np.diff(micros(table["arrival"])).tolist() == [1_000_000_000] * 7
        assert all_available(df, tmp_path / "checkpoint") == []

    def test_after_the_end_the_stream_is_idle(self, session: SparkSession) -> None:
        df = stream(session, generator="constant", rate=100, duration="500ms")
        query = df.writeStream.format("memory").queryName("replay_end").start()
        wait_for(lambda: session.table("replay_end").count() == 50)
        time.sleep(0.5)
        assert query.isActive
        assert session.table("replay_end").count() == 50
        query.stop()
