"""The journal: every decision before it takes effect, and every batch with its counts, in small files that survive a crash.

A journal is a directory of numbered files, each created once, whole or not at all, as Spark does for its checkpoint logs. A file
holds a few records behind a header with a checksum. From time to time the files are compacted into one, with the latest batches
in full, the older ones as totals, and the decisions that a replay can still need.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

from penstock.errors import JournalError
from penstock.journal.files import FORMAT, OWNER, read_state
from penstock.journal.queued_writer import LINGER_S, QueuedWriter
from penstock.journal.records import Record, encode
from penstock.journal.state import JournalState
from penstock.journal.writer import DirectWriter, JournalWriter, refuse
from penstock.storage import Store, open_store

__all__ = ["Journal", "read_journal"]

log = logging.getLogger("penstock")


class Journal:
    """The journal of one job, open for writing.

    On a disk, everything is durable once it is appended, but for ``syncs_counts``. Far away, where a write takes a request over
    the network, only what has a decision in it is; the rest follows in a moment, so that a batch waits for one request.

    Parameters
    ----------
    location
        The directory, created if it does not exist: a path, or the store of a directory anywhere.
    owner
        The job that the journal belongs to.
    retain
        How many batches compaction leaves in full.
    syncs_counts
        Whether a batch's counts are on the disk, or on their way to storage elsewhere, at once; else with the next decision,
        which is faster. A power cut, or elsewhere a crash, may take the last ones then, and they must be counted again.
    writer
        What writes the files; by default as the store needs it.

    Raises
    ------
    JournalError
        If the journal can't be written, belongs to another job, or is open already.
    """

    def __init__(
        self,
        location: str | Path | Store,
        owner: str | None = None,
        *,
        retain: int = 4096,
        syncs_counts: bool = True,
        writer: JournalWriter | None = None,
    ) -> None:
        if writer is None:
            store = open_store(location, "the journal")
            if store.is_remote:
                writer = QueuedWriter(store, retain, linger_s=0.0 if syncs_counts else LINGER_S)
            else:
                writer = DirectWriter(store, retain, syncs_counts=syncs_counts)
        self._writer = writer
        self._about: dict[str, Any] = {}
        writer.open()
        try:
            if owner is not None:
                self.claim(owner)
        except BaseException:
            writer.close()
            raise
        for line in self.state.damage:
            log.warning(line)

    @property
    def state(self) -> JournalState:
        """What is durable, kept up to date."""
        return self._writer.state

    @property
    def location(self) -> str:
        """The directory."""
        return self._writer.store.location

    @property
    def is_lost(self) -> bool:
        """Whether it is another job's by now, or may be: closed, or held by a lease that has expired."""
        return self._writer.is_lost

    def claim(self, owner: str) -> None:
        """Say whose journal it is.

        Raises
        ------
        JournalError
            If it belongs to another job.
        """
        current = self.state.owner.get("job")
        if current is None:
            self.state.owner = {"job": owner, "format": FORMAT, "created_s": time.time(), **self._about}
            try:
                self._writer.store.replace(OWNER, json.dumps(self.state.owner).encode())
            except OSError as error:
                raise refuse(self._writer.store, error) from error
        elif current != owner:
            raise JournalError(
                f"the journal in {self.location} belongs to job {current}, not to {owner}: give each job a journal of its own"
            )

    def describe(self, **about: Any) -> None:
        """Say what the query is called and how it is set, for people who look at the journal; plain JSON values."""
        self._about = {"about": about}
        if self.state.owner and self.state.owner.get("about") != about:
            self.state.owner = {**self.state.owner, **self._about}
            try:
                self._writer.store.replace(OWNER, json.dumps(self.state.owner).encode())
            except OSError as error:  # nothing depends on it
                log.debug("the journal in %s could not be described: %s", self.location, error)

    def append(self, *records: Record) -> None:
        """Write records as one file, as a whole or not at all; decisions are durable when this returns. A string is a message.

        Raises
        ------
        JournalError
            If the write fails. Batches and errors are then written together with the next records. A decision is lost, because
            it must not take effect later than intended.
        """
        self._writer.append([encode(record) for record in records])

    def append_later(self, *records: Record) -> None:
        """Write records together with the next ones: what held instead of a decision that could not be written."""
        self._writer.append_later([encode(record) for record in records])

    def close(self) -> None:
        """Write what an earlier failure left unwritten, and release the journal; a second call does nothing."""
        self._writer.close()


def read_journal(location: str | Path | Store) -> JournalState:
    """Read a journal, for a report or a viewer, also while the job writes to it.

    Parameters
    ----------
    location
        The directory: a path, an address that pyarrow can read, or a store.

    Raises
    ------
    JournalError
        If there is no such directory, or it can't be read. Damaged files are not an error: ``damage`` of the state names them.
    """
    store = open_store(location, "the journal")
    try:
        if not store.exists():
            raise JournalError(f"there is no journal in {store.location}")
        return read_state(store)
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise JournalError(f"the journal in {store.location} can't be read: {reason}") from error
