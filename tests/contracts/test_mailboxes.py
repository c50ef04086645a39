"""Every mailbox keeps its promises: through a directory, and through a log as Kafka has it, here in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.coordination import DirectoryMailbox, Mailbox, Message
from penstock.coordination.topic_mailbox import Record, TopicMailbox
from tests.mailboxes import NETWORK, MailboxContract, Post


class DirectoryPost(Post):
    """Files."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, me: str, *peers: str, network: str = NETWORK) -> Mailbox:
        return DirectoryMailbox(self._root, me, peers, network)

    def put(self, message: Message, content: bytes) -> None:
        folder = self._root / message.to / message.sender
        (folder / f"{message.epoch:09d}-{message.number:012d}.json").write_bytes(content)


class MemoryLog:
    """A log in memory that is compacted as lazily as Kafka's, or at once."""

    def __init__(self, records: list[Record], *, fails: bool = False) -> None:
        self._records, self._read, self.fails = records, 0, fails

    def append(self, key: str, value: bytes | None) -> None:
        self._records.append((key, value))

    def flush(self) -> None:
        if self.fails:
            raise OSError(None, "Kafka does not answer")

    def read(self) -> list[Record]:
        records, self._read = self._records[self._read :], len(self._records)
        return records

    catch_up = read


class LogPost(Post):
    """Records of a log."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def open(self, me: str, *peers: str, network: str = NETWORK) -> Mailbox:
        return TopicMailbox(MemoryLog(self.records), me, peers, network)

    def put(self, message: Message, content: bytes) -> None:
        key = json.dumps(["message", message.to, message.sender, message.kind], separators=(",", ":"))
        self.records.append((key, content))

    def compact(self) -> None:
        """Keep the last record of each key, in its place, as Kafka does; those who start afterwards read no others."""
        last = {key: index for index, (key, _) in enumerate(self.records)}
        self.records = [record for index, record in enumerate(self.records) if last[record[0]] == index]


class TestDirectoryMailbox(MailboxContract):
    @pytest.fixture
    def post(self, tmp_path: Path) -> Post:
        return DirectoryPost(tmp_path)


class TestTopicMailbox(MailboxContract):
    @pytest.fixture
    def post(self) -> LogPost:
        return LogPost()

    def test_compaction_loses_nothing_that_was_not_read(self, post: LogPost) -> None:
        a, b = post.open("A", "B"), post.open("B", "A")
        a.send("B", "one", {"n": 1}, replaces=False)
        assert self.numbers(post, b, 1) == [1]
        a.send("B", "one", {"n": 2}, replaces=False)
        a.send("B", "one", {"n": 3}, replaces=False)
        a.send("B", "plan", {"n": 4})
        a.send("B", "measurements", {"n": 5})
        a.send("B", "plan", {"n": 6})
        post.compact()
        again = post.open("B", "A")
        assert self.numbers(post, again, 4) == [2, 3, 5, 6]
        assert not again.ignored

    def test_a_sender_that_lost_its_epoch_goes_on_after_its_last_message(self, post: LogPost) -> None:
        a, b = post.open("A", "B"), post.open("B", "A")
        a = post.open("A", "B")
        a.send("B", "plan", {"n": 1})
        assert self.numbers(post, b, 1) == [1]
        post.records[:] = [record for record in post.records if record[0] != '["epoch","A"]']
        # The one who reads has forgotten its place in the log too: it is a list that has shrunk.
        again = post.open("B", "A")
        post.open("A", "B").send("B", "plan", {"n": 2})
        assert self.numbers(post, again, 1) == [2]

    def test_without_a_receipt_messages_come_again(self, post: LogPost) -> None:
        a = post.open("A", "B")
        log = MemoryLog(post.records)
        b = TopicMailbox(log, "B", ["A"], NETWORK)
        a.send("B", "plan", {"n": 1})
        log.fails = True
        for _ in range(2):
            with pytest.raises(OSError, match="does not answer"):
                b.receive()
        log.fails = False
        assert self.numbers(post, b, 1) == [1]
        assert not b.ignored
