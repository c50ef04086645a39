"""Decisions by arrival: a slot that has begun never changes, whatever stalls, stops or fails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from penstock.control import KeepAll
from penstock.control.base import Controller, Decision
from penstock.decision import Append, BatchPlanned, ByArrival, SlotGate
from penstock.decision.backfill import Backfill
from penstock.decision.by_arrival import MARGIN_S
from penstock.drop.priorities import Priorities
from penstock.drop.shares import EqualShare, PriorityShares
from penstock.drop.tables import SLOTS, UNBOUNDED, slot_of, slot_start_s
from penstock.errors import JournalError, PenstockError
from penstock.journal.records import BatchRecord, DecisionRecord
from penstock.journal.state import JournalState
from penstock.testing import FakeEngine
from tests.unit.decision.harness import MemoryDriver, Scripted, ended, reread

Script = Sequence[float | Decision | Exception | None]


def alone(*script: float | Decision | Exception | None, journal: JournalState | None = None) -> MemoryDriver:
    core = ByArrival([SlotGate("in", EqualShare())], Scripted(*script), is_warm=True)
    return MemoryDriver(core, journal).restore()


def share_gate(**scripts: Script) -> dict[str, MemoryDriver]:
    """Start queries that read one gate."""
    gate, clock = SlotGate("in", EqualShare()), [1_000.0]
    cores = {label: ByArrival([gate], Scripted(*script), label, is_warm=True) for label, script in scripts.items()}
    drivers = {label: MemoryDriver(core, clock=clock) for label, core in cores.items()}
    for driver in drivers.values():
        driver.siblings = drivers
        driver.restore()
    return drivers


def end_batch(driver: MemoryDriver, offered: int = 100, after_s: float = 1.0, **more: object) -> None:
    number = len(driver.journal.batches)
    driver.clock[0] += after_s
    driver.carry_out(driver.core.end_batch(ended(number, driver.clock[0], offered, **more)))  # type: ignore[arg-type]


def changes(driver: MemoryDriver) -> list[tuple[int, tuple[float, ...]]]:
    return driver.core.gates[0].ring.changes  # type: ignore[attr-defined,no-any-return]


def decided(driver: MemoryDriver) -> list[DecisionRecord]:
    """Return the decisions in a journal that are about gates; the others mark something."""
    return [decision for decision in driver.journal.decisions if decision.gates]


def lookup(driver: MemoryDriver, slot: int) -> float:
    return float(driver.published["in"][0].lookup(np.array([slot]))[0])


def test_a_decision_holds_for_slots_that_have_not_begun() -> None:
    driver = alone(0.5)
    end_batch(driver)
    ((slot, entries),) = changes(driver)
    assert entries == (0.5,)
    assert driver.now_s() + 0.25 <= slot_start_s(slot) <= driver.now_s() + 0.25 + 0.14
    assert (lookup(driver, slot - 1), lookup(driver, slot)) == (1.0, 0.5)
    assert driver.journal.decisions == [DecisionRecord({"in": (0.5,)}, 0.5, from_slot=slot, controller={"asked": 1})]


def test_what_changes_nothing_is_not_decided_again() -> None:
    driver = alone(1.0, 0.5, 0.5, None, 0.5)
    for _ in range(5):
        end_batch(driver)
    assert [d.keep for d in driver.journal.decisions] == [0.5]
    assert sorted(driver.journal.batches) == [0, 1, 2, 3, 4]


def test_a_batch_about_to_run_needs_nothing() -> None:
    assert alone(0.5).core.plan_batch(BatchPlanned(0, 1_000.0, {"source": 10})) == []


def test_the_record_says_the_share_that_was_kept() -> None:
    driver = alone(0.5)
    end_batch(driver, 200, kept=150)
    assert driver.journal.batches[0].keep == 0.75


def test_a_batch_without_a_report_is_counted_and_not_judged() -> None:
    driver = alone(0.5)
    end_batch(driver, times=None)
    assert driver.core.controller.asked == 0  # type: ignore[attr-defined]
    assert (driver.journal.batches[0].gates, driver.journal.decisions) == ({"in": (100, 100)}, [])


def test_a_controller_that_raises_changes_nothing_and_warns() -> None:
    driver = alone(0.5, ZeroDivisionError("no rows"), 0.25)
    for _ in range(3):
        end_batch(driver)
    assert [entries for _, entries in changes(driver)] == [(0.5,), (0.25,)]
    assert driver.warnings == ["query: could not decide: ZeroDivisionError: no rows"]
    assert sorted(driver.journal.batches) == [0, 1, 2]


def test_decisions_within_one_slot_take_the_next_slots() -> None:
    driver = alone(0.5, 0.25, 0.125)
    for _ in range(3):
        end_batch(driver, after_s=0.0)
    slots = [slot for slot, _ in changes(driver)]
    assert slots == [slots[0], slots[0] + 1, slots[0] + 2]


def test_a_clock_that_goes_back_changes_no_slot() -> None:
    driver = alone(0.5, 0.25)
    end_batch(driver)
    end_batch(driver, after_s=-100.0)
    (first, _), (second, _) = changes(driver)
    assert second == first + 1
    (warning,) = driver.warnings
    assert warning.startswith(
        "query: the clock is 100 s behind the last decision, so what was decided for that time holds once more"
    )


def test_a_clock_that_goes_back_is_said_once_each_time() -> None:
    driver = alone(0.5, 0.25, 0.5, 0.25, 0.5)
    for after_s in (1.0, -100.0, 1.0, 200.0, -3_600.0):
        end_batch(driver, after_s=after_s)
    assert len(driver.warnings) == 2


# -- stalls and full disks -----------------------------------------------------------------------------------------------


def test_a_stall_between_decision_and_confirmation_takes_the_decision_back() -> None:
    driver = alone(0.5, 0.25)
    driver.append_takes_s = 0.5
    end_batch(driver)
    assert changes(driver) == []
    assert driver.warnings == ["query: a decision took longer than 0.25 s to journal and was dropped"]
    made, void = driver.journal.decisions
    assert (made.from_slot, made.gates, void.from_slot, void.gates) == (
        void.from_slot,
        {"in": (0.5,)},
        made.from_slot,
        {"in": (1.0,)},
    )
    again = alone(journal=reread(driver.journal))
    assert {lookup(again, slot) for slot in range(made.from_slot - 9, made.from_slot + 9)} == {1.0}  # type: ignore[operator]
    driver.append_takes_s = 0.0
    end_batch(driver)
    assert [entries for _, entries in changes(driver)] == [(0.25,)]


def test_a_stall_that_ends_before_the_slot_begins_is_no_stall() -> None:
    driver = alone(0.5)
    driver.append_takes_s = 0.2
    end_batch(driver)
    assert [entries for _, entries in changes(driver)] == [(0.5,)]


def test_a_decision_that_could_not_be_journaled_never_holds_and_is_made_again() -> None:
    driver = alone(0.5, 0.5)
    driver.is_disk_full = True
    with pytest.raises(JournalError):
        end_batch(driver)
    assert changes(driver) == []
    driver.is_disk_full = False
    end_batch(driver)
    assert [entries for _, entries in changes(driver)] == [(0.5,)]
    again = alone(journal=reread(driver.journal))  # it may have arrived after all, and is taken back there
    ((slot, _),) = changes(driver)
    assert [lookup(again, slot + step) for step in range(-9, 9)] == [1.0] * 9 + [0.5] * 9
    assert [lookup(driver, slot + step) for step in range(-9, 9)] == [1.0] * 9 + [0.5] * 9


def test_a_journal_that_is_always_slow_makes_decisions_begin_later() -> None:
    driver = alone(0.5, 0.25, 0.125, 0.5, *[0.25, 0.5] * 100)
    driver.append_takes_s = 0.6
    end_batch(driver)
    assert changes(driver) == [], "the first comes too late for its slot"
    for _ in range(3):
        end_batch(driver)
    assert [entries for _, entries in changes(driver)] == [(0.25,), (0.125,), (0.5,)], "the others are in time"
    driver.append_takes_s = 0.0
    for _ in range(200):
        end_batch(driver)
    assert driver.core._margin_s == pytest.approx(0.25), "and at once again when it is quick"


# -- restarts ------------------------------------------------------------------------------------------------------------


def test_a_restart_gives_every_slot_back_what_was_decided() -> None:
    driver = alone(0.5, 0.25, 1.0)
    for _ in range(3):
        end_batch(driver)
    again = alone(0.75, journal=reread(driver.journal))
    assert changes(again) == changes(driver)
    assert again.published["in"][0].keeps.tolist() == driver.published["in"][0].keeps.tolist()
    assert (again.core.keep, again.core.controller.asked) == (1.0, 3)  # type: ignore[attr-defined]


def start_backfill(journal: JournalState, planned_s: float | None, *, has_open_batch: bool = False) -> MemoryDriver:
    core = ByArrival([SlotGate("in", EqualShare())], Backfill(Scripted(0.5)), is_warm=True)
    core.note_last_plan(planned_s, has_open_batch=has_open_batch)
    return MemoryDriver(core, reread(journal)).restore()


def test_a_backfill_keeps_what_came_since_the_last_batch_was_planned() -> None:
    """No batch had these rows, so no replay will be otherwise; what came before keeps its fate."""
    shedding = alone(0.5)
    end_batch(shedding)
    planned_s = shedding.clock[0] + 100.0
    backfill = start_backfill(shedding.journal, planned_s)
    first = changes(backfill)[-1][0]
    assert changes(backfill) == [*changes(shedding), (first, (1.0,))]
    assert planned_s < slot_start_s(first) <= planned_s + 0.5  # with the margin for clocks
    assert (lookup(backfill, first - 1), lookup(backfill, first)) == (0.5, 1.0)
    assert changes(alone(journal=reread(backfill.journal))) == changes(backfill)  # it is journaled before it holds
    assert backfill.core.keep == 1.0


def test_a_backfill_after_a_decision_for_later_leaves_that_slot_as_it_is() -> None:
    shedding = alone(0.5)
    end_batch(shedding)
    (slot, entry), (first, _) = changes(start_backfill(shedding.journal, shedding.clock[0] - 50.0))
    assert (entry, first) == ((0.5,), slot + 1)


@pytest.mark.parametrize("planned_s", [None, 2_000.0])
def test_after_a_run_that_kept_everything_a_backfill_decides_nothing(planned_s: float | None) -> None:
    calm = alone(1.0)
    end_batch(calm)
    backfill = start_backfill(calm.journal, planned_s)
    assert changes(backfill) == changes(calm)
    assert backfill.warnings == []


def test_where_nobody_knows_when_a_batch_was_planned_a_backfill_says_what_holds() -> None:
    shedding = alone(0.5)
    end_batch(shedding)
    backfill = start_backfill(shedding.journal, None)
    assert changes(backfill) == changes(shedding)
    (message,) = backfill.warnings
    assert message.endswith(
        "this run sheds nothing, but the last decision of an earlier one, to keep 0.5, holds for the rows that arrived since"
    )


def test_a_bound_of_an_earlier_run_is_named_too() -> None:
    state = JournalState(decisions=[DecisionRecord({"in": (1.0, 500.0)}, 1.0, from_slot=70)])
    core = ByArrival([SlotGate("in", EqualShare(), is_bounded=True)], KeepAll(2.0))
    (message,) = MemoryDriver(core, state).restore().warnings
    assert "to keep all up to a bound, holds" in message
    core.note_last_plan(1_000.0)
    assert changes(MemoryDriver(core, state).restore())[-1][1] == (1.0, UNBOUNDED)


def test_what_a_backfill_keeps_is_in_its_journal_before_it_holds() -> None:
    shedding = alone(0.5)
    end_batch(shedding)
    core = ByArrival([SlotGate("in", EqualShare())], Backfill(Scripted(0.5)), is_warm=True)
    core.note_last_plan(shedding.clock[0])
    driver = MemoryDriver(core, reread(shedding.journal))
    driver.is_disk_full = True
    with pytest.raises(JournalError, match="no space left"):
        driver.restore()
    assert changes(driver) == changes(shedding)


def test_after_a_backfill_the_controller_remembers_and_all_is_kept_until_it_decides() -> None:
    shedding = alone(0.5)
    end_batch(shedding)
    backfill = start_backfill(shedding.journal, shedding.clock[0])
    end_batch(backfill)
    again = alone(None, journal=reread(backfill.journal))
    assert (again.core.keep, changes(again)[-1][1]) == (1.0, (1.0,))
    assert again.core.controller.asked == 1  # type: ignore[attr-defined]


def test_a_backfill_leaves_an_open_batch_the_slots_that_its_rows_may_be_in() -> None:
    """Rows of it that are older than the table have its oldest entry, which a decision long after would replace."""
    shedding = alone(0.5, 0.25)
    end_batch(shedding)
    end_batch(shedding)
    soon_s, long_after_s = shedding.clock[0] + 1.0, shedding.clock[0] + slot_start_s(SLOTS)
    assert changes(start_backfill(shedding.journal, soon_s, has_open_batch=True))[-1][1] == (1.0,)
    waiting = start_backfill(shedding.journal, long_after_s, has_open_batch=True)
    assert changes(waiting) == changes(shedding)
    assert "to keep 0.25, holds for the rows that arrived since" in waiting.warnings[0]
    assert changes(start_backfill(shedding.journal, long_after_s))[-1][1] == (1.0,)


def test_a_backfill_changes_nothing_at_a_gate_that_another_query_reads() -> None:
    gate, clock = SlotGate("in", EqualShare()), [1_000.0]
    shedding = MemoryDriver(ByArrival([gate], Scripted(0.5), "one", is_warm=True), clock=clock).restore()
    end_batch(shedding)
    core = ByArrival([gate], Backfill(Scripted()), "two", is_warm=True)
    core.note_last_plan(clock[0] + 10.0)
    before = changes(shedding)
    MemoryDriver(core, clock=clock).restore()
    assert changes(shedding) == before


@pytest.mark.parametrize("label", ["a", "b"])
def test_a_backfill_changes_nothing_at_a_gate_that_another_query_read_in_an_earlier_run(label: str) -> None:
    """The other query may have a batch open whose rows are in those slots; either journal says that there was one."""
    drivers = share_gate(a=[0.5], b=[None])
    end_batch(drivers["a"])
    core = ByArrival([SlotGate("in", EqualShare())], Backfill(Scripted()), label, is_warm=True)
    core.note_last_plan(1_010.0)
    backfill = MemoryDriver(core, reread(drivers[label].journal)).restore()
    assert changes(backfill) == changes(drivers["a"])
    assert "to keep 0.5, holds for the rows that arrived since" in backfill.warnings[0]
    calm = ByArrival([SlotGate("in", EqualShare())], Scripted(), label)
    MemoryDriver(calm, backfill.journal).restore()
    assert backfill.journal.has_shared_gates(), "a run without the other one does not make them its own"


def test_weights_that_changed_are_refused_with_a_remedy() -> None:
    state = JournalState(decisions=[DecisionRecord({"in": (0.5,)}, 0.5, from_slot=70)])
    core = ByArrival([SlotGate("in", PriorityShares(Priorities("tier", {"gold": 2.0})))], Scripted())
    with pytest.raises(
        PenstockError, match=r"gate 'in': the journal has 1 classes .* has 2; use a new checkpoint, or the old weights"
    ):
        core.restore(state)


def test_decisions_of_batches_are_not_taken_for_slots() -> None:
    state = JournalState(decisions=[DecisionRecord({"in": (0.5,)}, 0.5, batch_id=70, controller={"asked": 1})])
    assert changes(alone(journal=state)) == []


def test_on_the_engine_a_crash_loses_no_decision() -> None:
    def new_core() -> ByArrival:
        return ByArrival([SlotGate("in", EqualShare())], Scripted(0.5, 0.25), is_warm=True)

    engine = FakeEngine(new_core)
    engine.run_batch(100)
    engine.crash()
    assert engine.run_batch(100).kept == 50
    assert engine.run_batch(100).kept == 25


# -- gates that queries share --------------------------------------------------------------------------------------------


def test_the_least_wish_holds_and_both_journals_have_it() -> None:
    drivers = share_gate(a=[0.5, 0.9], b=[0.25])
    end_batch(drivers["a"])
    assert changes(drivers["a"])[-1][1] == (0.5,)
    end_batch(drivers["b"])
    assert changes(drivers["a"])[-1][1] == (0.25,)
    end_batch(drivers["a"])
    assert changes(drivers["a"])[-1][1] == (0.25,), "b wants no more"
    for label, driver in drivers.items():
        alone_again = ByArrival([SlotGate("in", EqualShare())], Scripted(), label)
        alone_again.restore(reread(driver.journal))
        assert alone_again.gates[0].ring.changes == changes(driver)  # type: ignore[attr-defined]


def test_a_query_that_ended_no_longer_counts() -> None:
    drivers = share_gate(a=[0.5], b=[0.25])
    end_batch(drivers["b"])
    assert changes(drivers["a"])[-1][1] == (0.25,)
    assert drivers["b"].core.end() == []
    before = list(drivers["b"].journal.decisions)
    end_batch(drivers["a"])
    assert changes(drivers["a"])[-1][1] == (0.5,)
    assert drivers["b"].journal.decisions == before, "nor is anything written into its journal"


def test_after_a_restart_a_wish_counts_before_its_query_decides_again() -> None:
    drivers = share_gate(a=[0.25], b=[None])
    end_batch(drivers["a"])
    gate, clock = SlotGate("in", EqualShare()), drivers["a"].clock
    again = {
        label: MemoryDriver(ByArrival([gate], Scripted(0.5), label), reread(driver.journal), clock)
        for label, driver in drivers.items()
    }
    for driver in again.values():
        driver.restore()
    end_batch(again["b"])
    assert gate.ring.current == (0.25,)


def test_in_the_journal_of_another_query_a_decision_has_no_memory_of_the_controller() -> None:
    drivers = share_gate(a=[0.5], b=[0.25])
    end_batch(drivers["b"])
    end_batch(drivers["a"], after_s=0.0)
    (record,) = decided(drivers["a"])
    assert (record.gates, record.controller) == ({"in": (0.25,)}, None)
    again = ByArrival([SlotGate("in", EqualShare())], Scripted(), "a")
    again.restore(reread(drivers["a"].journal))
    assert again.keep == 1.0, "what another query wishes is not a's wish"


def test_of_the_gates_only_those_it_reads_are_journaled_for_another_query() -> None:
    shared, own, clock = SlotGate("shared", EqualShare()), SlotGate("own", EqualShare()), [1_000.0]
    a = MemoryDriver(ByArrival([shared, own], Scripted(0.5), "a"), clock=clock)
    b = MemoryDriver(ByArrival([shared], Scripted(), "b"), clock=clock)
    a.siblings = b.siblings = {"a": a, "b": b}
    a.restore()
    b.restore()
    a.carry_out(a.core.end_batch(ended(0, 1_000.0, gate="shared")))
    assert decided(a)[0].gates == {"shared": (0.5,), "own": (0.5,)}
    assert decided(b)[0].gates == {"shared": (0.5,)}


def test_a_stall_takes_the_decision_back_in_both_journals() -> None:
    drivers = share_gate(a=[0.5], b=[None])
    drivers["a"].append_takes_s = 0.3
    end_batch(drivers["a"])
    assert changes(drivers["a"]) == []
    for label, driver in drivers.items():
        again = ByArrival([SlotGate("in", EqualShare())], Scripted(), label)
        again.restore(reread(driver.journal))
        assert {entries for _, entries in again.gates[0].ring.changes} == {(1.0,)}  # type: ignore[attr-defined]


def test_the_others_are_written_before_the_decision_that_confirms_it() -> None:
    """A query's own record confirms its decision, so by then all journals must have it. The batch is counted before all that."""
    drivers = share_gate(a=[0.5], b=[None])
    instructions = drivers["a"].core.end_batch(ended(0, 1_000.0))
    written = [(i.query, [type(record) for record in i.records]) for i in instructions if isinstance(i, Append)]
    assert written == [(None, [BatchRecord]), ("b", [DecisionRecord]), (None, [DecisionRecord])]


def test_if_another_journal_is_full_the_decision_never_holds() -> None:
    drivers = share_gate(a=[0.5], b=[None])
    drivers["b"].is_disk_full = True
    with pytest.raises(JournalError):
        end_batch(drivers["a"])
    assert changes(drivers["a"]) == []
    assert decided(drivers["a"]) == decided(drivers["b"]) == []


# -- bounded gates -------------------------------------------------------------------------------------------------------


def test_a_bounded_gate_needs_the_number_of_tasks() -> None:
    gate = SlotGate("in", EqualShare(), is_bounded=True)
    driver = MemoryDriver(ByArrival([gate], Scripted(*(Decision(0.5, full_rows=4_096.0),) * 3))).restore()
    end_batch(driver)
    assert changes(driver)[-1][1] == (0.5, UNBOUNDED)
    end_batch(driver, tasks={"in": 4})
    assert changes(driver)[-1][1] == (0.5, 1_024.0)
    end_batch(driver, tasks={"in": 1})
    assert changes(driver)[-1][1] == (0.5, 1_024.0), "a small batch has fewer tasks, the next one may not"


def test_the_first_decision_does_not_wait_for_the_bound_of_the_start() -> None:
    """What bounds the start was made before there was a clock to compare with; it made the first decisions five seconds late."""
    controller = Scripted(0.5)
    controller.start = lambda: Decision(1.0, full_rows=4_096.0)  # type: ignore[method-assign]
    driver = MemoryDriver(ByArrival([SlotGate("in", EqualShare(), is_bounded=True)], controller, is_warm=True)).restore()
    assert changes(driver)[0][0] == 0
    end_batch(driver)
    begins_s = slot_start_s(changes(driver)[-1][0])
    assert driver.clock[0] < begins_s <= driver.clock[0] + MARGIN_S + slot_start_s(1)


def test_slots_are_counted_from_the_epoch() -> None:
    driver = alone(0.5)
    end_batch(driver)
    assert changes(driver)[0][0] == slot_of(1_001.25) + 1


# -- what only fails when two things go wrong ----------------------------------------------------------------------------


def restore_slots(driver: MemoryDriver, label: str = "query") -> list[float]:
    """Return the keep of each slot of ten seconds, as a restart reads it from the journal of one query."""
    gate = SlotGate("in", EqualShare())
    ByArrival([gate], Scripted(), label).restore(reread(driver.journal))
    return list_slots(gate)


def list_slots(gate: SlotGate) -> list[float]:
    return gate.ring.table().lookup(np.arange(slot_of(999.0), slot_of(1_009.0))).tolist()  # type: ignore[no-any-return]


def test_a_decision_that_its_own_journal_refused_does_not_come_back_from_another() -> None:
    """It never held, so slots that begin after it were judged by the old table."""
    drivers = share_gate(a=[0.5], b=[None])
    drivers["a"].is_disk_full = True
    with pytest.raises(JournalError):
        end_batch(drivers["a"])
    assert changes(drivers["a"]) == []
    drivers["a"].clock[0] += 60.0  # many slots have begun since
    assert set(restore_slots(drivers["b"], "b")) == {1.0}


def test_if_another_journal_is_full_the_batch_is_still_counted() -> None:
    drivers = share_gate(a=[0.5], b=[None])
    drivers["b"].is_disk_full = True
    with pytest.raises(JournalError):
        end_batch(drivers["a"])
    assert drivers["a"].journal.batches[0].gates == {"in": (100, 100)}


def test_a_decision_that_was_taken_back_stays_so_if_the_disk_is_full_for_a_while() -> None:
    driver = alone(0.5, None)

    def stall() -> None:
        driver.clock[0] += 0.5
        driver.is_disk_full = True

    driver.after_append = stall
    with pytest.raises(JournalError):
        end_batch(driver)
    assert changes(driver) == []
    driver.after_append = lambda: None
    driver.is_disk_full = False
    end_batch(driver)  # the disk has room again
    assert set(restore_slots(driver)) == {1.0}


def test_an_empty_batch_is_recorded_with_the_keep_in_force() -> None:
    driver = alone(0.5, None)
    driver.append_takes_s = 0.5
    end_batch(driver)  # the decision is taken back
    driver.append_takes_s = 0.0
    end_batch(driver, 0)
    assert driver.journal.batches[1].keep == 1.0


def test_a_query_that_joins_a_gate_later_restores_all_its_slots() -> None:
    """Its rows are judged by decisions from before it came, and its replay must be too, whoever else is there."""
    gate, clock = SlotGate("in", EqualShare()), [1_000.0]
    a = MemoryDriver(ByArrival([gate], Scripted(0.25, 0.5), "a"), clock=clock)
    a.siblings = {"a": a}
    a.restore()
    end_batch(a)
    b = MemoryDriver(ByArrival([gate], Scripted(None), "b"), clock=clock)
    a.siblings["b"] = b
    b.siblings = a.siblings
    b.restore()
    assert lookup(b, slot_of(1_002.0)) == 0.25
    end_batch(b)
    assert restore_slots(b, "b") == list_slots(gate)


def test_the_keep_of_a_single_gate_counts_by_arrival_too() -> None:
    gates = [SlotGate(name, EqualShare()) for name in ("a", "b")]
    core = ByArrival(gates, Scripted(Decision(0.5, gates={"b": 0.125})))
    driver = MemoryDriver(core).restore()
    driver.carry_out(core.end_batch(ended(0, 1_000.0, gate="a")))
    assert driver.journal.decisions[0].gates == {"a": (0.5,), "b": (0.125,)}


def test_while_a_batch_runs_for_too_long_fewer_and_fewer_rows_are_kept() -> None:
    """What gathers meanwhile is at most what comes in twice the target, however long the batch takes."""
    driver = alone(1.0, 0.8)
    end_batch(driver)
    begin_s, gathered_s, step_s = driver.now_s(), 0.0, 0.25
    for number in range(1, 400):
        driver.clock[0] = begin_s + number * step_s
        driver.carry_out(driver.core.relieve(driver.now_s(), number * step_s))  # type: ignore[attr-defined]
        gathered_s += step_s * lookup(driver, slot_of(driver.now_s()))
    assert 2.0 < gathered_s <= 2 * 2.0 + 0.5
    assert len(changes(driver)) < 15, "few decisions, each half of the one before"
    end_batch(driver)
    assert changes(driver)[-1][1] == (0.8,), "the controller decides anew"


def test_a_short_batch_relieves_nothing_and_a_ceiling_holds() -> None:
    driver = alone(1.0)
    end_batch(driver)
    assert driver.core.relieve(driver.now_s(), 1.9) == []  # type: ignore[attr-defined]
    core = ByArrival([SlotGate("in", EqualShare())], Scripted(1.0), is_warm=True, max_loss=0.5)
    driver = MemoryDriver(core).restore()
    end_batch(driver)
    driver.carry_out(core.relieve(driver.now_s(), 100.0))
    assert changes(driver)[-1][1] == (0.5,)


@pytest.mark.parametrize("controller", [KeepAll(2.0), Backfill(Scripted(0.5))])
def test_a_controller_that_never_sheds_is_never_relieved(controller: Controller) -> None:
    """However long a batch takes: rows that arrive meanwhile are the next run's, and nobody asked to shed them."""
    core = ByArrival([SlotGate("in", EqualShare())], controller, is_warm=True)
    driver = MemoryDriver(core).restore()
    end_batch(driver)
    assert core.relieve(driver.now_s(), 1_000.0) == []
    assert changes(driver) == []
