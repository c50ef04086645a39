"""What every mailbox promises, whatever carries its messages: a directory, a log in memory, a topic of Kafka."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import pytest

from penstock.coordination import Mailbox, Message
from penstock.coordination.mailbox import encode_message
from penstock.errors import PenstockError

NETWORK = "x"


class Post(ABC):
    """Carries the messages of a test."""

    @abstractmethod
    def open(self, me: str, *peers: str, network: str = NETWORK) -> Mailbox:
        """Open a party's mailbox, perhaps again after a restart."""

    @abstractmethod
    def put(self, message: Message, content: bytes) -> None:
        """Put something where a message would lie."""

    def settle(self, is_so: Callable[[], bool]) -> bool:
        """Wait until what is under way has arrived."""
        end_s = time.monotonic() + 20.0
        while time.monotonic() < end_s:
            if is_so():
                return True
            time.sleep(0.02)
        return False


class MailboxContract:
    """The tests; a subclass gives the fixture ``post``."""

    def take(self, post: Post, mailbox: Mailbox, count: int) -> list[Message]:
        """Receive until so many messages have come, and no more come with them."""
        messages: list[Message] = []
        post.settle(lambda: messages.extend(mailbox.receive()) or len(messages) >= count)  # type: ignore[func-returns-value]
        return messages

    def numbers(self, post: Post, mailbox: Mailbox, count: int) -> list[int]:
        return [message.body["n"] for message in self.take(post, mailbox, count)]

    def test_messages_come_in_order_and_once(self, post: Post) -> None:
        a, b = post.open("A", "B"), post.open("B", "A")
        for number in range(12):
            a.send("B", "measurements", {"n": number}, replaces=False)
        messages = self.take(post, b, 12)
        assert [message.body["n"] for message in messages] == list(range(12))
        assert {(message.sender, message.to) for message in messages} == {("A", "B")}
        assert b.receive() == []
        assert not b.ignored

    def test_a_newer_message_replaces_one_that_was_not_read(self, post: Post) -> None:
        a, b = post.open("A", "B"), post.open("B", "A")
        assert a.send("B", "measurements", {"n": 1})
        assert a.send("B", "plan", {"n": 2})
        assert not a.send("B", "measurements", {"n": 3})
        a.send("B", "last", {"n": 4})
        messages: list[Message] = []
        post.settle(lambda: messages.extend(b.receive()) or bool(messages and messages[-1].kind == "last"))  # type: ignore[func-returns-value]
        read = [(message.kind, message.body["n"]) for message in messages]
        # Whoever reads meanwhile may get both; nobody gets the older one after the newer.
        assert [each for each in read if each != ("measurements", 1)] == [("plan", 2), ("measurements", 3), ("last", 4)]
        assert post.settle(lambda: (b.receive(), a.send("B", "plan", {}))[1]), "what was read is known to be read"

    def test_a_receiver_that_was_away_gets_the_latest_of_each_kind(self, post: Post) -> None:
        a = post.open("A", "B")
        for number in range(5):
            a.send("B", "measurements", {"n": number})
            a.send("B", "plan", {"n": 10 + number})
        assert self.numbers(post, post.open("B", "A"), 2)[-2:] == [4, 14]

    def test_what_was_read_is_not_read_again(self, post: Post) -> None:
        a, b = post.open("A", "B"), post.open("B", "A")
        a.send("B", "measurements", {"n": 1})
        (first,) = self.take(post, b, 1)
        post.put(first, encode_message(first, NETWORK))
        a.send("B", "plan", {"n": 2})
        assert self.numbers(post, b, 1) == [2]
        assert post.settle(lambda: not b.receive() and sum(b.ignored.values()) == 1)
        post.put(first, encode_message(first, NETWORK))
        assert post.settle(lambda: not b.receive() and b.ignored["stale"] >= 1)

    def test_nor_after_a_restart_of_the_receiver(self, post: Post) -> None:
        a, b = post.open("A", "B"), post.open("B", "A")
        a.send("B", "measurements", {"n": 1})
        (first,) = self.take(post, b, 1)
        again = post.open("B", "A")
        assert again.receive() == []
        assert not again.ignored
        post.put(first, encode_message(first, NETWORK))
        assert post.settle(lambda: not again.receive() and again.ignored == {"duplicated": 1})
        a.send("B", "measurements", {"n": 2})
        assert self.numbers(post, again, 1) == [2]

    def test_a_restarted_sender_is_heard(self, post: Post) -> None:
        a, b = post.open("A", "B"), post.open("B", "A")
        for number in range(5):
            a.send("B", "measurements", {"n": number}, replaces=False)
        assert len(self.take(post, b, 5)) == 5
        again = post.open("A", "B")
        again.send("B", "measurements", {"n": 9})
        assert self.numbers(post, b, 1) == [9]

    def test_what_is_torn_or_foreign_is_ignored_and_counted_once(self, post: Post) -> None:
        a, b = post.open("A", "B"), post.open("B", "A")

        def forge(sender: str, to: str, number: int) -> Message:
            return Message(sender, to, 1, number, f"kind{number}", {"n": number}, 0.0)

        good = encode_message(forge("A", "B", 50), NETWORK)
        post.put(forge("A", "B", 50), good[:-3])
        post.put(forge("A", "B", 51), b"")
        post.put(forge("A", "B", 52), encode_message(forge("A", "B", 52), "another network"))
        post.put(forge("A", "B", 53), encode_message(forge("A", "C", 53), NETWORK))
        post.put(forge("A", "B", 54), b"penstock-message-2 0123456789abcdef\n{}")
        a.send("B", "measurements", {"n": 99}, replaces=False)
        assert self.numbers(post, b, 1) == [99]
        assert b.receive() == []
        assert b.ignored == {"torn": 2, "foreign": 3}

    def test_mail_for_others_is_left_to_them(self, post: Post) -> None:
        a, b, c = post.open("A", "B", "C"), post.open("B", "A"), post.open("C", "A")
        a.send("C", "measurements", {"n": 1})
        assert self.numbers(post, c, 1) == [1]
        assert b.receive() == []
        assert not b.ignored

    def test_an_unknown_peer_is_refused(self, post: Post) -> None:
        with pytest.raises(PenstockError, match="has no peer 'C'; its peers are B"):
            post.open("A", "B").send("C", "measurements", {})
