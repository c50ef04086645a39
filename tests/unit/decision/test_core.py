"""What both ways of deciding share: the record of a batch, what gates learn, the order of instructions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.control.base import GateCount
from penstock.decision import Append, BatchEnded, BatchTimes, ByArrival, ByBatch, MeterReading, SlotGate, Warn, WindowGate
from penstock.decision.core import prepend
from penstock.drop.priorities import Priorities
from penstock.drop.shares import EqualShare, PriorityShares, WorkReading
from penstock.drop.units import WholeWindows
from penstock.journal.records import BatchRecord, DecisionRecord, OutputRecord, decode, encode
from tests.unit.decision.harness import Scripted, ended


def tiers(*names: str, **options: float) -> SlotGate:
    return SlotGate("in", PriorityShares(Priorities("tier", dict.fromkeys(names, 2.0) | options)))


def test_the_record_of_a_batch_adds_up_its_gates() -> None:
    core = ByBatch([SlotGate("a", EqualShare()), SlotGate("b", EqualShare())], Scripted())
    work = WorkReading(np.array([2.0]), np.array([0.5]), [])
    event = BatchEnded(
        5,
        20.0,
        {"a": GateCount(100, 30), "b": GateCount(10, 10)},
        {
            "a": MeterReading(30, 10.0, null_arrivals=2, older_than_ring=1, work=work, expired=60, from_future=4),
            "b": MeterReading(10, 14.0, null_arrivals=3, work=work, from_future=1),
        },
        times=BatchTimes(15.0, 20.0, 4.0),
        backlog_rows={"x": 7, "y": 8},
        outputs={"q": OutputRecord(4, 1.0, 2.0)},
        is_recounted=True,
    )
    assert core.record_batch(event) == BatchRecord(
        5,
        {"a": (100, 30), "b": (10, 10)},
        keep=1.0,
        start_s=15.0,
        end_s=20.0,
        busy_s=4.0,
        mean_arrival_s=11.0,
        backlog_rows=15,
        null_arrivals=5,
        older_than_ring=1,
        expired={"a": 60},
        from_future=5,
        delay_target_s=2.0,
        work_s=1.0,
        outputs={"q": OutputRecord(4, 1.0, 2.0)},
        recounted=True,
    )


def test_the_record_of_an_empty_batch() -> None:
    core = ByBatch([SlotGate("in", EqualShare())], Scripted())
    record = core.record_batch(ended(0, 1.0, 0, reading=MeterReading(0, None), times=None))
    assert record == BatchRecord(0, {"in": (0, 0)}, keep=1.0, delay_target_s=2.0)
    assert record.delay_s is None


def test_expired_rows_are_told_by_class_and_add_up_where_a_batch_was_evaluated_twice() -> None:
    core = ByBatch([tiers("gold", "free")], Scripted())
    once = MeterReading(30, offered_by_class=(10, 80, 10), kept_by_class=(10, 20, 0), expired=40, expired_by_class=(0, 33, 7))
    record = core.record_batch(ended(0, 1.0, 100, 30, reading=once))
    assert (record.expired, record.expired_classes) == ({"in": 40}, {"in": [0, 33, 7]})
    twice = MeterReading(60, offered_by_class=(20, 160, 20), kept_by_class=(20, 40, 0), expired=80, expired_by_class=(0, 66, 14))
    assert core.record_batch(ended(0, 1.0, 100, 30, reading=twice)).expired_classes == {"in": [0, 33, 7]}
    assert core.record_batch(ended(0, 1.0, 100, 30, reading=MeterReading(30, expired_by_class=(0, 0, 0)))).expired_classes is None


def test_classes_are_counted_as_the_meters_say() -> None:
    core = ByBatch([tiers("gold", "free")], Scripted())
    reading = MeterReading(30, offered_by_class=(10, 80, 10), kept_by_class=(10, 20, 0))
    assert core.record_batch(ended(0, 1.0, 100, 30, reading=reading)).classes == {"in": [(10, 10), (80, 20), (10, 0)]}


def test_classes_of_a_batch_that_was_evaluated_twice_count_once() -> None:
    core = ByBatch([tiers("gold", "free")], Scripted())
    reading = MeterReading(60, offered_by_class=(20, 160, 20), kept_by_class=(20, 40, 0))
    assert core.record_batch(ended(0, 1.0, 100, 30, reading=reading)).classes == {"in": [(10, 10), (80, 20), (10, 0)]}


@pytest.mark.parametrize("counts", [(0, 0), (100, 0)])
def test_classes_of_which_nothing_was_kept(counts: tuple[int, int]) -> None:
    core = ByBatch([tiers("gold", "free")], Scripted())
    reading = MeterReading(0, offered_by_class=(counts[0], 0, 0), kept_by_class=(0, 0, 0))
    assert core.record_batch(ended(0, 1.0, *counts, reading=reading)).classes == {"in": [(counts[0], 0), (0, 0), (0, 0)]}


def test_classes_that_nobody_counted_are_not_zero() -> None:
    """An executor was lost, and what the meters had of this batch went to the one before."""
    core = ByBatch([tiers("gold", "free")], Scripted())
    reading = MeterReading(0, offered_by_class=(0, 0, 0), kept_by_class=(0, 0, 0))
    record = core.record_batch(ended(0, 1.0, 100, 30, reading=reading, is_estimated=True))
    assert record.classes is None
    assert record.estimated
    assert record.gates == {"in": (100, 30)}
    assert decode(encode(record)) == record
    assert "estimated" not in encode(core.record_batch(ended(1, 2.0, 100, 30, reading=reading)))


def test_rows_of_unnamed_classes_are_warned_of() -> None:
    core = ByBatch([tiers("gold", "free")], Scripted())
    quiet = core.end_batch(ended(0, 1.0, 20, reading=MeterReading(20, offered_by_class=(10, 10, 0), kept_by_class=(10, 10, 0))))
    assert [type(i) for i in quiet] == [Append]
    warning, _ = core.end_batch(
        ended(1, 2.0, 21, reading=MeterReading(21, offered_by_class=(10, 10, 1), kept_by_class=(10, 10, 1)))
    )
    assert isinstance(warning, Warn)
    assert warning.message == (
        "gate 'in': rows of a class without a weight (known: gold, free) are shed as '(other)' with weight 2; "
        "name the class, or give None a weight"
    )


def test_a_class_for_all_others_is_a_name() -> None:
    gate = SlotGate("in", PriorityShares(Priorities("tier", {"gold": 2.0, None: 1.0})))
    reading = MeterReading(2, offered_by_class=(1, 1), kept_by_class=(1, 1))
    assert gate.update(reading) is None


@pytest.mark.parametrize(
    ("reading", "by_batch", "by_arrival"),
    [
        (
            MeterReading(9, null_arrivals=1),
            "gate 'in': rows without an arrival time count as new",
            "gate 'in': rows without an arrival time are always kept",
        ),
        (
            MeterReading(9, older_than_ring=1),
            *("gate 'in': some rows arrived longer ago than decisions are kept for, and share the oldest one",) * 2,
        ),
    ],
)
def test_rows_that_can_not_be_judged_are_warned_of(reading: MeterReading, by_batch: str, by_arrival: str) -> None:
    for kind, message in ((ByBatch, by_batch), (ByArrival, by_arrival)):
        core = kind([SlotGate("in", EqualShare())], Scripted())
        assert Warn(message) in core.end_batch(ended(0, 1.0, 9, reading=reading))


def test_a_reading_of_a_gate_that_has_no_meters() -> None:
    core = ByBatch([SlotGate("in", EqualShare())], Scripted())
    assert core.learn(BatchEnded(0, 1.0, {"in": GateCount(5, 5)})) == []


def test_event_time_is_in_the_record_from_the_first_row_on() -> None:
    gate = WindowGate("in", WholeWindows("t", "1s"), seed=1)
    core = ByBatch([gate], Scripted())
    records = []
    for number, micros in enumerate((None, 5_000_000, 3_000_000)):
        core.end_batch(ended(number, 1.0, event_times={"in": micros}))
        records.append(core.record_batch(ended(number, 1.0)).latest)
    assert records == [None, {"in": 5_000_000}, {"in": 5_000_000}]


def test_the_record_joins_the_querys_own_write() -> None:
    batch, decision = BatchRecord(0, {}), DecisionRecord({}, 0.5)
    other, own, warning = Append((decision,), query="b"), Append((decision,)), Warn("x")
    assert prepend(batch, [other, warning, own]) == [other, warning, Append((batch, decision))]
    assert prepend(batch, [other, warning]) == [other, warning, Append((batch,))]
    assert prepend(batch, []) == [Append((batch,))]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=3, max_size=3),
    st.integers(1, 3),
)
def test_classes_of_a_batch_that_was_evaluated_several_times_add_up(rows: list[tuple[int, int]], times: int) -> None:
    counts = [(max(pair), min(pair)) for pair in rows]
    core = ByBatch([tiers("gold", "free")], Scripted())
    reading = MeterReading(
        offered_by_class=tuple(times * offered for offered, _ in counts), kept_by_class=tuple(times * kept for _, kept in counts)
    )
    total = [sum(values) for values in zip(*counts, strict=True)]
    assert core.record_batch(ended(0, 1.0, *total, reading=reading)).classes == {"in": counts}


@example(rows=[(10, 10), (10, 1), (0, 0)], parts=[0.0, 1.0, 0.0])
@given(
    rows=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=3, max_size=3),
    parts=st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3),
)
def test_no_class_keeps_more_than_it_was_offered(rows: list[tuple[int, int]], parts: list[float]) -> None:
    """A function that shows a few rows before it writes all evaluates a part of the batch twice, in any mixture of classes."""
    once = [(max(pair), min(pair)) for pair in rows]
    offered = tuple(all_rows + round(part * all_rows) for (all_rows, _), part in zip(once, parts, strict=True))
    kept = tuple(some + round(part * some) for (_, some), part in zip(once, parts, strict=True))
    core = ByBatch([tiers("gold", "free")], Scripted())
    total = [sum(values) for values in zip(*once, strict=True)]
    record = core.record_batch(ended(0, 1.0, *total, reading=MeterReading(offered_by_class=offered, kept_by_class=kept)))
    assert record.classes is not None
    assert all(0 <= few <= many for many, few in record.classes["in"])
