"""Sizes of batches before they run."""

from __future__ import annotations

import pytest

from penstock.decision.events import BatchTimes
from penstock.spark.batch_sizes import NO_RATIO, OffsetSizes
from penstock.spark.progress import Progress


class Files:
    """Stands for a running query that reads files, and for its checkpoint: 1,000 rows and 5,000 bytes in every batch."""

    def __init__(self) -> None:
        self.rows_per_s = [None]
        self.asked = 0

    def file_bytes(self) -> list[int | None]:
        self.asked += 1
        return [5_000]

    def progress(self, batch_id: int) -> Progress | None:
        times = BatchTimes(0.0, 1.0, 1.0)
        return None if batch_id < 0 else Progress(batch_id, "run", times, {}, {}, rows={"source0": 1_000})

    def offsets(self, batch_id: int) -> list[str | None]:
        return [f'{{"logOffset": {batch_id}}}']

    def starts(self, batch_id: int) -> list[str | None]:
        return [f'{{"logOffset": {batch_id - 1}}}' if batch_id else None]


@pytest.mark.parametrize("decides", [True, False])
def test_files_are_looked_at_only_for_a_controller_that_sheds(decides: bool) -> None:
    """Their bytes are several calls to the JVM, in the path of every batch."""
    query, lines = Files(), list[str]()
    sizes = OffsetSizes(query, lines.append if decides else None)  # type: ignore[arg-type]
    read = [sizes.read(query, batch_id) for batch_id in range(3)]  # type: ignore[arg-type]
    if decides:
        assert (read, query.asked, lines) == ([None, {"source0": 1_000}, {"source0": 1_000}], 3, [NO_RATIO])
    else:
        assert (read, query.asked, lines) == ([None, None, None], 0, [])
