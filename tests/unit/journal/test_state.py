"""A journal read back: answers, folding, and lines that say the same again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.journal.records import BatchRecord, DecisionRecord, OlderRows, OutputRecord
from penstock.journal.state import DECISIONS_RETAINED, JournalState, OutputTotal
from penstock.observe.query_series import QuerySeries


def batch(number: int, offered: int = 10, kept: int = 4) -> BatchRecord:
    return BatchRecord(
        number, {"in": (offered, kept)}, classes={"in": [(offered, kept)]}, outputs={"q": OutputRecord(kept, 1.0, 2.0)}
    )


def decision(batch_id: int | None, keep: float = 0.5, **more: object) -> DecisionRecord:
    return DecisionRecord({"in": (keep,)}, keep, batch_id=batch_id, **more)  # type: ignore[arg-type]


def reread(state: JournalState) -> JournalState:
    again = JournalState()
    for line in json.loads(json.dumps(state.to_lines())):
        again.add_line(line)
    return again


def test_the_decision_for_a_batch() -> None:
    state = JournalState(decisions=[decision(3), decision(None, 0.9), decision(4, 0.25), decision(4, 0.125), decision(7)])
    assert state.decision_for(4) == decision(4, 0.125)
    assert state.decision_for(3) == decision(3)
    assert [state.decision_for(number) for number in (2, 5, 8)] == [None, None, None]


def test_a_copy_stays_as_it_is() -> None:
    state = JournalState()
    for number in range(3):
        state.add(batch(number))
    state.add(decision(1))
    copy = state.copy()
    state.add(batch(9))
    state.add(decision(9))
    state.add("an error")
    state.fold(1)
    assert sorted(copy.batches) == [0, 1, 2]
    assert (len(copy.decisions), copy.errors, copy.compacted_batches) == (1, [], 0)
    assert (copy.totals(), copy.class_totals("in")) == ({"in": (30, 12)}, [(30, 12)])


def test_a_later_record_of_a_batch_replaces_it() -> None:
    state = JournalState()
    state.add(batch(1, 10, 4))
    state.add(batch(1, 10, 5))
    assert state.totals() == {"in": (10, 5)}


def test_of_errors_the_last_twenty_are_kept() -> None:
    state = JournalState()
    for number in range(25):
        state.add(f"error {number}")
    assert state.errors == [f"error {number}" for number in range(5, 25)]


def test_totals_of_gates_that_come_and_go() -> None:
    state = JournalState()
    state.add(BatchRecord(0, {"a": (5, 5)}))
    state.add(BatchRecord(1, {"b": (7, 1)}))
    assert state.totals() == {"a": (5, 5), "b": (7, 1)}
    assert state.class_totals("a") == []
    assert state.output_totals() == {}


def test_the_total_of_an_output() -> None:
    total = (
        OutputTotal().add(OutputRecord(10, 1.0, 3.0)).add(OutputRecord(30, 2.0, 2.5)).add(OutputRecord(5)).add(OutputRecord(None))
    )
    assert total == OutputTotal(45, 40, 70.0, 3.0)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 99), st.integers(0, 99)), max_size=40),
    st.integers(1, 12),
    st.integers(0, 40),
)
def test_folding_changes_no_total(rows: list[tuple[int, int, int]], retain: int, fold_after: int) -> None:
    """Each batch has a record once, as an engine has it, though records may be out of order."""
    plain, folded = JournalState(), JournalState()
    unique = {number: (max(a, b), min(a, b)) for number, a, b in rows}
    for index, (number, counts) in enumerate(unique.items()):
        for state in (plain, folded):
            state.add(batch(number, *counts))
        if index == fold_after:
            folded.fold(retain)
            folded = reread(folded)
    folded.fold(retain)
    folded = reread(folded)
    assert sorted(folded.batches) == sorted(unique)[-retain:]
    assert folded.compacted_batches + len(folded.batches) == len(unique)
    assert folded.totals() == plain.totals()
    assert folded.class_totals("in") == plain.class_totals("in")
    assert folded.output_totals() == plain.output_totals()


def test_folding_keeps_the_decisions_that_a_replay_can_need() -> None:
    state = JournalState(decisions=[decision(number) for number in range(DECISIONS_RETAINED + 100)])
    state.fold(5)
    assert len(state.decisions) == DECISIONS_RETAINED
    assert state.decision_for(DECISIONS_RETAINED + 99) is not None
    assert state.decision_for(99) is None


def test_lines_say_all_of_it() -> None:
    state = JournalState(decisions=[decision(1, windows={"in": {"changes": []}}), decision(2, controller={"x": [1, None]})])
    for number in range(4):
        state.add(batch(number))
    state.add("an error")
    state.fold(2)
    again = reread(state)
    assert again.decisions == state.decisions
    assert again.batches == state.batches
    assert (again.folded_gates, again.folded_classes, again.folded_outputs) == (
        state.folded_gates,
        state.folded_classes,
        state.folded_outputs,
    )
    assert (again.errors, again.compacted_batches) == (["an error"], 2)


def test_of_the_memories_of_controllers_the_last_is_kept() -> None:
    state = JournalState(decisions=[decision(number, controller={"n": number}) for number in range(3)])
    assert [d.controller for d in reread(state).decisions] == [None, None, {"n": 2}]


def test_a_line_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind 'song'"):
        JournalState().add_line({"kind": "song"})


@pytest.mark.parametrize("last", [{"from_slot": 9}, {"batch_id": 3}], ids=["another query's decision", "no snapshot"])
def test_the_last_memory_of_the_controller_outlives_decisions_without_one(last: dict[str, int]) -> None:
    """Queries that share a gate write decisions into each other's journals, and those come without a memory."""
    state = JournalState(decisions=[decision(1, controller={"n": 1}), decision(2, controller={"n": 2})])
    state.add(DecisionRecord({"in": (0.25,)}, 0.25, **last))
    assert [d.controller for d in reread(state).decisions] == [None, {"n": 2}, None]


# -- expired rows, and what older journals lack --------------------------------------------------------------------------


@given(
    rows=st.lists(st.dictionaries(st.sampled_from(["in", "b"]), st.integers(0, 1_000), min_size=1) | st.none(), max_size=12),
    retain=st.integers(1, 5),
)
def test_expired_rows_add_up_however_much_is_folded(rows: list[dict[str, int] | None], retain: int) -> None:
    state, oracle = JournalState(), dict[str, int]()
    for number, expired in enumerate(rows):
        state.add(BatchRecord(number, {"in": (2_000, 1_000), "b": (2_000, 1_000)}, expired=expired))
        for gate, count in (expired or {}).items():
            oracle[gate] = oracle.get(gate, 0) + count
    assert state.expired_totals() == oracle
    state.fold(retain)
    assert len(state.batches) <= retain
    assert state.expired_totals() == oracle
    again = reread(state)
    assert again.expired_totals() == oracle
    again.fold(1)
    assert again.expired_totals() == oracle
    copy = again.copy()
    again.add(BatchRecord(99, {"in": (2, 1)}, expired={"in": 1}))
    again.fold(1)
    again.add(BatchRecord(100, {"in": (2, 1)}, expired={"in": 1}))
    again.fold(1)
    assert copy.expired_totals() == oracle


@pytest.mark.parametrize("retain", [1, 3, 100])
def test_expired_rows_by_class_survive_folding(retain: int) -> None:
    state = JournalState()
    for number in range(10):
        rows = {"in": [number, 1]} if number % 2 else None
        state.add(BatchRecord(number, {"in": (2_000, 1_000)}, expired_classes=rows))
    state.fold(retain)
    again, series = JournalState(), QuerySeries()
    for line in state.to_lines():
        again.add_line(json.loads(json.dumps(line)))
        series.add_line(json.loads(json.dumps(line)))
    folded = again.folded_expired_classes.get("in", [0, 0])
    left = [record.expired_classes["in"] for record in again.batches.values() if record.expired_classes]
    assert [folded[index] + sum(rows[index] for rows in left) for index in (0, 1)] == [25, 5]
    assert series.expired_classes == {"in": [25, 5]}


def test_older_rows_and_targets_survive_compaction() -> None:
    state = JournalState()
    kept = decision(7, older={"in": OlderRows(-5, (0.25,))})
    record = BatchRecord(7, {"in": (9, 3)}, expired={"in": 6}, from_future=2, delay_target_s=5.0, reachable_s=7.5)
    state.add(kept)
    state.add(record)
    state.fold(1)
    again = reread(state)
    assert again.decision_for(7) == kept
    assert again.batches[7] == record


def test_totals_of_an_older_journal_are_read() -> None:
    state = JournalState()
    state.add_line({"kind": "totals", "gates": {"in": [100, 40]}, "batches": 3})
    assert (state.totals(), state.expired_totals(), state.compacted_batches) == ({"in": (100, 40)}, {}, 3)


def test_how_batches_are_cut_is_not_forgotten() -> None:
    """A run says so once, when it starts, however many decisions follow."""
    state = JournalState(
        decisions=[decision(None, layout="minPartitions=4"), *(decision(n) for n in range(DECISIONS_RETAINED + 5))]
    )
    state.fold(1)
    assert [one.layout for one in state.decisions if one.layout is not None] == ["minPartitions=4"]
    assert len(reread(state).decisions) == DECISIONS_RETAINED + 1
    state.add(decision(None, layout=""))
    state.fold(1)
    assert [one.layout for one in state.decisions if one.layout is not None] == [""]


def test_that_gates_are_shared_is_not_forgotten() -> None:
    """A query says so once a run, when another one joins."""
    state = JournalState(decisions=[decision(None, is_shared=True), *(decision(n) for n in range(DECISIONS_RETAINED + 5))])
    state.fold(1)
    assert state.has_shared_gates()
    again = reread(state)
    assert again.has_shared_gates()
    assert len(again.decisions) == DECISIONS_RETAINED + 1
