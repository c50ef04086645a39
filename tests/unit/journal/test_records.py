"""Records as JSON and back, and those of older journals."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drop.tables import ALWAYS, NEVER
from penstock.journal.records import BatchRecord, DecisionRecord, OlderRows, OutputRecord, Record, decode, encode

keeps = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4).map(tuple)
names = st.sampled_from(["in", "b"])
counts = st.integers(0, 10**9)
olders = st.builds(OlderRows, st.integers(ALWAYS, NEVER), keeps)
decisions = st.builds(
    DecisionRecord,
    st.dictionaries(names, keeps),
    st.floats(0.0, 1.0),
    batch_id=st.none() | counts,
    controller=st.none() | st.just({"asked": 3}),
    older=st.none() | st.dictionaries(names, olders, min_size=1),
)
seconds = st.none() | st.floats(0.0, 1e10)
batches = st.builds(
    BatchRecord,
    counts,
    st.dictionaries(names, st.tuples(counts, counts)),
    keep=st.none() | st.floats(0.0, 1.0),
    end_s=seconds,
    expired=st.none() | st.dictionaries(names, counts, min_size=1),
    expired_classes=st.none() | st.dictionaries(names, st.lists(counts, min_size=1), min_size=1),
    from_future=counts,
    delay_target_s=seconds,
    reachable_s=seconds,
    outputs=st.none() | st.just({"q": OutputRecord(3, 1.0, 2.0)}),
)


@given(record=decisions | batches | st.text())
def test_a_record_survives_json_exactly(record: Record) -> None:
    assert decode(json.loads(json.dumps(encode(record)))) == record


@pytest.mark.parametrize("line", [ALWAYS, -1, 0, 2**53 + 1, NEVER])
def test_the_moment_of_older_rows_is_exact_to_the_microsecond(line: int) -> None:
    record = DecisionRecord({"in": (0.5,)}, 0.5, batch_id=1, older={"in": OlderRows(line, (0.0,))})
    again = decode(json.loads(json.dumps(encode(record))))
    assert isinstance(again, DecisionRecord)
    assert again.older is not None
    assert again.older["in"].line == line


def test_records_of_an_older_journal_are_read() -> None:
    decision = decode({"kind": "decision", "gates": {"in": [0.5]}, "keep": 0.5, "batch_id": 4, "controller": {"model": 1}})
    assert decision == DecisionRecord({"in": (0.5,)}, 0.5, batch_id=4, controller={"model": 1})
    batch = decode(
        {"kind": "batch", "batch_id": 4, "gates": {"in": [100, 50]}, "keep": 0.5, "null_arrivals": 0, "older_than_ring": 0}
    )
    assert isinstance(batch, BatchRecord)
    assert (batch.expired, batch.from_future, batch.delay_target_s, batch.reachable_s) == (None, 0, None, None)


def test_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match="unknown kind 'wish'"):
        decode({"kind": "wish"})
