"""Grouping the operators of a node into streaming queries."""

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
    queries, _ = queries_of(network, "A")
    assert [(q.entries, q.stream, q.tip, q.branches, q.ends) for q in queries] == [
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
    (query,), _ = queries_of(network, "A")
    assert (query.entries, query.stream, query.ends) == (["i1", "i2"], ["a1", "u"], [("u", "q")])


def test_branches_of_a_split_run_on_micro_batches() -> None:
    (query,), _ = queries_of(figure7(), "A")
    assert (query.stream, query.tip, query.branches) == (["s"], "s", ["top", "bottom"])


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
    (query,), _ = queries_of(network, "A")
    assert (query.tip, query.branches, query.ends) == ("s", ["x", "y", "u"], [("u", "q")])


def test_a_stateful_operator_after_a_split_is_cut_off() -> None:
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
    queries, _ = queries_of(network, "A")
    by_tip = {query.tip: query for query in queries}
    assert set(by_tip) == {"s", "n", "w"}
    assert by_tip["s"].ends == [("s", "s->n"), ("x", "x->w")]
    assert by_tip["n"].entries == ["s->n"]
    assert by_tip["w"].entries == ["x->w", "j"]


@pytest.mark.parametrize("seed", range(60))
def test_every_operator_is_in_one_query_and_every_arc_is_read(seed: int) -> None:
    network = random_network(np.random.default_rng(seed), nodes=2, operators=9)
    for node in {operator.node for operator in network.operators.values()}:
        queries, part = queries_of(network, node)
        operators = [name for query in queries for name in query.operators]
        assert sorted(operators) == sorted(part.operators)
        ends = [target for query in queries for _, target in query.ends]
        cuts = [entry for query in queries for entry in query.entries if entry not in part.inputs]
        assert sorted(ends) == sorted([*part.outputs, *cuts])
        assert sorted(entry for query in queries for entry in query.entries) == sorted([*part.inputs, *cuts])
        for query in queries:
            known = set(query.entries)
            for name in query.stream:
                for source in part.operators[name].sources:
                    assert source in known or f"{source}->{name}" in known
                    assert f"{source}->{name}" in known or len(part.consumers[source]) == 1
                known.add(name)
            assert query.tip in known
            known = {query.tip}
            for name in query.branches:
                assert set(part.operators[name].sources) <= known
                assert part.operators[name].kind not in ("aggregate", "join")
                known.add(name)
            assert all(source in known for source, _ in query.ends)
