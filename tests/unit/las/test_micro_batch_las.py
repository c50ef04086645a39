"""Both sides of LAS between micro-batches: the machines of the paper, the correction, what a restart takes back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from penstock.control import KeepAll
from penstock.decision import Append, BatchEnded, BatchPlanned, ByBatch, ClockGate, MeterReading, Publish
from penstock.errors import PenstockError
from penstock.journal import JournalState
from penstock.las import micro_batch_las as module
from penstock.las.micro_batch_las import ClockReading, Executed, MicroBatchLas
from penstock.las.shedder_state import Instance, has_matrices


def reading_of(las: MicroBatchLas, rows: int, cost_s: float = 0.01, delta_s: float = 0.3, seed: int = 0) -> ClockReading:
    sketch = las.new_sketch()
    durations_s = np.full(rows, cost_s)
    sketch.add(np.random.default_rng(seed).integers(0, 20, rows), durations_s)
    executed = Executed(sketch.frequency, sketch.duration, rows, float(durations_s.sum()))
    return ClockReading([executed], {0: delta_s}, {0: Instance(0.0, 5.0, 10)})


def step(las: MicroBatchLas, now_s: float, reading: ClockReading) -> tuple[float, ...]:
    entries = las.entries(now_s)
    las.put_in_force(entries)
    las.learn(reading)
    return entries


def test_start_stabilizing_nop_send_run() -> None:
    las = MicroBatchLas("las", "abs", 1.0, window=100)
    seen = []
    for number in range(6):
        step(las, float(number), reading_of(las, 60, seed=7))
        seen.append((las.operator_state, las.phase))
    # Windows of 100 end with the piece in which they are full: the second, the fourth, the fifth, ...
    assert seen == [
        ("START", "NOP"),
        ("STABILIZING", "NOP"),
        ("STABILIZING", "NOP"),
        ("START", "SEND"),
        ("STABILIZING", "RUN"),
        ("STABILIZING", "RUN"),
    ]
    assert las.sketch.estimate([3])[0] == pytest.approx(0.01)


def test_one_large_batch_may_end_several_windows() -> None:
    las = MicroBatchLas("las", "abs", 1.0, window=100)
    reading = reading_of(las, 100, seed=7)
    reading.parts = reading.parts * 3
    step(las, 0.0, reading)
    assert (las.operator_state, las.phase) == ("STABILIZING", "SEND")


def test_costs_that_change_are_not_stable() -> None:
    las = MicroBatchLas("las", "abs", 1.0, window=100)
    for number in range(5):
        step(las, float(number), reading_of(las, 100, cost_s=0.01 * 3**number))
    assert las.phase == "NOP"


def warm(las: MicroBatchLas) -> MicroBatchLas:
    """Let it see the batch that starts the workers."""
    step(las, -1.0, ClockReading(begins_s={0: 3.0}, looks_s={0: 3.0}))
    assert las.state(0.0).instance(0).offset_s == 0.0
    return las


def test_an_offset_that_drops_everything_does_not_last() -> None:
    """Nothing kept, nothing that could ask: the operator is idle, and its clock the real one, in RUN too."""
    las = warm(MicroBatchLas("full-knowledge", "abs", 1.0))
    step(las, 0.0, ClockReading(begins_s={0: 5.0}, looks_s={0: 4.9}))  # a hiccup, just when Delta was asked for
    assert (las.phase, las.state(1.0).instance(0).offset_s) == ("RUN", 5.0)
    step(las, 1.0, ClockReading(looks_s={0: -4.8}))
    assert las.state(2.0).instance(0).offset_s == pytest.approx(0.2)
    step(las, 2.0, ClockReading(begins_s={0: 0.4}, looks_s={0: 0.3}))  # rows are kept again, and nobody asks
    assert las.state(3.0).instance(0).offset_s == pytest.approx(0.3)


def test_delta_corrects_wholly_where_it_was_asked_for() -> None:
    las = warm(MicroBatchLas("full-knowledge", "abs", 1.0))
    step(las, 0.0, reading_of(las, 10, delta_s=0.3))
    assert las.phase == "RUN"
    assert las.state(1.0).instance(0).offset_s == pytest.approx(0.3)
    assert las.state(1.0).instance(7).offset_s == pytest.approx(0.3), "the mean of the others"
    step(las, 1.0, reading_of(las, 10, delta_s=0.4))  # nobody asked
    assert las.state(2.0).instance(0).offset_s == pytest.approx(0.4)
    assert las.state(2.0).instance(0).count == 10


def test_the_waits_of_all_partitions_are_pooled() -> None:
    """One partition has the older rows, another the newer ones: the mean of both counts, and a replay has the same numbers."""
    las = MicroBatchLas("full-knowledge", "avg", 1.0)
    step(las, 0.0, ClockReading(instances={0: Instance(0.0, 30.0, 10), 1: Instance(0.0, 2.0, 30)}))
    assert las.state(1.0).instance(0) == las.state(1.0).instance(1) == Instance(0.0, 16.0, 20.0)
    step(las, 1.0, ClockReading(instances={1: Instance(0.0, 20.0, 24)}))  # only one of them had rows
    assert las.state(2.0).instance(1) == Instance(0.0, 36.0, 44.0)
    assert las.state(2.0).instance(0).count == 0.0


def test_a_clock_that_was_ahead_leaves_no_negative_offset() -> None:
    las = warm(MicroBatchLas("full-knowledge", "abs", 1.0))
    step(las, 0.0, reading_of(las, 10, delta_s=-5.0))
    assert las.state(1.0).instance(0).offset_s == 0.0


def test_straw_man_learns_the_mean_or_is_told() -> None:
    las = MicroBatchLas("straw-man", "abs", 1.0, window=50)
    for number in range(3):
        step(las, float(number), reading_of(las, 60, cost_s=0.02, seed=1))
    assert las.state(0.0).mean_s == pytest.approx(0.02)
    told = MicroBatchLas("straw-man", "abs", 1.0, window=50, mean_s=0.5)
    for number in range(3):
        step(told, float(number), reading_of(told, 60, cost_s=0.02, seed=1))
    assert told.state(0.0).mean_s == 0.5


def test_matrices_are_journaled_when_they_change_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_JOURNAL_EVERY", 3)
    las = MicroBatchLas("las", "abs", 1.0, window=50)
    had = [has_matrices(step(las, float(number), reading_of(las, 60 if number < 3 else 0, seed=1))) for number in range(10)]
    assert had == [False, False, True, False, False, False, True, False, False, False]
    baseline = MicroBatchLas("straw-man", "abs", 1.0, window=50)
    assert not any(has_matrices(step(baseline, 0.0, reading_of(baseline, 60, seed=1))) for _ in range(5))


def plan(core: ByBatch, state: JournalState, batch_id: int) -> list[Publish]:
    """Carry a plan out: journal it, then publish."""
    published = []
    for instruction in core.plan_batch(BatchPlanned(batch_id, 100.0 + batch_id, {"source": 50})):
        if isinstance(instruction, Append):
            for record in instruction.records:
                state.add(record)
            published += [one for one in core.confirm(instruction.records[-1], 100.0) if isinstance(one, Publish)]  # type: ignore[arg-type]
        elif isinstance(instruction, Publish):
            published.append(instruction)
    return published


def core_of(las: MicroBatchLas, state: JournalState) -> ByBatch:
    core = ByBatch([ClockGate("in", las)], KeepAll(2.0))
    core.restore(state)
    return core


def test_a_restart_takes_the_state_back_and_a_replay_has_the_very_table() -> None:
    state, las = JournalState(), MicroBatchLas("las", "avg", 1.0, window=50)
    core = core_of(las, state)
    for number in range(6):
        (published,) = plan(core, state, number)
        readings = {"in": MeterReading(kept=60, clock=reading_of(las, 60, seed=1))}
        core.end_batch(BatchEnded(number, 101.0 + number, {}, readings))
    assert not has_matrices(state.decisions[-1].gates["in"])
    assert las.phase != "NOP"
    restored = MicroBatchLas("las", "avg", 1.0, window=50)
    again = core_of(restored, state)
    (replayed,) = plan(again, state, 5)
    assert np.array_equal(replayed.tables[0].keeps, published.tables[0].keeps)
    assert restored.phase == "RUN"
    # Delta was 0.3 s in every batch: asked for twice, and a quarter of it in two others that kept rows.
    assert restored.state(0.0).instance(0).offset_s == pytest.approx(2 * 0.3 + 2 * 0.25 * 0.3)
    assert (restored.state(0.0).instance(0).total_s, restored.state(0.0).instance(0).count) == (5.0, 10.0)
    assert restored.sketch.estimate([3])[0] == pytest.approx(0.01)
    (continued,) = plan(again, state, 6)
    assert continued.tables[0].keeps[0, 5] == 106_000_000  # begins at its own time


def test_the_state_of_another_policy_or_size_does_not_fit() -> None:
    las = MicroBatchLas("las", "abs", 1.0)
    assert las.fits(las.entries(0.0))
    assert not las.fits(MicroBatchLas("straw-man", "abs", 1.0).entries(0.0))
    assert not las.fits(MicroBatchLas("las", "abs", 1.0, epsilon=0.5).entries(0.0))
    assert not las.fits((1.0,))


def test_bad_costs_are_told_in_one_line() -> None:
    las = MicroBatchLas("full-knowledge", "abs", 1.0)
    message = las.learn(ClockReading(bad_costs={0: 2}))
    assert message == "some rows have a cost that is negative or no number; they count as costing nothing"
    assert las.learn(ClockReading(bad_costs={0: 0})) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau_s": math.nan}, "tau must be finite"),
        ({"tau_s": -1.0}, "tau must be finite and not negative"),
        ({"mean_s": math.nan}, "the mean cost must be finite"),
        ({"window": 0}, "window N must be positive"),
        ({"mu": 0.0}, "mu must be positive"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        MicroBatchLas(**({"policy": "straw-man", "bound": "abs", "tau_s": 1.0} | options))


@pytest.mark.parametrize("epsilon", [1e-4, 1e-6, 1e-300])
@pytest.mark.parametrize("delta", [0.5, 0.1, 1e-9])
def test_matrices_that_no_plan_can_hold_are_refused_before_they_are_made(epsilon: float, delta: float) -> None:
    with pytest.raises(
        PenstockError, match=rf"^epsilon={epsilon:g} and delta={delta:g} make matrices of [0-9,]+ cells"
    ) as caught:
        MicroBatchLas("las", "abs", 1.0, epsilon=epsilon, delta=delta)
    line = str(caught.value)
    assert "\n" not in line
    advice = float(line.rsplit(" ", 1)[1])
    assert 19_000 < MicroBatchLas("las", "abs", 1.0, epsilon=advice, delta=delta).sketch.frequency.size <= 20_000
