"""Decisions by batch: rows by their age, targets that change, and the ceiling on what is shed."""

from __future__ import annotations

import pytest

from penstock.control import AgeRule, MicroBatch
from penstock.control.base import Decision, GateCount
from penstock.decision import Append, BatchEnded, BatchTimes, ByBatch, MeterReading, SlotGate, WindowGate
from penstock.drop.priorities import Priorities
from penstock.drop.shares import EqualShare, PriorityShares
from penstock.drop.tables import ALWAYS, BatchTable
from penstock.drop.units import WholeWindows
from penstock.errors import PenstockError
from penstock.journal.records import DecisionRecord, OlderRows
from tests.unit.decision.harness import MemoryDriver, Scripted, ended, reread
from tests.unit.decision.test_by_batch import new_core, planned

# -- age -----------------------------------------------------------------------------------------------------------------


def aged_gate(name: str = "in", **tiers: float) -> SlotGate:
    gate = SlotGate(name, PriorityShares(Priorities("tier", tiers)) if tiers else EqualShare())
    gate.arrival_column = "t"
    return gate


def aged_core(*script: float | Decision | Exception | None, **options: object) -> ByBatch:
    return ByBatch([aged_gate()], Scripted(*script), **({"is_warm": True} | options))  # type: ignore[arg-type]


def table_of(driver: MemoryDriver, gate: str = "in") -> tuple[int, list[list[float]]]:
    (table,) = driver.published[gate]
    assert isinstance(table, BatchTable)
    return table.oldest, table.keeps.tolist()


@pytest.mark.parametrize(
    ("after_s", "line"),
    [(999.000001, 999_000_001), (0.0, 0), (-12.5, -12_500_000), (float("-inf"), ALWAYS)],
    ids=["to the microsecond", "1970", "before 1970", "always"],
)
def test_an_age_rule_becomes_entries_for_older_rows(after_s: float, line: int) -> None:
    driver = MemoryDriver(aged_core(Decision(0.25, age=AgeRule(after_s, 0.5, 0.125)))).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    (decision,) = driver.journal.decisions
    assert decision.gates == {"in": (0.5,)}
    assert decision.older == {"in": OlderRows(line, (0.125,))}
    assert decision.keep == 0.25
    assert table_of(driver) == (line, [[0.125], [0.5]])


def test_an_age_rule_is_shared_out_among_classes() -> None:
    core = ByBatch([aged_gate(gold=4.0, free=1.0)], Scripted(Decision(0.5, age=AgeRule(9.0, 0.5, 0.0))))
    (append,) = core.plan_batch(planned(0))
    assert isinstance(append, Append)
    decision = append.records[0]
    assert isinstance(decision, DecisionRecord)
    assert len(set(decision.gates["in"])) > 1, "gold is worth more"
    assert decision.older == {"in": OlderRows(9_000_000, (0.0, 0.0, 0.0))}, "what can't be in time is worth nothing"


def test_a_gate_without_an_arrival_column_gets_the_plain_keep() -> None:
    gates = [aged_gate("aged"), SlotGate("plain", EqualShare()), WindowGate("windows", WholeWindows("t", "1s"), seed=1)]
    driver = MemoryDriver(ByBatch(gates, Scripted(Decision(0.25, age=AgeRule(9.0, 0.5, 0.0))))).restore()
    driver.carry_out(driver.core.plan_batch(planned(0, event_times={"windows": 5_000_000})))
    (decision,) = driver.journal.decisions
    assert decision.gates == {"aged": (0.5,), "plain": (0.25,), "windows": (0.25, 6.0)}
    assert set(decision.older or {}) == {"aged"}, "windows are never expired"
    assert table_of(driver, "plain") == (ALWAYS, [[0.25], [0.25]])
    assert table_of(driver, "aged") == (9_000_000, [[0.0], [0.5]])


def test_a_gate_with_a_keep_of_its_own_has_no_older_rows() -> None:
    decision = Decision(0.25, gates={"b": 0.75}, age=AgeRule(9.0, 0.5, 0.0))
    driver = MemoryDriver(ByBatch([aged_gate("a"), aged_gate("b")], Scripted(decision))).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    assert table_of(driver, "a") == (9_000_000, [[0.0], [0.5]])
    assert table_of(driver, "b") == (ALWAYS, [[0.75], [0.75]])


@pytest.mark.parametrize("gates", [[SlotGate("in", EqualShare())], [WindowGate("in", WholeWindows("t", "1s"), seed=1)]])
def test_the_controller_hears_whether_rows_have_ages(gates: list[SlotGate]) -> None:
    for core, has_ages in ((ByBatch(gates, Scripted(0.5)), False), (aged_core(0.5), True)):
        core.plan_batch(planned(0))
        core.end_batch(ended(0, 1_001.0, times=None))
        core.plan_batch(planned(1, 1_001.0, previous=BatchTimes(1_000.0, 1_001.0)))
        assert [o.has_ages for o in core.controller.observations] == [has_ages] * 2  # type: ignore[attr-defined]


def test_a_replayed_batch_sheds_the_same_rows_by_age_after_a_crash() -> None:
    """Though an hour has passed, and the controller would decide differently now."""
    driver = MemoryDriver(aged_core(Decision(0.5, age=AgeRule(900.25, 0.5, 0.125)), Decision(1.0))).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    before = table_of(driver)
    again = MemoryDriver(aged_core(Decision(0.75, age=AgeRule(4_600.0, 1.0))), reread(driver.journal)).restore()
    assert table_of(again) == before, "also before the batch is planned"
    again.carry_out(again.core.plan_batch(planned(0, 4_600.0, rows=100)))
    assert table_of(again) == before == (900_250_000, [[0.125], [0.5]])
    assert again.journal.decisions == driver.journal.decisions
    assert again.core.controller.observations == [], "nobody was asked"  # type: ignore[attr-defined]
    again.carry_out(again.core.plan_batch(planned(1, 4_601.0)))
    assert table_of(again) == (4_600_000_000, [[0.0], [1.0]]), "the next batch is decided anew"


def test_a_batch_without_an_age_rule_forgets_the_line_of_the_last_one() -> None:
    driver = MemoryDriver(aged_core(Decision(0.5, age=AgeRule(900.0, 0.5)), Decision(0.5))).restore()
    for number in range(2):
        driver.carry_out(driver.core.plan_batch(planned(number)))
    assert table_of(driver) == (ALWAYS, [[0.5], [0.5]])
    assert driver.journal.decisions[1].older is None


def test_of_no_opinion_no_line_is_left() -> None:
    """A line is a moment: that of the last batch would shed what is fresh by now, or nothing."""
    driver = MemoryDriver(aged_core(Decision(0.5, age=AgeRule(900.0, 0.25)), None)).restore()
    for number in range(2):
        driver.carry_out(driver.core.plan_batch(planned(number)))
    assert table_of(driver) == (ALWAYS, [[0.5], [0.5]])


def test_rows_from_the_future_are_said_and_counted() -> None:
    engine = MemoryDriver(aged_core(0.5)).restore()
    for number in range(3):
        engine.carry_out(engine.core.plan_batch(planned(number)))
        engine.carry_out(
            engine.core.end_batch(ended(number, 1_001.0, reading=MeterReading(100, 999.0, from_future=7), times=None))
        )
    assert set(engine.warnings) == {
        "gate 'in': some arrival times in column 't' lie in the future: a clock is ahead; their age counts as zero"
    }
    assert [record.from_future for record in engine.journal.batches.values()] == [7, 7, 7]


def test_a_table_says_from_when_on_rows_are_from_the_future() -> None:
    driver = MemoryDriver(aged_core(0.5)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0, 1_000.0)))
    (table,) = driver.published["in"]
    assert table.latest == pytest.approx(1_000_100_000, abs=1)


def test_a_first_batch_of_unknown_size_sheds_what_can_not_be_in_time() -> None:
    core = ByBatch([aged_gate()], MicroBatch(2.0))
    (append,) = core.plan_batch(planned(0, 1_000.0, rows=None))
    assert isinstance(append, Append)
    decision = append.records[0]
    assert isinstance(decision, DecisionRecord)
    assert (decision.gates, decision.older) == ({"in": (1.0,)}, {"in": OlderRows(999_000_000, (0.0,))})


def test_of_expired_rows_the_controller_hears_how_many_and_how_old() -> None:
    driver = MemoryDriver(ByBatch([aged_gate("a"), aged_gate("b")], Scripted(0.5), is_warm=True)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    readings = {
        "a": MeterReading(10, 999.0, expired=30, mean_expired_arrival_s=900.0),
        "b": MeterReading(10, 999.0, expired=10, mean_expired_arrival_s=940.0),
    }
    counts = {"a": GateCount(50, 10), "b": GateCount(15, 10)}
    driver.carry_out(driver.core.end_batch(BatchEnded(0, 1_001.0, counts, readings)))
    assert driver.journal.batches[0].expired == {"a": 30, "b": 5}, "at most what was shed"
    driver.carry_out(driver.core.plan_batch(planned(1, 1_001.0, previous=BatchTimes(1_000.0, 1_001.0))))
    observation = driver.core.controller.observations[-1]  # type: ignore[attr-defined]
    assert (observation.expired, observation.mean_expired_arrival_s) == (35, pytest.approx(910.0))
    assert observation.fresh == 30


def test_what_a_cap_left_in_the_sources_is_observed() -> None:
    core = new_core(0.5)
    core.end_batch(ended(0, 1_001.0, times=None))
    core.plan_batch(planned(1, 1_001.0, previous=BatchTimes(1_000.0, 1_001.0), left_rows={"a": 30, "b": 12}))
    core.end_batch(ended(1, 1_002.0, times=None))
    core.plan_batch(planned(2, 1_002.0, previous=BatchTimes(1_001.0, 1_002.0)))
    assert [o.left_rows for o in core.controller.observations] == [42, None]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("now_s", "waited_s"), [(4_600.0, 3_600.0), (1_000.5, 0.5), (900.0, 0.0)])
def test_how_long_rows_have_waited_for_a_restart_is_known_from_the_journal(now_s: float, waited_s: float) -> None:
    driver = MemoryDriver(new_core(0.5)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    driver.carry_out(driver.core.end_batch(ended(0, 1_001.0)))
    again = MemoryDriver(new_core(0.5), reread(driver.journal)).restore()
    again.carry_out(again.core.plan_batch(planned(1, now_s)))
    (observation,) = again.core.controller.observations  # type: ignore[attr-defined]
    assert observation.waited_s == pytest.approx(waited_s)
    assert observation.taken_s == now_s


def test_the_first_batch_of_a_job_has_waited_nobody_knows_how_long() -> None:
    core = new_core(0.5)
    core.plan_batch(planned(0))
    assert core.controller.observations[0].waited_s is None  # type: ignore[attr-defined]


# -- the target and the ceiling ------------------------------------------------------------------------------------------


def test_another_target_is_in_the_record_of_the_batches_it_holds_for() -> None:
    driver = MemoryDriver(new_core(0.5)).restore()
    for number, target_s in enumerate((2.0, 5.0, 0.5)):
        if number:
            driver.core.change_target(target_s)
        driver.carry_out(driver.core.plan_batch(planned(number)))
        driver.carry_out(driver.core.end_batch(ended(number, 1_001.0 + number, times=None)))
    assert [driver.journal.batches[number].delay_target_s for number in range(3)] == [2.0, 5.0, 0.5]
    with pytest.raises(PenstockError, match="delay_target_s must be positive, got -1"):
        driver.core.change_target(-1.0)


def test_what_is_held_instead_of_the_target_is_in_the_record() -> None:
    driver = MemoryDriver(new_core(Decision(0.5, reachable_s=3.5), Decision(0.5))).restore()
    for number in range(2):
        driver.carry_out(driver.core.plan_batch(planned(number)))
        driver.carry_out(driver.core.end_batch(ended(number, 1_001.0, times=None)))
    assert [driver.journal.batches[number].reachable_s for number in range(2)] == [3.5, None]


@pytest.mark.parametrize("max_loss", [0.0, 0.75, 0.9])
def test_max_loss_raises_all_that_is_kept(max_loss: float) -> None:
    decision = Decision(0.01, gates={"own": 0.02}, age=AgeRule(9.0, 0.03, 0.0))
    gates = [aged_gate("aged"), SlotGate("plain", EqualShare()), aged_gate("own")]
    driver = MemoryDriver(ByBatch(gates, Scripted(decision), max_loss=max_loss)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    (record,) = driver.journal.decisions
    least = pytest.approx(1.0 - max_loss)
    assert record.keep == least
    assert [record.gates[name][0] for name in ("aged", "plain", "own")] == [least] * 3
    assert record.older is not None
    assert record.older["aged"].entries[0] == least
    assert driver.warnings == [f"query: more than {max_loss:.0%} would be shed, which max_loss forbids: the delay may grow"]


def test_max_loss_leaves_alone_what_keeps_enough() -> None:
    decision = Decision(0.5, age=AgeRule(9.0, 0.5, 0.25))
    driver = MemoryDriver(aged_core(decision, max_loss=0.75)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    assert table_of(driver) == (9_000_000, [[0.25], [0.5]])
    assert driver.warnings == []


def test_what_was_lost_before_a_restart_counts() -> None:
    driver = MemoryDriver(new_core(0.5)).restore()
    driver.carry_out(driver.core.plan_batch(planned(0)))
    driver.carry_out(driver.core.end_batch(ended(0, 1_001.0, 1_000, 0)))
    again = MemoryDriver(ByBatch([SlotGate("in", EqualShare())], Scripted(0.0), max_loss=0.9), reread(driver.journal)).restore()
    again.carry_out(again.core.plan_batch(planned(1, 1_002.0, rows=1_000)))
    assert again.journal.decisions[-1].keep == pytest.approx(0.2)
