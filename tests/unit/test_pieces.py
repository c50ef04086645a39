"""How the operators of a node become queries."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.network import NetworkBuilder
from penstock.network.queries import queries_of
from tests.networks import figure7, random_network


def test_two_chains_are_two_queries() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("i1")
        .input("i2")
        .operator("a1", "A", "i1")
        .operator("b1", "A", "a1")
        .operator("a2", "A", "i2")
        .output("q1", "b1")
        .output("q2", "a2")
        .build()
    )
    pieces, _ = queries_of(network, "A")
    assert [(p.entries, p.stream, p.tip, p.branches, p.ends) for p in pieces] == [
        (["i1"], ["a1", "b1"], "b1", [], [("b1", "q1")]),
        (["i2"], ["a2"], "a2", [], [("a2", "q2")]),
    ]


def test_a_union_makes_one_query_of_two_streams() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("i1")
        .input("i2")
        .operator("a1", "A", "i1")
        .union("u", "A", "a1", "i2")
        .output("q", "u")
        .build()
    )
    (piece,), _ = queries_of(network, "A")
    assert (piece.entries, piece.stream, piece.ends) == (["i1", "i2"], ["a1", "u"], [("u", "q")])


def test_a_split_is_done_batch_by_batch() -> None:
    (piece,), _ = queries_of(figure7(), "A")
    assert (piece.stream, piece.tip, piece.branches) == (["s"], "s", ["top", "bottom"])


def test_branches_that_meet_again_stay_together() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("i")
        .operator("s", "A", "i")
        .operator("x", "A", "s")
        .operator("y", "A", "s")
        .union("u", "A", "x", "y")
        .output("q", "u")
        .build()
    )
    (piece,), _ = queries_of(network, "A")
    assert (piece.tip, piece.branches, piece.ends) == ("s", ["x", "y", "u"], [("u", "q")])


def test_what_has_memory_behind_a_split_is_cut_off() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("i")
        .input("j")
        .operator("s", "A", "i")
        .operator("x", "A", "s")
        .operator("n", "A", "s", kind="aggregate")
        .join("w", "A", "x", "j", cost=1.0, selectivity=0.1, windows=(10, 10))
        .output("q", "n")
        .output("r", "w")
        .build()
    )
    pieces, _ = queries_of(network, "A")
    found = {piece.tip: piece for piece in pieces}
    assert set(found) == {"s", "n", "w"}
    assert found["s"].ends == [("s", "s->n"), ("x", "x->w")]
    assert found["n"].entries == ["s->n"]
    assert found["w"].entries == ["x->w", "j"]


@pytest.mark.parametrize("seed", range(60))
def test_every_operator_is_in_one_query_and_every_arc_is_read(seed: int) -> None:
    network = random_network(np.random.default_rng(seed), nodes=2, operators=9)
    for node in {operator.node for operator in network.operators.values()}:
        pieces, part = queries_of(network, node)
        placed = [name for piece in pieces for name in piece.operators]
        assert sorted(placed) == sorted(part.operators)
        ends = [target for piece in pieces for _, target in piece.ends]
        cuts = [entry for piece in pieces for entry in piece.entries if entry not in part.inputs]
        assert sorted(ends) == sorted([*part.outputs, *cuts])
        assert sorted(entry for piece in pieces for entry in piece.entries) == sorted([*part.inputs, *cuts])
        for piece in pieces:
            known = set(piece.entries)
            for name in piece.stream:
                for source in part.operators[name].sources:
                    assert source in known or f"{source}->{name}" in known
                    assert f"{source}->{name}" in known or len(part.consumers[source]) == 1
                known.add(name)
            assert piece.tip in known
            known = {piece.tip}
            for name in piece.branches:
                assert set(part.operators[name].sources) <= known
                assert part.operators[name].kind not in ("aggregate", "join")
                known.add(name)
            assert all(source in known for source, _ in piece.ends)
