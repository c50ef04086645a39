"""Reading Spark's report of a batch."""

from __future__ import annotations

import json

from penstock.spark.progress import Progress


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


def test_how_dense_the_offsets_of_kafka_are() -> None:
    def source(read: int, start: object = None) -> dict[str, object]:
        return {"startOffset": start or {"t": {"0": 10}}, "endOffset": {"t": {"0": 30}}, "numInputRows": read}

    sources = [source(20), source(5), source(40), source(0), source(5, {"n": 1, "t0": 0})]
    progress = Progress.parse(report(sources=sources))
    assert progress is not None
    # Rows of a batch that ran twice are counted twice, and a batch that was not read says nothing.
    assert progress.densities == {"source0": 1.0, "source1": 0.25, "source2": 1.0}
    assert progress.ends["source0"] == '{"t": {"0": 30}}'


def test_where_the_first_batch_began() -> None:
    source = {"startOffset": None, "endOffset": {"t": {"0": 30}}, "numInputRows": 5}
    progress = Progress.parse(report(sources=[source], batchId=0), lambda: ['{"t": {"0": 20}}'])
    assert progress is not None
    assert progress.densities == {"source0": 0.5}
