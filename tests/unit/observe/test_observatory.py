"""All queries under one reader."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.coordination.fingerprint import describe_network
from penstock.errors import PenstockError
from penstock.journal import Journal
from penstock.observe import Observatory
from tests.journals import make_records, write_journal
from tests.networks import figure1


def test_queries_are_named_as_their_job_does(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "c" / "penstock", owner="id")
    journal.describe(label="<script>", how="by batch", controller="MicroBatch", classes={})
    journal.close()
    (query,) = Observatory([tmp_path / "c"]).overview()["queries"]
    assert query["name"] == "<script>"
    assert query["state"] == "waiting"


def test_queries_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder, label in (("east", "orders"), ("west", "orders"), ("north", "returns")):
        journal = Journal(tmp_path / folder / "penstock", owner="id")
        journal.describe(label=label, how="by batch", controller="MicroBatch", classes={})
        journal.close()
    names = [query["name"] for query in Observatory([tmp_path]).overview()["queries"]]
    assert names == ["orders (east)", "returns", "orders (west)"]


def test_a_directory_without_a_journal_may_wait_for_one(tmp_path: Path) -> None:
    now = [0.0]
    observatory = Observatory([tmp_path], now_s=lambda: now[0], may_wait=True)
    assert observatory.overview()["queries"] == []
    write_journal(tmp_path / "a", 3)
    now[0] = 10.0
    assert observatory.poll()[1]
    assert len(observatory.overview()["queries"]) == 1
    with pytest.raises(PenstockError, match="there is no directory"):
        Observatory([tmp_path / "none"], may_wait=True)


def test_a_journal_that_appears_later_is_found(tmp_path: Path) -> None:
    now = [0.0]
    write_journal(tmp_path / "a", 3)
    observatory = Observatory([tmp_path], now_s=lambda: now[0])
    write_journal(tmp_path / "b", 3)
    assert observatory.poll() == (set(), False)
    now[0] = 10.0
    changed, has_more = observatory.poll()
    assert has_more
    assert len(changed) == 1
    assert len(observatory.overview()["queries"]) == 2


def test_a_journal_that_is_lost_is_said_so_and_comes_back(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "a", 3)
    observatory = Observatory([tmp_path])
    (number,) = observatory.queries
    path.rename(tmp_path / ".away")
    assert observatory.poll()[0] == {number}
    assert observatory.detail(number)["state"] == "lost"
    assert "can't be read" in observatory.detail(number)["notes"][0]
    (tmp_path / ".away").rename(path)
    assert observatory.poll()[0] == {number}
    assert observatory.detail(number)["state"] == "ended"


def test_a_running_job_is_told_from_one_that_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a", owner="job")
    for records in make_records(3):
        journal.append(*records)
    observatory = Observatory([tmp_path / "a"])
    assert observatory.overview()["queries"][0]["state"] == "running"
    journal.close()
    assert observatory.overview()["queries"][0]["state"] == "ended"


def test_a_network_is_drawn_and_damage_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text(json.dumps(describe_network(figure1())))
    write_journal(tmp_path / "nodes" / "A" / "queries" / "a1" / "penstock", 3)
    (tmp_path / "nodes" / "A" / "status.json").write_text("{torn")
    overview = Observatory([tmp_path]).overview()
    assert [node["name"] for node in overview["networks"][0]["drawing"]["nodes"]] == ["A", "B"]
    assert overview["queries"][0]["network"] == overview["networks"][0]["id"]
    assert overview["queries"][0]["target_s"] is None  # a node holds no delay
    json.dumps(overview, allow_nan=False)


def test_a_network_whose_description_is_damaged_shows_its_queries(tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text(json.dumps({"operator a": {"from": 3}}))
    write_journal(tmp_path / "nodes" / "A" / "queries" / "a1" / "penstock", 3)
    assert len(Observatory([tmp_path]).overview()["queries"]) == 1


def test_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="there is no directory"):
        Observatory([tmp_path / "none"])
