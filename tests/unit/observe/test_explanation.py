"""Why, in sentences: whatever a journal holds, there is an answer that is true."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.observe.explanation import explain_batch, explain_shortly

LEARNT = {"cost_s": 0.0005, "overhead_s": 0.1, "batch_time_s": 1.0}


def decide(keep: float, **more: Any) -> dict[str, Any]:
    return {"batch_id": 7, "keep": keep, "gates": {"in": [keep]}, "learnt": LEARNT, **more}


def ran(offered: int, kept: int, **more: Any) -> dict[str, Any]:
    return {"batch_id": 7, "gates": {"in": [offered, kept]}, "delay_target_s": 2.0, "start_s": 100.0, "end_s": 101.0, **more}


def test_everything_fits() -> None:
    told = explain_batch(decide(1.0), ran(1000, 1000, mean_arrival_s=99.0))
    assert "1,000 rows waited." in told.seen
    assert told.decided[-1] == "So it kept everything."
    assert told.happened[-1] == "Its rows came out 2 s after they arrived on average, within the target."
    assert explain_shortly(decide(1.0), ran(1000, 1000)) == "1,000 rows fit: about 600 ms of 1 s"


def test_an_overload_names_what_it_would_take_and_what_fits() -> None:
    told = str(explain_batch(decide(0.18), ran(10_000, 1_800, mean_arrival_s=98.0)))
    for part in (
        "all of them would have taken 5.1 s",
        "leaves 1 s for a batch, enough for 1,800 rows",
        "kept 18%",
        "1 s above the target",
    ):
        assert part in told
    assert explain_shortly(decide(0.18), ran(10_000, 1_800)) == "10,000 rows would take 5.1 s, a batch has 1 s"


def test_expired_rows_are_told_from_others() -> None:
    decision = decide(0.4, older={"in": {"line": 99_000_000, "entries": [0.0]}})
    told = explain_batch(decision, ran(10_000, 1_800, expired={"in": 5_000}))
    assert told.decided[-1].startswith("Rows that were older than 1 s when the batch began could not be in time any more")
    assert "5,000 of those because they had expired" in told.happened[0]
    assert explain_shortly(decision, ran(10_000, 1_800, expired={"in": 5_000})).endswith("5,000 rows had expired")


def test_a_target_out_of_reach_is_named() -> None:
    told = explain_batch(decide(0.4), ran(10_000, 1_800, reachable_s=5.0))
    assert told.decided[0] == "The target of 2 s can't be reached whatever is shed; 5 s is held instead."


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("batch", [None, ran(0, 0), ran(5, 0), {"batch_id": 7, "gates": {}}])
@pytest.mark.parametrize("learnt", [None, {}, {"cost_s": 0.001}, LEARNT])
def test_there_is_always_an_answer(keep: float, batch: dict[str, Any] | None, learnt: dict[str, float] | None) -> None:
    decision = {"batch_id": 7, "keep": keep, "gates": {"in": [keep]}} | ({} if learnt is None else {"learnt": learnt})
    told = explain_batch(decision, batch, ran(10, 10, batch_id=6))
    assert told.decided
    assert all(line.endswith(".") for line in (*told.seen, *told.decided, *told.happened))
    assert explain_shortly(decision, batch)


def test_classes_and_gates_are_named() -> None:
    many = {"keep": 0.5, "gates": {"in": [1.0, 0.3]}, "batch_id": 1}
    assert "by class: 100%, 30%" in explain_batch(many).decided[-1]
    gates = {"keep": 0.5, "gates": {"a": [1.0], "b->c": [0.3]}, "batch_id": 1}
    assert "100% at a, 30% at b->c" in explain_batch(gates).decided[-1]


def test_by_arrival_the_slot_is_named() -> None:
    assert "from slot 12" in " ".join(explain_batch({"keep": 0.5, "gates": {"in": [0.5]}, "from_slot": 12}).seen)


def test_the_decider_is_named_where_the_journal_does_not_say_why() -> None:
    assert explain_shortly({"keep": 0.5, "gates": {"in": [0.5]}}, decider="the plan") == "the plan asks for it"


def test_a_node_that_knows_its_costs_says_who_asks() -> None:
    decision = {"batch_id": 7, "keep": 0.5, "gates": {"in": [0.5]}, "learnt": {"cost_s": 0.001, "overhead_s": 0.1}}
    assert (
        explain_shortly(decision, ran(1000, 500), decider="the plan in force at node A")
        == "the plan in force at node A asks for it"
    )
    assert (
        "At 1 ms per row and 100 ms per batch, all of them would have taken 1.1 s."
        in explain_batch(decision, ran(1000, 500)).seen
    )


def test_everything_kept_says_why_also_where_it_does_not_fit() -> None:
    assert explain_shortly(decide(1.0), ran(10_000, 10_000)) == "10,000 rows take about 5.1 s, a batch has 1 s; all were kept"
    unknown = decide(1.0) | {"learnt": {"batch_time_s": 1.0}}
    assert explain_shortly(unknown, ran(10_000, 10_000)) == "what a row costs is not known yet, so all were kept"
    assert explain_shortly(unknown, ran(0, 0)) == "nothing to shed"
