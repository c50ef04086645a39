"""What a terminal shows."""

from __future__ import annotations

from penstock.observe.terminal import headline


def test_the_headline_is_about_the_last_decision_and_not_about_those_before() -> None:
    """Its reason stands behind it, and the two must agree."""
    detail = {"summary": {"batches": 9, "keep": 0.5}, "decisions": [{"keep": 1.0, "reason": "10 rows fit"}]}
    assert headline(detail) == "keeps everything: 10 rows fit"
    detail["decisions"] = [{"keep": 0.25, "reason": "too many rows"}]
    assert headline(detail) == "sheds 75% of the rows: too many rows"
