"""The same tallies from journals, for jobs of other processes: what ``penstock metrics`` serves."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.errors import PenstockError
from penstock.journal import JournalState, read_journal
from penstock.journal.files import FILE_NAME, OWNER, JournalFiles
from penstock.metrics.observers import QueryObserver

__all__ = ["JournalPoll", "find_journals"]

log = logging.getLogger("penstock")

_DEPTH = 3
_OVERLAP = 64
_FAILURE = ": could not "


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
class _Follower:
    """What is known of one journal."""

    observer: WatchedQuery | None
    state: JournalState
    mark: object


class JournalPoll:
    """Follows all journals below some directories. ``refresh`` reads what has changed; nothing is ever written.

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
        self._followers: dict[tuple[str, int], _Follower] = {}
        self._complaints: set[str] = set()
        self._lock = threading.Lock()

    def refresh(self) -> int:
        """Read what is new in all journals, and return how many there are."""
        with self._lock:
            names = {location: name for directory in self._directories for location, name in find_journals(directory)}
            for location, name in names.items():
                try:
                    self._follow(location, name)
                except (OSError, PenstockError, ValueError, KeyError, TypeError) as error:
                    self._complain(f"{location} can't be read: {str(error).splitlines()[0]}")
            for key in [key for key in self._followers if key[0] not in names]:
                self._drop(key)
            return len(names)

    def _follow(self, location: str, name: str) -> None:
        mark = _find_mark(location)
        keys = [(location, number) for number in range(len(self._exporters))]
        if all(key in self._followers and self._followers[key].mark == mark for key in keys):
            self._set_gauges(location, keys)
            return
        state = read_journal(location)
        for line in state.damage:
            self._complain(line)
        for key in keys:
            follower = self._followers.get(key)
            if follower is not None and state.next_number < follower.state.next_number:
                self._drop(key)  # another journal has taken its place
                follower = None
            if follower is None:
                observer = self._exporters[key[1]].watch(name, state)
                self._followers[key] = _Follower(observer, state, mark)
            else:
                _pass_on(follower, state, _changed_s(location) or self._now_s())
                follower.state, follower.mark = state, mark
        self._set_gauges(location, keys)

    def _set_gauges(self, location: str, keys: Sequence[tuple[str, int]]) -> None:
        for key in keys:
            follower = self._followers[key]
            if follower.observer is None:
                continue
            batches, decided = follower.state.batches, [d.batch_id for d in follower.state.decisions[-1:]]
            last = max(batches, default=-1)
            changed_s = _changed_s(location)
            is_open = decided and decided[0] is not None and decided[0] > last
            follower.observer.set_gauge("batch_start", changed_s if is_open else None)
            follower.observer.set_gauge("last_write", changed_s)
            follower.observer.set_gauge("active", None)  # a journal does not say whether its job runs
            committed = _last_committed(location)
            follower.observer.set_gauge("failing", None if committed is None else float(committed > last))

    def _drop(self, key: tuple[str, int]) -> None:
        follower = self._followers.pop(key)
        if follower.observer is not None:
            self._exporters[key[1]].remove(follower.observer.label)

    def _complain(self, line: str) -> None:
        if line not in self._complaints and len(self._complaints) < 1_000:
            self._complaints.add(line)
            log.warning("%s", line)


def _pass_on(follower: _Follower, state: JournalState, now_s: float) -> None:
    if follower.observer is None:
        return
    known = follower.state.batches
    first = max(known, default=-1) - _OVERLAP  # a record may be replaced when the next batch begins, and after a crash
    batches = [record for number, record in sorted(state.batches.items()) if number >= first and known.get(number) != record]
    follower.observer.record([*state.decisions[-1:], *batches], now_s)
    follower.observer.sync(state)
    for message in state.errors:
        if _FAILURE in message and message not in follower.state.errors:
            follower.observer.fail()


def find_journals(directory: str | Path) -> list[tuple[str, str]]:
    """Return (location, name) of the journals in a directory: a journal, a checkpoint, or anything that holds some.

    Raises
    ------
    PenstockError
        If there is no such directory.
    """
    text = str(directory)
    if "://" in text:
        places = [place for place in (f"{text.rstrip('/')}/penstock", text) if _holds_journal(place)]
        return [(places[0], text.rstrip("/").rpartition("/")[2])] if places else []
    path = Path(text).absolute()
    if not path.is_dir():
        raise PenstockError(f"there is no directory {directory}")
    if (path / "network.json").is_file():
        journals = sorted(path.glob("nodes/*/queries/*/penstock"))
        return [
            (str(journal), f"{journal.parents[2].name}/{journal.parent.name}") for journal in journals if _is_journal(journal)
        ]
    return list(_walk(path, _DEPTH))


def _walk(path: Path, depth: int) -> Iterator[tuple[str, str]]:
    if _is_journal(path / "penstock"):
        yield str(path / "penstock"), path.name
    elif _is_journal(path):
        yield str(path), path.parent.name if path.name == "penstock" else path.name
    elif depth and not (path / "offsets").is_dir():  # a checkpoint without a journal has none deeper down either
        try:
            folders = sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
        except OSError:
            return
        for folder in folders:
            yield from _walk(folder, depth - 1)


def _is_journal(path: Path) -> bool:
    try:
        return (path / OWNER).is_file() or any(FILE_NAME.fullmatch(file.name) for file in path.glob("????????????*.json"))
    except OSError:
        return False


def _holds_journal(location: str) -> bool:
    return any(name == OWNER or FILE_NAME.fullmatch(name) for name in JournalFiles(location, None).list_names())


def _find_mark(location: str) -> object:
    """Return something that differs whenever a journal was written."""
    return max(JournalFiles(location, None).list_numbered(), default="")


def _changed_s(location: str) -> float | None:
    """Return when a local journal was last written; every write renames a file into it."""
    try:
        return Path(location).stat().st_mtime
    except OSError:
        return None


def _last_committed(location: str) -> int | None:
    """Return the last batch that Spark has committed, where the journal lies in the query's checkpoint."""
    try:
        return max(
            (int(file.name) for file in (Path(location).parent / "commits").iterdir() if file.name.isdigit()), default=None
        )
    except OSError:
        return None
