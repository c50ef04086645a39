"""Messages through a log that keeps the last record of each key, such as a compacted topic of Kafka.

All parties read the same log. The key of a message says who sends what kind of message to whom, so a newer one replaces an older
one. What a party has read, and how often it has started, are records of the log too: it needs no memory of its own.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from penstock.coordination.mailbox import Message, Position, decode_message, encode_message
from penstock.errors import PenstockError

__all__ = ["TopicLog", "TopicMailbox"]

_MESSAGE, _SEEN, _EPOCH = "message", "seen", "epoch"

Record = tuple[str, bytes | None]
"""Key and value; ``None`` removes the key."""


class TopicLog(Protocol):
    """A log that all parties append to and read."""

    def append(self, key: str, value: bytes | None) -> None:
        """Append a record; it may travel in the background, in order."""

    def flush(self) -> None:
        """Wait until all that was appended is stored; raise ``OSError`` if that takes too long."""

    def read(self) -> list[Record]:
        """Return what was appended since the last call, by anyone, without waiting."""

    def catch_up(self) -> list[Record]:
        """Return all from the beginning to the end of this moment."""


class TopicMailbox:
    """Carries messages as records of a log.

    Parameters
    ----------
    log
        The log, of which nothing has been read.
    me
        The name of this party.
    peers
        The names of those with whom it exchanges messages.
    network
        The fingerprint of the network: messages about another one are ignored.

    Raises
    ------
    OSError
        If the log can't be read or written.
    """

    def __init__(self, log: TopicLog, me: str, peers: Collection[str], network: str) -> None:
        self.me = me
        self.peers = tuple(peers)
        self.ignored: Counter[str] = Counter()
        self._log, self._network = log, network
        self._positions: dict[str, Position] = {}
        self._acknowledged: dict[str, Position] = {}
        self._unread: dict[tuple[str, str], list[Position]] = {}
        self._pending: list[tuple[list[str], str, bytes]] = []
        self._number = 0
        self._epoch = 1 + self._restore(log.catch_up())  # so that no number is used twice
        log.append(_key(_EPOCH, me), str(self._epoch).encode())
        log.flush()

    def _restore(self, records: Iterable[Record]) -> int:
        """Take what was read before the last stop, and return the last epoch of this party."""
        epoch, sent = 0, [0]
        table: dict[str, bytes | None] = {}
        for key, value in records:
            table.pop(key, None)  # so that the last record of a key counts, in its place
            table[key] = value
        for key, value in table.items():
            match _parts(key), value:
                case [["epoch", name], bytes()] if name == self.me:
                    epoch = _read_number(value)
                case [["message", _, sender, *_], bytes()] if sender == self.me:
                    message, _, _ = decode_message(value)
                    sent.append(0 if message is None else message.epoch)
            self._take(key, value)
        for parts, key, value in self._pending.copy():
            message, _, _ = decode_message(value)
            if message is not None and (message.epoch, message.number) <= self._positions.get(message.sender, (-1, -1)):
                self._pending.remove((parts, key, value))  # read before
        return epoch or max(*sent, *(position[0] for position in self._acknowledged.values()), 0)

    def _take(self, key: str, value: bytes | None) -> None:
        """Take a record: a message for this party, what it has read itself, or what a peer has read of its messages."""
        match _parts(key), value:
            case [["message", to, *_] as parts, bytes()] if to == self.me:
                self._pending.append((parts, key, value))
            case [["seen", reader, sender], bytes()]:
                if reader == self.me:
                    self._positions[sender] = max(_read_position(value), self._positions.get(sender, (-1, -1)))
                elif sender == self.me:
                    self._acknowledged[reader] = _read_position(value)

    def send(self, to: str, kind: str, body: Mapping[str, Any], *, replaces: bool = True) -> bool:
        """Append a message, as ``Mailbox.send`` says. A receipt that is under way does not count yet.

        Raises
        ------
        PenstockError
            If the receiver is no peer.
        """
        if to not in self.peers:
            raise PenstockError(f"{self.me!r} has no peer {to!r}; its peers are {', '.join(self.peers)}")
        self._read_log()
        read = self._acknowledged.get(to, (-1, -1))
        unread = [position for position in self._unread.get((to, kind), []) if position > read]
        self._number += 1
        message = Message(self.me, to, self._epoch, self._number, kind, dict(body), time.time())
        one = () if replaces else (f"{self._epoch}-{self._number}",)
        self._log.append(_key(_MESSAGE, to, self.me, kind, *one), encode_message(message, self._network))
        self._unread[to, kind] = [(self._epoch, self._number)] if replaces else [*unread, (self._epoch, self._number)]
        return not unread

    def receive(self) -> list[Message]:
        """Return the messages that have arrived, in each sender's order; a receipt for them is stored first.

        Raises
        ------
        OSError
            If the receipt can't be stored; then they come again the next time.
        """
        self._read_log()
        latest = {key: index for index, (_, key, _) in enumerate(self._pending)}
        positions = dict(self._positions)
        messages: list[Message] = []
        taken, ended = [], []
        for index, (parts, key, value) in enumerate(self._pending):
            message = self._check(parts, value)
            if message is None or latest[key] != index:
                continue
            position, last = (message.epoch, message.number), positions.get(message.sender, (-1, -1))
            if position <= last:
                self.ignored["duplicated" if position == last else "stale"] += 1
                continue
            positions[message.sender] = position
            messages.append(message)
            taken.append((parts, key, value))
            ended += [key] if len(parts) > 4 else []
        self._pending = []
        if messages:
            try:
                self._acknowledge(positions, ended)
            except OSError:
                self._pending = taken
                raise
            self._positions = positions
        return messages

    def _acknowledge(self, positions: Mapping[str, Position], ended: Iterable[str]) -> None:
        for sender, position in positions.items():
            if position != self._positions.get(sender):
                self._log.append(_key(_SEEN, self.me, sender), json.dumps(position).encode())
        for key in ended:  # nothing will replace these
            self._log.append(key, None)
        self._log.flush()

    def _read_log(self) -> None:
        for key, value in self._log.read():
            if _parts(key)[:2] != [_SEEN, self.me]:  # its own receipts it knows
                self._take(key, value)

    def _check(self, parts: list[str], value: bytes) -> Message | None:
        """Return a message if it is for this receiver, or ``None`` with the reason counted."""
        message, network, reason = decode_message(value)
        if message is not None:
            is_ours = parts[2:3] == [message.sender] and message.sender in self.peers and message.to == self.me
            if not is_ours or network != self._network:
                message, reason = None, "foreign"
        if message is None:
            self.ignored[reason] += 1
        return message


def _key(*parts: str) -> str:
    return json.dumps(parts, separators=(",", ":"))


def _parts(key: str) -> list[str]:
    try:
        parts = json.loads(key)
    except ValueError:
        return []
    return [str(part) for part in parts] if isinstance(parts, list) else []


def _read_number(value: bytes) -> int:
    return int(value) if value.isdigit() else 0


def _read_position(value: bytes) -> Position:
    try:
        epoch, number = json.loads(value)
        return int(epoch), int(number)
    except (ValueError, TypeError):
        return (-1, -1)
