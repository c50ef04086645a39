"""From one way to the other: a batch that was left open is judged as it was before, or refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control import AgeRule, Decision, GateCount, KeepAll
from penstock.decision import BatchPlanned, Publish, SlotGate, WindowGate
from penstock.decision.by_arrival import MARK_OF_SHARING
from penstock.decision.gate_state import GateState
from penstock.decision.handover import (
    ContinuedByBatch,
    find_first_uncounted,
    mark_by_arrival,
    ran_by_batch,
    refuse_open_batch,
    was_by_arrival,
)
from penstock.drop.shares import EqualShare
from penstock.drop.units import WholeWindows
from penstock.errors import JournalError, PenstockError
from penstock.journal.records import BatchRecord, DecisionRecord, OlderRows, decode, encode
from penstock.journal.state import JournalState
from tests.unit.decision.harness import MemoryDriver, Scripted, ended, reread

SLOTS = [DecisionRecord({"in": (0.5,)}, 0.5, from_slot=100), DecisionRecord({"in": (0.25,)}, 0.25, from_slot=200)]


def start(*decisions: DecisionRecord, open_batch: int | None) -> MemoryDriver:
    gate = SlotGate("in", EqualShare())
    core = ContinuedByBatch([gate], Scripted(0.125), is_warm=True, slot_gates=[gate])
    core.leave_open(open_batch)
    return MemoryDriver(core, JournalState(decisions=list(decisions))).restore()


def judge(driver: MemoryDriver, *slots: int) -> list[float]:
    return driver.published["in"][0].lookup(np.array(slots)).tolist()


def plan(driver: MemoryDriver, batch_id: int) -> None:
    driver.carry_out(driver.core.plan_batch(BatchPlanned(batch_id, 1_000.0, {"source": 100})))


def test_a_batch_left_open_by_arrival_is_judged_by_its_slots() -> None:
    driver = start(*SLOTS, open_batch=7)
    assert judge(driver, 50, 150, 250) == [1.0, 0.5, 0.25]  # for batches that were committed and not counted
    plan(driver, 7)
    assert judge(driver, 50, 150, 250) == [1.0, 0.5, 0.25]
    assert driver.journal.decisions == SLOTS, "a second crash finds what the first one left"
    driver.carry_out(driver.core.end_batch(ended(7, 1_001.0, times=None)))
    counted = driver.journal.batches[7]
    assert counted.keep == counted.gates["in"][1] / counted.gates["in"][0]
    plan(driver, 8)
    assert judge(driver, 50, 150, 250) == [0.125] * 3
    assert driver.core.keep_of({"in": GateCount(10, 9)}) == 0.125


def test_without_an_open_batch_the_first_one_is_decided_by_batch() -> None:
    driver = start(*SLOTS, open_batch=None)
    plan(driver, 8)
    assert judge(driver, 50, 150, 250) == [0.125] * 3


def test_a_batch_left_open_by_batch_has_its_own_decision_or_the_last_one() -> None:
    last = DecisionRecord({"in": (0.75,)}, 0.75, batch_id=7)
    driver = start(*SLOTS, last, open_batch=7)
    plan(driver, 7)
    assert judge(driver, 50, 250) == [0.75] * 2
    # Killed before it was decided, or while it ran with the last table because its own decision could not be written.
    driver = start(*SLOTS, last, open_batch=8)
    plan(driver, 8)
    assert judge(driver, 50, 250) == [0.75] * 2
    end(driver, 8)
    assert driver.journal.decision_for(8) == replace(last, batch_id=8)
    plan(driver, 9)
    assert judge(driver, 50, 250) == [0.125] * 2


def test_each_run_leaves_how_it_was_set() -> None:
    mark = mark_by_arrival()
    assert not mark.gates, "it changes no slot"
    by_batch = DecisionRecord({"in": (0.75,)}, 0.75, batch_id=7)
    assert not was_by_arrival(JournalState())
    assert not was_by_arrival(JournalState(decisions=[mark, by_batch]))
    assert was_by_arrival(JournalState(decisions=[by_batch, mark]))


def test_what_a_journal_should_have_and_has_not() -> None:
    marks = [mark_by_arrival(first_batch=4), mark_by_arrival("minPartitions=2", first_batch=6)]
    assert find_first_uncounted(JournalState(decisions=[mark_by_arrival()])) is None, "as journals were before"
    assert find_first_uncounted(JournalState(decisions=marks)) == 4
    assert find_first_uncounted(JournalState(decisions=marks, batches={5: BatchRecord(5, {"in": (1, 1)})})) == 6
    assert decode(encode(marks[1])) == marks[1]


def test_by_arrival_a_batch_that_may_have_run_by_batch_is_refused() -> None:
    """With a decision of its own, or with one that was not waited for because it said the same as the last."""
    by_batch = DecisionRecord({"in": (0.75,)}, 0.75, batch_id=7)
    state = JournalState(decisions=[by_batch])
    refuse_open_batch(state, None, "q")
    refuse_open_batch(state, 6, "q")
    for batch_id in (7, 8):
        with pytest.raises(PenstockError, match=f"batch {batch_id} of query 'q' was decided by batch and is not committed or"):
            refuse_open_batch(state, batch_id, "q")
    later = JournalState(
        decisions=[by_batch, mark_by_arrival(first_batch=9), *SLOTS, mark_by_arrival("x", first_batch=12), *SLOTS]
    )
    assert [batch_id for batch_id in range(6, 15) if ran_by_batch(later, batch_id)] == [7, 8]
    assert not ran_by_batch(JournalState(decisions=SLOTS), 3)
    assert not ran_by_batch(JournalState(), 3)


def begin(*script: float | Decision | None, gate: GateState | None = None) -> MemoryDriver:
    """Start a query without a past."""
    gate = SlotGate("in", EqualShare()) if gate is None else gate
    return MemoryDriver(ContinuedByBatch([gate], Scripted(*script), is_warm=True)).restore()


def end(driver: MemoryDriver, batch_id: int) -> None:
    driver.carry_out(driver.core.end_batch(ended(batch_id, 1_001.0, times=None)))


def test_a_decision_that_says_the_same_is_not_waited_for() -> None:
    driver = begin(0.5, 0.5, 0.25, 0.25)
    waited = []
    for batch_id in range(4):
        plan(driver, batch_id)
        waited.append(driver.journal.decision_for(batch_id) is not None)
        end(driver, batch_id)
        assert driver.journal.decision_for(batch_id) is not None, "it is durable with the counts"
    assert waited == [True, False, True, False]
    assert [decision.keep for decision in driver.journal.decisions] == [0.5, 0.5, 0.25, 0.25]
    assert driver.journal.decisions[-1].controller == {"asked": 4}, "a restart goes on where it was"


def test_after_a_write_that_failed_the_next_decision_is_waited_for() -> None:
    """The write may have arrived all the same, so nobody knows what is the last durable decision."""
    driver = begin(0.5, 0.25, 0.5, 0.5)
    plan(driver, 0)
    end(driver, 0)
    driver.is_disk_full = True
    with pytest.raises(JournalError):
        plan(driver, 1)
    driver.is_disk_full = False
    assert judge(driver, 50) == [0.5]
    plan(driver, 2)
    assert driver.journal.decision_for(2) is not None
    plan(driver, 3)
    assert driver.journal.decision_for(3) is None


def test_a_batch_that_was_committed_without_a_decision_had_the_last_one() -> None:
    last = DecisionRecord({"in": (0.75,)}, 0.75, batch_id=7)
    driver = start(last, open_batch=None)
    driver.is_disk_full = True  # it can be counted again all the same
    driver.carry_out(driver.core.repeat(8))
    assert judge(driver, 50) == [0.75]
    driver.is_disk_full = False
    end(driver, 8)
    assert driver.journal.decision_for(8) == replace(last, batch_id=8)
    assert driver.core.repeat(8) == driver.core.repeat(6) == []
    assert start(*SLOTS, open_batch=None).core.repeat(8) == [], "by arrival its slots say it"


def test_the_replay_of_a_batch_depends_on_no_write() -> None:
    """It has the last table from the start of the query on, and a full disk does not change that."""
    driver = start(*SLOTS, DecisionRecord({"in": (0.75,)}, 0.75, batch_id=7), open_batch=8)
    driver.carry_out(driver.core.get_ready())
    assert judge(driver, 50) == [0.75]
    driver.is_disk_full = True
    plan(driver, 8)
    assert judge(driver, 50) == [0.75]


def test_a_batch_without_a_decision_is_replayed_beside_a_new_gate() -> None:
    gates = [SlotGate(name, EqualShare()) for name in ("in", "new")]
    core = ContinuedByBatch(gates, Scripted(0.125), is_warm=True, slot_gates=gates)
    core.leave_open(8)
    state = JournalState(decisions=[DecisionRecord({"in": (0.75,)}, 0.75, batch_id=7)])
    driver = MemoryDriver(core, state).restore()
    driver.carry_out(core.get_ready())
    plan(driver, 8)
    assert judge(driver, 50) == [0.75]
    assert driver.published["new"][0].lookup(np.array([50])).tolist() == [1.0]
    (warning,) = driver.warnings
    assert "gate 'new': the journal has a decision for batch 8 that does not fit" in warning


def test_what_held_is_noted_though_a_failed_write_has_arrived() -> None:
    driver = begin(0.5, 0.25, 0.125)
    plan(driver, 0)
    driver.is_disk_full = True
    for batch_id in (1, 2):
        with pytest.raises(JournalError):
            plan(driver, batch_id)
        driver.journal.add(DecisionRecord({"in": (0.25,)}, 0.25, batch_id=batch_id))  # its answer was lost
    driver.is_disk_full = False
    end(driver, 2)
    assert judge(driver, 50) == [0.5]
    assert [driver.journal.decision_for(batch_id).keep for batch_id in (1, 2)] == [0.5, 0.5]  # type: ignore[union-attr]


def test_what_passes_by_is_always_waited_for() -> None:
    driver = begin(0.5, gate=WindowGate("in", WholeWindows("t", "1s"), seed=1))
    for batch_id in range(3):
        plan(driver, batch_id)
        assert driver.journal.decision_for(batch_id) is not None
    gate = SlotGate("in", EqualShare())
    gate.arrival_column = "arrival"
    driver = begin(Decision(0.5, age=AgeRule(900.0, 1.0, 0.0)), gate=gate)
    for batch_id in range(3):
        plan(driver, batch_id)
        assert driver.journal.decision_for(batch_id) is not None


@given(st.lists(st.sampled_from([1.0, 0.5, 0.25, None]), min_size=1, max_size=8), st.integers(0, 30))
def test_a_crash_at_any_moment_leaves_what_a_replay_needs(script: list[float | None], crash: int) -> None:
    """After each step the job may be killed: the open batch is then judged as it was, and so is one that was not counted."""
    driver = begin(*script)
    open_batch, ran_with = None, None
    for step in range(crash):
        batch_id = step // 2
        if step % 2:
            end(driver, batch_id)
            open_batch = None
        else:
            plan(driver, batch_id)
            open_batch, ran_with = batch_id, judge(driver, 50)
    if open_batch is None:
        return
    gate = SlotGate("in", EqualShare())
    core = ContinuedByBatch([gate], Scripted(0.125), is_warm=True, slot_gates=[gate])
    core.leave_open(open_batch)
    again = MemoryDriver(core, reread(driver.journal)).restore()
    if driver.journal.decisions:
        assert judge(again, 50) == ran_with, "in force at once, to count a batch that was committed"
    plan(again, open_batch)
    assert judge(again, 50) == ran_with


def test_a_batch_decided_by_age_needs_the_ages_again() -> None:
    by_age = DecisionRecord({"in": (0.5,)}, 0.5, batch_id=7, older={"in": OlderRows(9_000_000, (0.0,))})
    with pytest.raises(PenstockError, match="gate 'in' has no arrival= any more, but batch 7 of query 'query' was decided by"):
        start(by_age, open_batch=7)
    start(by_age, open_batch=8)  # it is committed


def test_other_classes_are_refused() -> None:
    with pytest.raises(PenstockError, match="gate 'in': the journal has 2 classes where the gate has 1; use a new checkpoint"):
        start(DecisionRecord({"in": (0.5, 0.1)}, 0.5, from_slot=100), open_batch=7)


def test_an_open_batch_with_a_decision_of_its_own_is_judged_by_that() -> None:
    """Refused by arrival, a run may have left a decision without a batch: the open batch still has its own."""
    gate = SlotGate("in", EqualShare())
    by_batch = DecisionRecord({"in": (0.25,)}, 0.25, batch_id=7)
    core = ContinuedByBatch([gate], KeepAll(2.0), slot_gates=[gate])
    core.leave_open(7)
    state = JournalState(decisions=[by_batch, mark_by_arrival()])
    core.restore(state)
    (publish,) = core.plan_batch(BatchPlanned(7, now_s=10.0, rows={"source": 5}))
    assert isinstance(publish, Publish)
    assert publish.tables[0].keeps.tolist() == [[0.25], [0.25]]
    assert core.close_batch(7) == []


def test_that_a_gate_is_shared_does_not_say_how_a_batch_was_decided() -> None:
    """Another query may say so at any time, also just before a batch that was decided by slots."""
    state = JournalState(decisions=[DecisionRecord({"in": (0.5,)}, 0.5, batch_id=7), mark_by_arrival(first_batch=9)])
    state.add(MARK_OF_SHARING)
    assert ran_by_batch(state, 8)
    assert not ran_by_batch(state, 9)
    assert was_by_arrival(state)
