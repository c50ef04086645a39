"""Where jobs live: backlogs, caps, cold starts, floods, stalls and targets out of reach, in simulated time.

Rows cost 1 ms and a batch 0.2 s if nothing else is said, so an engine that holds batches of a second keeps 800 rows/s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.control import Controller, Decision, KeepAll, MicroBatch, Observation
from penstock.simulation.micro_batch_engine import Conditions, simulate_micro_batches
from penstock.simulation.outcome import Outcome
from penstock.simulation.profile import Profile
from penstock.simulation.traffic import on_off

both = pytest.mark.parametrize("prefer", ["even", "fresh"])


def simulate(arrivals: np.ndarray, controller: Controller, conditions: Conditions | None = None, **options: Any) -> Outcome:
    return simulate_micro_batches(arrivals, controller, conditions=conditions, **({"cost_s": 0.001, "overhead_s": 0.2} | options))


def simulate_until(
    until_s: float, rate: float, controller: Controller, conditions: Conditions | None = None, **options: Any
) -> Outcome:
    """Run a steady rate for longer than is looked at: what happens when the rows end is another matter."""
    return simulate(steadily(rate, until_s + 30.0), controller, conditions, stop_s=until_s, **options)


def steadily(rate: float, until_s: float, from_s: float = 0.0) -> np.ndarray:
    return np.arange(from_s, until_s, 1.0 / rate)


def law(delay_target_s: float = 2.0, prefer: Any = "even", **options: Any) -> MicroBatch:
    return MicroBatch(delay_target_s, prefer=prefer, **options)


def mean_violation_s(run: Outcome, from_s: float) -> float:
    """Of the rows kept in batches that start from a time on, by their mean delay."""
    since = run.series["t_s"] >= from_s
    kept, delays = run.series["kept"][since], np.nan_to_num(run.series["delay_s"][since])
    return float((kept * np.maximum(0.0, delays - run.delay_target_s)).sum() / kept.sum())


def worst_violation_s(run: Outcome, from_s: float) -> float:
    since = run.series["t_s"] >= from_s
    return float(max(0.0, np.nanmax(run.series["worst_s"][since]) - run.delay_target_s))


def kept_rate(run: Outcome, from_s: float) -> float:
    """Rows kept per second in the batches that start from a time on, the last one aside."""
    since = run.series["t_s"] >= from_s
    starts = run.series["t_s"][since]
    return float(run.series["kept"][since][:-1].sum() / (starts[-1] - starts[0]))


# -- capped sources ------------------------------------------------------------------------------------------------------


@both
def test_a_capped_source_holds_the_target_and_uses_its_time(prefer: str) -> None:
    """1,500 rows per batch and 4,000 rows/s: batches of 0.375 s at most, which leaves 175 rows of time to each."""
    run = simulate_until(60.0, 4_000, law(prefer=prefer), Conditions(cap=1_500))
    assert mean_violation_s(run, 20.0) <= 0.1
    assert worst_violation_s(run, 20.0) <= 0.5
    assert kept_rate(run, 20.0) == pytest.approx(175 / 0.375, rel=0.1)
    assert run.notes == ()


@both
def test_a_cap_that_is_no_hindrance_costs_nothing(prefer: str) -> None:
    free = simulate(steadily(500, 60), law(prefer=prefer))
    capped = simulate(steadily(500, 60), law(prefer=prefer), Conditions(cap=1_500))
    assert capped.loss == free.loss == 0.0


@both
def test_a_cap_that_lets_in_less_than_arrives_is_said_once_with_one_that_would_do(prefer: str) -> None:
    """Empty batches of 0.2 s let in 2,500 rows/s. No shedding helps, so there is none beyond the rows that don't fit."""
    run = simulate_until(60.0, 4_000, law(prefer=prefer), Conditions(cap=500))
    (note,) = run.notes
    assert "capped at about 500 rows per batch" in note
    assert "a cap of 4,0" in note, "4,000 rows/s times batches of a second"
    since = run.series["t_s"] > 20.0
    assert run.series["kept"][since].tolist() == [500.0] * int(since.sum())
    would_do = simulate_until(60.0, 4_000, law(prefer=prefer), Conditions(cap=4_100))
    assert would_do.notes == ()
    assert mean_violation_s(would_do, 20.0) <= 0.1


def test_what_a_cap_leaves_in_the_source_counts_where_rows_have_no_age() -> None:
    run = simulate_until(60.0, 4_000, law(), Conditions(cap=1_500, has_ages=False))
    assert mean_violation_s(run, 20.0) <= 0.2
    assert worst_violation_s(run, 20.0) <= 0.6
    assert kept_rate(run, 20.0) == pytest.approx(175 / 0.375, rel=0.1)


# -- cold starts and backlogs --------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("load", [1.5, 3.0])
def test_a_first_start_with_an_hour_of_backlog(prefer: str, load: float) -> None:
    run = simulate_until(3_640.0, 1_000 * load, law(prefer=prefer), Conditions(start_s=3_600.0, cold_s=2.0))
    assert run.series["batch_s"].max() <= 3.0
    assert worst_violation_s(run, 3_610.0) <= 0.1
    assert kept_rate(run, 3_610.0) >= 0.95 * 800
    assert run.max_delay_s <= 4.0, "of an hour's backlog nothing comes out late"


@both
@pytest.mark.parametrize("cold_s", [0.0, 2.0])
def test_a_first_start_with_twelve_seconds_of_backlog(prefer: str, cold_s: float) -> None:
    run = simulate_until(52.0, 2_000, law(prefer=prefer), Conditions(start_s=12.0, cold_s=cold_s))
    assert run.series["batch_s"].max() <= 3.0
    assert run.max_violation_s <= 2.0
    assert worst_violation_s(run, 22.0) <= 0.1


@both
@pytest.mark.parametrize("load", [0.1, 0.5, 1.5, 3.0])
@pytest.mark.parametrize("down_s", [60.0, 3_600.0])
def test_a_restart(prefer: str, load: float, down_s: float) -> None:
    up_s = 60.0 + down_s
    conditions = Conditions(down_at_s=60.0, down_s=down_s, cold_s=2.0)
    run = simulate_until(up_s + 30.0, 1_000 * load, law(prefer=prefer), conditions)
    assert worst_violation_s(run, up_s) <= 0.7
    assert kept_rate(run, up_s + 5.0) >= 0.95 * min(800.0, 1_000 * load)


def test_those_who_would_rather_catch_up_lose_nothing_of_a_light_load() -> None:
    conditions = Conditions(down_at_s=30.0, down_s=10.0)
    assert simulate(steadily(300, 120), law(10.0, expired="keep"), conditions).loss == 0.0
    shed = simulate(steadily(300, 120), law(2.0, expired="shed"), conditions)
    assert 0.0 < shed.loss == pytest.approx(shed.expired / shed.offered, abs=0.01)


@both
@pytest.mark.parametrize("rate", [20, 300, 600])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_job_that_is_never_overloaded_loses_nothing(prefer: str, rate: float, noise: float) -> None:
    run = simulate(steadily(rate, 60), law(prefer=prefer), Conditions(cold_s=0.5), noise=noise)
    assert run.loss == 0.0
    assert run.notes == ()


def test_a_first_cost_lets_more_rows_in_from_the_start() -> None:
    """Half a second of 50,000 rows/s has waited, a hundred times as cheap as what is tried where nothing is known."""
    conditions = Conditions(start_s=0.5)
    blind, told = (
        simulate(steadily(50_000, 20), law(first_cost_s=first_cost_s), conditions, cost_s=1e-5) for first_cost_s in (None, 1e-5)
    )
    assert 300 <= blind.series["kept"][0] <= 2_000
    assert told.series["kept"][0] >= 10_000
    assert told.loss < 0.3 * blind.loss


# -- floods and stalls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width_s", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("at_s", [30.0, 30.07, 30.15, 30.21])
def test_a_flood_after_light_traffic(width_s: float, at_s: float) -> None:
    flood = np.linspace(at_s, at_s + width_s, 600_000)
    run = simulate(np.sort(np.concatenate([steadily(100, 45), flood])), law())
    assert run.max_violation_s <= 2.0
    assert run.series["batch_s"].max() <= 3.0


@both
def test_pauses_at_half_load(prefer: str) -> None:
    conditions = Conditions(stall_every_s=15.0, stall_s=3.0)
    roomy = simulate(steadily(500, 120), law(5.0, prefer), conditions)
    assert roomy.loss <= 0.03
    tight = simulate(steadily(500, 120), law(2.0, prefer), conditions)
    assert tight.loss - tight.expired / tight.offered <= 0.03, "only what can't be in time any more"
    assert tight.loss <= 3.0 / 15.0
    assert mean_violation_s(tight, 0.0) <= 0.1


@both
def test_a_pause_is_no_reason_to_shed_afterwards(prefer: str) -> None:
    run = simulate(steadily(500, 60), law(prefer=prefer), Conditions(stall_every_s=40.0, stall_s=10.0))
    batches = run.series["t_s"] > 55.0
    assert run.series["keep"][batches].tolist() == [1.0] * int(batches.sum())


def test_freshest_first_holds_at_a_rate_that_never_changes() -> None:
    """All batches have one size then, and that is not to be taken for a cap."""
    even, fresh = (simulate(steadily(30_000, 30), law(prefer=prefer), cost_s=0.0001) for prefer in ("even", "fresh"))
    assert kept_rate(fresh, 10.0) > 1.05 * kept_rate(even, 10.0)


@both
def test_clumps_of_a_clock_of_whole_seconds(prefer: str) -> None:
    run = simulate(np.repeat(np.arange(0.0, 90.0), 200), law(prefer=prefer), cost_s=0.01)
    assert mean_violation_s(run, 20.0) <= 0.1
    assert kept_rate(run, 20.0) == pytest.approx(80.0, rel=0.1), "what fits into batches of a second"


# -- targets out of reach, and what shedding can't change ----------------------------------------------------------------


@pytest.mark.parametrize("ratio", [1.02, 1.2, 1.25, 1.9])
@pytest.mark.parametrize("cost_s", [1e-4, 1e-3, 1e-2])
def test_a_target_between_one_and_two_overheads_at_half_load_sheds_next_to_nothing(ratio: float, cost_s: float) -> None:
    arrivals = steadily(0.5 / cost_s, 30)
    run, everything = (simulate(arrivals, kind, cost_s=cost_s) for kind in (law(ratio * 0.2), KeepAll(ratio * 0.2)))
    assert run.loss <= 0.05
    assert run.mean_delay_s <= 1.2 * everything.mean_delay_s
    assert len([note for note in run.notes if "can't be reached" in note]) == 1


def test_an_unreachable_target_under_overload_holds_what_can_be_reached() -> None:
    """Five times the overhead: 1 s, and batches of 0.5 s, of which 0.3 s go to rows."""
    run = simulate_until(60.0, 3_000, law(0.3))
    since = run.series["t_s"] > 20.0
    assert np.nanmax(run.series["worst_s"][since]) <= 1.1
    assert kept_rate(run, 20.0) == pytest.approx(600, rel=0.1)


@pytest.mark.parametrize("slow_s", [1.5, 3.0])
def test_a_slow_sink_is_noticed_within_ten_batches_and_not_shed_for(slow_s: float) -> None:
    """From 30 s on every batch takes longer, whatever is shed. Half load fits into the longer batches."""
    run = simulate_until(120.0, 500, law(), overhead_s=Profile.step(0.2, slow_s, 30.0))
    slow = np.flatnonzero(run.series["t_s"] > 30.0)
    shedding = slow[run.series["keep"][slow] < 1.0]
    assert len(shedding) <= 10
    assert run.series["keep"][slow[10:]].tolist() == [1.0] * (len(slow) - 10)
    (note,) = run.notes
    assert "can't be reached, whatever is shed" in note


@both
@pytest.mark.parametrize("factor", [0.5, 2.0, 10.0])
def test_a_cost_that_changes(prefer: str, factor: float) -> None:
    """A batch ten times too long may be a stall, so the next one is as long."""
    run = simulate_until(110.0, 2_000, law(prefer=prefer), cost_s=Profile.step(0.001, 0.001 * factor, 45.0))
    settled = 45.0 + 3.0 * max(1.0, factor)
    assert worst_violation_s(run, settled) <= 0.2
    assert mean_violation_s(run, settled) <= 0.02
    assert kept_rate(run, settled) >= 0.9 * 800 / factor


# -- a ceiling, and a target that changes --------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("max_loss", [0.0, 0.2, 0.5])
def test_no_more_is_shed_than_max_loss(prefer: str, max_loss: float) -> None:
    run = simulate(steadily(3_000, 30), law(prefer=prefer), max_loss=max_loss)
    assert run.loss <= max_loss + 0.02
    assert any("max_loss forbids" in note for note in run.notes)


class ChangesTarget(Controller):
    """A controller whose target changes at a time, as by the user's hand."""

    def __init__(self, inner: MicroBatch, at_s: float, delay_target_s: float) -> None:
        super().__init__(inner.delay_target_s)
        self.inner, self.at_s, self.next_s = inner, at_s, delay_target_s

    def update(self, observation: Observation) -> Decision:
        if observation.end_s >= self.at_s and self.inner.delay_target_s != self.next_s:
            self.inner.change_target(self.next_s)
        return self.inner.update(observation)


@both
@pytest.mark.parametrize(("first_s", "then_s"), [(5.0, 1.0), (1.0, 5.0)])
def test_a_target_that_changes_is_held(prefer: str, first_s: float, then_s: float) -> None:
    run = simulate_until(80.0, 3_000, ChangesTarget(law(first_s, prefer), 40.0, then_s))
    worst, starts = run.series["worst_s"], run.series["t_s"]
    for low, high, target_s in ((15.0, 38.0, first_s), (50.0, 78.0, then_s)):
        during = (starts > low) & (starts < high)
        assert np.nanmax(worst[during]) <= 1.1 * target_s
        kept = run.series["kept"][during][:-1].sum() / (starts[during][-1] - starts[during][0])
        assert kept >= 0.9 * (1_000 * (1.0 - 0.4 / target_s)), "rows that fit into batches of half the target"


# -- freshest first ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "gain"), [(10.0, 1.05), (5.0, 1.15), (3.3, 1.3)])
def test_fresh_keeps_more_than_even_at_no_greater_delay(ratio: float, gain: float) -> None:
    arrivals = np.sort(np.random.default_rng(1).random(3_000 * 90) * 90.0)
    even, fresh = (simulate(arrivals, law(0.2 * ratio, prefer), stop_s=80.0) for prefer in ("even", "fresh"))
    assert kept_rate(fresh, 20.0) >= gain * kept_rate(even, 20.0)
    assert worst_violation_s(fresh, 20.0) <= worst_violation_s(even, 20.0)


@both
@pytest.mark.parametrize("seed", range(3))
def test_bursts_with_noise(prefer: str, seed: int) -> None:
    run = simulate(on_off(1_500, 60, seed=seed), law(prefer=prefer), noise=0.1, seed=seed)
    assert mean_violation_s(run, 5.0) <= 0.02
    assert worst_violation_s(run, 5.0) <= 0.9


@pytest.mark.parametrize("prefer", ["even", "fresh"])
@pytest.mark.parametrize("load", [0.5, 1.5, 6.0])
def test_rows_that_are_old_when_they_can_be_read_leave_less_time(prefer: str, load: float) -> None:
    """A way of a second to the source, or clocks that disagree by as much: the target is held all the same."""
    run = simulate_until(60.0, 1_000.0 * load, law(prefer=prefer), Conditions(latency_s=1.0), noise=0.05)
    assert mean_violation_s(run, 10.0) < 0.02
    assert worst_violation_s(run, 10.0) < 0.3
    assert kept_rate(run, 10.0) > 0.9 * min(500.0, 1_000.0 * (1.0 - 0.2 / 0.5))


def test_a_way_as_long_as_the_target_makes_it_unreachable() -> None:
    run = simulate_until(60.0, 500.0, law(), Conditions(latency_s=3.0), noise=0.05)
    assert run.loss < 0.1
    assert any("rows are 3 s old when they can be read" in note for note in run.notes)


# -- clocks that are set -------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("step_s", [3_600.0, -3_600.0, 30.0, -30.0, -0.5])
def test_a_clock_that_is_set_does_no_lasting_harm(prefer: str, step_s: float) -> None:
    conditions = Conditions(step_at_s=30.3, step_s=step_s)
    light = simulate_until(60.0, 500, law(prefer=prefer), conditions, noise=0.03)
    assert (light.series["keep"] == 1.0).all()
    heavy = simulate_until(60.0, 3_000, law(prefer=prefer), conditions, noise=0.03)
    assert worst_violation_s(heavy, 30.0) <= 2.5  # one batch: set forward, a second looks like an hour with as many rows
    assert worst_violation_s(heavy, 40.0) <= 0.15
    assert kept_rate(heavy, 40.0) >= 0.9 * kept_rate(simulate_until(60.0, 3_000, law(prefer=prefer), noise=0.03), 40.0)


def test_by_arrival_a_clock_that_is_set_back_is_said() -> None:
    runs = [
        simulate_until(60.0, 3_000, law(), Conditions(step_at_s=30.3, step_s=step_s), how="by arrival", bounded=True)
        for step_s in (3_600.0, -3_600.0)
    ]
    assert runs[0].notes == ()
    assert worst_violation_s(runs[0], 30.0) <= 0.2
    said = sorted(note.split(",")[0] for note in runs[1].notes)
    assert said == [
        "gate 'in': some arrival times lie in the future: a clock is ahead; the latest decision holds for them",
        "query: the clock is 3",
    ]
