"""How benchmarks time their arms."""

from __future__ import annotations

from benchmarks.support.timing import best_of


def test_best_of_runs_the_arms_in_turn() -> None:
    calls: list[str] = []
    arms = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    best_of(arms, rounds=2, warm_up=1)
    assert calls == ["a", "b"] * 3
