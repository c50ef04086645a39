"""The calibrated work of the demo."""

from __future__ import annotations

import pytest

from penstock.demo.work import calibrate, score, scorer


def test_the_score_depends_on_payload_and_rounds_alone() -> None:
    assert score(b"a", 5) == score(b"a", 5)
    assert len({score(b"a", 5), score(b"b", 5), score(b"a", 6)}) == 3


def test_calibration_takes_the_best_try() -> None:
    clock = iter([0.0, 10.0, 0.0, 5.0])  # ten rows of a thousand rounds: 1 s a row, then 0.5 s
    work = calibrate(0.25, clock=lambda: next(clock), tries=2)
    assert work.rounds == 500
    assert work.cost_s == pytest.approx(0.25)


def test_the_scorer_keeps_every_row_in_order() -> None:
    import pyarrow as pa

    rows = pa.RecordBatch.from_pydict({"arrival": [1, 2], "key": [7, 8], "payload": [b"x", b"y"]})
    (scored,) = scorer(3)(iter([rows]))
    assert scored.to_pydict() == {"arrival": [1, 2], "key": [7, 8], "score": [score(b"x", 3), score(b"y", 3)]}
