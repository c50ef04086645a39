"""Gates of whole windows and whole keys: every answer that is delivered is the answer of the job without shedding."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

import penstock as ps
from penstock.drop.hashing import gate_seed, uniform
from penstock.drop.units import WindowRing
from penstock.errors import PenstockError

from .conftest import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .test_shedder import Ticks

pytestmark = pytest.mark.spark

KEEPS = (0.6, 0.3, 0.9, 0.5)
STEP_US = 50_000  # twenty rows a second of event time


class Turns(ps.Controller):
    """Another keep for every batch."""

    def update(self, observation: ps.Observation) -> ps.Decision:
        return ps.Decision(keep=KEEPS[(observation.batch_id + 1) % len(KEEPS)])


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
    return int(np.datetime64(moment.replace(tzinfo=None), "us").astype(np.int64))


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

        with ps.Shedder("2s", controller=Turns(2.0)) as shedder:
            gated = shedder.gate(events(self.ticks(rows=100)), name="in", unit=self.unit)
            counts = (
                gated.withWatermark("t", "3 seconds")
                .groupBy(F.window("t", *self.window), "g")
                .agg(F.count("*").alias("n"), F.sum("value").alias("s"))
            )
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
        for decision in ps.read_journal(self.place / "penstock").decisions:
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
        (("2 seconds",), (2_000_000, 2_000_000, 0), ()),
        (("4 seconds", "1 second"), (4_000_000, 1_000_000, 0), ()),
        (("3 seconds", "2 seconds", "500 milliseconds"), (3_000_000, 2_000_000, 500_000), ("g",)),
    ],
    ids=["tumbling", "sliding", "by group, with an offset"],
)
def test_windows_are_whole(
    ticks: Ticks, tmp_path: Path, window: tuple[str, ...], micros: tuple[int, int, int], by: tuple[str, ...]
) -> None:
    length, slide, offset = micros
    unit = ps.window("t", length / 1e6, slide / 1e6, offset / 1e6 or None, by=by)
    job = Job(ticks, tmp_path, unit, window)
    job.run(10)
    job.run(8)  # and after a restart
    job.check(length, slide, offset)
    if len(window) == 1:
        assert job.kept < 0.9 * job.offered, "rows are dropped before they are counted"


def test_keys_are_whole_on_both_sides_of_a_join(ticks: Ticks, tmp_path: Path) -> None:
    def side(name: str, multiple: int) -> DataFrame:
        df = ticks(rows=100).select(
            (F.col("value") % 40).cast("int" if name == "l" else "bigint").alias(f"{name}_key"),
            F.timestamp_micros(F.lit(1_700_000_000_000_000) + F.col("value") * STEP_US).alias(f"{name}_t"),
            F.col("value").alias(f"{name}_value"),
        )
        return df.where(F.col(f"{name}_value") % multiple == 0)

    rows: list[tuple[int, int, int]] = []

    def take(df: DataFrame, _: int) -> None:
        rows.extend((row["l_key"], row["l_value"], row["r_value"]) for row in df.collect())

    with ps.Shedder("2s", controller=Turns(2.0)) as shedder:
        left = shedder.gate(side("l", 1), name="left", unit=ps.key("l_key")).withWatermark("l_t", "1 second")
        right = shedder.gate(side("r", 2), name="right", unit=ps.key("r_key")).withWatermark("r_t", "1 second")
        near = F.expr("l_key = r_key AND r_t BETWEEN l_t AND l_t + INTERVAL 2 SECONDS")
        query = shedder.foreach_batch(left.join(right, near), take, checkpoint=tmp_path)
        wait_until(lambda: shedder.report().table.num_rows > 24, query)
    ledger = shedder.report().table.to_pylist()
    offered = {gate: sum(row["offered"] for row in ledger if row["gate"] == gate) for gate in ("left", "right")}
    number = offered["left"]
    u = uniform(gate_seed("key "), [pa.array(np.arange(40))])
    always = {key for key in range(40) if u[key] < min(KEEPS)}
    never = {key for key in range(40) if u[key] >= max(KEEPS)}
    assert always
    assert never
    expected = {
        (value % 40, value, other)
        for value in range(number)
        for other in range(value, value + 2_000_000 // STEP_US + 1)
        if other % 2 == 0 and other % 40 == value % 40
    }
    done = number - 2_000_000 // STEP_US - 100
    found = {row for row in rows if row[0] in always and row[2] < done}
    assert found == {row for row in expected if row[0] in always and row[2] < done}, "keys below every threshold are exact"
    assert not {row for row in rows if row[0] in never}
    assert set(rows) <= expected
    assert len(set(rows)) == len(rows)


def test_null_keys_share_a_fate(ticks: Ticks, tmp_path: Path) -> None:
    seen: dict[int, int] = {}

    def take(df: DataFrame, number: int) -> None:
        seen[number] = df.where("k IS NULL").count()

    df = ticks(rows=100).withColumn("k", F.when(F.col("value") % 2 == 0, F.col("value")))
    with ps.Shedder("2s", controller=Turns(2.0)) as shedder:
        query = shedder.foreach_batch(shedder.gate(df, name="in", unit=ps.key("k")), take, checkpoint=tmp_path)
        wait_until(lambda: len(seen) > 6, query)
    assert set(seen.values()) <= {0, 50}


def test_bad_units_are_refused(ticks: Ticks) -> None:
    df = events(ticks())
    shedder = ps.Shedder("2s")
    for options, message in (
        ({"unit": "row"}, r"unit must be ps.key\(...\) or ps.window\(...\), got 'row'"),
        ({"unit": ps.key("user")}, "there is no column 'user' for its unit; the columns are value, t, g"),
        ({"unit": ps.window("value", "1s")}, "the time column 'value' must be a timestamp, it is bigint"),
        ({"unit": ps.window("t", "1s", by="host")}, "there is no column 'host' for its unit"),
        ({"unit": ps.key("g"), "identity": "value"}, "identity tells rows apart, and this gate keeps whole keys"),
        ({"unit": ps.key("g"), "bounded": True, "arrival": "t"}, "bounded looks at single rows"),
        ({"unit": ps.window("t", "2s", "1s"), "weight": "w"}, "a row lies in 2 windows, each kept or not, so it has no weight"),
        ({"unit": ps.window("t", "2s"), "classes": "g", "weights": {1: 2}}, "rows of several classes lie in one window"),
    ):
        with pytest.raises(PenstockError, match=message):
            shedder.gate(df, **options)
    gated = shedder.gate(df, name="in", unit=ps.window("t", "2s", "1s"))
    with pytest.raises(PenstockError, match="keeps whole windows, which are decided batch by batch"):
        shedder.start(gated.writeStream.format("noop"))
    counts = gated.withWatermark("t", "1 second").groupBy(F.window("t", "2 seconds", "1 second")).count()
    with pytest.raises(PenstockError, match=r"those it drops would show in part: pass .* through shedder.whole"):
        shedder.foreach_batch(counts, lambda *_: None)
    with pytest.raises(PenstockError, match=r"whole\(\): there is no column 'window'"):
        shedder.whole(gated)
    with pytest.raises(PenstockError, match="this shedder has 0 gates named 'other'"):
        shedder.whole(counts, gate="other")
    for call, message in (
        (lambda: ps.window("t", "1s", "2s"), "the slide of a window must be at most its length of 1 s, got 2 s"),
        (lambda: ps.window("t", "-1s"), "the length of a window"),
        (lambda: ps.window("", "1s"), "needs the name of the column with the time"),
        (ps.key, "needs the names of one or more columns"),
    ):
        with pytest.raises(PenstockError, match=message):
            call()


def test_a_minimum_over_a_gate_of_rows_is_warned_of(ticks: Ticks, tmp_path: Path) -> None:
    seen: list[int] = []
    for unit, warned in ((None, True), (ps.key("g"), False)):
        with ps.Shedder("2s") as shedder:
            gated = shedder.gate(events(ticks()), name="in", unit=unit)
            least = gated.groupBy("g").agg(F.min("value"), F.approx_count_distinct("value"))
            query = shedder.foreach_batch(
                least, lambda _, n: seen.append(n), checkpoint=tmp_path / str(warned), output_mode="update"
            )
            wait_until(lambda: seen, query)
            seen.clear()
        errors = shedder.report().errors
        assert any("min, approx_count_distinct over a gate of rows" in line for line in errors) == warned
