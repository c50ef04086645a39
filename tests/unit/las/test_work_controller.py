"""A controller that counts work instead of rows."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.control import MicroBatch
from penstock.control.base import Decision, GateCount, Observation
from penstock.las.bucket_keeps import BucketKeeps
from penstock.las.work_controller import WorkController
from tests.unit.decision.harness import Scripted


def model(*costs_s: float, rows: float = 100.0) -> BucketKeeps:
    """Return a model that has learnt the costs of its buckets."""
    learnt = BucketKeeps(len(costs_s))
    for _ in range(30):
        learnt.update(np.full(len(costs_s), rows), rows * np.array(costs_s), np.ones(len(costs_s)))
    return learnt


def observe(offered: int = 200, kept: int = 100, **more: Any) -> Observation:
    return Observation(4, 10.0, 12.0, {"in": GateCount(offered, kept)}, keep=0.5, busy_s=1.0, **more)


def controller(learnt: BucketKeeps, *script: float | Decision | None, is_timed: bool = True, cores: int = 1) -> WorkController:
    return WorkController(Scripted(*script), learnt, is_timed=is_timed, cores=cores)


def shown(work: WorkController) -> Observation:
    return work._inner.observations[-1]  # type: ignore[attr-defined,no-any-return]


def test_rows_become_microseconds_at_their_mean_cost() -> None:
    work = controller(model(0.001, 0.003), 0.5)
    work.update(observe(upcoming_rows=50, backlog_rows={"a": 10, "b": 0}))
    seen = shown(work)
    assert seen.gates["work"] == GateCount(400_000, 200_000)
    assert (seen.upcoming_rows, seen.backlog_rows) == (100_000, {"a": 20_000, "b": 0})
    assert (seen.batch_id, seen.start_s, seen.end_s, seen.busy_s) == (4, 10.0, 12.0, 1.0), "the rest is passed on"


def test_work_that_was_timed_counts_as_it_is() -> None:
    work = controller(model(0.001, 0.003), 0.5)
    work.update(observe(work_s=0.05))
    assert shown(work).gates["work"] == GateCount(400_000, 50_000)
    work.update(observe(work_s=3.0))
    assert shown(work).gates["work"] == GateCount(3_000_000, 3_000_000), "no more is kept than was offered"


def test_work_beyond_what_was_asked_for_corrects_the_next_batch() -> None:
    """Of 200 rows of 2 ms half was asked for, 0.2 s of work, and 0.3 s was kept: the buckets were dearer than they looked."""
    work = controller(model(0.001, 0.003), *[0.5] * 31)
    for _ in range(30):
        work.update(observe(work_s=0.3, upcoming_rows=50))
    assert shown(work).upcoming_rows == pytest.approx(150_000, rel=0.01)
    for more in ({"cold": True}, {"expired": 50}):  # says nothing about costs
        work.update(replace(observe(work_s=9.0, upcoming_rows=50), **more))  # type: ignore[arg-type]
        assert shown(work).upcoming_rows == pytest.approx(150_000, rel=0.01)
    again = controller(model(0.001, 0.003), *[0.5] * 40).restore(json.loads(json.dumps(work.snapshot())))
    again.update(observe(work_s=0.3, upcoming_rows=50))
    assert shown(again).upcoming_rows == pytest.approx(150_000, rel=0.01)


def test_a_wild_measurement_corrects_by_no_more_than_a_factor_of_two() -> None:
    work = controller(model(0.001, 0.003), *[0.5] * 50)
    for _ in range(50):
        work.update(observe(work_s=1e6, upcoming_rows=50))
    assert shown(work).upcoming_rows == 200_000


def test_before_anything_is_measured_a_row_counts_as_a_millisecond() -> None:
    work = controller(BucketKeeps(2), None)
    assert work.update(observe(upcoming_rows=50)) == Decision()
    assert shown(work).gates["work"] == GateCount(200_000, 100_000)
    assert shown(work).upcoming_rows == 50_000


@pytest.mark.parametrize(
    ("rows", "cores", "keep"), [(4_000, 1, 0.125), (4_000, 4, 0.5), (100, 1, 1.0), (0, 1, None), (None, 1, None)]
)
def test_a_controller_without_opinion_gets_half_of_the_target(rows: int | None, cores: int, keep: float | None) -> None:
    work = controller(model(0.002), None, cores=cores)
    decision = work.update(observe(upcoming_rows=rows))
    assert decision.keep == (None if keep is None else pytest.approx(keep, rel=1e-3))


def test_an_opinion_is_passed_on_with_its_note() -> None:
    asked = Decision(0.25, note="look", full_rows=9.0)
    assert controller(model(0.002), asked).update(observe(upcoming_rows=4_000)) == asked


def test_costs_are_learnt_from_whole_batches_where_rows_are_not_timed() -> None:
    learnt = BucketKeeps(2)
    learnt.update_offered([100.0, 100.0])
    work = controller(learnt, 0.5, is_timed=False)
    for share in (0.1, 0.9) * 40:
        learnt.keeps = np.array([share, 1.0 - share])
        kept = learnt.keeps * 100
        busy_s = float(kept @ np.array([0.001, 0.004]))
        work.update(Observation(1, 0.0, 9.0, {"in": GateCount(200, round(kept.sum()))}, busy_s=busy_s))
    assert learnt.costs_s.tolist() == pytest.approx([0.001, 0.004], rel=0.1)


@pytest.mark.parametrize(
    ("is_timed", "observation"),
    [(True, observe()), (False, observe(kept=0)), (False, observe(cold=True))],
    ids=["timed elsewhere", "nothing kept", "cold"],
)
def test_what_says_nothing_about_costs_is_not_learnt(is_timed: bool, observation: Observation) -> None:
    learnt = BucketKeeps(2)
    learnt.update_offered([100.0, 100.0])
    controller(learnt, 0.5, is_timed=is_timed).update(observation)
    assert np.isnan(learnt.costs_s).all()


def test_a_copy_has_its_own_controller_on_the_same_model() -> None:
    work = controller(model(0.002), 0.5, 0.25, cores=3)
    twin = copy.deepcopy(work)
    twin.update(observe())
    assert twin._model is work._model
    assert (twin.cores, twin.delay_target_s, work._inner.asked) == (3, 2.0, 0)  # type: ignore[attr-defined]


def test_it_goes_on_after_a_restore_as_if_it_had_not_stopped() -> None:
    def new() -> WorkController:
        return WorkController(MicroBatch(2.0), BucketKeeps(2), is_timed=False)

    one = new()
    one._model.update_offered([500.0, 500.0])
    twin = None
    for number in range(20):
        if number == 9:
            twin = new().restore(json.loads(json.dumps(one.snapshot())))
        kept = 400 + 37 * (number % 5)
        observation = Observation(
            number, 3.0 * number, 3.0 * number + 2.0, {"in": GateCount(1_000, kept)}, keep=kept / 1_000,
            busy_s=0.001 * kept, mean_arrival_s=3.0 * number - 1.0, upcoming_rows=1_000,
        )  # fmt: skip
        decision = one.update(observation)
        if twin is not None:
            assert twin.update(observation) == decision
            assert twin.snapshot() == one.snapshot()
    assert twin is not None
    assert decision.keep is not None


def test_batches_of_one_size_show_a_cap_whatever_rows_cost() -> None:
    """The mean cost of a row changes from batch to batch, so batches that are alike in rows are not alike in work."""
    learnt = model(0.001, 0.003)
    inner = MicroBatch(2.0)
    work = WorkController(inner, learnt, is_timed=True)
    for number in range(8):
        learnt.update(np.full(2, 500.0), np.array([0.5, 1.5]) * (1.0 + 0.1 * number), np.ones(2))
        gates, start_s = {"in": GateCount(1_000, 1_000)}, 10.0 + 2.0 * number
        # Rows are older by a second in every batch, which takes two: half of what arrives stays behind.
        batch = Observation(number, start_s, start_s + 2.0, gates, mean_arrival_s=start_s - 3.0 - number, upcoming_rows=1_000)
        work.update(replace(batch, work_s=2.0))
    assert inner._lag.is_capped
    assert inner._lag.is_behind
    assert inner._lag.size / inner._lag.row_units == pytest.approx(1_000, rel=1e-3)


def test_a_first_batch_that_kept_all_corrects_nothing() -> None:
    """The cost of the one row before it said little: that is no bias of a choice, since nothing was chosen."""
    work = controller(model(0.001, 0.003), *[1.0, 0.5, 0.5, 0.5])
    work.update(observe(upcoming_rows=50))
    work.update(replace(observe(kept=200, work_s=4.0, upcoming_rows=50), keep=1.0))
    assert shown(work).upcoming_rows == 100_000
    work.update(replace(observe(offered=4, kept=2, work_s=0.04, upcoming_rows=50), keep=0.5))  # ten times, but of two rows
    assert shown(work).upcoming_rows < 120_000
