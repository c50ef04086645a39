"""Laws of the decision core, for every sequence of events: what the journal says holds, whatever crashes, stalls or fails."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.base import Controller, Decision, Observation
from penstock.decision import BatchPlanned, ByArrival, ByBatch, SlotGate, WindowGate
from penstock.drop.shares import EqualShare
from penstock.drop.tables import SLOTS, slot_of
from penstock.drop.units import WholeWindows
from penstock.errors import JournalError
from penstock.journal.state import JournalState
from penstock.testing import FakeEngine
from tests.unit.decision.harness import MemoryDriver, Scripted, ended, reread

keeps = st.floats(0.0, 1.0)


class Averaging(Controller):
    """Keeps what fits in a second by the mean cost of the rows so far. Its memory is all that counts, and no clock does."""

    def __init__(self) -> None:
        super().__init__(2.0)
        self._rows, self._busy_s = 0, 0.0

    def update(self, observation: Observation) -> Decision:
        self._rows += observation.kept
        self._busy_s += observation.busy_s
        rows = observation.upcoming_rows or max(observation.offered, 1)
        return Decision(min(1.0, self._rows / max(1e-9, self._busy_s * rows)) if self._rows else None)

    def snapshot(self) -> dict[str, Any]:
        return {"rows": self._rows, "busy_s": self._busy_s}

    def restore(self, state: Mapping[str, Any]) -> Self:
        self._rows, self._busy_s = state["rows"], state["busy_s"]
        return self


# -- by batch ------------------------------------------------------------------------------------------------------------

attempts = st.lists(
    st.tuples(st.sampled_from(["commit", "commit", "crash before commit", "crash after commit"]), st.booleans(), keeps),
    min_size=1,
    max_size=25,
)


@given(attempts)
def test_every_attempt_of_a_batch_has_its_journaled_table(steps: list[tuple[str, bool, float]]) -> None:
    script: list[float] = [1.0]
    engine = FakeEngine(lambda: ByBatch([SlotGate("in", EqualShare())], Scripted(*script)))
    kept: dict[int, int] = {}
    for what, is_disk_full, keep in steps:
        script[:] = [keep]
        engine.core.controller.script = (keep,)  # type: ignore[attr-defined]
        engine.is_disk_full = is_disk_full
        before = engine.core.keep
        batch = engine.run_batch(1_000, is_committed=what != "crash before commit")
        journaled = engine.journal.decision_for(batch.batch_id)
        in_force = before if journaled is None else journaled.keep
        assert batch.kept == round(1_000 * in_force)
        assert engine.core.keep == in_force
        if journaled is not None:
            assert kept.setdefault(batch.batch_id, batch.kept) == batch.kept
        if not is_disk_full and what != "crash before commit":
            assert engine.journal.batches[batch.batch_id].keep == in_force
        if what != "commit":
            engine.crash()
    replayed = MemoryDriver(ByBatch([SlotGate("in", EqualShare())], Scripted(0.123)), reread(engine.journal)).restore()
    for number, rows in kept.items():
        replayed.carry_out(replayed.core.plan_batch(BatchPlanned(number, 0.0, {"source": 7})))
        assert round(1_000 * float(replayed.published["in"][0].keeps[0, 0])) == rows


@given(st.lists(st.tuples(st.integers(0, 5_000), st.booleans()), min_size=1, max_size=20))
def test_by_batch_a_run_with_crashes_keeps_what_a_run_without_keeps(steps: list[tuple[int, bool]]) -> None:
    """A crash in the middle of a batch: it is replayed, and what follows is decided as if nothing had happened."""

    def run(*, crashes: bool) -> list[int]:
        engine = FakeEngine(lambda: ByBatch([SlotGate("in", EqualShare())], Averaging(), is_warm=True))
        kept = []
        for rows, is_interrupted in steps:
            if crashes and is_interrupted:
                engine.run_batch(rows, is_committed=False)
                engine.journal = reread(engine.journal)
                engine.crash()
            kept.append(engine.run_batch(rows).kept)
        return kept

    assert run(crashes=True) == run(crashes=False)


@given(
    st.lists(
        st.tuples(st.none() | st.integers(0, 40_000_000), st.integers(0, 5_000_000), keeps, st.booleans(), st.booleans()),
        min_size=1,
        max_size=15,
    )
)
def test_a_window_that_has_begun_never_changes(steps: list[tuple[int | None, int, float, bool, bool]]) -> None:
    """Event time as the engine knows it before a batch, how far the batch goes beyond, the keep, a full disk, a crash."""
    unit = WholeWindows("t", "4s", "1s")

    def start(journal: JournalState) -> MemoryDriver:
        return MemoryDriver(ByBatch([WindowGate("in", unit, seed=5)], Scripted(1.0)), journal).restore()

    driver, latest = start(JournalState()), None
    fates: dict[int, bool] = {}
    for number, (known, beyond, keep, is_disk_full, crashes) in enumerate(steps):
        driver.core.controller.script = (keep,)  # type: ignore[attr-defined]
        driver.is_disk_full = is_disk_full
        with suppress(JournalError):
            driver.carry_out(driver.core.plan_batch(BatchPlanned(number, 0.0, {"s": 1}, event_times={"in": known})))
        driver.is_disk_full = False
        if known is not None:
            latest = known + beyond if latest is None else max(latest, known + beyond)
        driver.carry_out(driver.core.end_batch(ended(number, 0.0, event_times={"in": latest}, times=None)))
        if crashes:
            driver = start(reread(driver.journal))
        if latest is None or "in" not in driver.published:
            continue
        newest = unit.ordinal(latest)
        of_rows = driver.published["in"][1].lookup(np.arange(newest - 45, newest + 1)) > 0
        for ordinal, fate in zip(range(newest - 45, newest + 1), of_rows.tolist(), strict=True):
            assert fates.setdefault(ordinal, fate) == fate


# -- by arrival ----------------------------------------------------------------------------------------------------------


class SharedGate:
    """Queries that read one gate, and what each slot was when it had begun."""

    def __init__(self, labels: str) -> None:
        self.clock, self.labels = [1_000.0], labels
        self.journals = {label: JournalState() for label in labels}
        self.begun: dict[int, float] = {}
        self.restart(labels)

    def restart(self, order: str) -> None:
        """Start all queries again from their journals."""
        self.journals = {label: reread(journal) for label, journal in self.journals.items()}
        self.gate = SlotGate("in", EqualShare())
        self.drivers: dict[str, MemoryDriver] = {}
        for label in order:
            core = ByArrival([self.gate], Scripted(None), label, is_warm=True)
            self.drivers[label] = MemoryDriver(core, self.journals[label], self.clock)
            self.drivers[label].siblings = self.drivers
        for driver in self.drivers.values():
            driver.restore()

    def end_batch(self, label: str, keep: float | None, stall_s: float) -> None:
        driver = self.drivers[label]
        driver.core.controller.script = (keep,)  # type: ignore[attr-defined]
        driver.append_takes_s = stall_s
        driver.carry_out(driver.core.end_batch(ended(len(driver.journal.batches), self.clock[0])))
        self.check()

    def check(self) -> None:
        """Every slot that has begun is what it was when it began; so says the table last published by any query."""
        newest = slot_of(self.clock[0])
        slots = np.arange(newest - 400, newest + 1)
        of_slots = self.gate.ring.table().lookup(slots)
        for slot, keep in zip(slots.tolist(), of_slots.tolist(), strict=True):
            assert self.begun.setdefault(slot, keep) == keep


steps_by_arrival = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.none() | keeps,
        st.sampled_from([0.0, 0.01, 0.2, 0.3, 2.0]),  # how long a write takes
        st.sampled_from([0.0, 0.1, 1.0, 5.0]),  # until the next step
        st.sampled_from(["", "", "ab", "ba"]),  # a restart, in this order
    ),
    min_size=1,
    max_size=15,
)


@given(steps_by_arrival)
def test_a_slot_that_has_begun_never_changes(steps: list[tuple[str, float | None, float, float, str]]) -> None:
    shared = SharedGate("ab")
    for label, keep, stall_s, pause_s, restart in steps:
        shared.end_batch(label, keep, stall_s)
        shared.clock[0] += pause_s
        shared.check()
        if restart:
            shared.restart(restart)
            shared.check()


@given(steps_by_arrival)
def test_both_journals_restore_the_same_ring(steps: list[tuple[str, float | None, float, float, str]]) -> None:
    shared = SharedGate("ab")
    for label, keep, stall_s, pause_s, _ in steps:
        shared.end_batch(label, keep, stall_s)
        shared.clock[0] += pause_s
    tables = [shared.gate.ring.table()]
    for label in "ab":
        gate = SlotGate("in", EqualShare())
        ByArrival([gate], Scripted(), label).restore(reread(shared.drivers[label].journal))
        tables.append(gate.ring.table())
    slots = np.arange(slot_of(1_000.0) - 100, slot_of(shared.clock[0]) + 100)
    assert tables[0].lookup(slots).tolist() == tables[1].lookup(slots).tolist() == tables[2].lookup(slots).tolist()


@given(steps_by_arrival)
def test_without_stalls_the_least_wish_holds(steps: list[tuple[str, float | None, float, float, str]]) -> None:
    shared = SharedGate("ab")
    wishes = {"a": 1.0, "b": 1.0}
    for label, keep, _, pause_s, _ in steps:
        shared.end_batch(label, keep, 0.0)
        shared.clock[0] += pause_s
        wishes[label] = wishes[label] if keep is None else keep
        if keep is not None:
            assert shared.gate.ring.current == (min(wishes.values()),)


@given(st.lists(st.tuples(keeps, st.integers(1, 3 * SLOTS)), min_size=1, max_size=8))
def test_by_arrival_a_restart_gives_back_the_whole_table(steps: list[tuple[float, int]]) -> None:
    """Also what is older than the ring: rows that old share its oldest entry."""
    clock = [1_000.0]
    driver = MemoryDriver(ByArrival([SlotGate("in", EqualShare())], Scripted(None)), clock=clock).restore()
    for number, (keep, slots) in enumerate(steps):
        driver.core.controller.script = (keep,)  # type: ignore[attr-defined]
        driver.carry_out(driver.core.end_batch(ended(number, clock[0])))
        clock[0] += 0.131072 * slots
    again = MemoryDriver(ByArrival([SlotGate("in", EqualShare())], Scripted(None)), reread(driver.journal)).restore()
    one, other = driver.core.gates[0].ring.table(), again.published["in"][0]  # type: ignore[attr-defined]
    assert one.oldest == other.oldest
    assert one.keeps.tolist() == other.keeps.tolist()
