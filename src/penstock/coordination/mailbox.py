"""How nodes and the coordinator talk: numbered messages behind a small interface, and a directory that carries them.

A directory on a filesystem that all of them can reach is enough: ``DIR/<to>/<from>/<epoch>-<number>.json``. A message is written
under a temporary name and renamed. It carries a checksum, its sender, its receiver, its network and its number. The receiver
ignores and counts, by reason, what does not fit:

- *torn*: not whole,
- *stale*: older than a message that was already read,
- *duplicated*: already read,
- *foreign*: not from a peer, not for this receiver, of another network or another schema.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import xxhash

from penstock.errors import PenstockError
from penstock.filesystem import write_atomically

__all__ = ["DirectoryMailbox", "Mailbox", "Message", "NoMailbox", "decode_message", "encode_message"]

_FORMAT = "penstock-message-1"
_NAME = re.compile(r"(\d{9})-(\d{12})\.json")
_STATE = ".seen.json"

Position = tuple[int, int]
"""Epoch and number of a message: later messages of a sender have a greater one."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message from one party to another. ``epoch`` counts the starts of the sender, ``number`` its messages since then."""

    sender: str
    to: str
    epoch: int
    number: int
    kind: str
    body: Mapping[str, Any]
    sent_s: float


class Mailbox(Protocol):
    """Carries messages: through a directory, or through a topic of Kafka (``topic_mailbox``)."""

    ignored: Counter[str]
    """How many messages were ignored, by reason."""

    def send(self, to: str, kind: str, body: Mapping[str, Any], *, replaces: bool = True) -> bool:
        """Send a message.

        Parameters
        ----------
        to
            The receiver.
        kind
            What the message is about.
        body
            Plain JSON values.
        replaces
            Whether the message replaces earlier ones of its kind that the receiver has not read.

        Returns
        -------
        bool
            Whether the receiver had read all earlier messages of this kind.

        """

    def receive(self) -> list[Message]:
        """Return the messages that have arrived, in each sender's order, and remove them."""


class NoMailbox:
    """The mailbox of a party without peers: nothing arrives, and nothing is sent."""

    def __init__(self) -> None:
        self.ignored: Counter[str] = Counter()

    def send(self, to: str, kind: str, body: Mapping[str, Any], *, replaces: bool = True) -> bool:  # noqa: ARG002 - dropped
        """Drop the message."""
        return True

    def receive(self) -> list[Message]:
        """Return no messages."""
        return []


class DirectoryMailbox:
    """Carries messages as files of a directory that all parties can reach.

    Parameters
    ----------
    root
        The directory.
    me
        The name of this party.
    peers
        The names of those with whom it exchanges messages.
    network
        The fingerprint of the network: messages about another one are ignored.

    Raises
    ------
    PenstockError
        If the directory cannot be written.

    """

    def __init__(self, root: str | Path, me: str, peers: Collection[str], network: str) -> None:
        self.me = me
        self.peers = tuple(peers)
        self.ignored: Counter[str] = Counter()
        self._network = network
        self._root = Path(root)
        self._inbox = self._root / me
        try:
            for peer in self.peers:
                (self._inbox / peer).mkdir(parents=True, exist_ok=True)
                (self._root / peer / me).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PenstockError(f"cannot exchange messages in {self._root}: {error.strerror}") from error
        self._positions, last_epoch = self._restore()
        self._epoch = last_epoch + 1  # so that no number is used twice
        self._save(self._positions)
        self._number = 0
        self._counted: set[str] = set()
        self._unread: dict[tuple[str, str], list[Path]] = {}

    def _restore(self) -> tuple[dict[str, Position], int]:
        """Return the last message read from each peer before the last stop, and the last epoch of this party."""
        positions, epoch = _read_state(self._inbox / _STATE)
        if not epoch:  # a first start, or the state is lost: continue after the latest message of ours that anyone has
            files = (path for peer in self.peers for path in (self._root / peer / self.me).glob("*.json"))
            unread = [int(match[1]) for match in (_NAME.fullmatch(path.name) for path in files) if match]
            read = [_read_state(self._root / peer / _STATE)[0].get(self.me, (0, 0))[0] for peer in self.peers]
            epoch = max([0, *unread, *read])
        return positions, epoch

    def _save(self, positions: Mapping[str, Position]) -> None:
        try:
            write_atomically(self._inbox / _STATE, json.dumps({"seen": positions, "epoch": self._epoch}).encode())
        except OSError as error:
            raise PenstockError(f"cannot exchange messages in {self._root}: {error.strerror}") from error

    def send(self, to: str, kind: str, body: Mapping[str, Any], *, replaces: bool = True) -> bool:
        """Write a message, as ``Mailbox.send`` says.

        Raises
        ------
        PenstockError
            If the receiver is no peer.
        OSError
            If the file cannot be written.

        """
        if to not in self.peers:
            raise PenstockError(f"{self.me!r} has no peer {to!r}; its peers are {', '.join(self.peers)}")
        unread = [path for path in self._unread.get((to, kind), []) if path.exists()]
        if replaces:
            for path in unread:
                path.unlink(missing_ok=True)
        self._number += 1
        message = Message(self.me, to, self._epoch, self._number, kind, dict(body), time.time())
        path = self._root / to / self.me / _file_name(self._epoch, self._number)
        write_atomically(path, encode_message(message, self._network))
        self._unread[to, kind] = [path] if replaces else [*unread, path]
        return not unread

    def receive(self) -> list[Message]:
        """Return the messages that have arrived, in each sender's order, and delete their files."""
        messages: list[Message] = []
        read: list[Path] = []
        positions = dict(self._positions)
        for path in self._message_files():
            message = self._open(path)
            if message is None:
                continue
            read.append(path)
            last = positions.get(message.sender, (-1, -1))
            position = (message.epoch, message.number)
            if position <= last:
                self.ignored["duplicated" if position == last else "stale"] += 1
                continue
            positions[message.sender] = position
            messages.append(message)
        if messages:
            self._save(positions)  # if this fails the files are still there
            self._positions = positions
        for path in read:
            path.unlink(missing_ok=True)
        return messages

    def _message_files(self) -> Iterator[Path]:
        """Yield the files of the inbox that are named like messages; count the others."""
        for folder in _list_visible(self._inbox):
            if folder.name not in self.peers:
                self._count_once(folder, "foreign")
                continue
            for path in _list_visible(folder):
                if _NAME.fullmatch(path.name):
                    yield path
                else:
                    self._count_once(path, "foreign")

    def _open(self, path: Path) -> Message | None:
        """Return the message in a file, or ``None`` with the reason counted."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None  # the sender has replaced it
        except OSError:
            content = b""
        message, network, reason = decode_message(content)
        if message is not None:
            reason = self._find_fault(message, network, path)
            if not reason:
                return message
        self._count_once(path, reason)
        return None

    def _find_fault(self, message: Message, network: str, path: Path) -> str:
        """Return why a message is not for this receiver; nothing if it is."""
        if message.sender != path.parent.name or message.to != self.me or network != self._network:
            return "foreign"
        return "" if path.name == _file_name(message.epoch, message.number) else "duplicated"  # a copy under another name

    def _count_once(self, path: Path, reason: str) -> None:
        """Count a file that is not ours to delete, the first time only."""
        if str(path) not in self._counted:
            self._counted.add(str(path))
            self.ignored[reason] += 1


def _file_name(epoch: int, number: int) -> str:
    return f"{epoch:09d}-{number:012d}.json"


def _read_state(path: Path) -> tuple[dict[str, Position], int]:
    """Return the last message that a party has read from each peer, and its epoch; nothing and 0 if that cannot be read."""
    try:
        state = json.loads(path.read_text())
        return {str(peer): (int(pair[0]), int(pair[1])) for peer, pair in state["seen"].items()}, int(state["epoch"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}, 0


def encode_message(message: Message, network: str) -> bytes:
    """Return a message about a network as bytes, with a checksum."""
    content = {
        "from": message.sender,
        "to": message.to,
        "epoch": message.epoch,
        "number": message.number,
        "kind": message.kind,
        "network": network,
        "sent_s": message.sent_s,
        "body": dict(message.body),
    }
    encoded = json.dumps(content, separators=(",", ":")).encode()
    return f"{_FORMAT} {xxhash.xxh64_hexdigest(encoded)}\n".encode() + encoded


def decode_message(content: bytes) -> tuple[Message | None, str, str]:
    """Return a message, its network, and if there is no message, why: it is *torn* or *foreign*."""
    body, reason = _verify_checksum(content)
    parsed = None if body is None else _parse(body)
    return (None, "", reason or "foreign") if parsed is None else (*parsed, "")


def _verify_checksum(content: bytes) -> tuple[bytes | None, str]:
    """Return the body of a file if its checksum is right, or why it is unusable."""
    header, _, body = content.partition(b"\n")
    words = header.decode(errors="replace").split()
    if len(words) != 2 or not words[0].startswith("penstock-message"):
        return None, "torn"
    if words[0] != _FORMAT:
        return None, "foreign"
    return (body, "") if words[1] == xxhash.xxh64_hexdigest(body) else (None, "torn")


def _parse(body: bytes) -> tuple[Message, str] | None:
    """Return the message and its network, or ``None`` if a field is missing."""
    try:
        content = json.loads(body)
        message = Message(
            str(content["from"]),
            str(content["to"]),
            int(content["epoch"]),
            int(content["number"]),
            str(content["kind"]),
            dict(content["body"]),
            float(content["sent_s"]),
        )
        return message, str(content["network"])
    except (ValueError, KeyError, TypeError):
        return None


def _list_visible(folder: Path) -> list[Path]:
    """Return what is in a folder by name, without hidden files; nothing if there is no such folder."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return []
