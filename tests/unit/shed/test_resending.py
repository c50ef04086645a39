"""Letters in a directory, sent again to another."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import PenstockError
from penstock.shed import resending
from penstock.shed.letters import Letter, ParquetLetters, open_letters
from penstock.shed.resending import TopicTarget, open_target


def write_letter(directory: Path, batch: int, rows: int, gate: str = "in") -> None:
    place = directory / "penstock_query=q1" / f"penstock_gate={gate}" / f"penstock_batch={batch}"
    place.mkdir(parents=True)
    table = pa.table({"value": [f"{batch}-{row}" for row in range(rows)], "penstock_reason": ["overload"] * rows})
    pq.write_table(table, place / "part-0.parquet")
    (place / "_SUCCESS").touch()


def replay(*arguments: object) -> dict[str, int]:
    result = CliRunner().invoke(app, ["replay-shed", *map(str, arguments), "--json"], catch_exceptions=False)
    return dict(json.loads(result.output))


def test_each_batch_is_sent_once(tmp_path: Path) -> None:
    write_letter(tmp_path / "shed", 1, 3)
    write_letter(tmp_path / "shed", 2, 4, gate="a%2Fb")
    assert replay(tmp_path / "shed", tmp_path / "again") == {"batches": 2, "rows": 7, "sent_before": 0}
    write_letter(tmp_path / "shed", 3, 5)
    assert replay(tmp_path / "shed", tmp_path / "again") == {"batches": 1, "rows": 5, "sent_before": 2}
    values = sorted(value for path in (tmp_path / "again").iterdir() for value in pq.read_table(path)["value"].to_pylist())
    assert values == sorted(f"{batch}-{row}" for batch, rows in ((1, 3), (2, 4), (3, 5)) for row in range(rows))


def test_a_gate_can_be_chosen_and_half_batches_are_left_out(tmp_path: Path) -> None:
    write_letter(tmp_path / "shed", 1, 3)
    write_letter(tmp_path / "shed", 1, 4, gate="a%2Fb")
    write_letter(tmp_path / "shed", 2, 9)
    (tmp_path / "shed/penstock_query=q1/penstock_gate=in/penstock_batch=2/_SUCCESS").unlink()
    letters = ParquetLetters(tmp_path / "shed")
    assert letters.list_letters() == [Letter("q1", "a/b", 1), Letter("q1", "in", 1)]
    assert replay(tmp_path / "shed", tmp_path / "again", "--gate", "a/b") == {"batches": 1, "rows": 4, "sent_before": 0}
    refused = CliRunner().invoke(app, ["replay-shed", str(tmp_path / "shed"), str(tmp_path / "again"), "--gate", "none"])
    assert str(refused.exception).endswith("shed: gate 'none' has shed nothing there; those that have: a/b, in")


def test_names_that_spark_escapes_in_directories_are_found_again(tmp_path: Path) -> None:
    write_letter(tmp_path / "shed", 1, 3)
    (tmp_path / "shed/penstock_query=q1").rename(tmp_path / "shed/penstock_query=late%3A50%25")
    (letter,) = ParquetLetters(tmp_path / "shed").list_letters()
    assert letter.query == "late:50%"
    assert ParquetLetters(tmp_path / "shed").read(letter).num_rows == 3


def test_a_topic_gets_a_transaction_per_batch_and_notes_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[bytes | None, bytes | None, dict[str, bytes | None]]] = []

    class Fake:
        def __init__(self, servers: str, topic: str) -> None:
            assert (servers, topic) == ("host:1", "late")

        def send(self, messages: object) -> int:
            if len(sent) >= 3:
                raise PenstockError("the broker is gone")
            sent.extend((key, value, dict(headers)) for key, value, headers, _ in messages)  # type: ignore[attr-defined]
            return 0

    monkeypatch.setattr(resending, "TopicWriter", Fake)
    write_letter(tmp_path, 1, 3)
    write_letter(tmp_path, 2, 4)
    refused = CliRunner().invoke(app, ["replay-shed", str(tmp_path), "kafka:late", "--servers", "host:1"])
    assert str(refused.exception) == "the broker is gone"
    assert json.loads(sent[0][1] or b"") == {"value": "1-0"}
    assert sent[0][2] == {"penstock-gate": b"in", "penstock-batch": b"1", "penstock-query": b"q1", "penstock-reason": b"overload"}
    target = open_target("kafka:late", "host:1", str(tmp_path))
    assert isinstance(target, TopicTarget)
    assert [target.has(letter) for letter in ParquetLetters(tmp_path).list_letters()] == [True, False]


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.timestamp("us", tz="UTC"), pa.timestamp("ms", tz="Europe/Berlin")], ids=str
)
def test_messages_keep_their_time_to_the_millisecond(kind: pa.DataType) -> None:
    millis = [1_794_820_892_811 + 7 * n for n in range(500)]
    times = pa.array(millis, pa.timestamp("ms")).cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    table = pa.table({"key": [None] * 500, "value": [b"x"] * 500, "timestamp": times})
    messages = list(resending._to_messages(Letter("q", "g", 0), table))
    assert [message[3] for message in messages] == millis
    assert messages[0][:2] == (None, b"x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "to"], "there are no shed rows in nowhere: name a directory, a checkpoint, or kafka:TOPIC"),
        (["kafka:t", "to"], "kafka:t needs --servers"),
        ([".", "kafka:t"], "kafka:t needs --servers"),
        ([".", "/proc/none"], "/proc/none can't be written"),
        ([".", "s3a://bucket/late"], "to a directory on this machine or to kafka:TOPIC, got 's3a://bucket/late'"),
    ],
)
def test_bad_addresses_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["replay-shed", *arguments])
    assert isinstance(refused.exception, PenstockError)
    assert message in str(refused.exception)


def test_a_log_of_offsets_needs_a_broker(tmp_path: Path) -> None:
    (tmp_path / "penstock-shed").mkdir()
    with pytest.raises(PenstockError, match="needs --servers"):
        open_letters(str(tmp_path), None)


def test_letters_far_away_are_read_and_noted_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an object store: pyarrow reads them, and nothing is written there."""
    from pyarrow import fs

    from penstock.storage.arrow_store import ArrowStore

    write_letter(tmp_path / "shed", 1, 3, gate="a%2Fb")
    store = ArrowStore(fs.LocalFileSystem(), str(tmp_path / "shed"), "s3a://bucket/shed")
    letters = ParquetLetters(store)
    (letter,) = letters.list_letters()
    assert letter == Letter("q1", "a/b", 1)
    assert letters.read(letter)["value"].to_pylist() == ["1-0", "1-1", "1-2"]
    monkeypatch.setattr(resending, "TopicWriter", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    target = open_target("kafka:late", "host:1", "s3a://bucket/shed")
    assert isinstance(target, TopicTarget)
    assert target._notes == Path("s3a___bucket_shed.penstock-resent-late.json")
