"""Gates of whole windows and whole keys: every answer that is delivered is the answer of the job without shedding."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import Controller, Decision, Observation, Priorities, Shedder, WholeKeys, WholeWindows, read_journal
from penstock.drop.hashing import gate_seed, uniform
from penstock.drop.units import WindowRing
from penstock.errors import PenstockError
from penstock.spark.gates import GateSpecification, build_gate

from .conftest import from_arrow, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .test_shedder import Ticks

pytestmark = pytest.mark.spark

KEEPS = (0.6, 0.3, 0.9, 0.5)
STEP_US = 50_000  # twenty rows a second of event time


class Turns(Controller):
    """Another keep for every batch."""

    def update(self, observation: Observation) -> Decision:
        return Decision(keep=KEEPS[(observation.batch_id + 1) % len(KEEPS)])


def times(values: np.ndarray) -> np.ndarray:
    """Event times in microseconds: in order, but for some that come up to two seconds late."""
    late = np.where(values % 7 == 3, 2_000_000, 0)
    return 1_700_000_000_000_000 + values * STEP_US - late


def events(ticks: DataFrame) -> DataFrame:
    micros = F.lit(1_700_000_000_000_000) + F.col("value") * STEP_US - F.when(F.col("value") % 7 == 3, 2_000_000).otherwise(0)
    return ticks.select("value", F.timestamp_micros(micros.cast("bigint")).alias("t"), (F.col("value") % 3).alias("g"))


def truth(offered: int, length: int, slide: int, offset: int = 0) -> dict[tuple[int, int], tuple[int, int]]:
    """(window start, group) -> (count, sum) of the job without shedding."""
    found: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    values = np.arange(offered)
    for value, time in zip(values.tolist(), times(values).tolist(), strict=True):
        ordinal = (time - offset) // slide
        while ordinal * slide + offset + length > time:
            entry = found[ordinal * slide + offset, value % 3]
            entry[0] += 1
            entry[1] += value
            ordinal -= 1
    return {key: (count, total) for key, (count, total) in found.items()}


def micros_of(moment: Any) -> int:
    return round(moment.timestamp() * 1e6)  # Spark hands out local times


class Job:
    """Counts by window and group behind a gate of windows, in append mode, into a dictionary."""

    def __init__(self, ticks: Ticks, place: Path, unit: Any, window: tuple[str, ...]) -> None:
        self.ticks, self.place, self.unit, self.window = ticks, place, unit, window
        self.found: dict[tuple[int, int], tuple[int, int]] = {}
        self.twice: list[tuple[int, int]] = []

    def run(self, batches: int) -> None:
        def take(df: DataFrame, _: int) -> None:
            for row in df.collect():
                key = (micros_of(row["window"]["start"]), row["g"])
                if key in self.found:
                    self.twice.append(key)
                self.found[key] = (row["n"], row["s"])

        with Shedder("2s", controller=Turns(2.0)) as shedder:
            gated = shedder.gate(events(self.ticks(rows=100)).withWatermark("t", "3 seconds"), name="in", unit=self.unit)
            counts = gated.groupBy(F.window("t", *self.window), "g").agg(F.count("*").alias("n"), F.sum("value").alias("s"))
            query = shedder.foreach_batch(shedder.whole(counts), take, checkpoint=self.place)
            before = shedder.report().table.num_rows
            wait_until(lambda: shedder.report().table.num_rows > before + batches, query)
        self.offered = sum(row["offered"] for row in shedder.report().table.to_pylist())
        self.kept = sum(row["kept"] for row in shedder.report().table.to_pylist())

    def check(self, length: int, slide: int, offset: int = 0) -> None:
        full = truth(self.offered, length, slide, offset)
        assert not self.twice
        wrong = {key: (value, full[key]) for key, value in self.found.items() if value != full[key]}
        assert not wrong, "every window that is delivered is exact"
        ring = WindowRing(self.unit, gate_seed("in"))
        for decision in read_journal(self.place / "penstock").decisions:
            keeps = decision.gates["in"]
            if len(keeps) == 2:
                ring.decide(int(keeps[1]), keeps[0])
        starts = np.array([start for start, _ in full])
        groups = np.array([group for _, group in full])
        ordinals = (starts - offset) // slide
        kept = ring.fate(ordinals, *([pa.array(groups)] if self.unit.by else []))
        latest = max(start for start, _ in self.found)
        due = {
            (start, group)
            for start, group, fate in zip(starts.tolist(), groups.tolist(), kept.tolist(), strict=True)
            if fate and start <= latest
        }
        assert set(self.found) == due, "and all that were kept are delivered, and no other"
        assert 0 < len(due) < sum(start <= latest for start, _ in full)


@pytest.mark.parametrize(
    ("window", "micros", "by"),
    [
        pytest.param(("2 seconds",), (2_000_000, 2_000_000, 0), (), marks=pytest.mark.apart),
        (("4 seconds", "1 second"), (4_000_000, 1_000_000, 0), ()),
        (("3 seconds", "2 seconds", "500 milliseconds"), (3_000_000, 2_000_000, 500_000), ("g",)),
    ],
    ids=["tumbling", "sliding", "by group, with an offset"],
)
def test_windows_are_whole(
    ticks: Ticks, tmp_path: Path, window: tuple[str, ...], micros: tuple[int, int, int], by: tuple[str, ...]
) -> None:
    length, slide, offset = micros
    unit = WholeWindows("t", length / 1e6, slide / 1e6, offset / 1e6 or None, by=by)
    job = Job(ticks, tmp_path, unit, window)
    job.run(10)
    job.run(8)  # and after a restart
    job.check(length, slide, offset)
    if len(window) == 1:
        assert job.kept < 0.9 * job.offered, "rows are dropped before they are counted"


SECOND_US = 1_000_000


@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 4), st.integers(0, 39), st.integers(0, 60), st.booleans()),
    first_s=st.sampled_from([-500, 0, 1_700_000_000]),
    rows=st.lists(st.tuples(st.integers(0, 400), st.sampled_from([None, 0, 1, 2])), min_size=20, max_size=60),
    keeps=st.lists(st.tuples(st.integers(0, 400), st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0])), min_size=1, max_size=4),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_windows_are_whole_whatever_they_are(
    session: SparkSession,
    shape: tuple[int, int, int, int, bool],
    first_s: int,
    rows: list[tuple[int, int | None]],
    keeps: list[tuple[int, float]],
) -> None:
    """Spark's own windows, of every row and of what the gate keeps; times before 1970, groups that are null, changing keeps."""
    slide, overlap, short, offset, by = shape
    length = max(slide, slide * overlap - min(short, slide - 1))
    shown = tuple(f"{seconds} seconds" for seconds in (length, slide, offset % slide))
    unit = WholeWindows("t", float(length), float(slide), float(offset) or None, by="g" if by else ())
    seconds = pa.array([(first_s + at) * SECOND_US for at, _ in rows], pa.timestamp("us", tz="UTC"))
    table = pa.table({"id": list(range(len(rows))), "t": seconds, "g": pa.array([g for _, g in rows], pa.int64())})
    df = from_arrow(session, table)
    gate, gated = build_gate(df, GateSpecification("any", unit=unit), base_s=0.0)
    windows = gate.windows
    assert windows is not None
    for at, keep in sorted(keeps):
        gate.publish(gate.state.put_in_force((keep, float(unit.ordinal((first_s + at) * SECOND_US)))))

    def answers(source: DataFrame) -> DataFrame:
        return source.groupBy(F.window("t", *shown), "g").agg(F.sort_array(F.collect_list("id")).alias("ids"))

    def collected(found: DataFrame) -> dict[tuple[int, int | None], list[int]]:
        return {(row[0], row["g"]): row["ids"] for row in found.selectExpr("unix_micros(window.start)", "g", "ids").collect()}

    full = collected(answers(df))
    found = collected(answers(gated).where(windows.is_whole(F.col("window"), [F.col("g")] if by else [])))
    assert all(ids == full[key] for key, ids in found.items()), "every window that is delivered is exact"
    order = list(full)
    ordinals = np.array([(start - unit.offset) // unit.slide for start, _ in order])
    fates = windows.state.ring.fate(ordinals, *([pa.array([g for _, g in order], pa.int64())] if by else []))
    due = {key for key, fate in zip(order, fates.tolist(), strict=True) if fate}
    assert set(found) == due, "all that are kept are delivered, and no other"


@pytest.mark.parametrize("how", [pytest.param("inner", marks=pytest.mark.apart), "leftOuter"])
def test_keys_are_whole_on_both_sides_of_a_join(ticks: Ticks, tmp_path: Path, how: str) -> None:
    def side(name: str, multiple: int) -> DataFrame:
        df = ticks(rows=100).select(
            (F.col("value") % 40).cast("int" if name == "l" else "bigint").alias(f"{name}_key"),
            F.timestamp_micros(F.lit(1_700_000_000_000_000) + F.col("value") * STEP_US).alias(f"{name}_t"),
            F.col("value").alias(f"{name}_value"),
        )
        return df.where(F.col(f"{name}_value") % multiple == 0)

    rows: list[tuple[int, int, int | None]] = []

    def take(df: DataFrame, _: int) -> None:
        rows.extend((row["l_key"], row["l_value"], row["r_value"]) for row in df.collect())

    with Shedder("2s", controller=Turns(2.0)) as shedder:
        left = shedder.gate(side("l", 1).withWatermark("l_t", "1 second"), name="left", unit=WholeKeys("l_key"))
        right = shedder.gate(side("r", 2).withWatermark("r_t", "1 second"), name="right", unit=WholeKeys("r_key"))
        near = F.expr("l_key = r_key AND r_t BETWEEN l_t AND l_t + INTERVAL 2 SECONDS")
        query = shedder.foreach_batch(left.join(right, near, how), take, checkpoint=tmp_path)
        wait_until(lambda: shedder.report().table.num_rows > 24, query)
    ledger = shedder.report().table.to_pylist()
    offered = {gate: sum(row["offered"] for row in ledger if row["gate"] == gate) for gate in ("left", "right")}
    number = offered["left"]
    u = uniform(gate_seed("key "), [pa.array(np.arange(40))])
    always = {key for key in range(40) if u[key] < min(KEEPS)}
    never = {key for key in range(40) if u[key] >= max(KEEPS)}
    assert always
    assert never
    expected: set[tuple[int, int, int | None]] = {
        (value % 40, value, other)
        for value in range(number)
        for other in range(value, value + 2_000_000 // STEP_US + 1)
        if other % 2 == 0 and other % 40 == value % 40
    }
    if how == "leftOuter":  # a row without a partner shows when the watermark has passed its last chance
        expected |= {(value % 40, value, None) for value in range(1, number, 2)}
        assert {row for row in expected if row[0] in always and row[2] is None}
    done = number - 2_000_000 // STEP_US - (100 if how == "inner" else 400)
    found = {row for row in rows if row[0] in always and row[1] < done}
    assert found == {row for row in expected if row[0] in always and row[1] < done}, "keys below every threshold are exact"
    assert not {row for row in rows if row[0] in never}
    assert set(rows) <= expected
    assert len(set(rows)) == len(rows)


def test_null_keys_share_a_fate(ticks: Ticks, tmp_path: Path) -> None:
    seen: dict[int, int] = {}

    def take(df: DataFrame, number: int) -> None:
        seen[number] = df.where("k IS NULL").count()

    df = ticks(rows=100).withColumn("k", F.when(F.col("value") % 2 == 0, F.col("value")))
    with Shedder("2s", controller=Turns(2.0)) as shedder:
        query = shedder.foreach_batch(shedder.gate(df, name="in", unit=WholeKeys("k")), take, checkpoint=tmp_path)
        wait_until(lambda: len(seen) > 6, query)
    assert set(seen.values()) <= {0, 50}


def test_columns_may_have_any_name(ticks: Ticks, tmp_path: Path) -> None:
    """Dots and backticks in the names of the window, its groups and its time."""
    df = events(ticks()).withColumnsRenamed({"t": "event.time", "g": "host`name"})
    seen: list[int] = []
    with Shedder("2s", controller=Turns(2.0)) as shedder:
        unit = WholeWindows("event.time", "2s", "1s", by="host`name")
        gated = shedder.gate(df.withWatermark("`event.time`", "1 second"), name="in", unit=unit)
        windows = F.window("`event.time`", "2 seconds", "1 second").alias("the`window")
        whole = shedder.whole(gated.groupBy(windows, "`host``name`").count(), "the`window")
        query = shedder.foreach_batch(
            whole, lambda batch, _: seen.append(len(batch.collect())), checkpoint=tmp_path, output_mode="update"
        )
        wait_until(lambda: sum(seen) > 20, query)


def test_bad_units_are_refused(ticks: Ticks) -> None:
    df = events(ticks())
    shedder = Shedder("2s")
    for options, message in (
        ({"unit": "row"}, r"unit must be WholeKeys\(...\) or WholeWindows\(...\), got 'row'"),
        ({"unit": WholeKeys("user")}, "there is no unit column 'user'; the columns are value, t, g"),
        ({"unit": WholeWindows("value", "1s")}, "the time column 'value' must be a timestamp, it is bigint"),
        ({"unit": WholeWindows("t", "1s", by="host")}, "there is no unit column 'host'"),
        ({"unit": WholeKeys("g"), "identity": "value"}, "identity tells rows apart, and this gate keeps whole keys"),
        ({"unit": WholeKeys("g"), "bounded": True, "arrival": "t"}, "bounded looks at single rows"),
        (
            {"unit": WholeWindows("t", "2s", "1s"), "weight_column": "w"},
            "a row lies in 2 windows, each kept or not, so it has no weight",
        ),
        ({"unit": WholeWindows("t", "2s"), "priorities": Priorities("g", {1: 2})}, "rows of several classes lie in one window"),
    ):
        with pytest.raises(PenstockError, match=message):
            shedder.gate(df, **options)
    gated = shedder.gate(df.withWatermark("t", "1 second"), name="in", unit=WholeWindows("t", "2s", "1s"))
    with pytest.raises(PenstockError, match="keeps whole windows, which are decided batch by batch"):
        shedder.start(gated.writeStream.format("noop"), by="arrival")
    counts = gated.groupBy(F.window("t", "2 seconds", "1 second")).count()
    with pytest.raises(PenstockError, match=r"those it drops would show in part: pass .* through shedder.whole"):
        shedder.foreach_batch(counts, lambda *_: None)
    with pytest.raises(PenstockError, match=r"whole\(\): there is no column 'window'"):
        shedder.whole(gated)
    with pytest.raises(PenstockError, match="this shedder has 0 gates named 'other'"):
        shedder.whole(counts, gate="other")
    for call, message in (
        (lambda: WholeWindows("t", "1s", "2s"), "the slide of a window must be at most its length of 1 s, got 2 s"),
        (lambda: WholeWindows("t", "-1s"), "the length of a window"),
        (lambda: WholeWindows("", "1s"), "needs the name of the column with the time"),
        (WholeKeys, "needs the names of one or more columns"),
    ):
        with pytest.raises(PenstockError, match=message):
            call()


def test_queries_that_do_not_go_with_their_gates_are_refused(ticks: Ticks) -> None:
    shedder = Shedder("2s")
    df = events(ticks())

    def refused(result: DataFrame, message: str) -> None:
        with pytest.raises(PenstockError, match=message):
            shedder.foreach_batch(result, lambda *_: None)

    two = shedder.gate(df, name="two", unit=WholeWindows("t", "2s"))
    others = "keeps whole windows of 2 s by 2 s, and the query aggregates by others"
    refused(two.groupBy(F.window("t", "3 seconds")).count(), others)
    refused(two.groupBy(F.window("t", "2 seconds", "1 second")).count(), others)
    refused(two.groupBy(F.window("t", "2 seconds", "2 seconds", "1 second")).count(), others)
    by = shedder.gate(df, name="by", unit=WholeWindows("t", "2s", "1s", by="g"))
    counts = by.groupBy(F.window("t", "2 seconds", "1 second")).count().withColumn("g", F.lit(1).cast("bigint"))
    refused(shedder.whole(counts, gate="by"), "keeps whole windows of each 'g', and the query does not group by it")
    named = by.groupBy(F.window("t", "2 seconds", "1 second"), F.col("g").cast("string").alias("g")).count()
    with pytest.raises(PenstockError, match=r"whole\(\): column 'g' is string here and bigint at the gate"):
        shedder.whole(named, gate="by")
    long = shedder.gate(df.withWatermark("t", "1 day"), name="long", unit=WholeWindows("t", "1s"))
    refused(long.groupBy(F.window("t", "1 second")).count(), "the last 6,143 windows, and with a watermark of 1 days? older ones")
    left = shedder.gate(df.select(F.col("g").alias("l")), name="left", unit=WholeKeys("l"))
    right = shedder.gate(df.select(F.col("g").cast("string").alias("r")), name="right", unit=WholeKeys("r"))
    refused(left.join(right, F.expr("l = r")), r"'left' and 'right' keep whole keys of different types \(bigint and string\)")


def test_a_watermark_behind_the_gate_is_warned_of(ticks: Ticks, tmp_path: Path) -> None:
    seen: list[int] = []
    with Shedder("2s") as shedder:
        gated = shedder.gate(events(ticks()), name="in", unit=WholeWindows("t", "2s"))
        counts = gated.withWatermark("t", "1 second").groupBy(F.window("t", "2 seconds")).count()
        wait_until(lambda: seen, shedder.foreach_batch(counts, lambda _, n: seen.append(n), checkpoint=tmp_path))
    assert any("the watermark stands behind gate 'in'" in line for line in shedder.report().errors)


def test_rows_too_late_for_the_job_without_shedding_are_too_late(ticks: Ticks, tmp_path: Path) -> None:
    """The watermark goes by all rows, whatever is dropped: both jobs discard the same."""

    def run(how: str) -> dict[tuple[int, int], tuple[int, int]]:
        found: dict[tuple[int, int], tuple[int, int]] = {}
        numbers: list[int] = []

        def take(df: DataFrame, number: int) -> None:
            numbers.append(number)
            found.update({(micros_of(row["window"]["start"]), row["g"]): (row["n"], row["s"]) for row in df.collect()})

        late = F.when(F.col("value") % 11 == 5, F.expr("t - INTERVAL 20 SECONDS")).otherwise(F.col("t"))
        df = events(ticks(rows=100)).withColumn("t", late).withWatermark("t", "3 seconds")
        with Shedder("2s", controller=Turns(2.0)) as shedder:
            gated = shedder.gate(df, name="in", unit=WholeWindows("t", "2s") if how == "shed" else WholeKeys("value"))
            counts = (gated if how == "shed" else df).groupBy(F.window("t", "2 seconds"), "g")
            results = counts.agg(F.count("*").alias("n"), F.sum("value").alias("s"))
            if how == "shed":
                query = shedder.foreach_batch(results, take, checkpoint=tmp_path / how)
                wait_until(lambda: len(numbers) > 10, query)
            else:
                plain = results.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / how)).start()
                wait_until(lambda: len(numbers) > 10, plain)
                plain.stop()
        return found

    shed, everything = run("shed"), run("plain")
    both = set(shed) & set(everything)
    assert len(both) > 10
    assert {key: shed[key] for key in both} == {key: everything[key] for key in both}
    assert len(both) < sum(start <= max(key[0] for key in shed) for start, _ in everything), "some were dropped"


def test_late_rows_after_a_restart_change_nothing(ticks: Ticks, tmp_path: Path) -> None:
    """The first batch of a run may hold late rows only; windows that had begun before are decided all the same."""
    journals = []
    for run in range(2):
        seen: list[int] = []
        with Shedder("2s", controller=Turns(2.0)) as shedder:
            df = events(ticks(rows=100))
            if run:  # all of it comes 60 s late
                df = df.withColumn("t", F.expr("t - INTERVAL 60 SECONDS"))
            gated = shedder.gate(df, name="in", unit=WholeWindows("t", "1s"))
            query = shedder.foreach_batch(gated, lambda df, _, seen=seen: seen.append(df.count()), checkpoint=tmp_path)
            wait_until(lambda seen=seen: len(seen) > 3, query)
        journals.append(read_journal(tmp_path / "penstock"))
    before, after = journals
    last = max(before.batches)  # its windows have begun, though it was decided before it ran
    latest = times(np.arange(100 * (last + 1))).max()
    assert before.batches[last].latest == {"in": latest}
    decided = [
        d.gates["in"] for d in after.decisions if d.batch_id is not None and d.batch_id > max(last, len(before.decisions) - 1)
    ]
    assert decided
    assert min(int(first) for _, first in decided) == latest // SECOND_US + 1


def test_a_minimum_over_a_gate_of_rows_is_warned_of(ticks: Ticks, tmp_path: Path) -> None:
    seen: list[int] = []
    for unit, warned in ((None, True), (WholeKeys("g"), False)):
        with Shedder("2s") as shedder:
            gated = shedder.gate(events(ticks()), name="in", unit=unit)
            least = gated.groupBy("g").agg(F.min("value"), F.approx_count_distinct("value"))
            query = shedder.foreach_batch(
                least, lambda _, n: seen.append(n), checkpoint=tmp_path / str(warned), output_mode="update"
            )
            wait_until(lambda: seen, query)
            seen.clear()
        errors = shedder.report().errors
        assert any("min, approx_count_distinct over a gate of rows" in line for line in errors) == warned


def test_distinct_rows_over_a_gate_of_rows_are_warned_of(ticks: Ticks, tmp_path: Path) -> None:
    seen: list[int] = []
    with Shedder("2s") as shedder:
        once = shedder.gate(events(ticks()), name="in").dropDuplicates(["g"])
        wait_until(lambda: seen, shedder.foreach_batch(once, lambda _, n: seen.append(n)))  # without a checkpoint of its own
    assert any("distinct rows over a gate of rows" in line for line in shedder.report().errors)
