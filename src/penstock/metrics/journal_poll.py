"""The same tallies from journals, for jobs of other processes: what ``penstock metrics`` serves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.errors import PenstockError
from penstock.journal import JournalState, read_journal
from penstock.journal.files import list_numbered, unseal
from penstock.journal.places import JournalPlace, find_places
from penstock.journal.records import Record, decode
from penstock.metrics.observers import QueryObserver
from penstock.storage import open_store

__all__ = ["JournalPoll"]

log = logging.getLogger("penstock")

_OVERLAP = 64
_FAILURE = ": could not "
_MOST_COMPLAINTS = 1_000


class WatchedQuery(QueryObserver, Protocol):
    """An observer that also takes what no record says."""

    label: str
    """What the query is called there."""

    def sync(self, state: JournalState) -> None:
        """Take rows and batches from the whole journal."""

    def set_gauge(self, key: str, value: float | None) -> None:
        """Set a gauge; ``None`` leaves it out."""


class JournalExporter(Protocol):
    """Takes queries under observation, and lets them go."""

    def watch(self, query: str, state: JournalState) -> WatchedQuery | None:
        """Return an observer of a query; ``None`` if there are too many."""

    def remove(self, label: str) -> None:
        """Show a query no more."""


@dataclass(slots=True)
class _Followed:
    """What is known of one journal."""

    name: str
    state: JournalState
    observers: list[WatchedQuery | None]
    newest: str
    """Its last file."""


class JournalPoll:
    """Follows all journals below some directories. ``refresh`` reads what is new; nothing is ever written.

    Parameters
    ----------
    directories
        Journals, checkpoints, directories of them, or run directories of networks.
    exporters
        Who wants to know.
    now_s
        The clock.
    """

    def __init__(
        self, directories: Sequence[str | Path], exporters: Sequence[JournalExporter], now_s: Callable[[], float] = time.time
    ) -> None:
        self._directories = directories
        self._exporters = exporters
        self._now_s = now_s
        self._followed: dict[str, _Followed] = {}
        self._complaints: set[str] = set()

    def refresh(self) -> int:
        """Read what is new in all journals, and return how many there are.

        Raises
        ------
        PenstockError
            If there is no journal, and one of the directories does not exist.
        """
        names: dict[str, str] = {}
        missing: list[PenstockError] = []
        for directory in self._directories:
            try:
                names |= {place.location: _name(place) for place in find_places(directory)}
            except PenstockError as error:
                missing.append(error)
        for location in [location for location in self._followed if location not in names]:
            self._drop(location)
        if missing and not names:
            raise missing[0]
        for unfound in missing:
            self._complain(str(unfound))
        for location, name in names.items():
            try:
                self._follow(location, name)
            except (OSError, PenstockError, ValueError, KeyError, TypeError) as error:
                self._complain(f"{location} can't be read: {str(error).splitlines()[0]}")
        return len(names)

    def _follow(self, location: str, name: str) -> None:
        files = sorted(list_numbered(open_store(location, "the journal")))
        newest = files[-1] if files else ""
        followed = self._followed.get(location)
        if followed is None:
            self._begin(location, name, newest)
        elif followed.newest != newest:
            records = _read_new(location, files, followed.state)
            if records is None:
                self._read_again(location, followed)
            else:
                self._pass_on(location, followed, records)
            if location in self._followed:
                self._followed[location].newest = newest
        self._set_gauges(location)

    def _begin(self, location: str, name: str, newest: str) -> None:
        state = self._read(location)
        observers = [exporter.watch(name, state) for exporter in self._exporters]
        self._followed[location] = _Followed(name, state, observers, newest)

    def _read(self, location: str) -> JournalState:
        state = read_journal(location)
        for line in state.damage:
            self._complain(line)
        return state

    def _read_again(self, location: str, followed: _Followed) -> None:
        """The journal was compacted, damaged or replaced: compare it as a whole with what is known."""
        state = self._read(location)
        if state.next_number < followed.state.next_number:  # another journal has taken its place
            self._drop(location)
            self._begin(location, followed.name, followed.newest)
            return
        known, errors = followed.state.batches, followed.state.errors
        first = max(known, default=-1) - _OVERLAP  # a record may be replaced when the next batch begins, and after a crash
        batches = [record for number, record in sorted(state.batches.items()) if number >= first and known.get(number) != record]
        messages = [message for message in state.errors if message not in errors]
        self._pass_on(location, followed, [*state.decisions[-1:], *batches, *messages])
        followed.state = state
        for observer in filter(None, followed.observers):
            observer.sync(state)  # batches may have come and been folded in between

    def _pass_on(self, location: str, followed: _Followed, records: Sequence[Record]) -> None:
        now_s = _changed_s(location) or self._now_s()
        for observer in filter(None, followed.observers):
            observer.record([record for record in records if not isinstance(record, str)], now_s)
            for _ in (record for record in records if isinstance(record, str) and _FAILURE in record):
                observer.fail()

    def _set_gauges(self, location: str) -> None:
        followed = self._followed[location]
        last = max(followed.state.batches, default=-1)
        decided = followed.state.decisions[-1].batch_id if followed.state.decisions else None
        changed_s, committed = _changed_s(location), _last_number(location, "commits")
        done = last if committed is None else max(last, committed)
        gauges = {
            "batch_start": None if decided is None else changed_s if decided > last else _open_since_s(location, done),
            "last_write": changed_s,
            "active": None,  # a journal does not say whether its job runs
            "failing": None if committed is None else float(committed > last),
        }
        for observer in filter(None, followed.observers):
            for key, value in gauges.items():
                observer.set_gauge(key, value)

    def _drop(self, location: str) -> None:
        followed = self._followed.pop(location)
        for exporter, observer in zip(self._exporters, followed.observers, strict=True):
            if observer is not None:
                exporter.remove(observer.label)

    def _complain(self, line: str) -> None:
        if line not in self._complaints and len(self._complaints) < _MOST_COMPLAINTS:
            self._complaints.add(line)
            log.warning("%s", line)


def _read_new(location: str, names: Sequence[str], state: JournalState) -> list[Record] | None:
    """Return the records of the files since the last look, and add them to the state; ``None`` if only all files tell."""
    new = [name for name in names if int(name[:12]) >= state.next_number]
    if not new or any(int(name[:12]) != state.next_number + step or ".compact" in name for step, name in enumerate(new)):
        return None
    store = open_store(location, "the journal")
    try:
        records = [decode(line) for name in new for line in unseal(store.read(name))]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    for record in records:
        state.add(record)
    state.next_number += len(new)
    return records


def _name(place: JournalPlace) -> str:
    """Return what a query is called in a label: its name, on a node of a network behind that of the node."""
    return place.name if place.node is None else f"{place.node}/{Path(place.location).parent.name}"


def _changed_s(location: str) -> float | None:
    """Return when a journal was last written, where its storage can tell; every write adds a file."""
    return open_store(location, "the journal").changed_s()


def _last_number(location: str, folder: str) -> int | None:
    """Return the last batch in a log of Spark's, where the journal lies in the query's checkpoint."""
    try:
        return max((int(file.name) for file in (Path(location).parent / folder).iterdir() if file.name.isdigit()), default=None)
    except OSError:
        return None


def _open_since_s(location: str, done: int) -> float | None:
    """Return when a batch was planned that is still open; its decision may be written later, if it says the same as the last."""
    planned = _last_number(location, "offsets")
    if planned is None or planned <= done:
        return None
    try:
        return (Path(location).parent / "offsets" / str(planned)).stat().st_mtime
    except OSError:
        return None
