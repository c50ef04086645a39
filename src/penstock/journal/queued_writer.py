"""How records get into a journal that is far away: by a thread, so that a batch waits for one request at most.

Only a decision must be durable before it takes effect, so only that is waited for. Records of batches and messages are written
beside the batch's path, several at once if they have piled up. Where the next start can count a batch again, its record waits a
moment for the next decision: batches that follow each other are one request each, and no decision stands in line behind a
record. What fails is tried again. If a crash comes first, Spark either replays the batch or, if it has committed it, the next
start counts it again.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import xxhash

from penstock.errors import JournalError
from penstock.journal.files import list_numbered, number_name, read_state, seal
from penstock.journal.writer import COMPACT_EVERY, JournalWriter, Line, refuse
from penstock.storage import Lease, LeaseLostError, Store

__all__ = ["LINGER_S", "PATIENCE_S", "QueuedWriter"]

log = logging.getLogger("penstock")

PATIENCE_S = 5.0
"""How long a decision may wait for the storage; a batch then runs with the last table."""
LINGER_S = 0.25
"""How long a record waits for the next decision."""
_CLOSING_S = 60.0
_RETRY_S = 1.0
_ATTEMPTS_TO_OPEN = 5
_REMEMBERED = 64


@dataclass(eq=False, slots=True)
class _Entry:
    """What one call appended."""

    lines: list[Line]
    is_prompt: bool
    """Whether it has a decision, which is written now or never."""
    since_s: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)
    error: OSError | None = None


# long because a queue, the thread that empties it and the thread beside it share one lock
class QueuedWriter(JournalWriter):
    """Writes in a thread of its own, and renews the lease and compacts in another.

    Parameters
    ----------
    store, retain
        As in ``JournalWriter``.
    lease
        Keeps the journal for this job; by default the store's.
    patience_s
        How long a decision may wait for the storage.
    linger_s
        How long records may wait for a decision, to be written with it.
    """

    def __init__(
        self, store: Store, retain: int, lease: Lease | None = None, patience_s: float = PATIENCE_S, linger_s: float = 0.0
    ) -> None:
        super().__init__(store, retain)
        self._linger_s = linger_s
        self._lease = Lease(store) if lease is None else lease
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._entries: list[_Entry] = []  # not durable yet, oldest first
        self._writing_since_s: float | None = None
        self._wrote: list[tuple[str, list[_Entry]]] = []  # under the next number, without knowing whether it arrived
        self._names: set[str] = set()
        self._fenced: str | None = None
        self._failure: OSError | None = None
        self._jobs: deque[Callable[[], None]] = deque()
        self._is_compacting = False
        self._threads: list[threading.Thread] = []

    # -- opening -------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._lease.acquire()
        try:
            self._put_barrier()
        except BaseException:
            self._lease.release()
            raise
        for target, name in ((self._run, "journal"), (self._run_beside, "lease")):
            thread = threading.Thread(target=target, name=f"penstock {name} {self.store.location}", daemon=True)
            thread.start()
            self._threads.append(thread)
        atexit.register(self._hurry)  # for a job that ends without closing its journal

    def _put_barrier(self) -> None:
        """Read the journal and take its next number, so that whoever had the journal before can't write there any more."""
        for _ in range(_ATTEMPTS_TO_OPEN):
            self.state = read_state(self.store)
            name = number_name(self.state.next_number)
            try:
                self.store.create(name, seal([]))
            except FileExistsError:  # the last write of the job before has just arrived
                continue
            self.state.next_number += 1
            self._names = {name, *list_numbered(self.store)}
            self._since_compaction = len(self._names)
            return
        raise OSError("another job keeps writing there")

    # -- appending -----------------------------------------------------------------------------------------------------

    def append(self, lines: list[Line]) -> None:
        """Write lines; wait for it if there is a decision among them."""
        entry = _Entry(lines, any(line["kind"] == "decision" for line in lines))
        with self._changed:
            self.check_open()
            if self._fenced is not None:
                raise JournalError(self._fenced)
            if entry.is_prompt and (self._failure is not None or self._has_stalled()):
                self._keep(entry)  # what waits already is tried again; a decision is made anew for the next batch
                raise self._time_out() if self._failure is None else refuse(self.store, self._failure)
            self._entries.append(entry)
            self._changed.notify_all()
        if not entry.is_prompt:
            return
        entry.done.wait(self._patience_s)
        with self._changed:
            if not entry.done.is_set():
                self._give_up(entry)
                raise self._time_out()
            if entry.error is not None:
                raise refuse(self.store, entry.error) from entry.error

    def append_later(self, lines: list[Line]) -> None:
        """Write lines together with the next ones, or soon."""
        with self._changed:
            self.check_open()
            self._entries.append(_Entry(lines, is_prompt=False))

    def _has_stalled(self) -> bool:
        return self._writing_since_s is not None and time.monotonic() - self._writing_since_s > self._patience_s

    def _time_out(self) -> JournalError:
        return JournalError(f"the journal in {self.store.location} can't be written: no answer within {self._patience_s:g} s")

    def _keep(self, entry: _Entry) -> None:
        """Keep the lines of an entry that are not decisions."""
        lines = [line for line in entry.lines if line["kind"] != "decision"]
        if lines:
            self._entries.append(_Entry(lines, is_prompt=False))

    def _give_up(self, entry: _Entry) -> None:
        """Stop waiting. A write under way may still arrive: then its decision is durable, until the one behind it replaces it."""
        is_under_way = any(entry in entries for _, entries in self._wrote)
        if not is_under_way and entry in self._entries:
            self._entries.remove(entry)
            self._keep(entry)

    @property
    def is_lost(self) -> bool:
        """Whether the journal is another job's by now, or may be."""
        return super().is_lost or self._fenced is not None or not self._lease.is_fresh

    def _hurry(self) -> None:
        """Let nothing linger, and wait a moment until what is there is written."""
        with self._changed:
            self._linger_s = 0.0
            self._changed.notify_all()
            waiting = [] if self._failure is not None else list(self._entries)
        end_s = time.monotonic() + self._patience_s
        for entry in waiting:
            entry.done.wait(max(0.0, end_s - time.monotonic()))

    # -- the thread that writes ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while (pause_s := self._find_pause()) != 0.0:
                    self._changed.wait(pause_s)
                if not self._entries:
                    return
                entries = list(self._entries)
                content = seal([line for entry in entries for line in entry.lines])
                self._wrote = [*self._wrote[-_REMEMBERED:], (_digest(content), entries)]
                self._writing_since_s = time.monotonic()
            try:
                self._write(content)
            except OSError as error:
                self._fail(entries, error)
                with self._changed:
                    if self._is_closed or self._fenced is not None:
                        return
                    known = len(self._entries)
                    self._changed.wait_for(lambda: self._is_closed or len(self._entries) > known, _RETRY_S)  # noqa: B023
            else:
                self._succeed(entries)

    def _find_pause(self) -> float | None:
        """Return how long what is there may wait, ``None`` where nothing is there."""
        if self._is_closed:
            return 0.0
        if not self._entries:
            return None
        if self._failure is not None or any(entry.is_prompt for entry in self._entries):
            return 0.0
        return max(0.0, self._entries[0].since_s + self._linger_s - time.monotonic())

    def _write(self, content: bytes) -> None:
        """Write a file under the next number."""
        if not self._lease.is_fresh:
            self._lease.renew()
        name = number_name(self.state.next_number)
        try:
            self.store.create(name, content)
        except FileExistsError:
            self._lease.renew()  # whoever took over has written an empty file first, which may look like one of ours
            there = _digest(self.store.read(name))
            arrived = [index for index, (earlier, _) in enumerate(self._wrote) if earlier == there]
            if not arrived:
                raise LeaseLostError(f"{name} exists already: another job writes here") from None
            if arrived[-1] < len(self._wrote) - 1:  # one that seemed to have failed
                self._record(self._wrote[arrived[-1]][1])
                self._rewrite()
                return
        with self._changed:
            self._names.add(name)

    def _rewrite(self) -> None:
        """Write what is left of the last entries after earlier ones turned out to be durable."""
        with self._changed:
            _, entries = self._wrote[-1]
            left = [entry for entry in entries if not entry.done.is_set()]
            content = seal([line for entry in left for line in entry.lines])
            self._wrote = [(_digest(content), left)]
        if left:
            self._write(content)

    def _record(self, entries: list[_Entry]) -> None:
        """Take note that entries are durable, under the next number."""
        with self._changed:
            self._names.add(number_name(self.state.next_number))
            self.state.next_number += 1
            self._since_compaction += 1
            for entry in entries:
                for line in entry.lines:
                    self.state.add_line(line)
                entry.done.set()
            self._entries = [entry for entry in self._entries if not entry.done.is_set()]

    def _succeed(self, entries: list[_Entry]) -> None:
        left = [entry for entry in entries if not entry.done.is_set()]
        if left:
            self._record(left)
        with self._changed:
            self._wrote, self._writing_since_s = [], None
            if self._failure is not None:
                log.warning("the journal in %s can be written again; no count was lost", self.store.location)
            self._failure = None
        if self._since_compaction >= COMPACT_EVERY and not self._is_compacting:
            self._compact()

    def _fail(self, entries: list[_Entry], error: OSError) -> None:
        with self._changed:
            self._writing_since_s = None
            if isinstance(error, LeaseLostError):
                self._fenced = str(refuse(self.store, error))
            if self._failure is None:
                log.warning("%s; what is not written yet is kept", refuse(self.store, error))
            self._failure = error
            for entry in entries:
                if entry.is_prompt and entry in self._entries:
                    entry.error = error
                    entry.done.set()
                    self._entries.remove(entry)
                    self._keep(entry)
            if not self._entries:  # an empty file will show when the storage is back
                self._entries.append(_Entry([], is_prompt=False))

    # -- the thread beside it ------------------------------------------------------------------------------------------

    def _run_beside(self) -> None:
        pause_s = self._lease.lease_s / 16
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closed, 0.0 if self._jobs else pause_s):
                    return
                job = self._jobs.popleft() if self._jobs else None
            try:
                if self._lease.is_due:
                    self._lease.renew()
            except LeaseLostError as error:
                with self._changed:
                    self._fenced = str(refuse(self.store, error))
                log.warning("%s", self._fenced)
                return
            except OSError:
                log.debug("%s: the lease could not be renewed yet", self.store.location, exc_info=True)
            if job is not None:
                try:
                    job()
                except OSError:  # a file that was compacted stays: readers leave it out
                    log.debug("%s: a file could not be removed", self.store.location, exc_info=True)

    def _compact(self) -> None:
        """Fold what is durable into one file, and let the other thread write it. Later files are written meanwhile."""
        with self._changed:
            name = number_name(self.state.next_number, is_compact=True)
            self.state.next_number += 1
            self._since_compaction = 0
            self._is_compacting = True
            old, self._names = sorted(self._names), {name}
        content = self.fold()
        self._jobs.append(lambda: self._write_compact(name, content, old))

    def _write_compact(self, name: str, content: bytes, old: list[str]) -> None:
        try:
            self.store.create(name, content)
        except OSError as error:  # the small files still exist, so nothing is lost
            log.warning("the journal in %s can't be compacted: %s", self.store.location, error)
            with self._changed:
                self._names.discard(name)
                self._names.update(old)
                self._is_compacting = False
            return
        for each in old:
            self._jobs.append(lambda each=each: self.store.delete(each))  # type: ignore[misc]
        self._jobs.append(self._end_compaction)

    def _end_compaction(self) -> None:
        self._is_compacting = False

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what is left, end the threads and release the lease."""
        with self._changed:
            if self._is_closed:
                return
            waiting = [entry for entry in self._entries if self._fenced is None]
            self._is_closed = True
            self._changed.notify_all()
        atexit.unregister(self._hurry)
        end_s = time.monotonic() + _CLOSING_S
        for entry in waiting:
            entry.done.wait(0.0 if self._failure is not None else max(0.0, end_s - time.monotonic()))
        for thread in self._threads:
            thread.join(self._patience_s)
        lost = sum(len(entry.lines) for entry in self._entries)
        if lost:
            log.warning("the journal in %s can't be written; %d records are lost", self.store.location, lost)
        self._lease.release()


def _digest(content: bytes) -> str:
    return str(xxhash.xxh128_hexdigest(content))
