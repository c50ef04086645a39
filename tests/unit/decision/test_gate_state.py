"""Gates as the core knows them: entries only answer, putting in force changes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decision import MeterReading, SlotGate, WindowGate
from penstock.drop.priorities import Priorities
from penstock.drop.shares import BucketShares, EqualShare, PriorityShares, WorkReading
from penstock.drop.tables import LEAST_BOUND, UNBOUNDED
from penstock.drop.units import WholeWindows
from penstock.journal.records import DecisionRecord
from penstock.las.bucket_keeps import BucketKeeps


def windows(seed: int = 3) -> WindowGate:
    return WindowGate("in", WholeWindows("t", "4s", "1s"), seed)


def test_asking_for_entries_changes_nothing() -> None:
    model = BucketKeeps(4)
    model.update(np.full(4, 10.0), np.array([0.1, 0.2, 0.4, 0.8]), np.ones(4))
    for gate in (SlotGate("in", EqualShare()), SlotGate("in", BucketShares(model)), windows()):
        gate.update_event_time(5_000_000)
        assert gate.entries(0.5) == gate.entries(0.5)
        assert gate.entries(0.25) != gate.entries(0.5)
        assert gate.entries(0.5) == gate.entries(0.5)
    assert model.keeps.tolist() == [1.0] * 4


def test_entries_of_a_gate_fit_it() -> None:
    for gate in (
        SlotGate("in", EqualShare()),
        SlotGate("in", EqualShare(), is_bounded=True),
        SlotGate("in", PriorityShares(Priorities("tier", {"a": 1.0, "b": 2.0}))),
        windows(),
    ):
        assert gate.fits(gate.entries(0.5))
        assert not gate.fits(())
        assert not gate.fits((0.5,) * 7)
        gate.update_event_time(1)
        assert gate.fits(gate.entries(0.5))


@pytest.mark.parametrize(
    ("full_rows", "tasks", "bound"),
    [
        (None, 4, UNBOUNDED),
        (4_000.0, None, UNBOUNDED),
        (4_096.0, 4, 1_024.0),
        (4_200.0, 4, 1_024.0),
        (0.0, 4, LEAST_BOUND),
        (1e300, 1, UNBOUNDED),
    ],
)
def test_the_bound_per_task_goes_in_steps(full_rows: float | None, tasks: int | None, bound: float) -> None:
    gate = SlotGate("in", EqualShare(), is_bounded=True)
    if tasks is not None:
        gate.update_tasks(tasks)
    assert gate.entries(0.5, full_rows) == (0.5, bound)


def test_a_gate_by_batch_has_no_bound() -> None:
    assert SlotGate("in", EqualShare()).entries(0.5, 100.0) == (0.5,)


def test_work_and_rows_reach_the_model() -> None:
    model = BucketKeeps(2)
    gate = SlotGate("in", BucketShares(model))
    gate.put_in_force((0.5, 1.0))
    assert model.keeps.tolist() == [0.5, 1.0]
    gate.update(MeterReading(20, work=WorkReading(np.array([10.0, 10.0]), np.array([0.1, 0.4]), [])))
    assert model.rows.tolist() == [20.0, 10.0]
    assert model.costs_s.tolist() == pytest.approx([0.01, 0.04], rel=0.3)


# -- windows -------------------------------------------------------------------------------------------------------------


def test_without_event_time_windows_are_all_kept() -> None:
    gate = windows()
    assert gate.entries(0.1) == (1.0,)
    assert all(table.keeps.tolist() == [[1.0], [1.0]] for table in gate.put_in_force((1.0,)))
    assert gate.event_time is None


def test_with_decisions_but_without_event_time_the_last_one_holds_again() -> None:
    gate = windows()
    gate.recall(DecisionRecord({"in": (0.25, 40.0)}, 0.25, batch_id=1))
    assert gate.entries(0.75) == (0.25, 40.0)


def test_windows_that_were_decided_stay_so_although_the_event_time_is_lost() -> None:
    """The journal has the decision but not the batch that brought the event time."""
    gate = windows()
    gate.recall(DecisionRecord({"in": (0.25, 40.0)}, 0.25, batch_id=1))
    gate.update_event_time(5_000_000)
    assert gate.entries(0.75) == (0.75, 40.0)


def test_equal_entries_are_laid_out_once() -> None:
    gate = windows()
    gate.update_event_time(9_000_000)
    entries = gate.entries(0.5)
    assert gate.put_in_force(entries) is gate.put_in_force(entries)
    assert gate.put_in_force((0.25, 11.0)) is not gate.put_in_force(entries)


def test_a_snapshot_beside_a_decision_says_all_earlier_ones() -> None:
    gate, again = windows(), windows()
    for first, keep in ((10, 0.5), (20, 0.0), (30, 0.25)):
        gate.put_in_force((keep, float(first)))
    record = DecisionRecord({"in": (1.0, 40.0)}, 1.0, batch_id=1_000, windows={"in": json.loads(json.dumps(gate.snapshot()))})
    again.recall(record)
    gate.put_in_force((1.0, 40.0))
    assert again.ring.snapshot() == gate.ring.snapshot()


def test_decisions_of_other_gates_are_not_recalled() -> None:
    gate = windows()
    gate.recall(DecisionRecord({"other": (0.5, 7.0)}, 0.5, batch_id=1, windows={"other": {}}))
    assert gate.ring.last is None


@given(st.lists(st.tuples(st.none() | st.integers(-(10**8), 10**8), st.floats(0.0, 1.0)), min_size=1, max_size=15))
def test_a_window_that_has_begun_never_changes_its_fate(steps: list[tuple[int | None, float]]) -> None:
    """Also if event time goes back, stays, leaps ahead or is unknown; and a restart in between changes nothing."""
    gate, journal = windows(), []
    begun: dict[int, bool] = {}
    for number, (micros, keep) in enumerate(steps):
        gate.update_event_time(micros)
        entries = gate.entries(keep)
        journal.append(DecisionRecord({"in": entries}, keep, batch_id=number))
        if number % 4 == 3:
            latest, gate = gate.event_time, windows()
            for record in journal[:-1]:
                gate.recall(record)
            gate.update_event_time(latest)
        gate.put_in_force(entries)
        if gate.event_time is not None:
            newest = gate.unit.ordinal(gate.event_time)
            ordinals = np.arange(newest - 40, newest + 1)
            for ordinal, fate in zip(ordinals.tolist(), gate.ring.fate(ordinals).tolist(), strict=True):
                assert begun.setdefault(ordinal, fate) == fate


@pytest.mark.parametrize(("unit", "column", "has_ages"), [("row", "t", True), ("row", None, False), ("key", "t", False)])
def test_whole_keys_are_not_cut_by_age(unit: Any, column: str | None, has_ages: bool) -> None:
    gate = SlotGate("in", EqualShare(), unit_name=unit)
    gate.arrival_column = column
    assert gate.has_ages is has_ages


def test_gates_that_decide_alike_wait_for_the_one_that_is_ahead() -> None:
    unit = WholeWindows("t", "1s")
    gates = [WindowGate(name, unit, seed=5) for name in ("one", "two")]
    for gate in gates:
        gate.decide_with([other for other in gates if other is not gate])
        assert gate.entries(0.5) == (1.0,), "no time is known yet"
    gates[0].update_event_time(7_500_000)
    for gate in gates:
        assert gate.entries(0.5) == (0.5, 8.0), "also at the gate that no row has reached"
        gate.put_in_force(gate.entries(0.5))
    gates[1].update_event_time(9_100_000)
    assert [gate.entries(0.25) for gate in gates] == [(0.25, 10.0)] * 2
    fates = [gate.ring.fate(np.arange(0, 200)) for gate in gates]
    assert fates[0].tolist() == fates[1].tolist()
