"""What a driver tells whoever wants to know about its query. Nothing that goes wrong here reaches the job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.journal.records import BatchRecord, Record
from penstock.journal.state import JournalState

__all__ = ["Exporter", "Observers", "QueryObserver"]

log = logging.getLogger("penstock")

_PATIENCE = 10


class QueryObserver(Protocol):
    """Sees what happens in one query. Its methods return at once: the job waits for them."""

    def record(self, records: Sequence[Record], now_s: float) -> None:
        """Take records that are in the journal now."""

    def miss(self, batches: Sequence[BatchRecord], now_s: float) -> None:
        """Take batches that the journal could not write; it will try again with the next records."""

    def fail(self) -> None:
        """Something failed without taking the job down."""

    def close(self) -> None:
        """The query has ended."""


class Exporter(Protocol):
    """Takes queries under observation."""

    def watch(self, query: str, state: JournalState) -> QueryObserver | None:
        """Return an observer of a query whose journal says this so far; ``None`` if there are too many."""


class Observers:
    """All observers of one query. One that raises is named once in the log, and the others and the job go on.

    One that fails ten times in a row is left alone from then on: even a failure takes time.
    """

    def __init__(self, exporters: Sequence[Exporter] = (), query: str = "", state: JournalState | None = None) -> None:
        self._observers: list[QueryObserver] = []
        self._failures: dict[int, int] = {}
        """By observer: how often it failed in a row."""
        self._has_warned = False
        for exporter in exporters:
            try:
                observer = exporter.watch(query, JournalState() if state is None else state)
            except Exception as error:  # whatever a library for metrics raises, the job goes on
                self._warn(error)
            else:
                self._observers += [] if observer is None else [observer]

    def record(self, records: Sequence[Record], now_s: float) -> None:
        """Pass on what is in the journal now."""
        self._tell(lambda observer: observer.record(records, now_s))

    def miss(self, records: Sequence[Record], now_s: float) -> None:
        """Pass on what the journal could not write. The rows of a batch were shed all the same; a decision never held."""
        batches = [record for record in records if isinstance(record, BatchRecord)]
        self._tell(lambda observer: observer.miss(batches, now_s))

    def fail(self) -> None:
        """Pass on that something failed."""
        self._tell(lambda observer: observer.fail())

    def close(self) -> None:
        """Pass on that the query has ended."""
        self._tell(lambda observer: observer.close())

    def _tell(self, call: Callable[[QueryObserver], None]) -> None:
        for observer in list(self._observers):
            try:
                call(observer)
            except Exception as error:  # as above
                self._warn(error)
                self._failures[id(observer)] = self._failures.get(id(observer), 0) + 1
                if self._failures[id(observer)] >= _PATIENCE and observer in self._observers:
                    self._observers.remove(observer)
            else:
                self._failures[id(observer)] = 0

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            reason = str(error).splitlines()[0] if str(error) else "no reason given"
            log.warning("metrics could not be updated: %s: %s; the job goes on", type(error).__name__, reason)
        log.debug("metrics could not be updated", exc_info=error)
