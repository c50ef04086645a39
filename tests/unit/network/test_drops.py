"""What the gates of a network drop as a whole, and which of them decide alike."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder, parse_network
from penstock.network.drops import Drops, Ties, derive_drops
from penstock.network.regions import GateId

WINDOWS = "kind: aggregate, group: [\"window(t, '5 seconds')\", key], agg: [count(*)]"
JOIN = "kind: join, selectivity: 0.01, windows: [10s, 5s], on: left.key = right.key"


def network(operators: str, outputs: str = "q: {from: n}", nodes: str = "A: , B: ", inputs: str = "i: , j: ") -> Network:
    return parse_network(f"nodes: {{{nodes}}}\ninputs: {{{inputs}}}\noperators:\n{operators}\noutputs: {{{outputs}}}")


def units(drops: Drops) -> dict[str, str]:
    return {f"{gate.node} {gate.name}": unit.describe() for gate, unit in drops.units.items()}


def test_without_state_rows_are_dropped() -> None:
    plain = network("  n: {node: A, from: i, cost: 1, select: [t]}", inputs="i: ", nodes="A: ")
    assert derive_drops(plain) == Drops()


def test_windows_are_dropped_at_every_gate_before_an_aggregate() -> None:
    drops = derive_drops(
        network(
            f"""
  m: {{node: A, from: i, cost: 1, select: [at as t, key]}}
  o: {{node: A, from: m, cost: 1, kind: filter, where: key > 1}}
  n: {{node: B, from: o, cost: 1, {WINDOWS}}}
  p: {{node: A, from: o, cost: 1, select: [key]}}""",
            "q: {from: n}, r: {from: p}",
            inputs="i: ",
        )
    )
    assert units(drops) == {
        "A i": "whole windows of at, 5 s",
        "A o->n": "whole windows of t, 5 s",
        "B o->n": "whole windows of t, 5 s",
    }
    assert len({unit.group for unit in drops.units.values()}) == 3, "one after the other, they decide independently"
    assert drops.ties == Ties()
    assert not drops.notes


UNION = """
  u: {node: A, kind: union, from: [i, j], cost: 1}
  n: {node: %s, from: u, cost: 1, %s}"""


def test_inputs_that_merge_before_an_aggregate_decide_alike() -> None:
    drops = derive_drops(network(UNION % ("B", WINDOWS)))
    assert units(drops) == dict.fromkeys(("A i", "A j", "B u->n"), "whole windows of t, 5 s")
    assert drops.ties.groups == (("i", "j"),)
    assert drops.units[GateId("A", "i")].group == drops.units[GateId("A", "j")].group
    assert drops.ties_at("A").groups == (("i", "j"),)
    assert not drops.ties_at("B")


APART = f"""
  a: {{node: A, from: i, cost: 1, select: [t, key]}}
  b: {{node: B, from: j, cost: 1, select: [t, key]}}
  u: {{node: B, kind: union, from: [a, b], cost: 1}}
  n: {{node: B, from: u, cost: 1, {WINDOWS}}}"""


def test_windows_that_no_single_query_can_decide_are_refused_by_name() -> None:
    drops = derive_drops(network(APART))
    assert not drops.units
    reason = "its rows enter at 'i', 'j', which no single query reads, so they can't decide alike about a window"
    assert drops.notes == (f"windows are not dropped whole before aggregate 'n', so its answers may be partial: {reason}",)
    with pytest.raises(
        PenstockError, match=r"^line 8: operator 'n': whole windows can't be dropped before it: its rows enter at"
    ):
        derive_drops(network(APART.replace("kind: aggregate", "drop: windows, kind: aggregate")))
    assert derive_drops(network(APART.replace("kind: aggregate", "drop: rows, kind: aggregate"))) == Drops()


def test_a_gate_that_only_some_rows_pass_lets_everything_pass() -> None:
    """What comes through y passes no gate behind the split of x, so dropping there would leave windows in part."""
    drops = derive_drops(
        network(
            f"""
  s: {{node: A, from: i, cost: 1, select: [t, key]}}
  x: {{node: A, from: s, cost: 1, select: [t, key]}}
  y: {{node: A, from: s, cost: 1, select: [t, key]}}
  o: {{node: A, from: x, cost: 1, select: [key]}}
  u: {{node: A, kind: union, from: [x, y], cost: 1}}
  n: {{node: A, from: u, cost: 1, {WINDOWS}}}""",
            "q: {from: n}, r: {from: o}",
            "A: ",
            "i: ",
        )
    )
    assert drops.units[GateId("A", "x->u")].is_open
    assert drops.units[GateId("A", "x->u")].describe() == "nothing"
    assert drops.ties == Ties((("s->x", "s->y"),), frozenset({"x->u"}))
    assert drops.ties_at("A") == drops.ties
    assert not drops.notes


def test_branches_that_merge_again_decide_alike() -> None:
    drops = derive_drops(
        network(
            f"""
  s: {{node: A, from: i, cost: 1, select: [t, key]}}
  x: {{node: A, from: s, cost: 1, select: [t, key]}}
  y: {{node: A, from: s, cost: 1, select: [t, key]}}
  u: {{node: A, kind: union, from: [x, y], cost: 1}}
  n: {{node: A, from: u, cost: 1, {WINDOWS}}}""",
            inputs="i: ",
            nodes="A: ",
        )
    )
    assert drops.ties.groups == (("s->x", "s->y"),)
    assert drops.ties_at("A").groups == (("s->x", "s->y"),)


def test_the_longest_window_serves_all_that_lie_in_it() -> None:
    two = """
  n: {node: A, from: i, cost: 1, kind: aggregate, group: ["window(t, '5 seconds')"], agg: [count(*)]}
  m: {node: A, from: i, cost: 1, kind: aggregate, group: ["window(t, '%s')"], agg: [count(*)]}"""
    ends = "q: {from: n}, r: {from: m}"
    drops = derive_drops(network(two % "10 seconds", ends, "A: ", "i: "))
    assert units(drops)["A i"] == "whole windows of t, 10 s"
    assert units(drops)["A i->n"] == "whole windows of t, 5 s"
    drops = derive_drops(network(two % "7 seconds", ends, "A: ", "i: "))
    assert units(drops)["A i"] == "whole windows of t, 5 s"
    assert "A i->m" not in units(drops)
    assert drops.notes[0].endswith("gate 'i' also feeds 'n', before which other windows are dropped")


def test_both_sides_of_a_join_drop_the_same_keys_wherever_they_are() -> None:
    drops = derive_drops(
        network(
            f"""
  a: {{node: A, from: i, cost: 1, select: [ad as key, t]}}
  n: {{node: B, from: [a, j], cost: 1, {JOIN}}}"""
        )
    )
    assert units(drops) == {"A i": "whole keys by ad", "B j": "whole keys by key", "B a->n": "whole keys by key"}
    assert drops.ties.groups == (("i", "j"),)
    of = {gate.name: unit.group for gate, unit in drops.units.items()}
    assert of["i"] == of["j"] != of["a->n"]


def test_a_join_that_is_only_planned_for_needs_no_key() -> None:
    planned = (
        NetworkBuilder().node("A").input("x").input("y").input("z")
        .join("j", "A", "x", "y", cost=1.0, selectivity=0.1, windows=(1.0, 1.0), timed=True)
        .operator("o", "A", "z", cost=1.0).output("q", "j").output("r", "o").build()
    )  # fmt: skip
    drops = derive_drops(planned)
    assert drops.ties.groups == (("x", "y"),)
    assert units(drops) == {"A x": "keys", "A y": "keys"}


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (
            JOIN + ", drop: rows",
            "operator 'n': its windows are in seconds, so with rows dropped on both sides its output is a product",
        ),
        (JOIN.replace("left.key", "left.k"), "operator 'a' computes column 'k'"),
        (JOIN.replace("left.key = ", "left.key <= "), "its 'on' has no 'left.x = right.y' that must hold for every pair"),
        (JOIN.replace("on:", "function: 'm:f' #"), "it is a function, whose keys are not known"),
        (JOIN + ", drop: windows", "operator 'n': a join can't drop whole windows"),
        (JOIN + ", drop: half", "operator 'n': drop must be one of rows, keys, windows, got 'half'"),
    ],
)
def test_a_timed_join_that_cant_be_shed_by_key_is_refused_by_name(join: str, message: str) -> None:
    text = f"""
  a: {{node: A, from: i, cost: 1, select: ["id % 10 as k", id as key, t]}}
  n:
    {{node: B, from: [a, j], cost: 1, {join}
    }}"""
    with pytest.raises(PenstockError, match=f"^line [4-9]: .*{message}") as found:
        derive_drops(network(text))
    assert "\n" not in str(found.value)


def test_drop_is_for_operators_with_state() -> None:
    with pytest.raises(PenstockError, match="line 4: operator 'n': drop says what is dropped before an operator with state"):
        network("  n: {node: A, from: i, cost: 1, select: [t], drop: rows}")


def test_a_join_with_windows_in_tuples_drops_rows_if_its_keys_are_not_known() -> None:
    drops = derive_drops(
        network(f"  n: {{node: A, from: [i, j], cost: 1, {JOIN.replace('10s, 5s', '10, 5').replace('=', '<=')}}}")
    )
    assert not drops.units
    assert "its output falls with the product of two keeps" in drops.notes[0]


def test_a_join_goes_before_an_aggregate_that_did_not_ask() -> None:
    text = f"""
  j1: {{node: A, from: [i, j], cost: 1, {JOIN}}}
  n: {{node: A, from: i, cost: 1, {WINDOWS}}}"""
    ends = "q: {from: n}, r: {from: j1}"
    drops = derive_drops(network(text, ends, "A: "))
    assert units(drops)["A i"] == "whole keys by key"
    assert "gate 'i' also feeds 'j1', before which other keys are dropped" in drops.notes[0]
    with pytest.raises(PenstockError, match="operator 'n': whole windows can't be dropped before it: gate 'i' also feeds 'j1'"):
        derive_drops(network(text.replace("kind: aggregate", "kind: aggregate, drop: windows"), ends, "A: "))


def test_a_timed_join_behind_an_aggregate_is_refused() -> None:
    text = f"""
  m: {{node: A, from: i, cost: 1, {WINDOWS}}}
  n: {{node: A, from: [m, j], cost: 1, {JOIN}}}"""
    with pytest.raises(PenstockError, match=r"operator 'n': .*it reads what 'm' makes, where keys can't be dropped for it"):
        derive_drops(network(text, nodes="A: "))


def test_an_aggregate_behind_another_is_named() -> None:
    text = f"""
  m: {{node: A, from: i, cost: 1, {WINDOWS}}}
  n: {{node: A, from: m, cost: 1, kind: aggregate, group: ["window(w, '1 minute')"], agg: [count(*)]}}"""
    drops = derive_drops(network(text, nodes="A: ", inputs="i: "))
    assert units(drops) == {"A i": "whole windows of t, 5 s"}
    assert drops.notes == ("aggregate 'n' reads what 'm' makes: what is dropped before that may be part of its windows",)


def test_sessions_are_kept_whole_by_their_keys() -> None:
    text = "  n: {node: A, from: i, cost: 1, kind: aggregate, group: [\"session_window(t, '5 s')\", user], agg: [count(*)]}"
    assert units(derive_drops(network(text, nodes="A: ", inputs="i: "))) == {"A i": "whole keys by user"}


def test_copies_of_an_input_share_the_keep_of_the_input() -> None:
    text = f"""
  a: {{node: A, from: i, cost: 1, select: [key, t]}}
  b: {{node: B, from: i, cost: 1, select: [key, t]}}
  n: {{node: B, from: [a, b], cost: 1, {JOIN}}}"""
    drops = derive_drops(network(text, inputs="i: "))
    assert units(drops) == dict.fromkeys(("A i->a", "B i->b", "B a->n"), "whole keys by key")
    assert drops.ties.fixed == {"i->a", "i->b"}


def test_each_of_many_operators_with_state_has_its_unit() -> None:
    text = "\n".join(f"  n{k}: {{node: A, from: i{k}, cost: 1, {WINDOWS}}}" for k in range(300))
    outputs = ", ".join(f"q{k}: {{from: n{k}}}" for k in range(300))
    drops = derive_drops(network(text, outputs, "A: ", ", ".join(f"i{k}: " for k in range(300))))
    assert units(drops) == {f"A i{k}": "whole windows of t, 5 s" for k in range(300)}
    assert not drops.ties


def test_what_a_function_leaves_alone_must_be_said() -> None:
    text = f"""
  f: {{node: A, from: i, cost: 1, function: "m:f"}}
  n: {{node: A, from: f, cost: 1, {WINDOWS}}}"""
    drops = derive_drops(network(text, nodes="A: ", inputs="i: "))
    assert not drops.units
    assert "operator 'f' is a function, which may compute column 't'" in drops.notes[0]
    drops = derive_drops(network(text.replace("agg:", "drop: windows, agg:"), nodes="A: ", inputs="i: "))
    assert units(drops) == {"A i": "whole windows of t, 5 s"}
