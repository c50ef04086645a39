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
        # A topic that is gone takes nothing from the others, and one that was created again starts below its old end.
        ('{"t": {"0": 1}, "gone": {"0": 900}}', '{"t": {"0": 3}}', 2),
        ('{"t": {"0": 900, "1": 5}}', '{"t": {"0": 3, "1": 9}}', 4),
        ("{}", '{"t": {"0": 3}}', 3),
        (None, '{"t": {"0": 3}}', None),
        ('{"t": {"0": "x"}}', '{"t": {"0": "y"}}', None),
        (None, None, None),
        ("not json", '{"n": 4, "t0": 0}', None),
        (None, "17", None),
        (None, "{}", None),
    ],
)
def test_rows_between_offsets(start: str | None, end: str | None, rows: int | None) -> None:
    assert rows_between(start, end) == rows


@pytest.mark.parametrize(
    ("start", "end", "rows"),
    [(None, "0", 0), (None, "3", 3_000), ("3", "3", 0), ("3", "10", 7_000), ("9", "3", 0), ("{}", "3", None)],
)
def test_rows_between_seconds(start: str | None, end: str | None, rows: int | None) -> None:
    assert rows_between(start, end, rows_per_s=1_000) == rows
