"""Follows a journal: reads what is new since the last look, also while the job writes and compacts it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import JournalError
from penstock.journal.files import FILE_NAME, OWNER, check_seal
from penstock.observe.query_series import RECENT, QuerySeries
from penstock.storage import Store, open_store

__all__ = ["JournalTail"]

_COMPACT = ".compact.json"
_SETTLED_S = 2.0
"""A directory that has not changed for so long is not listed again before it changes."""
_OWNER_S = 10.0
_REMOTE_S = 1.0
"""An object store is asked for its files no more often: every answer costs money there."""
_DECISION = b'{"kind":"decision"'
_AT_ONCE = 4096


class JournalTail:
    """The reader of one journal. Only new files are read, and nothing is ever written.

    Parameters
    ----------
    location
        The directory: a path, an address, or a store.
    now_s
        The clock, which tells whether a file is old enough to be left alone.

    """

    def __init__(self, location: str | Path | Store, now_s: Callable[[], float] = time.time) -> None:
        self._store = open_store(location, "the journal")
        self._now_s = now_s
        self.series = QuerySeries()
        self.owner: dict[str, Any] = {}
        self.damage: dict[str, str] = {}
        """What could not be read, by file."""
        self._next = 0
        self._changed_s: float | None = None
        self._is_first = True
        self._owner_read_s = self._listed_s = -math.inf

    @property
    def location(self) -> str:
        """The directory."""
        return self._store.location

    @property
    def is_running(self) -> bool | None:
        """Whether a job has the journal open; ``None`` where nobody can tell, as on an object store."""
        return self._store.is_held()

    def poll(self) -> bool:
        """Read what is new, and return whether there was something.

        Raises
        ------
        JournalError
            If there is no such directory.
        """
        changed_s = self._store.changed_s()
        if changed_s is not None and changed_s == self._changed_s and self._now_s() - changed_s > _SETTLED_S:
            return False
        if changed_s is None:
            if self._now_s() - self._listed_s < _REMOTE_S:
                return False
            if not self._store.exists():
                raise JournalError(f"there is no journal in {self.location}")
            self._listed_s = self._now_s()
        names = list(self._store.list_names())
        self._changed_s = changed_s
        if OWNER in names and (not self.owner or self._now_s() - self._owner_read_s > _OWNER_S):
            self._read_owner()
        numbered = {int(match.group(1)): match.string for name in names if (match := FILE_NAME.fullmatch(name))}
        version = self.series.version
        self._read(numbered)
        self._is_first = False
        return self.series.version != version

    def _read(self, numbered: dict[int, str]) -> None:
        if numbered and max(numbered) < self._next - 1:  # somebody removed the journal, and another job began one here
            self._next, self._is_first = 0, True
            self.series, self.damage = self._empty_series(), {}
        fresh = sorted(number for number in numbered if number >= self._next)
        compacts = [number for number in fresh if numbered[number].endswith(_COMPACT)]
        if compacts and (self._is_first or any(number not in numbered for number in range(self._next, compacts[-1]))):
            # Files between were compacted away before anybody read them: what they held is in the compacted one.
            self._start_again(compacts, numbered)
        for number in fresh:
            if number < self._next:
                continue
            if numbered[number].endswith(_COMPACT):
                self._next = number + 1  # it repeats what was read
            elif not self._read_file(number, numbered[number]) and number >= self._next:
                return  # compacted since the files were listed: the next look begins there

    def _start_again(self, compacts: list[int], numbered: dict[int, str]) -> None:
        """Go on with the newest compacted file that is intact, or begin with it."""
        for compact in reversed(compacts):
            if not self._is_first and self._catch_up(compact, numbered[compact]):
                return
            before, self.series = self.series, self._empty_series()
            if self._read_file(compact, numbered[compact]):
                return
            self.series = before

    def _catch_up(self, number: int, name: str) -> bool:
        """Take from a compacted file what is new, if it still has every batch since the last one that was read."""
        try:
            lines = _parse(self._store.read(name))
        except (OSError, ValueError):
            return False
        recent, decisions = self.series.recent, self.series.decisions
        numbers = [int(line["batch_id"]) for line in lines if line["kind"] == "batch"]
        if not recent or not numbers or min(numbers) > next(reversed(recent)) + 1:
            return False
        oldest = next(iter(recent))
        latest = _order(decisions[-1]) if decisions else -1
        errors = [line for line in lines if line["kind"] == "error"]
        unread = len(errors) - _count_common([str(line["message"]) for line in errors], self.series.errors)
        for line in lines:
            is_new = line["kind"] == "decision" and _order(line) > latest
            is_new |= line["kind"] == "batch" and line["batch_id"] >= oldest and recent.get(int(line["batch_id"])) != line
            if is_new:
                self.series.add_line(line, self._now_s())
        for line in errors[len(errors) - unread :] if unread else []:
            self.series.add_line(line)
        self._next = number + 1
        return True

    def _empty_series(self) -> QuerySeries:
        series = QuerySeries()
        series.version = self.series.version + 1
        return series

    def _read_file(self, number: int, name: str) -> bool:
        """Add the lines of a file; a damaged one is named and passed over, one that vanished was compacted."""
        try:
            lines = _parse(self._store.read(name))
            # Only a batch that ends while somebody watches may lack the time of its end.
            seen_s = None if self._is_first else self._now_s()
            for line in lines:
                self.series.add_line(line, seen_s)
        except FileNotFoundError:
            return False
        except (ValueError, KeyError, TypeError) as error:
            self.damage[name] = f"journal file {self.location}/{name} is torn or damaged and ignored: {error}"
            self._next = max(self._next, number + 1) if not name.endswith(_COMPACT) else self._next
            return False
        self.damage.pop(name, None)
        self._next = max(self._next, number + 1)
        return True

    def _read_owner(self) -> None:
        self._owner_read_s = self._now_s()
        try:
            self.owner = json.loads(self._store.read(OWNER))
        except (ValueError, OSError) as error:
            self.damage[OWNER] = f"journal file {self.location}/{OWNER} is damaged and ignored: {error}"


def _parse(content: bytes) -> list[dict[str, Any]]:
    """Return the lines of a file, without the oldest decisions: a compacted file has thousands, and nobody looks at those."""
    lines = check_seal(content)
    decisions = [index for index, line in enumerate(lines) if line.startswith(_DECISION)]
    if old := set(decisions[:-RECENT]):
        lines = [line for index, line in enumerate(lines) if index not in old]
    parsed: list[dict[str, Any]] = []
    for first in range(0, len(lines), _AT_ONCE):  # one call for many lines takes half the time of many calls
        parsed += json.loads(b"[" + b",".join(lines[first : first + _AT_ONCE]) + b"]")
    return parsed


def _order(decision: Mapping[str, Any]) -> int:
    number = decision.get("batch_id", decision.get("from_slot"))
    return -1 if number is None else int(number)


def _count_common(messages: list[str], known: list[str]) -> int:
    """Return how many of the first messages are the last known ones."""
    for count in range(min(len(messages), len(known)), 0, -1):
        if messages[:count] == known[-count:] or messages[:count] == known[:count]:
            return count
    return 0
