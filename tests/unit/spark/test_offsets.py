"""Counting rows by offsets."""

from __future__ import annotations

import pytest

from penstock.spark.offsets import rows_between


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
