"""Building a network in Python."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.network import NetworkBuilder
from penstock.planning import (
    Exact,
)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b: b.node("A").node("A"), "node 'A': this name is already in use"),
        (lambda b: b.input("a->b"), "must not contain '->'"),
        (lambda b: b.input(""), "its name must be text"),
        (lambda b: b.operator("o", "A", cost=1.0), "has no source"),
        (lambda b: b.operator("o", "A", "i", "i", kind="union"), "reads from the same source twice"),
        (lambda b: b.input("i", floor=1.5), r"floor must lie in \[0, 1\]"),
    ],
)
def test_the_builder_rejects_bad_parts(build: object, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        build(NetworkBuilder())  # type: ignore[operator]


def test_unused_inputs_and_unknown_links_are_rejected() -> None:
    builder = NetworkBuilder().node("A").input("i").input("j").operator("a", "A", "i").output("q", "a")
    with pytest.raises(PenstockError, match="input 'j': feeds no operator"):
        builder.build()
    linked = NetworkBuilder().node("A").input("i").operator("a", "A", "i").output("q", "a").link("a", "z", 5.0)
    with pytest.raises(PenstockError, match="link 'a->z': there is no arc of that name"):
        linked.build()


def test_a_builder_can_be_used_after_build() -> None:
    builder = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=1.0).output("q", "a")
    first = builder.build()
    builder.operator("b", "A", "a", cost=1.0).output("q2", "b").build()
    assert list(first.operators) == ["a"]
    assert Exact(first).plan({"i": 2.0}).score == pytest.approx(1.0)
