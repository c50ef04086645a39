"""What runs on Spark's Python workers reaches them in several segments, so that nothing waits for an acknowledgement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle

from penstock.las.countmin import CostSketch
from penstock.spark.connect.batch_lookup import make_lookup
from penstock.spark.gates.clock_filter import _make_marker
from penstock.spark.load_aware_worker import BucketTimes, TimedFunction

_SEGMENT = 1 << 16
"""Bytes that a connection within one machine sends at once."""
_NOTES: Any = None


def make_timed() -> TimedFunction:
    recorder = BucketTimes(_NOTES, 4)
    return TimedFunction(abs, "row", recorder, columns=("v",), output="r", output_type=pa.int64(), names=("v",))


@pytest.mark.parametrize(
    "make",
    [lambda: make_lookup("/place", "in"), make_timed, lambda: _make_marker(CostSketch(), _NOTES)],
    ids=["table", "timed", "las"],
)
def test_it_is_longer_than_a_segment(make: Callable[[], Any]) -> None:
    assert len(cloudpickle.dumps(make())) > _SEGMENT
