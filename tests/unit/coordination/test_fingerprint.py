"""What changed in a network."""

from __future__ import annotations

from dataclasses import replace

from penstock.coordination.fingerprint import describe_changes, describe_network, fingerprint
from penstock.network import Network, parse_network


def test_what_changed_in_a_network_is_said() -> None:
    one = parse_network(
        "nodes: {A: }\ninputs: {i: {format: rate}}\noperators: {a: {node: A, kind: filter, from: i, cost: 1, where: 'x > 1'}}\n"
        "outputs: {q: {from: a}}"
    )
    two = parse_network(
        "nodes: {A: }\ninputs: {i: {format: rate}}\noperators: {a: {node: A, kind: filter, from: i, cost: 3, where: 'x > 2'}}\n"
        "outputs: {q: {from: a}, r: {from: a}}"
    )
    assert describe_changes(describe_network(one), describe_network(two)) == [
        "operator a: where was 'x > 1' and is 'x > 2'",
        "output r is new",
    ]
    assert fingerprint(one) != fingerprint(two)
    dearer = Network(one.nodes, one.inputs, {"a": replace(one.operators["a"], cost=9.0)}, one.outputs, work=one.work)
    assert fingerprint(one) == fingerprint(dearer), "costs are only the start"
