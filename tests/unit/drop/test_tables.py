"""Keep tables and the ring of arrival slots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drop.tables import SLOT_SHIFT, SLOTS, KeepTable, SlotRing, slot_of, slot_start_s
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


@given(
    steps=st.lists(st.tuples(st.integers(1, 3 * SLOTS), st.floats(0, 1)), min_size=1, max_size=12),
    ages=st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=20),
)
def test_the_layout_says_what_the_decisions_say(steps: list[tuple[int, float]], ages: list[int]) -> None:
    """Against an oracle that walks the list of decisions."""
    ring, decisions, slot = SlotRing(1), [(-(10**12), 1.0)], 10**10
    for gap, keep in steps:
        slot += gap
        ring.decide(slot, [keep])
        decisions.append((slot, keep))
    table = ring.table()
    for asked in [slot - age for age in ages] + [slot, slot + 1, slot + 10**6]:
        oracle = [keep for first, keep in decisions if first <= asked][-1]
        assert table.lookup(np.array([asked]))[0] == oracle


@given(keep=st.floats(0, 1), slot=st.integers(0, 2**46))
def test_set_by_batch_the_slot_does_not_matter(keep: float, slot: int) -> None:
    assert KeepTable.for_batch([keep]).lookup(np.array([slot]))[0] == keep


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
