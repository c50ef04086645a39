"""A line of blocks."""

from __future__ import annotations

from penstock.cli.sparkline import sparkline


def test_a_sparkline_has_a_block_a_value() -> None:
    assert sparkline([]).plain == ""
    assert sparkline([0.0, 0.0]).plain == "▁▁"
    assert len(sparkline(range(100), width=10).plain) == 10
