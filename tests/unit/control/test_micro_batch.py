"""MicroBatch: how many rows fit into the next batch, and which."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from penstock.control import AgeRule, Decision, GateCount, MicroBatch, Observation
from penstock.errors import PenstockError


def batch(number: int, start_s: float, length_s: float, kept: int, offered: int, upcoming: int | None) -> Observation:  # noqa: PLR0917
    gates = {"in": GateCount(offered, kept)}
    return Observation(number, start_s, start_s + length_s, gates=gates, upcoming_rows=upcoming, waited_s=length_s)


def warm(law: MicroBatch, *, overhead_s: float = 0.2, cost_s: float = 0.001) -> MicroBatch:
    """Let it learn from batches of about a second."""
    for number, kept in enumerate((0, 400, 500, 600, 700, 650, 750, 700)):
        law.update(batch(number, number, overhead_s + cost_s * kept, kept, kept, kept))
    return law


def upcoming(rows: int | None, waited_s: float, now_s: float = 1_000.0, **more: Any) -> Observation:
    """The last batch took its 0.9 s, and rows with ages wait for the next."""
    gates = {"in": GateCount(700, 700)}
    values: dict[str, Any] = {"upcoming_rows": rows, "waited_s": waited_s, "taken_s": now_s, "has_ages": True} | more
    return Observation(9, now_s - 0.9, now_s, gates=gates, mean_arrival_s=now_s - 1.4, **values)


def rule_of(decision: Decision) -> AgeRule:
    assert decision.age is not None
    return decision.age


# -- without ages --------------------------------------------------------------------------------------------------------


def test_the_law_by_hand() -> None:
    """o = 0.2 s, c = 1 ms, half of 0.97 D is 0.97 s. The last batch took 0.82 s: half of the spare 0.15 s may be used."""
    law = MicroBatch(2.0, worst=0.97)
    law.update(batch(0, 0.0, 0.2, 0, 0, 10))
    for number in range(1, 12):
        decision = law.update(batch(number, number, 0.2 + 0.4 + 0.02 * number, 400 + 20 * number, 2000, 1500))
    assert law.model.overhead_s == pytest.approx(0.2, abs=0.02)
    assert law.model.cost_s == pytest.approx(0.001, rel=0.05)
    assert decision.keep == pytest.approx((0.97 + 0.075 - 0.2) / 1.5, rel=0.05)
    # A batch of 1.5 s has used up the time of the next one: 1.94 - 1.5 = 0.44 s, that is 240 rows.
    assert law.update(batch(12, 20.0, 1.5, 1300, 2000, 2000)).keep == pytest.approx(240 / 2000, rel=0.2)


@pytest.mark.parametrize("rows", [3_000, 100_000, 10**9])
def test_of_a_first_burst_a_small_number_passes(rows: int) -> None:
    """Small batches can't tell cost from overhead. What is kept of a burst grows as batches prove short."""
    law = MicroBatch(2.0)
    for number in range(5):
        law.update(batch(number, number, 0.21, 10, 10, 10))
    keep = law.update(batch(5, 5.0, 0.21, 10, 10, rows)).keep
    assert keep is not None
    assert 40 <= keep * rows <= 2_000


def test_a_backlog_after_a_restart_does_not_pass_either() -> None:
    law = MicroBatch(2.0)
    for number in range(6, 12):
        law.update(batch(number, number, 0.2 + 0.6, 600, 3000, 3000))
    again = MicroBatch(2.0).restore(law.snapshot())
    keep = again.update(Observation(11, 5000.0, 5000.0, upcoming_rows=1_000_000)).keep
    assert keep is not None
    assert keep * 1_000_000 < 2_000


def test_the_memory_of_an_older_version_is_not_lost() -> None:
    law = warm(MicroBatch(2.0))
    now = law.snapshot()
    model = {name: now["model"][name] for name in ("filter", "has_cost", "has_overhead")}
    older = {"model": model, "largest": 750.0, "has_worked": True, "has_warned": False, "last_start_s": 7.0, "rate": 900.0}
    again = MicroBatch(2.0).restore(older)
    assert (again.model.cost_s, again.model.overhead_s) == (law.model.cost_s, law.model.overhead_s)
    # A cost that the journal knows is believed: what fits is kept of the first batch, and not what may be tried.
    keeps = [one.update(upcoming(5_000, 0.9)).keep or 0.0 for one in (law, again)]
    assert keeps[1] == pytest.approx(keeps[0], rel=0.1)


def test_with_nothing_known_a_small_number_passes_and_that_is_said() -> None:
    law = MicroBatch(2.0)
    first = Observation(
        -1, 1_000.0, 1_000.0, upcoming_rows=80_000, waited_s=None, taken_s=1_000.0, has_ages=True, upcoming_cold=True
    )
    decision = law.update(first)
    assert rule_of(decision).fresh * 80_000 == pytest.approx(400 - math.sqrt(400 * (1 - 400 / 80_000))), (
        "a fifth of what may be tried where nobody waits, less a deviation"
    )
    assert decision.note is not None
    assert "nothing is known of the cost of a row yet" in decision.note


def test_a_first_cost_is_a_first_number() -> None:
    first = Observation(-1, 1_000.0, 1_000.0, upcoming_rows=80_000)
    for cost_s in (1e-2, 1e-3, 1e-4):
        decision = MicroBatch(2.0, first_cost_s=cost_s).update(first)
        assert decision.keep is not None
        assert decision.keep * 80_000 == pytest.approx(0.8 / cost_s), "four fifths of a second"
        assert MicroBatch(2.0, first_cost_s=cost_s).update(replace(first, waited_s=1.0, has_ages=True)).note is None


def test_rows_that_come_after_an_idle_hour_have_not_waited() -> None:
    law = MicroBatch(2.0)
    for number, kept in enumerate((0, 400, 420, 380, 410)):
        law.update(batch(number, number, 0.2 + kept / 1e3, kept, kept, kept))
    observation = Observation(9, 9.0, 9.6, gates={"in": GateCount(400, 400)}, upcoming_rows=700, waited_s=0.0, taken_s=3600.0)
    assert law.update(observation).keep == 1.0
    # The same after an hour in which a trigger held them back: all of the time is used up.
    assert (law.update(replace(observation, upcoming_rows=5000, waited_s=3600.0)).keep or 0.0) < 0.05


# -- with ages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefer", ["even", "fresh"])
def test_what_fits_is_kept_whatever_its_age(prefer: Any) -> None:
    for rows, waited_s in ((700, 1.2), (290, 60.0)):  # a quarter of the target holds 300 rows
        decision = warm(MicroBatch(2.0, prefer=prefer)).update(upcoming(rows, waited_s))
        assert (decision.keep, decision.age, decision.note) == (1.0, None, None)


@pytest.mark.parametrize("prefer", ["even", "fresh"])
def test_what_fits_after_a_stall_is_not_kept_if_it_makes_others_wait(prefer: Any) -> None:
    decision = warm(MicroBatch(2.0, prefer=prefer)).update(upcoming(700, 60.0))
    rule = rule_of(decision)
    assert (rule.fresh, rule.older) == (1.0, 0.0)
    assert 1.0 < 1_000.0 - rule.after_s < 2.0


def test_even_sheds_what_can_not_be_in_time_and_keeps_an_even_share_of_the_rest() -> None:
    """3,000 rows of a second: a batch of a second holds 800, and rows older than a second would be late."""
    decision = warm(MicroBatch(2.0)).update(upcoming(3_000, 1.0))
    rule = rule_of(decision)
    assert rule.after_s == pytest.approx(1_000.0 - 1.0, abs=0.01)
    assert rule.fresh == pytest.approx(800 / 3_000, rel=0.05)
    assert rule.older == 0.0


def test_even_of_a_backlog_only_the_last_second_counts() -> None:
    """An hour of 3,000 rows/s waits. Their number and cost don't matter, only how many came in the last second."""
    rule = rule_of(warm(MicroBatch(2.0)).update(upcoming(3_000 * 3_600, 3_600.0)))
    assert 1_000.0 - 1.1 <= rule.after_s <= 1_000.0 - 0.9
    assert rule.fresh == pytest.approx(800 / 3_000, rel=0.1)


def test_even_of_a_light_backlog_all_that_can_be_in_time_is_kept() -> None:
    """An hour of 100 rows/s: x + 0.2 + 0.1 x = 2 gives the last 1.64 s."""
    rule = rule_of(warm(MicroBatch(2.0)).update(upcoming(100 * 3_600, 3_600.0)))
    assert rule.after_s == pytest.approx(1_000.0 - 1.8 / 1.1, abs=0.05)
    assert rule.fresh == 1.0


def test_fresh_keeps_the_newest_seconds_that_can_all_be_in_time() -> None:
    """x + 0.2 + 3 x = 2 gives the newest 0.45 s; less, since rows may not be even over time."""
    law = warm(MicroBatch(2.0, prefer="fresh"))
    law._unevenness, law._rate = 0.0, 3_000.0
    rule = rule_of(law.update(upcoming(3_000, 1.0)))
    assert 1_000.0 - rule.after_s == pytest.approx(1.8 / 4.0, rel=0.05)
    assert (rule.fresh, rule.older) == (1.0, 0.0)
    law = warm(MicroBatch(2.0, prefer="fresh"))
    law._rate = 3_000.0
    careful = rule_of(law.update(upcoming(3_000, 1.0)))
    assert 0.7 * 0.45 < 1_000.0 - careful.after_s < 0.45


def test_fresh_takes_an_even_sample_of_a_flood() -> None:
    """How many of its rows came in the newest seconds nobody knows."""
    law = warm(MicroBatch(2.0, prefer="fresh"))
    law._rate = 500.0
    rule = rule_of(law.update(upcoming(3_000, 1.0)))
    assert rule.fresh == pytest.approx(800 / 3_000, rel=0.05)


@pytest.mark.parametrize("prefer", ["even", "fresh"])
def test_a_floor_for_older_rows(prefer: Any) -> None:
    rule = rule_of(warm(MicroBatch(2.0, prefer=prefer, floor=0.05)).update(upcoming(3_000, 1.5)))
    assert rule.older == 0.05
    bare = rule_of(warm(MicroBatch(2.0, prefer=prefer)).update(upcoming(3_000, 1.5)))
    assert (rule.fresh, rule.after_s) != (bare.fresh, bare.after_s), "their time goes off that of the others"


def test_the_floor_is_never_above_what_fresh_rows_get() -> None:
    rule = rule_of(warm(MicroBatch(2.0, floor=0.5)).update(upcoming(100_000, 1.0)))
    assert rule.older <= rule.fresh


def test_those_who_would_rather_catch_up_get_one_share_of_all() -> None:
    decision = warm(MicroBatch(2.0, expired="keep")).update(upcoming(100_000, 3_600.0))
    assert decision.age is None
    assert decision.keep == pytest.approx(800 / 100_000, rel=0.05)


def test_a_first_batch_of_unknown_size_sheds_what_can_not_be_in_time() -> None:
    first = Observation(-1, 1_000.0, 1_000.0, taken_s=1_000.0, has_ages=True, upcoming_cold=True)
    decision = MicroBatch(2.0).update(first)
    assert decision.age == AgeRule(999.0, 1.0, 0.0)
    assert MicroBatch(2.0, expired="keep").update(first) == Decision(None)


def test_a_cold_batch_leaves_less_time_to_rows() -> None:
    """It took 2 s longer at the last start, so now nothing of it would be in time."""
    law = MicroBatch(4.0)
    law.update(replace(batch(0, 0.0, 2.3, 100, 100, 500), cold=True))
    warm(law)
    again = MicroBatch(4.0).restore(law.snapshot())
    start = Observation(20, 500.0, 500.0, upcoming_rows=900_000, waited_s=60.0, taken_s=500.0, has_ages=True)
    usual, cold = (rule_of(again.update(replace(start, upcoming_cold=is_cold))) for is_cold in (False, True))
    assert cold.after_s - usual.after_s == pytest.approx(2.0, abs=0.1)


def test_a_capped_source_that_is_behind_gets_batches_short_enough_to_catch_up() -> None:
    """Batches of 1,500 rows, and 4,000 rows/s arrive: 0.375 s per batch at most."""
    law = warm(MicroBatch(2.0))
    for number in range(6):
        start_s = 100.0 + number
        gates = {"in": GateCount(1_500, 800)}
        ages = {"mean_arrival_s": start_s - 1.2 - 0.625 * number, "taken_s": start_s + 1.0, "has_ages": True}
        decision = law.update(Observation(number, start_s, start_s + 1.0, gates, upcoming_rows=1_500, waited_s=1.0, **ages))  # type: ignore[arg-type]
    rule = rule_of(decision)
    assert rule.fresh * 1_500 == pytest.approx((0.9 * 0.375 - 0.2) / 0.001, rel=0.2)
    assert rule.older == 0.0


@pytest.mark.parametrize("prefer", ["even", "fresh"])
@pytest.mark.parametrize("kept", [0, 800])
def test_a_capped_source_may_have_an_empty_batch(prefer: Any, kept: int) -> None:
    law = warm(MicroBatch(2.0, prefer=prefer))
    for number in range(9):
        gates, waiting = {"in": GateCount(1_500, kept)}, {"left_rows": 5_000 * (number + 1), "has_ages": True}
        old = Observation(number, 100.0 + number, 101.0 + number, gates, mean_arrival_s=90.0, upcoming_rows=1_500, **waiting)  # type: ignore[arg-type]
        law.update(old)
    decision = law.update(replace(old, start_s=110.0, end_s=111.0, upcoming_rows=0))
    assert (decision.keep, decision.age) == (1.0, None)


# -- by arrival ----------------------------------------------------------------------------------------------------------


def test_by_arrival_short_batches_are_no_overload() -> None:
    """A short batch is mostly overhead: what its rows seem to cost must not be stretched to a batch of ten times the length."""
    law = MicroBatch(delay_target_s=20.0)
    batches = ((0.0, 0, 0.3), (0.35, 688, 0.47), (0.85, 432, 0.522), (1.4, 877, 0.53), (1.95, 1016, 0.5))  # as measured on Spark
    for number, (start, rows, took) in enumerate(batches):
        observation = Observation(number, start, start + took, gates={"in": GateCount(rows, rows)}, cold=number < 2)
        assert law.update(observation).keep in (None, 1.0), number


def test_by_arrival_the_first_batch_is_bounded() -> None:
    assert MicroBatch(2.0).start() == Decision(None, full_rows=2_000.0)
    assert MicroBatch(2.0, first_cost_s=0.01).start().full_rows == pytest.approx(80.0)


# -- the target ----------------------------------------------------------------------------------------------------------


def test_a_target_below_twice_the_overhead_is_said_once_and_what_can_be_reached_is_held() -> None:
    law = MicroBatch(0.5)
    decisions = [law.update(batch(n, n, 0.4 + 0.001 * k, k, 100, 100)) for n, k in enumerate((0, 50, 100, 20, 80))]
    said = [decision.note for decision in decisions if decision.note]
    assert len(said) == 1
    assert "delay target of 0.5 s can't be reached, whatever is shed: a batch takes 0.4 s without any rows" in said[0]
    assert "holding 2 s instead" in said[0]
    assert decisions[-1].reachable_s == pytest.approx(2.0, rel=0.05)
    assert decisions[-1].keep == 1.0, "a batch of a second holds 600 rows"


def test_a_target_that_can_be_reached_has_no_other() -> None:
    assert warm(MicroBatch(2.0)).update(upcoming(3_000, 1.0)).reachable_s is None


def test_what_was_said_before_a_restart_is_not_said_again() -> None:
    law = MicroBatch(0.5)
    for number, kept in enumerate((0, 50, 100, 20)):
        law.update(batch(number, number, 0.4 + 0.001 * kept, kept, 100, 100))
    again = MicroBatch(0.5).restore(law.snapshot())
    assert again.update(batch(4, 4.0, 0.48, 80, 100, 100)).note is None


def test_another_target_holds_from_the_next_decision_on() -> None:
    law = warm(MicroBatch(2.0))
    law.change_target(4.0)
    assert rule_of(law.update(upcoming(6_000, 2.0))).fresh == pytest.approx(1_800 / 6_000, rel=0.05)
    law.change_target(1.0)
    assert rule_of(law.update(upcoming(6_000, 0.5))).fresh == pytest.approx(300 / 6_000, rel=0.1)
    with pytest.raises(PenstockError, match="delay_target_s must be positive, got 0"):
        law.change_target(0.0)
    assert law.delay_target_s == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worst": 0.0}, r"worst must lie in \[0.1, 2\], got 0"),
        ({"prefer": "old"}, "prefer must be 'even' or 'fresh', got 'old'"),
        ({"expired": "late"}, "expired must be 'shed' or 'keep', got 'late'"),
        ({"floor": 1.0}, r"floor must lie in \[0, 1\), got 1"),
        ({"floor": -0.1}, r"floor must lie in \[0, 1\), got -0.1"),
        ({"floor": math.nan}, r"floor must lie in \[0, 1\), got nan"),
        ({"first_cost_s": 0.0}, "first_cost_s must be positive, got 0"),
        ({"first_cost_s": math.inf}, "first_cost_s must be positive, got inf"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        MicroBatch(2.0, **options)


@pytest.mark.parametrize("waited_s", [0.0, 1.0, 60.0])
def test_an_empty_batch_is_kept(waited_s: float) -> None:
    """With an overhead that is long for the target, too: there was a division by zero."""
    law = warm(MicroBatch(1.0), overhead_s=0.3, cost_s=0.0003)
    assert law.update(upcoming(0, waited_s)).keep == 1.0
