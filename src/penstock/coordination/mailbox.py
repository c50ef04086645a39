"""How nodes and coordinator talk: numbered messages through a small interface, and a directory that carries them.

A directory on a filesystem that all of them see is enough: ``DIR/<to>/<from>/<epoch>-<number>.json``. A message is written
under a temporary name and renamed, has a checksum, and says who sent it, to whom, about which network, and in which order.
Whatever does not fit is ignored and counted, by reason: *torn* (not whole), *stale* (older than one that was taken already),
*duplicated* (taken already) or *foreign* (not from a peer, not for this receiver, another network, another schema).
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

__all__ = ["DirectoryMailbox", "Mailbox", "Message"]

_FORMAT = "penstock-message-1"
_NAME = re.compile(r"(\d{9})-(\d{12})\.json")
_SEEN = ".seen.json"


@dataclass(frozen=True, slots=True)
class Message:
    """What one party says to another. ``epoch`` counts the starts of the sender, ``number`` its messages since."""

    sender: str
    to: str
    epoch: int
    number: int
    kind: str
    body: Mapping[str, Any]
    sent_s: float


class Mailbox(Protocol):
    """What carries messages. Kafka, or whatever comes later, needs these two."""

    ignored: Counter[str]
    """How many messages were ignored, by reason."""

    def send(self, to: str, kind: str, body: Mapping[str, Any], *, replaces: bool = True) -> bool:
        """Send a message, in place of earlier ones of its kind that were not taken if it ``replaces``; false if there were."""

    def receive(self) -> list[Message]:
        """Return the messages that have come, each sender's in order."""


class DirectoryMailbox:
    """Messages as files of a directory that all parties see."""

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
            raise PenstockError(f"messages can't be exchanged in {self._root}: {error.strerror}") from error
        self._seen, self._epoch = self._take_up()
        self._number = 0
        self._counted: set[str] = set()
        self._unread: dict[tuple[str, str], list[Path]] = {}

    def _take_up(self) -> tuple[dict[str, tuple[int, int]], int]:
        """What was taken before the last stop, and a new epoch: numbers never come twice."""
        seen, epoch = _state(self._inbox / _SEEN)
        if not epoch:  # new, or it has lost its memory: go on after whatever of ours lies about or was taken
            ours = (_NAME.fullmatch(path.name) for peer in self.peers for path in (self._root / peer / self.me).glob("*.json"))
            taken = (_state(self._root / peer / _SEEN)[0].get(self.me, (0, 0))[0] for peer in self.peers)
            epoch = max([0, *(int(match[1]) for match in ours if match), *taken])
        self._save(seen, epoch + 1)
        return seen, epoch + 1

    def _save(self, seen: Mapping[str, tuple[int, int]], epoch: int) -> None:
        try:
            _write(self._inbox / _SEEN, json.dumps({"seen": seen, "epoch": epoch}).encode())
        except OSError as error:
            raise PenstockError(f"messages can't be exchanged in {self._root}: {error.strerror}") from error

    def send(self, to: str, kind: str, body: Mapping[str, Any], *, replaces: bool = True) -> bool:
        """Send a message, in place of earlier ones of its kind that were not taken if it ``replaces``; false if there were."""
        if to not in self.peers:
            raise PenstockError(f"{self.me!r} has no peer {to!r}; there are {', '.join(self.peers)}")
        waiting = [path for path in self._unread.get((to, kind), []) if path.exists()]
        if replaces:
            for path in waiting:
                path.unlink(missing_ok=True)
        self._number += 1
        content = {
            "from": self.me,
            "to": to,
            "epoch": self._epoch,
            "number": self._number,
            "kind": kind,
            "network": self._network,
            "sent_s": time.time(),
            "body": dict(body),
        }
        path = self._root / to / self.me / f"{self._epoch:09d}-{self._number:012d}.json"
        encoded = json.dumps(content, separators=(",", ":")).encode()
        _write(path, f"{_FORMAT} {xxhash.xxh64_hexdigest(encoded)}\n".encode() + encoded)
        self._unread[to, kind] = [path] if replaces else [*waiting, path]
        return not waiting

    def receive(self) -> list[Message]:
        """Return the messages that have come, each sender's in order; they are then gone from the directory."""
        found: list[Message] = []
        taken: list[Path] = []
        seen = dict(self._seen)
        for path in self._arrived():
            message = self._opened(path)
            if message is None:
                continue
            last = seen.get(message.sender, (-1, -1))
            place = (message.epoch, message.number)
            taken.append(path)
            if place <= last:
                self.ignored["duplicated" if place == last else "stale"] += 1
                continue
            seen[message.sender] = place
            found.append(message)
        if found:
            self._save(seen, self._epoch)  # if this fails they are still there
            self._seen = seen
        for path in taken:
            path.unlink(missing_ok=True)
        return found

    def _arrived(self) -> Iterator[Path]:
        for place in sorted(_entries(self._inbox)):
            if place.name.startswith("."):
                continue
            if place.name not in self.peers:
                self._count_once(place, "foreign")
                continue
            for path in sorted(_entries(place)):
                if path.name.startswith("."):
                    continue
                if _NAME.fullmatch(path.name):
                    yield path
                else:
                    self._count_once(path, "foreign")

    def _opened(self, path: Path) -> Message | None:
        """The message in a file, or ``None`` with the reason counted."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None  # its sender has replaced it
        except OSError:
            content = b""
        body, reason = _unsealed(content)
        if body is not None:
            message, reason = self._checked(body, path)
            if message is not None:
                return message
        self._count_once(path, reason)
        return None

    def _checked(self, body: bytes, path: Path) -> tuple[Message | None, str]:
        parsed = _parsed(body)
        if parsed is None:
            return None, "foreign"
        message, network = parsed
        if message.sender != path.parent.name or message.to != self.me or network != self._network:
            return None, "foreign"
        if path.name != f"{message.epoch:09d}-{message.number:012d}.json":
            return None, "duplicated"  # a copy under another name
        return message, ""

    def _count_once(self, path: Path, reason: str) -> None:
        """What is not ours to delete stays, and is counted the first time only."""
        if str(path) not in self._counted:
            self._counted.add(str(path))
            self.ignored[reason] += 1


def _state(path: Path) -> tuple[dict[str, tuple[int, int]], int]:
    """What a party has taken of each other, and its epoch; nothing and 0 where that can't be read."""
    try:
        state = json.loads(path.read_text())
        return {str(peer): (int(pair[0]), int(pair[1])) for peer, pair in state["seen"].items()}, int(state["epoch"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}, 0


def _unsealed(content: bytes) -> tuple[bytes | None, str]:
    """The body of a file whose checksum is right, or why it is of no use."""
    header, _, body = content.partition(b"\n")
    words = header.decode(errors="replace").split()
    if len(words) != 2 or not words[0].startswith("penstock-message"):
        return None, "torn"
    if words[0] != _FORMAT:
        return None, "foreign"
    return (body, "") if words[1] == xxhash.xxh64_hexdigest(body) else (None, "torn")


def _parsed(body: bytes) -> tuple[Message, str] | None:
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


def _entries(place: Path) -> list[Path]:
    try:
        return list(place.iterdir())
    except FileNotFoundError:
        return []


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all. Not forced to the disk: what a power cut loses is said again after the restart."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
