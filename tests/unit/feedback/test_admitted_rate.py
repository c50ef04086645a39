"""A producer samples as it is told, with weights that make up for it, and sends all when the news is old."""

from __future__ import annotations

import http.client
import json
import math
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.drop.hashing import gate_seed, uniform
from penstock.errors import PenstockError
from penstock.feedback import AdmittedRate, Feedback
from penstock.feedback.admitted_rate import choose_weight
from penstock.feedback.rate_record import RateRecord, RateView, decode_record, encode_record
from penstock.feedback.rate_server import RateServer
from penstock.journal import BatchRecord, Journal


def record(share: float, job: str = "job", made_s: float = 100.0, topic: str = "t") -> RateRecord:
    return RateRecord(topic, job, share, 500.0, 2000.0, made_s, expires_s=30.0)


@given(share=st.floats(0.02, 1.0), keep=st.floats(0.05, 1.0), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_weights_of_source_and_gate_multiply_without_bias(share: float, keep: float, seed: int) -> None:
    """Each row is sent with probability share and kept with probability keep: the sum of both weights estimates all rows."""
    rows = 20_000
    weights = np.array([choose_weight(f"{seed} {row}".encode(), share) or 0.0 for row in range(rows)])
    sent = weights[weights > 0.0]
    # The gate hashes what the broker gave the row: partition and offset.
    draws = uniform(gate_seed("clicks"), [pa.array(np.zeros(len(sent), np.int32)), pa.array(seed + np.arange(len(sent)))])
    estimate = float((sent[draws < keep] / keep).sum())
    p = share * keep
    error = math.sqrt(rows * (1.0 - p) / p)
    assert abs(estimate - rows) <= 5.0 * error + 1e-6


def test_a_row_has_one_fate_and_a_greater_share_keeps_what_a_smaller_one_kept() -> None:
    kept = [{row for row in range(1000) if choose_weight(str(row).encode(), share)} for share in (0.1, 0.3, 0.9)]
    assert kept[0] < kept[1] < kept[2]
    assert kept[1] == {row for row in range(1000) if choose_weight(str(row).encode(), 0.3)}
    other = {row for row in range(1000) if choose_weight(str(row).encode(), 0.3, "another topic")}
    assert other != kept[1], "topics sample independently"


def test_old_news_expires() -> None:
    view = RateView("t")
    view.take([record(0.25)], now_s=0.0, clock_s=101.0)
    view.take([record(0.25)], now_s=20.0, clock_s=121.0)  # the same again is no news
    assert view.find_share(29.0) == 0.25
    assert view.find_share(31.0) == 1.0
    view.take([record(0.25, made_s=131.0)], now_s=31.0, clock_s=131.0)
    assert view.find_share(32.0) == 0.25


def test_what_a_job_left_behind_long_ago_does_not_count() -> None:
    view = RateView("t")
    view.take([record(0.25, made_s=100.0)], now_s=5.0, clock_s=100_000.0)
    assert view.find_share(5.0) == 1.0
    view.take([record(0.5, made_s=101.0)], now_s=6.0, clock_s=100_001.0)
    assert view.find_share(6.0) == 0.5, "it speaks again; its clock is just slow"


def test_the_job_that_takes_most_decides_and_other_topics_do_not() -> None:
    view = RateView("t")
    view.take([record(0.2, "a"), record(0.6, "b"), record(0.9, "c", topic="other")], now_s=0.0, clock_s=100.0)
    assert view.find_share(1.0) == 0.6


@pytest.mark.parametrize(
    "change", [{"share": 0.0}, {"share": 1.5}, {"share": "x"}, {"share": float("nan")}, {"expires_s": -1}, {"topic": None}]
)
def test_records_that_make_no_sense_are_left_out(change: dict[str, object]) -> None:
    content = json.loads(encode_record(record(0.5))) | change
    if change == {"topic": None}:
        del content["topic"]
    assert decode_record(json.dumps(content)) is None
    assert decode_record(encode_record(record(0.5))) == record(0.5)
    assert decode_record(b"\xff") is None
    assert decode_record("[]") is None


def ask(server: RateServer, method: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_endpoint_answers_reading_only() -> None:
    now_s = time.time()
    server = RateServer("127.0.0.1:0", lambda: [record(0.25, made_s=now_s), record(0.5, topic="a/b c", made_s=now_s)])
    try:
        rate = AdmittedRate.from_http(server.url, "a/b c")
        rate.refresh()
        assert (rate.share, rate.trouble) == (0.5, None)
        assert rate.sample() in (2.0, None)
        assert [item["topic"] for item in json.loads(ask(server, "GET", "/rates")[1])] == ["t", "a/b c"]
        for path, method in (("/", "GET"), ("/rates/", "GET"), ("/rates", "POST"), ("/rates", "DELETE")):
            assert ask(server, method, path)[0] == (404 if method == "GET" else 501)
    finally:
        server.close()
    rate.refresh()
    assert rate.trouble is not None
    assert rate.share == 0.5, "what was said holds for a while"


def test_bad_addresses_are_named() -> None:
    with pytest.raises(PenstockError, match=r"must be host:port, such as 127\.0\.0\.1:8077, got '8077'"):
        RateServer("8077", list)
    with pytest.raises(PenstockError, match="must begin with http://, got 'host:1'"):
        AdmittedRate.from_http("host:1", "t")
    server = RateServer("127.0.0.1:0", list)
    try:
        with pytest.raises(PenstockError, match="can't listen at"):
            RateServer(server.url.removeprefix("http://"), list)
    finally:
        server.close()


def test_the_journal_of_a_job_becomes_a_share(tmp_path: Path) -> None:
    feedback = Feedback(tmp_path, {"in": "clicks"}, http="127.0.0.1:0", settle_s=0.001)
    feedback.update()
    assert feedback.records == [], "the job has not begun"
    journal = Journal(tmp_path / "penstock", "job-1")
    journal.append(BatchRecord(0, {"in": (1000, 1000)}))
    feedback.update()
    assert [(each.topic, each.job, each.share) for each in feedback.records] == [("clicks", "job-1/in", 1.0)]
    journal.append(BatchRecord(1, {"in": (1000, 475)}))
    time.sleep(0.01)
    feedback.update()
    assert feedback.records[0].share == 0.5
    assert feedback.records[0].offered_rows_per_s > feedback.records[0].rows_per_s > 0.0
    with feedback:
        rate = AdmittedRate.from_http(str(feedback.url), "clicks")
        rate.refresh()
        assert 0.0 < rate.share < 1.0


def test_where_to_publish_must_be_said(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="give http= or servers="):
        Feedback(tmp_path, http=None)
    with pytest.raises(PenstockError, match="expires_s must be greater than refresh_s"):
        Feedback(tmp_path, expires_s=0.5)
