"""Reading Spark's checkpoint and counting by offsets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.offsets import rows_between
from penstock.spark.progress import Progress


def test_a_new_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "none")
    assert (checkpoint.query_id(), checkpoint.list_committed(), checkpoint.list_planned()) == (None, [], [])
    with pytest.raises(PenstockError, match="no offsets for batch 3"):
        checkpoint.offsets(3)


def test_a_checkpoint_in_use(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    (tmp_path / "metadata").write_text('{"id":"abc"}')
    (tmp_path / "offsets" / "10").write_text('v1\n{"batchWatermarkMs":0}\n{"n":5,"t0":1.0}\n-')
    for name in ("9", "10", ".10.crc"):
        (tmp_path / "commits" / name).write_text("v1\n{}")
    checkpoint = Checkpoint(f"file:{tmp_path}")
    assert checkpoint.query_id() == "abc"
    assert checkpoint.list_committed() == [9, 10]
    assert checkpoint.offsets(10) == ['{"n":5,"t0":1.0}', None]


@pytest.mark.parametrize(
    ("start", "end", "rows"),
    [
        (None, '{"n": 4, "t0": 0}', 4),
        ('{"n": 4, "t0": 0}', '{"n": 4, "t0": 0}', 0),
        ('{"n": 9, "t0": 0}', '{"n": 4, "t0": 0}', 0),
        ('{"t": {"0": 1}}', '{"t": {"0": 3, "1": 5}}', 7),
        ('{"t": {"0": "x"}}', '{"t": {"0": "y"}}', None),
        (None, None, None),
        ("not json", '{"n": 4, "t0": 0}', None),
        (None, "17", None),
        (None, "{}", None),
    ],
)
def test_rows_between_offsets(start: str | None, end: str | None, rows: int | None) -> None:
    assert rows_between(start, end) == rows


def report(**more: object) -> str:
    source = {
        "description": "x",
        "startOffset": {"n": 0, "t0": 0},
        "endOffset": {"n": 50, "t0": 0},
        "latestOffset": {"n": 60, "t0": 0},
    }
    base = {
        "batchId": 4, "runId": "r", "timestamp": "2026-11-15T04:00:00.500Z", "numInputRows": 50,
        "durationMs": {"triggerExecution": 2000, "addBatch": 1500}, "sources": [source | {"inputRowsPerSecond": 100.0}],
    }  # fmt: skip
    return json.dumps(base | more)


def test_progress() -> None:
    progress = Progress.parse(report())
    assert progress is not None
    assert (progress.batch_id, progress.times.busy_s, progress.times.end_s - progress.times.start_s) == (4, 1.5, 2.0)
    # Ten rows were left behind when it was planned, and two seconds at 100 rows/s came after.
    assert progress.backlog_rows == {"source0": 210}
    assert not progress.is_skipped


def test_a_trigger_without_a_batch_is_no_progress() -> None:
    assert Progress.parse(report(durationMs={"triggerExecution": 3, "latestOffset": 1})) is None


def test_a_batch_that_its_sink_had_already() -> None:
    progress = Progress.parse(report(numInputRows=0))
    assert progress is not None
    assert progress.is_skipped
