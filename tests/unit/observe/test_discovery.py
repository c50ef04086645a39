"""Journals are found in what a user is likely to name."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.observe import JournalPlace, find_journals
from penstock.observe.discovery import name_apart
from tests.journals import write_journal


@pytest.mark.parametrize("given", ["checkpoint", "checkpoint/penstock", "."])
def test_a_checkpoint_a_journal_or_what_holds_it(tmp_path: Path, given: str) -> None:
    write_journal(tmp_path / "checkpoint" / "penstock", 1)
    (place,) = find_journals(tmp_path / given)
    assert place == JournalPlace(str(tmp_path / "checkpoint" / "penstock"), "checkpoint")


def test_journals_side_by_side(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_journal(tmp_path / name, 1)
    assert [place.name for place in find_journals(tmp_path)] == ["a", "b"]


def test_a_network(tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text("{}")
    write_journal(tmp_path / "nodes" / "A" / "queries" / "x--y" / "penstock", 1)
    (place,) = find_journals(tmp_path)
    assert (place.name, place.node) == ("A: x->y", "A")


@pytest.mark.parametrize(("name", "message"), [("none", "there is no directory"), (".", "there is no journal in")])
def test_nothing_there_is_one_line(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        find_journals(tmp_path / name)


def test_equal_names_are_told_apart_and_a_journal_is_shown_once(tmp_path: Path) -> None:
    places = [JournalPlace(f"/{root}/checkpoint/penstock", "checkpoint") for root in ("x", "y", "x")]
    assert [place.name for place in name_apart(places)] == ["x/checkpoint", "y/checkpoint"]
