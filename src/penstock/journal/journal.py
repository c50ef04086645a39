"""The journal: every decision before it takes effect, and every batch with its counts, in small files that survive a crash.

A journal is a directory of numbered files. Each is written under a temporary name and then renamed, as Spark does for its
checkpoint logs. A file holds a few records behind a header with a checksum. From time to time the files are compacted into one,
with the latest batches in full, the older ones as totals, and the decisions that a replay can still need.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

from pyarrow import fs

from penstock.errors import JournalError
from penstock.journal.files import FILE_NAME, FORMAT, OWNER, JournalFiles, seal, unseal
from penstock.journal.records import Record, encode
from penstock.journal.state import JournalState

__all__ = ["Journal", "read_journal"]

log = logging.getLogger("penstock")

_COMPACT_EVERY = 256
_OTHER_FILES = {OWNER, "lock"}


class Journal:
    """The journal of one job, open for writing.

    Parameters
    ----------
    location
        The directory, as a path or a URI; created if it does not exist.
    owner
        The job that the journal belongs to.
    filesystem
        Where the directory is; by default its location says so.
    retain
        How many batches compaction leaves in full.

    Raises
    ------
    JournalError
        If the journal can't be written, belongs to another job, or is open already. Only a local filesystem shows the last at
        once; elsewhere the second writer fails at its first write.
    """

    def __init__(
        self, location: str | Path, owner: str | None = None, filesystem: fs.FileSystem | None = None, retain: int = 4096
    ) -> None:
        self._files = JournalFiles(location, filesystem)
        self._retain = retain
        self._unsaved: list[dict[str, Any]] = []
        self._writing = threading.Lock()  # queries that share a gate append from several threads
        self._since_compaction = 0
        self._is_closed = False
        self._files.prepare()
        try:
            self.state = _read(self._files)
            if owner is not None:
                self.claim(owner)
        except BaseException:
            self._files.release()
            raise
        for line in self.state.damage:
            log.warning(line)
        self._since_compaction = sum(not name.endswith(".compact.json") for name in self._files.list_numbered())

    @property
    def location(self) -> str:
        """The directory."""
        return self._files.location

    def claim(self, owner: str) -> None:
        """Say whose journal it is.

        Raises
        ------
        JournalError
            If it belongs to another job.
        """
        current = self.state.owner.get("job")
        if current is None:
            self.state.owner = {"job": owner, "format": FORMAT, "created_s": time.time()}
            self._files.write(OWNER, json.dumps(self.state.owner).encode())
        elif current != owner:
            raise JournalError(
                f"the journal in {self.location} belongs to job {current}, not to {owner}: give each job a journal of its own"
            )

    def append(self, *records: Record) -> None:
        """Write records as one file, as a whole or not at all; they are durable when this returns. A string is an error message.

        Raises
        ------
        JournalError
            If the write fails. Batches and errors are then written together with the next records. A decision is lost, because
            it must not take effect later than intended.
        """
        with self._writing:
            self._append([encode(record) for record in records])

    def _append(self, lines: list[dict[str, Any]]) -> None:
        if self._is_closed:  # another job may have it by now
            raise JournalError(f"the journal in {self.location} is closed")
        try:
            self._write(self._unsaved + lines)
        except OSError as error:
            self._unsaved += [line for line in lines if line["kind"] != "decision"]
            raise JournalError(f"the journal in {self.location} can't be written: {error.strerror or error}") from error
        for line in self._unsaved + lines:
            self.state.add_line(line)
        self._unsaved = []
        self._since_compaction += 1
        if self._since_compaction >= _COMPACT_EVERY:
            try:
                self._compact()
            except OSError as error:  # the small files still exist, so nothing is lost
                log.warning("the journal in %s can't be compacted: %s", self.location, error)

    def _write(self, lines: list[dict[str, Any]], suffix: str = "") -> None:
        name = f"{self.state.next_number:012d}{suffix}.json"
        self._files.write(name, seal(lines), exclusive=True)
        self.state.next_number += 1

    def _compact(self) -> None:
        """Fold all files into one and remove them. A crash in between leaves both, with the same content."""
        old = list(self._files.list_numbered())
        self.state.fold(self._retain)
        self._write(self.state.to_lines(), suffix=".compact")
        for name in old:
            self._files.delete(name)
        self._since_compaction = 0

    def close(self) -> None:
        """Write what an earlier failure left unwritten, and release the journal; a second call does nothing."""
        if self._unsaved:
            try:
                self.append()
            except JournalError as error:
                log.warning("%s; %d records are lost", error, len(self._unsaved))
        with self._writing:
            self._is_closed = True
            self._files.release()


def read_journal(location: str | Path, filesystem: fs.FileSystem | None = None) -> JournalState:
    """Read a journal, for a report or a viewer, also while the job writes to it.

    Parameters
    ----------
    location
        The directory, as a path or a URI.
    filesystem
        Where the directory is; by default its location says so.

    Raises
    ------
    JournalError
        If there is no such directory. Damaged files are not an error: ``damage`` of the state names them.
    """
    files = JournalFiles(location, filesystem)
    if not files.exists():
        raise JournalError(f"there is no journal in {files.location}")
    return _read(files)


def _read(files: JournalFiles) -> JournalState:
    state = JournalState()
    names = sorted(files.list_names())
    damage: list[str] = []
    if OWNER in names:
        try:
            state.owner = json.loads(files.read(OWNER))
        except (ValueError, OSError) as error:
            damage.append(f"journal file {files.location}/{OWNER} is damaged and ignored: {error}")
    numbered = {int(match.group(1)): match.string for name in names if (match := FILE_NAME.fullmatch(name))}
    # Files before the newest compacted one are left over from a crash during compaction.
    compact = max((number for number, name in numbered.items() if ".compact" in name and _is_intact(files, name)), default=0)
    for number, name in sorted(numbered.items()):
        if number < compact:
            continue
        try:
            for line in unseal(files.read(name)):
                state.add_line(line)
        except FileNotFoundError:
            continue  # compacted away while a viewer was reading
        except (ValueError, KeyError, TypeError) as error:
            damage.append(f"journal file {files.location}/{name} is torn or damaged and ignored: {error}")
    foreign = [name for name in names if not FILE_NAME.fullmatch(name) and name not in _OTHER_FILES and not name.startswith(".")]
    damage += [f"journal file {files.location}/{name} is not Penstock's and is ignored" for name in foreign]
    state.damage = damage
    state.next_number = max(numbered, default=-1) + 1
    return state


def _is_intact(files: JournalFiles, name: str) -> bool:
    try:
        return any(True for _ in unseal(files.read(name)))
    except (ValueError, OSError):
        return False
