"""Reading Spark's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.spark.checkpoint import Checkpoint, find_open_batch


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
    ("planned", "committed", "left_open"), [([], [], None), ([0], [], 0), ([0, 1], [0, 1], None), ([8, 9, 10], [8, 9], 10)]
)
def test_the_batch_that_was_left_open(tmp_path: Path, planned: list[int], committed: list[int], left_open: int | None) -> None:
    for folder, numbers in (("offsets", planned), ("commits", committed)):
        (tmp_path / folder).mkdir()
        for number in numbers:
            (tmp_path / folder / f"{number}").touch()
    assert find_open_batch(str(tmp_path)) == left_open
    assert find_open_batch(None) is None
