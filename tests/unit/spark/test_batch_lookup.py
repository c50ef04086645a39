"""How Spark's workers find the table of the batch that runs, and what they do if nobody has decided about it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle

from penstock.spark.connect import batch_lookup
from penstock.spark.connect.batch_lookup import create_once, file_of, find_tables, make_lookup, read_file


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(batch_lookup, "PATIENCE_S", 0.3)
    monkeypatch.setattr(batch_lookup, "IMPATIENCE_S", 0.05)
    monkeypatch.setattr(batch_lookup, "_INSISTENCE_S", 0.1)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "batches").mkdir()
    return tmp_path


def plan(place: Path, batch_id: int) -> None:
    (place / "offsets" / str(batch_id)).write_text("v1\n{}\n{}")
    (place / "offsets" / f".{batch_id}.crc").write_text("")


def decide(place: Path, batch_id: int, table: list[Any], decided_for: int | None) -> bool:
    content = {"decided_for": decided_for, "is_stand_in": False, "tables": {"in": table}}
    return create_once(file_of(str(place / "batches"), batch_id), content)


def find(place: Path) -> Any:
    return find_tables(str(place / "offsets"), str(place / "batches"))


def test_the_newest_batch_is_the_one_that_runs(place: Path) -> None:
    for batch_id in (8, 9, 10):
        plan(place, batch_id)
        decide(place, batch_id, [batch_id], batch_id)
    assert find(place) == {"in": [10]}


def test_a_decision_is_waited_for(place: Path) -> None:
    plan(place, 0)
    late = threading.Timer(0.1, decide, (place, 0, [7], 0))
    late.start()
    assert find(place) == {"in": [7]}


def test_without_a_decision_the_last_one_holds_and_stays(place: Path) -> None:
    decide(place, 3, [3], 3)
    plan(place, 4)
    assert find(place) == {"in": [3]}
    assert read_file(file_of(str(place / "batches"), 4)) == {
        "decided_for": 3,
        "is_stand_in": True,
        "client": None,
        "tables": {"in": [3]},
    }
    assert not decide(place, 4, [4], 4), "the client comes too late"
    assert find(place) == {"in": [3]}
    plan(place, 5)
    begin_s = time.monotonic()
    assert find(place) == {"in": [3]}, "of the stand-in, which is the same"
    assert time.monotonic() - begin_s < 0.25, "who has waited in vain waits less the next time"
    content = read_file(file_of(str(place / "batches"), 5))
    assert content is not None
    assert content["decided_for"] == 3


def test_before_the_first_decision_the_gates_are_open(place: Path) -> None:
    plan(place, 0)
    assert find(place) is None, "no client has ever been here"
    (place / "batches" / "first.json").write_text(json.dumps({"decided_for": None, "is_stand_in": False, "tables": {"in": [1]}}))
    assert find(place) == {"in": [1]}
    plan(place, 1)
    decide(place, 1, ["slots"], None)
    plan(place, 2)
    assert find(place) == {"in": [1]}, "slots say nothing about another batch"


def test_stand_ins_of_a_client_that_is_gone_for_long_do_not_pile_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_lookup, "RETAINED", 3)
    decide(place, 0, [0], 0)
    for batch_id in range(1, 10):
        plan(place, batch_id)
        assert find(place) == {"in": [0]}
    assert sorted(path.name for path in (place / "batches").glob("[0-9]*")) == ["6.json", "7.json", "8.json", "9.json"]


@pytest.mark.parametrize("has_links", [True, False])
def test_of_many_that_create_a_file_one_succeeds(place: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "no links here")

    if not has_links:
        monkeypatch.setattr("os.link", refuse)
    start, won = threading.Barrier(8), []

    def create(number: int) -> None:
        start.wait()
        if create_once(str(place / "x.json"), {"by": number}):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert read_file(str(place / "x.json")) == {"by": won[0]}
    assert [path.name for path in place.glob(".*")] == [], "nothing is left over"


def test_half_a_file_is_waited_for(place: Path) -> None:
    """A mount without links may show a file before it is whole."""
    plan(place, 0)
    path = place / "batches" / "0.json"
    path.write_text('{"decided_for": 0, "is_st')
    whole = json.dumps({"decided_for": 0, "is_stand_in": False, "tables": {"in": [5]}})
    threading.Timer(0.1, path.write_text, (whole,)).start()
    assert find(place) == {"in": [5]}


def test_what_is_not_there_is_no_error(place: Path) -> None:
    """The function runs inside of the query: what it raises would end it."""
    assert make_lookup(str(place / "nowhere.json"), "in")(0) is None
    where = place / "where.json"
    where.write_text(json.dumps({"offsets": str(place / "gone"), "batches": str(place / "batches")}))
    assert make_lookup(str(where), "in")(0) is None
    where.write_text(json.dumps({"offsets": str(place / "offsets"), "batches": str(place / "batches")}))
    assert make_lookup(str(where), "in")(0) is None, "no batch yet"
    plan(place, 0)
    decide(place, 0, [1], 0)
    assert make_lookup(str(where), "another")(0) is None


def test_workers_need_not_have_penstock(place: Path) -> None:
    plan(place, 0)
    decide(place, 0, [1, 2, 3], 0)
    where = place / "where.json"
    where.write_text(json.dumps({"offsets": str(place / "offsets"), "batches": str(place / "batches")}))
    look_up: Callable[[int], Any] = make_lookup(str(where), "in")
    pickled = place / "function"
    pickled.write_bytes(cloudpickle.dumps(look_up))
    code = (
        "import pickle, sys; sys.modules['penstock'] = None; "
        f"print(pickle.load(open({str(pickled)!r}, 'rb'))(0)); assert not [m for m in sys.modules if m.startswith('penstock.')]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(1, 2, 3)", done.stderr
