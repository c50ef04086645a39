"""Reading Spark's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.spark.checkpoint import Checkpoint, find_open_batch


def test_a_new_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "none")
    assert (checkpoint.query_id(), checkpoint.list_committed(), checkpoint.list_planned()) == (None, [], [])
    assert checkpoint.last_planned_s() is None
    with pytest.raises(PenstockError, match="no offsets for batch 3"):
        checkpoint.offsets(3)


def test_a_checkpoint_in_use(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    (tmp_path / "metadata").write_text('{"id":"abc"}')
    (tmp_path / "offsets" / "9").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":1000}\n{"n":4,"t0":1.0}\n-')
    (tmp_path / "offsets" / "10").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":2500}\n{"n":5,"t0":1.0}\n-')
    for name in ("9", "10", ".10.crc"):
        (tmp_path / "commits" / name).write_text("v1\n{}")
    checkpoint = Checkpoint(f"file:{tmp_path}")
    assert checkpoint.query_id() == "abc"
    assert checkpoint.list_committed() == [9, 10]
    assert checkpoint.last_planned_s() == 2.5
    assert checkpoint.offsets(10) == ['{"n":5,"t0":1.0}', None]


def test_where_batches_were_not_logged_nobody_knows_when_the_last_was_planned(tmp_path: Path) -> None:
    """Asynchronous progress tracking leaves batches out, also after the last one that it logged."""
    (tmp_path / "offsets").mkdir()
    for number in (7, 9, 10):
        (tmp_path / "offsets" / f"{number}").write_text(f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{number}000}}\n-')
    assert Checkpoint(tmp_path).last_planned_s() is None
    (tmp_path / "offsets" / "7").unlink()
    assert Checkpoint(tmp_path).last_planned_s() == 10.0


@pytest.mark.parametrize(
    ("planned", "committed", "left_open", "begins_with"),
    [([], [], None, 0), ([0], [], 0, 0), ([0, 1], [0, 1], None, 2), ([8, 9, 10], [8, 9], 10, 10), ([5, 10], [5], 10, 10)],
)
def test_the_batch_that_was_left_open(
    tmp_path: Path, planned: list[int], committed: list[int], left_open: int | None, begins_with: int
) -> None:
    for folder, numbers in (("offsets", planned), ("commits", committed)):
        (tmp_path / folder).mkdir()
        for number in numbers:
            (tmp_path / folder / f"{number}").touch()
    assert find_open_batch(str(tmp_path)) == left_open
    assert Checkpoint(tmp_path).find_next() == begins_with
    assert find_open_batch(None) is None


def test_where_a_query_that_reads_kafka_began(tmp_path: Path) -> None:
    """Spark logs it behind a zero byte, which versions before 2.1 wanted; a file source has other files there."""
    for number, content in ((0, '\0v1\n{"clicks":{"0":40,"1":7}}'), (1, 'v1\n{"path":"x","batchId":0}')):
        (tmp_path / "sources" / f"{number}").mkdir(parents=True)
        (tmp_path / "sources" / f"{number}" / "0").write_text(content)
    (tmp_path / "offsets").mkdir()
    for number, clicks in ((0, 50), (1, 65)):
        (tmp_path / "offsets" / f"{number}").write_text(
            f'v1\n{{}}\n{{"clicks":{{"0":{clicks},"1":9}}}}\n{{"logOffset":{number}}}'
        )
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.starts(0) == ['{"clicks":{"0":40,"1":7}}', None]
    assert checkpoint.starts(1) == checkpoint.offsets(0)
    assert checkpoint.count_rows(0, ["clicks", "files"], lambda _: 3) == {"clicks": 12, "files": 3}
    assert checkpoint.count_rows(1, ["clicks", "files"], lambda _: 3) == {"clicks": 15, "files": 0}
