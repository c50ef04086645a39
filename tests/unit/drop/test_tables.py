"""Keep tables and the ring of arrival slots."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drop import tables
from penstock.drop.tables import (
    ALWAYS,
    NEVER,
    SCALE,
    SLOT_SHIFT,
    SLOTS,
    BatchTable,
    SlotRing,
    round_up,
    share_by_rank,
    slot_of,
    slot_start_s,
    to_micros,
)
from penstock.errors import PenstockError


def test_a_new_ring_keeps_everything() -> None:
    assert SlotRing(2).table().lookup(np.array([0, 10**9]), np.array([0, 1])).tolist() == [1.0, 1.0]


def test_rows_older_than_the_table_share_its_oldest_entry() -> None:
    ring = SlotRing(1)
    ring.decide(10, [0.3])
    ring.decide(10 + 2 * SLOTS, [0.6])
    assert ring.table().lookup(np.array([0, 10, 10 + SLOTS, 10 + 2 * SLOTS])).tolist() == [0.3, 0.3, 0.3, 0.6]
    assert len(ring.changes) == 2


@pytest.mark.parametrize("slot", [10, 9])
def test_the_past_does_not_change(slot: int) -> None:
    ring = SlotRing(1)
    ring.decide(10, [0.3])
    with pytest.raises(PenstockError, match="has been decided"):
        ring.decide(slot, [0.4])


def test_a_decision_has_one_keep_a_class() -> None:
    with pytest.raises(PenstockError, match="needs 2 keep values, got 1"):
        SlotRing(2).decide(1, [0.5])
    with pytest.raises(PenstockError, match="the journal has 1 classes where the gate has 2"):
        SlotRing(2).merge([(5, (0.5,))])


def test_slots_begin_where_they_should() -> None:
    assert slot_of(slot_start_s(12345)) == 12345
    assert slot_of(slot_start_s(12345) - 1e-6) == 12344
    assert slot_start_s(1) == (1 << SLOT_SHIFT) / 1e6


@pytest.mark.parametrize("most", [None, 1, 3])
@given(
    steps=st.lists(st.tuples(st.integers(1, 3 * SLOTS), st.floats(0, 1) | st.sampled_from([0.5, 1.0])), min_size=1, max_size=12),
    ages=st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=20),
)
def test_the_layout_says_what_the_decisions_say(most: int | None, steps: list[tuple[int, float]], ages: list[int]) -> None:
    """Against an oracle that walks the list of decisions, whether or not slots share entries, and however many there may be."""
    plain, shared = SlotRing(2), SlotRing(2, is_shared=True)
    decisions, slot = [(-(10**12), (1.0, 1.0))], 10**10
    with mock.patch.object(tables, "_MOST_NUMBERS", 2 * (most or 100)):
        for gap, keep in steps:
            slot += gap
            entry = (keep, 1.0 - keep)
            for ring in (plain, shared):
                ring.decide(slot, entry)
            decisions.append((slot, entry))
        asked = np.array([slot - age for age in ages] + [slot, slot + 1, slot + 10**6])
        oldest = slot - SLOTS + 1
        changed = [decisions[1][0], *(one for (_, before), (one, entry) in itertools.pairwise(decisions[1:]) if entry != before)]
        if most is not None and len(changed) > most:
            oldest = max(oldest, changed[-most])
        table = shared.table()
        assert table.oldest == oldest
        assert table.rows is not None
        assert (table.rows[1:] > 0).all(), "the oldest slot tells what is older than the table"
        assert plain.table().rows is None
    for index in (0, 1):
        oracle = np.array([[entry for first, entry in decisions if first <= one][-1][index] for one in asked])
        assert (plain.table().lookup(asked, np.full(len(asked), index)) == oracle).all()
        late = [[entry for first, entry in decisions if first <= max(one, oldest)][-1][index] for one in asked]
        assert (table.lookup(asked, np.full(len(asked), index)) == np.array(late)).all()


@given(st.lists(st.tuples(st.integers(1, 3000), st.sampled_from([0.25, 0.5, 1.0])), min_size=1, max_size=14), st.data())
def test_a_journal_with_decisions_that_never_held_gives_the_table_of_the_run(
    steps: list[tuple[int, float]], data: st.DataObject
) -> None:
    """A decision that was dropped is in the journal with what held instead, and never reached the run's ring."""
    run, journal, slot = SlotRing(1, is_shared=True), [], 10**10
    with mock.patch.object(tables, "_MOST_NUMBERS", 3):
        for position, (gap, keep) in enumerate(steps):
            slot += gap
            if 0 < position < len(steps) - 1 and data.draw(st.booleans()):
                journal.append((slot, run.current))
                continue
            run.decide(slot, [keep])
            journal.append((slot, (keep,)))
        again = SlotRing(1, is_shared=True)
        again.merge(journal)
        one, other = run.table(), again.table()
    assert one.oldest == other.oldest
    asked = np.arange(one.oldest, slot + 2)
    assert (one.lookup(asked) == other.lookup(asked)).all()


FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Spark's timestamps: from the year 1 to 9999, in microseconds."""
moments = (
    st.integers(FIRST, LAST)
    | st.sampled_from([ALWAYS, ALWAYS + 1, FIRST, -1, 0, 1, LAST, NEVER - 1, NEVER])
    | st.integers(-3, 3).map(lambda micros: micros << SLOT_SHIFT)
)
shares = st.floats(0, 1)


@given(keep=shares, micros=moments)
def test_set_by_batch_without_a_line_the_age_does_not_matter(keep: float, micros: int) -> None:
    table = BatchTable.of([keep])
    assert table.oldest == ALWAYS
    assert table.lookup_arrivals(np.array([micros]))[0] == keep


@st.composite
def batch_tables(draw: st.DrawFn) -> tuple[int, list[float], list[float]]:
    classes = draw(st.integers(1, 5))
    line = draw(moments.filter(lambda micros: ALWAYS < micros < NEVER))
    keeps = st.lists(shares, min_size=classes, max_size=classes)
    return line, draw(keeps), draw(keeps)


@given(table=batch_tables(), data=st.data())
def test_set_by_batch_rows_before_the_line_are_older_to_the_microsecond(
    table: tuple[int, list[float], list[float]], data: st.DataObject
) -> None:
    """Against an oracle that asks row by row."""
    line, keeps, older = table
    arrivals = data.draw(st.lists(moments | st.integers(-2, 2).map(lambda off: line + off), min_size=1, max_size=20))
    classes = data.draw(st.lists(st.integers(0, len(keeps) - 1), min_size=len(arrivals), max_size=len(arrivals)))
    oracle = [older[index] if micros < line else keeps[index] for micros, index in zip(arrivals, classes, strict=True)]
    built = BatchTable.of(keeps, older=older, line=line)
    assert built.oldest > ALWAYS
    assert built.lookup_arrivals(np.array(arrivals), np.array(classes)).tolist() == oracle
    for micros, index, keep in zip(arrivals, classes, oracle, strict=True):
        assert built.lookup_arrivals(np.array([micros]), index).tolist() == [keep]


@given(table=batch_tables(), ranks=st.lists(st.integers(0, 10**7), min_size=1, max_size=20))
def test_set_by_batch_a_bounded_gate_has_no_bound(table: tuple[int, list[float], list[float]], ranks: list[int]) -> None:
    """Its size is known before it runs, so no row's rank counts."""
    line, keeps, older = table
    ring = SlotRing(len(keeps), is_bounded=True)
    bound = ring.start[-1]
    built = BatchTable.of([*keeps, bound], older=[*older, bound], line=line)
    arrivals = np.array([line - 1 + rank % 2 for rank in ranks])
    free = BatchTable.of(keeps, older=older, line=line).lookup_arrivals(arrivals)
    assert built.lookup_arrivals(arrivals, ranks=np.array(ranks)).tolist() == round_up(free).tolist()


@given(keep=st.floats(0, 1), offset=st.integers(-2, 2), bits=st.integers(0, 2**53 - 1))
def test_a_keep_rounded_up_keeps_the_same_rows(keep: float, offset: int, bits: int) -> None:
    """Against Python's exact comparison of a whole number with a fraction; many of the numbers lie at the edge."""
    near_edge = min(max(math.floor(keep * SCALE) + offset, 0), 2**53 - 1)
    whole = int(round_up(np.array([keep]))[0] * SCALE)
    for number in (bits, near_edge):
        assert (number < whole) == (number < Fraction(keep) * 2**53)


@given(full=st.floats(2, 2.0**40), rank=st.integers(0, 2**40))
def test_the_share_of_a_rank_is_whole_up_to_the_bound_and_falls_beyond_it(full: float, rank: int) -> None:
    (share,) = share_by_rank(np.array([rank]), full)
    if rank + 1 <= full:
        assert share == 1.0
    assert share == pytest.approx(min(1.0, math.floor(full) / (rank + 1)) ** 4, rel=1e-12)


@given(time_s=st.floats(-6e10, 2.5e11))
def test_a_time_in_microseconds(time_s: float) -> None:
    assert to_micros(time_s) == pytest.approx(time_s * 1e6, abs=1.0 + abs(time_s) * 1e-9)


def test_times_beyond_all_timestamps() -> None:
    assert [to_micros(time_s) for time_s in (-math.inf, -1e30, 1e30, math.inf)] == [ALWAYS, ALWAYS, NEVER, NEVER]
    assert to_micros(-0.5) == -500_000


def test_merge_takes_the_later_of_two_decisions_for_one_slot() -> None:
    ring = SlotRing(1)
    ring.merge([(5, (0.5,)), (5, (0.9,))])
    ring.merge([(4, (0.1,)), (5, (0.9,))])
    assert ring.changes == [(4, (0.1,)), (5, (0.9,))]


def test_a_bounded_table_keeps_at_most_a_third_more_than_in_full() -> None:
    ring = SlotRing(1, is_bounded=True)
    assert ring.table().lookup(np.array([5]), ranks=np.array([10**6])).tolist() == [1.0]
    ring.decide(100, [0.5, 1_000.0])
    kept = ring.table().lookup(np.full(10**6, 100), ranks=np.arange(10**6)).sum()
    assert 500 < kept < 1.34 * 500
    with pytest.raises(PenstockError, match="needs 2 keep values, got 1"):
        ring.decide(200, [0.5])
