"""Dead letters in a topic: which of the messages count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from penstock.shed import letters
from penstock.shed.letters import Letter, TopicLetters
from penstock.shed.shed_log import OffsetRange


@dataclass
class Sent:
    """A message of a topic with one partition, as confluent-kafka shows it."""

    number: int
    text: str
    batch: int
    run: str
    row: int | None = None

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self.text.encode()

    def topic(self) -> str:
        return "shed"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000 + self.number

    def headers(self) -> list[tuple[str, bytes]]:
        marks = {"query": "q", "gate": "in", "batch": str(self.batch), "run": self.run, "reason": "overload"}
        if self.row is not None:
            marks |= {"topic": "rows", "partition": "0", "offset": str(self.row), "timestamp": "77"}
        return [(f"penstock-{name}", value.encode()) for name, value in marks.items()]


def open_topic(monkeypatch: pytest.MonkeyPatch, *messages: Sent) -> TopicLetters:
    class Fake:
        def __init__(self, servers: str) -> None:
            pass

        def list_ranges(self, topic: str) -> list[OffsetRange]:
            return [OffsetRange(topic, 0, 0, len(messages))]

        def read(self, part: OffsetRange) -> Iterator[Sent]:
            yield from messages[part.start : part.end]

    monkeypatch.setattr(letters, "TopicReader", Fake)
    return TopicLetters("host:1", "shed")


def test_rows_that_a_task_wrote_twice_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark tries a task again that failed, within the same run; what it had written stays."""
    topic = open_topic(
        monkeypatch, Sent(0, "a", 3, "r", 10), Sent(1, "b", 3, "r", 11), Sent(2, "a", 3, "r", 10), Sent(3, "b", 3, "r", 11)
    )
    table = topic.read(Letter("q", "in", 3))
    assert table["offset"].to_pylist() == [10, 11]
    assert table["value"].to_pylist() == [b"a", b"b"]


def test_rows_without_coordinates_all_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may well be alike."""
    topic = open_topic(monkeypatch, Sent(0, "a", 3, "r"), Sent(1, "a", 3, "r"))
    assert topic.read(Letter("q", "in", 3))["value"].to_pylist() == [b"a", b"a"]


def test_only_the_last_run_of_a_batch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = open_topic(
        monkeypatch,
        Sent(0, "a", 3, "dead", 10),
        Sent(1, "a", 3, "next", 10),
        Sent(2, "b", 3, "next", 11),
        Sent(3, "c", 4, "next", 12),
    )
    assert topic.list_letters() == [Letter("q", "in", 3), Letter("q", "in", 4)]
    assert topic.read(Letter("q", "in", 3))["offset"].to_pylist() == [10, 11]
