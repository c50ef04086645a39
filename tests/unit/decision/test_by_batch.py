"""Decisions by batch: journaled before they hold, and the same again on a replay."""

from __future__ import annotations

import pytest

from penstock.control import MicroBatch
from penstock.control.base import Decision
from penstock.decision import (
    Append,
    BatchPlanned,
    BatchTimes,
    ByBatch,
    MeterReading,
    Publish,
    SlotGate,
    Warn,
    WindowGate,
)
from penstock.drop.priorities import Priorities
from penstock.drop.shares import EqualShare, PriorityShares
from penstock.drop.units import WholeWindows
from penstock.errors import JournalError
from penstock.journal.records import BatchRecord, DecisionRecord
from penstock.journal.state import JournalState
from penstock.testing import FakeEngine
from tests.unit.decision.harness import MemoryDriver, Scripted, ended, reread


def new_core(*script: float | Decision | Exception | None) -> ByBatch:
    return ByBatch([SlotGate("in", EqualShare())], Scripted(*script), is_warm=True)


def planned(batch_id: int, now_s: float = 1_000.0, rows: int | None = 100, **more: object) -> BatchPlanned:
    return BatchPlanned(batch_id, now_s, None if rows is None else {"source": rows}, **more)  # type: ignore[arg-type]


# -- the first batch -----------------------------------------------------------------------------------------------------


def test_the_first_batch_is_decided_by_its_size() -> None:
    core = new_core(0.25)
    (append,) = core.plan_batch(planned(0, rows=400))
    assert isinstance(append, Append)
    assert append.records == (DecisionRecord({"in": (0.25,)}, 0.25, batch_id=0, controller={"asked": 1}),)
    (observation,) = core.controller.observations  # type: ignore[attr-defined]
    assert (observation.batch_id, observation.upcoming_rows, observation.gates) == (-1, 400, {})
    assert (observation.backlog_rows, observation.period_s, observation.keep) == ({"source": 400}, 0.0, 1.0)


def test_a_first_batch_of_unknown_size_is_kept_and_journaled() -> None:
    core = new_core(0.25)
    (append,) = core.plan_batch(planned(0, rows=None))
    assert isinstance(append, Append)
    assert append.records == (DecisionRecord({"in": (1.0,)}, 1.0, batch_id=0, controller={"asked": 0}),)


def test_of_an_empty_first_batch_the_controller_hears_too() -> None:
    core = new_core(0.5)
    core.plan_batch(planned(0, rows=0))
    assert core.controller.observations[0].upcoming_rows == 0  # type: ignore[attr-defined]


def test_no_opinion_leaves_the_keep_as_it_is() -> None:
    driver = MemoryDriver(new_core(0.5, None)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    driver.carry_out(driver.core.end_batch(ended(0, 1_001.0, times=None)))
    driver.carry_out(driver.core.plan_batch(planned(1, 1_001.0, previous=BatchTimes(1_000.0, 1_001.0))))
    assert driver.published["in"][0].keeps.tolist() == [[0.5], [0.5]]
    assert driver.journal.decision_for(1) == DecisionRecord({"in": (0.5,)}, 0.5, batch_id=1, controller={"asked": 2})


def test_single_gates_get_their_own_keep() -> None:
    core = ByBatch([SlotGate(name, EqualShare()) for name in ("a", "b")], Scripted(Decision(0.5, gates={"b": 0.125})))
    (append,) = core.plan_batch(planned(0))
    assert isinstance(append, Append)
    assert append.records[0].gates == {"a": (0.5,), "b": (0.125,)}  # type: ignore[union-attr]


# -- what is observed ----------------------------------------------------------------------------------------------------


def test_the_batch_before_is_observed_with_its_times_and_completed_in_the_journal() -> None:
    driver = MemoryDriver(new_core(0.5, 0.25)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    driver.carry_out(driver.core.end_batch(ended(0, 1_004.0, 100, 50, times=None)))
    assert driver.journal.batches[0] == BatchRecord(0, {"in": (100, 50)}, keep=0.5, delay_target_s=2.0)
    driver.carry_out(driver.core.plan_batch(planned(1, 1_004.1, 70, previous=BatchTimes(1_000.0, 1_004.0, 3.0))))
    assert driver.journal.batches[0] == BatchRecord(
        0, {"in": (100, 50)}, keep=0.5, start_s=1_000.0, end_s=1_004.0, busy_s=3.0, backlog_rows=70, delay_target_s=2.0
    )
    observation = driver.core.controller.observations[-1]  # type: ignore[attr-defined]
    assert (observation.batch_id, observation.keep, observation.offered, observation.kept) == (0, 0.5, 100, 50)
    assert (observation.upcoming_rows, observation.taken_s, observation.busy_s) == (70, 1_004.1, 3.0)
    assert observation.waited_s == pytest.approx(4.1)


@pytest.mark.parametrize(
    ("now_s", "is_paced", "waited_s"),
    [(1_001.1, False, 1.1), (1_003.0, False, 0.0), (1_003.0, True, 3.0), (999.0, False, 0.0), (999.0, True, 0.0)],
    ids=["at once", "rows came later", "waited for its trigger", "clock went back", "clock went back, paced"],
)
def test_how_long_rows_can_have_waited(now_s: float, is_paced: bool, waited_s: float) -> None:
    core = new_core(0.5)
    core.end_batch(ended(0, 1_001.0, times=None))
    core.plan_batch(planned(1, now_s, previous=BatchTimes(1_000.0, 1_001.0), is_paced=is_paced))
    assert core.controller.observations[-1].waited_s == pytest.approx(waited_s)  # type: ignore[attr-defined]


def test_of_a_batch_of_unknown_size_the_reported_backlog_is_known() -> None:
    core = new_core(0.5)
    core.end_batch(ended(0, 1_001.0, times=None))
    core.plan_batch(planned(1, 1_001.0, None, previous=BatchTimes(1_000.0, 1_001.0), backlog_rows={"source": 30}))
    observation = core.controller.observations[-1]  # type: ignore[attr-defined]
    assert (observation.upcoming_rows, observation.backlog_rows) == (None, {"source": 30})


def test_batch_numbers_may_skip() -> None:
    """There is nothing to look back at: the batch before is not the one that ran last."""
    driver = MemoryDriver(new_core(0.5, 0.25)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    driver.carry_out(driver.core.end_batch(ended(0, 1_001.0, times=None)))
    driver.carry_out(driver.core.plan_batch(planned(7, 1_009.0, previous=BatchTimes(1_000.0, 1_001.0))))
    observation = driver.core.controller.observations[-1]  # type: ignore[attr-defined]
    assert (observation.batch_id, observation.offered, observation.keep) == (6, 0, 0.5)
    assert driver.journal.decision_for(7).keep == 0.25  # type: ignore[union-attr]
    assert driver.journal.batches[0].start_s is None


def test_only_the_first_batch_with_rows_is_cold() -> None:
    core = ByBatch([SlotGate("in", EqualShare())], Scripted(0.5))
    for number, rows in enumerate((0, 10, 10)):
        core.end_batch(ended(number, 1_000.0 + number, rows, times=None))
        core.plan_batch(planned(number + 1, 1_000.0 + number, previous=BatchTimes(999.0 + number, 1_000.0 + number)))
    assert [o.cold for o in core.controller.observations] == [True, True, False]  # type: ignore[attr-defined]


def test_end_completes_the_last_record() -> None:
    driver = MemoryDriver(new_core(0.5)).restore()
    assert driver.core.end(BatchTimes(1.0, 2.0)) == [], "no batch ran"
    driver.carry_out(driver.core.plan_batch(planned(0)))
    driver.carry_out(driver.core.end_batch(ended(0, 1_004.0, 100, 50, times=None)))
    assert driver.core.end(None) == [], "no report came"
    driver.carry_out(driver.core.end(BatchTimes(1_000.0, 1_004.0, 3.0)))
    assert driver.journal.batches[0] == BatchRecord(
        0, {"in": (100, 50)}, keep=0.5, start_s=1_000.0, end_s=1_004.0, busy_s=3.0, delay_target_s=2.0
    )


# -- failures ------------------------------------------------------------------------------------------------------------


def test_a_controller_that_raises_changes_nothing_and_warns() -> None:
    driver = MemoryDriver(new_core(0.5, ValueError("bad\nluck"), 0.25)).restore()
    for number in range(3):
        driver.carry_out(driver.core.plan_batch(planned(number)))
        keeps = driver.published["in"][0].keeps.tolist()
        assert keeps == [[(0.5, 0.5, 0.25)[number]]] * 2
    assert driver.warnings == ["query: could not decide: ValueError: bad"]
    assert [d.keep for d in driver.journal.decisions] == [0.5, 0.5, 0.25], "a replay finds the table in force"


def test_a_note_of_the_controller_reaches_the_user() -> None:
    driver = MemoryDriver(new_core(Decision(0.5, note="look here"))).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    assert driver.warnings == ["query: look here"]


def test_a_snapshot_that_fails_does_not_stop_the_decision() -> None:
    class Forgetful(Scripted):
        def snapshot(self) -> dict[str, object]:
            raise RuntimeError("no memory")

    driver = MemoryDriver(ByBatch([SlotGate("in", EqualShare())], Forgetful(0.5))).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    assert driver.published["in"][0].keeps.tolist() == [[0.5], [0.5]]
    assert driver.journal.decisions == [DecisionRecord({"in": (0.5,)}, 0.5, batch_id=0)]
    assert driver.warnings == ["query: could not take a snapshot of the controller: RuntimeError: no memory"]


def test_a_memory_that_can_not_be_restored_is_said_and_the_table_is_in_force() -> None:
    journal = JournalState(decisions=[DecisionRecord({"in": (0.5,)}, 0.5, batch_id=3, controller={"other": 1})])
    driver = MemoryDriver(new_core(0.25), journal).restore()
    assert driver.warnings == ["query: could not restore the controller: KeyError: 'asked'"]
    assert driver.published["in"][0].keeps.tolist() == [[0.5], [0.5]]
    assert driver.core.keep == 0.5


def test_nothing_of_a_memory_that_can_not_be_restored_stays() -> None:
    damaged = MicroBatch(2.0).snapshot() | {"rate": 900.0, "said": 7}
    journal = JournalState(decisions=[DecisionRecord({"in": (0.5,)}, 0.5, batch_id=3, controller=damaged)])
    driver = MemoryDriver(ByBatch([SlotGate("in", EqualShare())], MicroBatch(2.0)), journal).restore()
    assert [warning.split(":")[1] for warning in driver.warnings] == [" could not restore the controller"]
    assert driver.core.controller.snapshot() == MicroBatch(2.0).snapshot()


def test_a_decision_that_could_not_be_journaled_never_holds() -> None:
    driver = MemoryDriver(new_core(0.5, 0.25, 0.125)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    driver.is_disk_full = True
    with pytest.raises(JournalError):
        driver.carry_out(driver.core.plan_batch(planned(1)))
    assert driver.published["in"][0].keeps.tolist() == [[0.5], [0.5]]
    driver.is_disk_full = False
    driver.carry_out(driver.core.end_batch(ended(1, 1_002.0, 100, 50, times=None)))
    assert driver.journal.batches[1].keep == 0.5, "the keep that was in force"
    decision = driver.journal.decision_for(1)
    assert decision is not None
    assert decision.gates == {"in": (0.5,)}, "what held instead"
    driver.carry_out(driver.core.plan_batch(planned(2, previous=BatchTimes(1_000.0, 1_001.0))))
    assert driver.core.controller.observations[-1].keep == 0.5  # type: ignore[attr-defined]
    assert driver.published["in"][0].keeps.tolist() == [[0.125], [0.125]]


def test_a_full_disk_on_the_engine() -> None:
    engine = FakeEngine(lambda: new_core(0.5, 0.25, 0.125))
    assert engine.run_batch(100).kept == 50
    engine.is_disk_full = True
    assert engine.run_batch(100).kept == 50
    assert engine.warnings == ["no space left", "no space left"]
    engine.is_disk_full = False
    assert engine.run_batch(100).kept == 12
    assert engine.journal.batches[1].keep == 0.5, "its record goes with the next one"


# -- replay and restart --------------------------------------------------------------------------------------------------


def test_a_replayed_batch_gets_the_journaled_table_whatever_the_controller_says() -> None:
    script = [0.5, 0.25]
    engine = FakeEngine(lambda: new_core(*script))
    engine.run_batch(100)
    first = engine.run_batch(100, is_committed=False)
    script[:] = [1.0]
    engine.crash()
    again = engine.run_batch(100)
    assert (again.batch_id, again.kept) == (first.batch_id, first.kept) == (1, 25)
    assert engine.journal.batches[1].keep == 0.25
    assert len(engine.journal.decisions) == 2, "a replay writes no new decision"
    assert engine.core.controller.asked == 2, "and does not ask"  # type: ignore[attr-defined]


def test_an_older_batch_is_replayed_with_its_own_table_too() -> None:
    driver = MemoryDriver(new_core(0.5, 0.25, 0.125)).restore()
    for number in range(3):
        driver.carry_out(driver.core.plan_batch(planned(number)))
    again = MemoryDriver(new_core(1.0), reread(driver.journal)).restore()
    for number, keep in ((0, 0.5), (1, 0.25), (2, 0.125)):
        again.carry_out(again.core.plan_batch(planned(number)))
        assert again.published["in"][0].keeps.tolist() == [[keep], [keep]]
        assert again.core.keep == keep


def test_after_a_restart_the_last_table_is_in_force_before_the_first_batch() -> None:
    engine = FakeEngine(lambda: new_core(0.5, 0.25, ValueError()))
    for _ in range(2):
        engine.run_batch(100)
    engine.crash()
    assert engine.core.keep == 0.25
    assert engine.run_batch(100).kept == 25, "the controller fails, so nothing changes"


def test_a_decision_made_twice_counts_as_made_last() -> None:
    state = JournalState(decisions=[DecisionRecord({"in": (keep,)}, keep, batch_id=4) for keep in (0.5, 0.25)])
    (publish, again) = (new_core().restore(state), ByBatch([SlotGate("in", EqualShare())], Scripted()))
    assert isinstance(publish[0], Publish)
    again.restore(state)
    (publish_again,) = again.plan_batch(planned(4))
    assert isinstance(publish_again, Publish)
    assert publish_again.tables[0].keeps.tolist() == publish[0].tables[0].keeps.tolist() == [[0.25], [0.25]]


def test_a_table_that_no_longer_fits_is_said_and_not_published() -> None:
    state = JournalState(decisions=[DecisionRecord({"in": (0.5, 0.25, 0.25)}, 0.5, batch_id=4, controller={"asked": 5})])
    shares = PriorityShares(Priorities("tier", {"gold": 2.0}))
    core = ByBatch([SlotGate("in", shares)], Scripted(0.5))
    assert core.restore(state) == []
    (warning,) = core.plan_batch(planned(4))
    assert isinstance(warning, Warn)
    assert "gate 'in': the journal has a decision for batch 4 that does not fit the gate's classes" in warning.message
    (append,) = core.plan_batch(planned(5))
    assert isinstance(append, Append)
    assert len(append.records[0].gates["in"]) == 2, "the next batch has the new classes"  # type: ignore[union-attr]


def test_a_gate_that_the_journal_does_not_know_starts_open() -> None:
    state = JournalState(decisions=[DecisionRecord({"old": (0.5,)}, 0.5, batch_id=4)])
    driver = MemoryDriver(new_core(0.25), state).restore()
    assert driver.published == {}
    driver.carry_out(driver.core.plan_batch(planned(5)))
    assert driver.published["in"][0].keeps.tolist() == [[0.25], [0.25]]


# -- windows -------------------------------------------------------------------------------------------------------------


def window_core(*script: float | None) -> ByBatch:
    return ByBatch([WindowGate("in", WholeWindows("t", "1s"), seed=3)], Scripted(*script), is_warm=True)


def test_windows_are_decided_from_the_first_that_has_not_begun() -> None:
    driver = MemoryDriver(window_core(0.5, 0.25)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0, event_times={"in": None})))
    assert driver.journal.decisions[0].gates == {"in": (1.0,)}, "no event time is known: everything is kept"
    driver.carry_out(driver.core.end_batch(ended(0, 1_001.0, event_times={"in": 7_500_000}, times=None)))
    assert driver.journal.batches[0].latest == {"in": 7_500_000}
    driver.carry_out(driver.core.plan_batch(planned(1, event_times={"in": 7_500_000})))
    assert driver.journal.decisions[1].gates == {"in": (0.25, 8.0)}


def test_event_time_that_goes_back_reopens_no_window() -> None:
    driver = MemoryDriver(window_core(0.5, 0.25)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0, event_times={"in": 9_000_000})))
    driver.carry_out(driver.core.plan_batch(planned(1, event_times={"in": 2_000_000})))
    assert [d.gates["in"] for d in driver.journal.decisions] == [(0.5, 10.0), (0.25, 10.0)]


def test_after_a_restart_event_time_is_known_from_the_journal() -> None:
    driver = MemoryDriver(window_core(0.5)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0, event_times={"in": 1_000_000})))
    driver.carry_out(driver.core.end_batch(ended(0, 1_001.0, event_times={"in": 60_000_000}, times=None)))
    again = MemoryDriver(window_core(0.25), reread(driver.journal)).restore()
    again.carry_out(again.core.plan_batch(planned(1, event_times={"in": None})))
    assert again.journal.decisions[-1].gates == {"in": (0.25, 61.0)}


def test_all_window_decisions_are_journaled_together_every_so_often() -> None:
    core = window_core(0.5)
    for number, has_snapshot in ((999, False), (1_000, True), (1_001, False)):
        (append,) = core.plan_batch(planned(number, event_times={"in": number * 1_000_000}))
        assert isinstance(append, Append)
        assert (append.records[0].windows is not None) == has_snapshot  # type: ignore[union-attr]


# -- priorities over a restart -------------------------------------------------------------------------------------------


def test_priorities_are_shared_out_after_a_restart_as_before() -> None:
    """How frequent each class is was learnt from batches, and the journal has their counts."""

    def new() -> ByBatch:
        return ByBatch(
            [SlotGate("in", PriorityShares(Priorities("tier", {"gold": 4.0, "free": 1.0})))], Scripted(0.5), is_warm=True
        )

    driver = MemoryDriver(new()).restore()
    reading = MeterReading(50, offered_by_class=(10, 90, 0), kept_by_class=(10, 40, 0))
    for number in range(5):
        driver.carry_out(driver.core.plan_batch(planned(number)))
        driver.carry_out(driver.core.end_batch(ended(number, 1_001.0, 100, 50, reading=reading, times=None)))
    again = MemoryDriver(new(), reread(driver.journal)).restore()
    for one in (driver, again):
        one.carry_out(one.core.plan_batch(planned(5)))
    assert again.journal.decision_for(5).gates == driver.journal.decision_for(5).gates  # type: ignore[union-attr]


def test_a_batch_replayed_without_its_table_is_not_recorded_with_its_keep() -> None:
    """The journaled entries do not fit, so the gate is open."""
    state = JournalState(decisions=[DecisionRecord({"in": (0.5, 0.25, 0.25)}, 0.5, batch_id=4, controller={"asked": 5})])
    driver = MemoryDriver(ByBatch([SlotGate("in", EqualShare())], Scripted(None)), state).restore()
    driver.carry_out(driver.core.plan_batch(planned(4)))
    assert driver.published == {}
    driver.carry_out(driver.core.end_batch(ended(4, 1_001.0, times=None)))
    assert driver.journal.batches[4].keep == 1.0


def test_end_loses_nothing_that_the_last_record_had() -> None:
    """The query stops in its second batch; the first was completed when the second was planned."""
    driver = MemoryDriver(new_core(0.5)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    driver.carry_out(driver.core.end_batch(ended(0, 1_004.0, times=None)))
    driver.carry_out(driver.core.plan_batch(planned(1, 1_004.0, 70, previous=BatchTimes(1_000.0, 1_004.0, 3.0))))
    before = driver.journal.batches[0]
    driver.carry_out(driver.core.end(BatchTimes(1_000.0, 1_004.0, 3.0)))
    assert driver.journal.batches[0] == before


def test_a_decision_that_could_not_be_written_leaves_what_held_instead() -> None:
    engine = FakeEngine(lambda: ByBatch([SlotGate("in", EqualShare())], Scripted(0.5, 0.25, 0.125)))
    engine.run_batch(100)
    engine.is_disk_full = True
    engine.run_batch(100)
    engine.is_disk_full = False
    engine.run_batch(100)
    decisions = {number: engine.journal.decision_for(number) for number in range(3)}
    assert {number: decision and decision.batch_id for number, decision in decisions.items()} == {0: 0, 1: 1, 2: 2}
    assert decisions[1] is not None
    assert decisions[0] is not None
    assert decisions[1].gates == decisions[0].gates, "the journal says what batch 1 ran with"
    assert decisions[1].controller is None
