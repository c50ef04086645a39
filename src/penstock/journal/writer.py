"""How records get into a journal's files: at once, where a write takes a millisecond.

A file with a decision is synced to the disk before the decision takes effect. Counts alone need not be: they are written again
with the next decision, so a batch waits for the disk once. A power cut in between takes back the counts of one batch, and Spark's
commit of it, which is not synced either. If only the counts are gone, the batch must be counted again, so this is for queries
whose next start can do that.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from typing import Any

from penstock.errors import JournalError
from penstock.journal.files import list_numbered, number_name, read_state, seal
from penstock.journal.state import JournalState
from penstock.storage import HeldError, Store

__all__ = ["COMPACT_EVERY", "DirectWriter", "JournalWriter", "Line", "refuse"]

log = logging.getLogger("penstock")

COMPACT_EVERY = 256
"""Files after which a journal is compacted."""
_MOST_UNSYNCED = 16
"""Batches that may be in files which are not synced, where no decision follows."""

Line = dict[str, Any]
"""A record as plain JSON values."""


def refuse(store: Store, error: OSError) -> JournalError:
    """Return the error for a journal that can't be written."""
    return JournalError(f"the journal in {store.location} can't be written: {error.strerror or str(error).splitlines()[0]}")


class JournalWriter(ABC):
    """Writes the files of one journal. ``state`` has what is durable, and nothing else."""

    def __init__(self, store: Store, retain: int) -> None:
        self.store = store
        self.state = JournalState()
        self._retain = retain
        self._since_compaction = 0
        self._is_closed = False

    def open(self) -> None:
        """Take the journal for this job alone, and read it.

        Raises
        ------
        JournalError
            If it can't be written, or another job has it.
        """
        try:
            self._open()
        except HeldError as error:
            raise JournalError(
                f"the journal in {self.store.location} is in use by another job ({error}): give each job a journal of its own"
            ) from None
        except OSError as error:
            raise refuse(self.store, error) from error

    @abstractmethod
    def _open(self) -> None:
        """Take and read it."""

    @abstractmethod
    def append(self, lines: list[Line]) -> None:
        """Write lines as one file. Those with a decision are durable when this returns; of others, the writer takes care.

        Raises
        ------
        JournalError
            If the write fails. Lines without a decision are kept and written later. A decision is lost, because it must not take
            effect later than intended.
        """

    @abstractmethod
    def append_later(self, lines: list[Line]) -> None:
        """Write lines together with the next ones."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left and give the journal back; a second call does nothing."""

    @property
    def is_lost(self) -> bool:
        """Whether the journal is another job's by now, or may be."""
        return self._is_closed

    def check_open(self) -> None:
        """Refuse to write to a journal that was given back: another job may have it by now."""
        if self._is_closed:
            raise JournalError(f"the journal in {self.store.location} is closed")

    def fold(self) -> bytes:
        """Return a file with all that the journal has, the oldest as totals."""
        self.state.fold(self._retain)
        return seal(self.state.to_lines())


class DirectWriter(JournalWriter):
    """Writes in the thread that appends, on a disk of this machine; ``syncs_counts`` even where no decision is among them."""

    def __init__(self, store: Store, retain: int, *, syncs_counts: bool = True) -> None:
        super().__init__(store, retain)
        self._syncs_counts = syncs_counts
        self._hold = store.hold()
        self._unsaved: list[Line] = []
        self._unsynced: list[Line] = []  # in a file, but maybe not on the disk yet
        self._writing = threading.Lock()  # queries that share a gate append from several threads

    def _open(self) -> None:
        self.store.make()
        self.store.replace(".probe", b"")
        self.store.delete(".probe")
        self._hold.acquire()
        try:
            self._read()
        except BaseException:
            self._hold.release()
            raise

    def _read(self) -> None:
        self.state = read_state(self.store)
        self._since_compaction = sum(not name.endswith(".compact.json") for name in list_numbered(self.store))

    def append(self, lines: list[Line]) -> None:
        """Write lines. They survive this process when this returns; all but counts, and what came later, survive a power cut."""
        with self._writing:
            self.check_open()
            others = [line for line in self._unsaved if line["kind"] != "decision"]  # a decision that came later can wait
            self._append(lines, is_synced=any(line["kind"] != "batch" for line in others + lines))

    def append_later(self, lines: list[Line]) -> None:
        """Write lines together with the next ones."""
        with self._writing:
            self.check_open()
            self._unsaved += lines

    def _append(self, lines: list[Line], *, is_synced: bool) -> None:
        together = self._unsaved + lines
        is_synced = is_synced or self._syncs_counts or len(_list_batches(self._unsynced)) >= _MOST_UNSYNCED
        again = _without(self._unsynced, together) if is_synced else []
        try:
            self._write(seal(again + together), is_synced=is_synced)
        except OSError as error:
            self._unsaved += [line for line in lines if line["kind"] != "decision"]
            raise refuse(self.store, error) from error
        for line in together:
            self.state.add_line(line)
        self._unsaved = []
        self._unsynced = [] if is_synced else _without(self._unsynced, together) + together
        self._since_compaction += 1
        if self._since_compaction >= COMPACT_EVERY:
            try:
                self._compact()
            except OSError as error:  # the small files still exist, so nothing is lost
                log.warning("the journal in %s can't be compacted: %s", self.store.location, error)

    def _write(self, content: bytes, *, is_synced: bool = True, is_compact: bool = False) -> None:
        name = number_name(self.state.next_number, is_compact=is_compact)
        try:
            (self.store.create if is_synced else self.store.create_unsynced)(name, content)
        except FileExistsError:
            raise OSError(f"{name} exists already: another job writes here") from None
        self.state.next_number += 1

    def _compact(self) -> None:
        """Fold all files into one and remove them. A crash in between leaves both, with the same content."""
        old = list_numbered(self.store)
        self._write(self.fold(), is_compact=True)
        self._unsynced = []  # it has them, perhaps as totals
        for name in old:
            self.store.delete(name)
        self._since_compaction = 0

    def close(self) -> None:
        """Write and sync what is left, and release the lock."""
        with self._writing:
            if self._is_closed:
                return
            self._is_closed = True
            if self._unsaved or self._unsynced:
                try:
                    self._append([], is_synced=True)
                except JournalError as error:
                    log.warning("%s; %d records are lost", error, len(self._unsaved))
            self._hold.release()


def _list_batches(lines: list[Line]) -> set[int]:
    return {line["batch_id"] for line in lines if line["kind"] == "batch"}


def _without(lines: list[Line], later: list[Line]) -> list[Line]:
    """Return lines without the batches that later lines have."""
    known = _list_batches(later)
    return [line for line in lines if line["kind"] != "batch" or line["batch_id"] not in known]
