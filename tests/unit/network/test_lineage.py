"""Columns followed from an operator with state to the gates before it."""

from __future__ import annotations

import pytest

from penstock.network.lineage import Untraceable, Window, equal_columns, find_window, grouped_columns, trace_columns
from penstock.network.model import Operator


def test_windows_are_read_as_spark_writes_them() -> None:
    assert find_window({"group": ("key", 'WINDOW( `at.time` , "2 minutes" ) as w')}) == Window(
        "at.time", 120_000_000, 120_000_000
    )
    assert find_window({"group": "window(t, '10 seconds', '10 seconds', '3 seconds')"}).offset == 3_000_000
    assert find_window({"group": "window(t, '10 seconds', '10 seconds', '0 seconds')"}).offset == 0


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        ({"group": ("key",)}, "does not group by window"),
        ({"group": ("window(t + INTERVAL 1 DAY, '1 second')",)}, "does not group by window"),
        ({"group": ("window(t, '10 seconds', '5 seconds')",)}, "overlap"),
        ({"group": ("window(t, 'soon')",)}, "soon"),
        ({"function": "m:f"}, "function"),
        ({}, "does not group by window"),
    ],
)
def test_windows_that_cant_be_dropped_whole(work: dict[str, object], reason: str) -> None:
    with pytest.raises(Untraceable, match=reason):
        find_window(work)


def test_windows_nest_only_if_they_are_aligned() -> None:
    ten, five = Window("t", 10, 10, 3), Window("t", 5, 5, 3)
    assert ten.holds(five)
    assert not five.holds(ten)
    assert not ten.holds(Window("t", 4, 4, 3))


@pytest.mark.parametrize(
    ("on", "pairs"),
    [
        ("left.a = right.b", (("a", "b"),)),
        ("right.b == left.a", (("a", "b"),)),
        ("(left.a = right.b) and left.`c d`=right.e", (("a", "b"), ("c d", "e"))),
        ("left.t BETWEEN right.t AND right.u AND left.a = right.b", (("a", "b"),)),
    ],
)
def test_keys_of_a_join(on: str, pairs: tuple[tuple[str, str], ...]) -> None:
    assert equal_columns({"on": on}) == pairs


@pytest.mark.parametrize(
    "on",
    [
        "left.a = right.b OR left.t = right.t",  # either may hold
        "left.x > 1 OR left.t = right.t AND left.a = right.b",
        "NOT left.a = right.b",
        "left.x BETWEEN 1 AND left.a = right.b",  # that is (x BETWEEN 1 AND a) = b
        "left.a = right.b + 1",
        "left.a = left.b",
        "a = b",  # which side is not said
        "(left.a = right.b OR true)",
        "left.c = 'left.a = right.b AND left.a = right.b'",
    ],
)
def test_what_need_not_be_equal_is_no_key(on: str) -> None:
    with pytest.raises(Untraceable, match=r"no 'left\.x = right\.y' that must hold"):
        equal_columns({"on": on})


def test_groups_are_keys() -> None:
    assert grouped_columns({"group": ("window(t, '1 second')", "`a b`", "c", "d % 2")}) == ("a b", "c")
    with pytest.raises(Untraceable, match="no plain column"):
        grouped_columns({"group": ("d % 2",)})


def map_of(*select: str) -> tuple[Operator, dict[str, tuple[str, ...]]]:
    return Operator("m", "A", ("i",), 0.0), {"select": select}


def test_columns_are_followed_through_names_and_stars() -> None:
    assert trace_columns(*map_of("id AS key", "t"), ("key", "T")) == ("id", "t")
    assert trace_columns(*map_of("*", "a + 1 as b"), ("c",)) == ("c",)
    assert trace_columns(Operator("f", "A", ("i",), 0.0, kind="filter"), {"where": "a > 1"}, ("a",)) == ("a",)
    with pytest.raises(Untraceable, match="operator 'm' computes column 'b'"):
        trace_columns(*map_of("*", "a + 1 as b"), ("b",))
    with pytest.raises(Untraceable, match="operator 'm' does not pass on column 'c'"):
        trace_columns(*map_of("a"), ("c",))


def test_a_function_is_trusted_only_if_someone_answers_for_it() -> None:
    operator, work = Operator("f", "A", ("i",), 0.0), {"function": "m:f"}
    assert trace_columns(operator, work, ("a",), trusts_functions=True) == ("a",)
    with pytest.raises(Untraceable, match="operator 'f' is a function, which may compute column 'a'"):
        trace_columns(operator, work, ("a",))
