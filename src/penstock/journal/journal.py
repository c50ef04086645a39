"""The journal: every decision before it takes effect, every batch with its counts, in small files that survive a crash.

A journal is a directory of numbered files, each written whole under a temporary name and then renamed, as Spark does for its
own checkpoint logs. A file holds a few records, one JSON object a line, behind a header with a checksum. Every so often the files
are compacted into one: the latest batches in full, the older ones as totals, and the decisions that a replay can still need.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import xxhash
from pyarrow import fs

from penstock.drop.tables import SLOTS
from penstock.errors import JournalError
from penstock.filesystem import resolve

__all__ = ["BatchRecord", "DecisionRecord", "Journal", "JournalState", "added", "read_journal"]

log = logging.getLogger("penstock")

_FORMAT = "penstock-journal-1"
_NAME = re.compile(r"(\d{12})(\.compact)?\.json")
_OWN = {"owner.json", "lock"}


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A table put in force: for one batch (``batch_id``), or for all rows that arrive from a slot on (``from_slot``)."""

    gates: Mapping[str, tuple[float, ...]]
    keep: float
    batch_id: int | None = None
    from_slot: int | None = None
    controller: Mapping[str, Any] | None = None
    """The controller's memory when it decided, for a restart."""
    windows: Mapping[str, Any] | None = None
    """By gate of windows: all that was decided before, now and then, so that older decisions may be forgotten."""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What one micro-batch did: the ledger's entry, and what was measured. A later record of the same batch replaces it."""

    batch_id: int
    gates: Mapping[str, tuple[int, int]]
    """(offered, kept) of each gate."""
    keep: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    busy_s: float | None = None
    mean_arrival_s: float | None = None
    backlog_rows: int | None = None
    null_arrivals: int = 0
    older_than_ring: int = 0
    latest: Mapping[str, int] | None = None
    """By gate of windows: the latest event time seen so far, in microseconds."""
    classes: Mapping[str, Sequence[tuple[int, int]]] | None = None
    """By gate with classes: (offered, kept) of each."""
    recounted: bool = False
    """Counted again after a crash between Spark's commit and the journal's entry."""

    @property
    def delay_s(self) -> float | None:
        """Mean delay of the rows kept."""
        if self.end_s is None or self.mean_arrival_s is None:
            return None
        return max(0.0, self.end_s - self.mean_arrival_s)


@dataclass(slots=True)
class JournalState:
    """All that a journal says, read back."""

    owner: Mapping[str, Any] = field(default_factory=dict)
    decisions: list[DecisionRecord] = field(default_factory=list)
    batches: dict[int, BatchRecord] = field(default_factory=dict)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(offered, kept) a gate of the batches that were compacted away."""
    class_totals: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """The same by class."""
    compacted_batches: int = 0
    errors: list[str] = field(default_factory=list)
    """What went wrong in the job, newest last."""
    damage: list[str] = field(default_factory=list)
    """Files that could not be read, each in one line."""
    next_number: int = 0

    def copy(self) -> JournalState:
        """Return the state as it is now, whatever is written later."""
        return replace(
            self,
            decisions=list(self.decisions),
            batches=dict(self.batches),
            totals=dict(self.totals),
            class_totals=dict(self.class_totals),
            errors=list(self.errors),
        )

    def decision_for(self, batch_id: int) -> DecisionRecord | None:
        """Return the decision journaled for a batch; the last one, if it was made twice."""
        for decision in reversed(self.decisions):
            if decision.batch_id == batch_id:
                return decision
            if decision.batch_id is not None and decision.batch_id < batch_id:
                break
        return None

    def apply(self, record: Mapping[str, Any]) -> None:
        """Take in one record."""
        kind, body = record["kind"], {key: value for key, value in record.items() if key != "kind"}
        if kind == "decision":
            body["gates"] = {gate: tuple(keeps) for gate, keeps in body["gates"].items()}
            self.decisions.append(DecisionRecord(**body))
        elif kind == "batch":
            body["gates"] = {gate: (offered, kept) for gate, (offered, kept) in body["gates"].items()}
            if "classes" in body:
                body["classes"] = {gate: _pairs(counts) for gate, counts in body["classes"].items()}
            self.batches[body["batch_id"]] = BatchRecord(**body)
        elif kind == "totals":
            self.totals = {gate: (offered, kept) for gate, (offered, kept) in body["gates"].items()}
            self.class_totals = {gate: _pairs(counts) for gate, counts in body.get("classes", {}).items()}
            self.compacted_batches = body["batches"]
        elif kind == "error":
            self.errors = [*self.errors, body["message"]][-_ERRORS_KEPT:]
        else:
            raise ValueError(f"unknown kind {kind!r}")


def _pairs(counts: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    return [(int(offered), int(kept)) for offered, kept in counts]


def added(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Add up counts class by class; a class that one of them lacks has none."""
    return [(a[0] + b[0], a[1] + b[1]) for a, b in zip_longest(one, other, fillvalue=(0, 0))]


class Journal:
    """One job's journal, open for writing.

    ``owner`` says whose it is: opening it for another job is an error, and so is opening it twice at the same time (on a local
    filesystem; elsewhere the second writer is found out at its first write).
    """

    def __init__(
        self, location: str | Path, owner: str | None = None, filesystem: fs.FileSystem | None = None, retain: int = 4096
    ) -> None:
        self._files = _Directory(location, filesystem)
        self._retain = retain
        self._unsaved: list[dict[str, Any]] = []
        self._writing = threading.Lock()  # several queries may share a gate, and so each other's decisions
        self._since_compaction = 0
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
        self._since_compaction = sum(not name.endswith(".compact.json") for name in self._files.numbered())

    @property
    def location(self) -> str:
        """Where it is."""
        return self._files.location

    def claim(self, owner: str) -> None:
        """Say whose journal it is; an error if it is another job's."""
        found = self.state.owner.get("job")
        if found is None:
            self.state.owner = {"job": owner, "format": _FORMAT, "created_s": time.time()}
            self._files.write("owner.json", json.dumps(self.state.owner).encode())
        elif found != owner:
            raise JournalError(
                f"the journal in {self.location} belongs to job {found}, not to {owner}: give each job a journal of its own"
            )

    def append(self, *records: DecisionRecord | BatchRecord | str) -> None:
        """Write records as one file, whole or not at all; durable when this returns. A string is an error to remember.

        A write that fails raises and is not lost: the batches and errors in it go with the next one. A decision does not, for it
        must not take effect later than it was made for.
        """
        with self._writing:
            self._append([_encode(record) for record in records])

    def _append(self, lines: list[dict[str, Any]]) -> None:
        try:
            self._write(self._unsaved + lines)
        except OSError as error:
            self._unsaved += [line for line in lines if line["kind"] != "decision"]
            raise JournalError(f"the journal in {self.location} can't be written: {error.strerror or error}") from error
        for line in self._unsaved + lines:
            self.state.apply(line)
        self._unsaved = []
        self._since_compaction += 1
        if self._since_compaction >= _COMPACT_EVERY:
            try:
                self._compact()
            except OSError as error:  # The small files are still there: nothing is lost.
                log.warning("the journal in %s can't be compacted: %s", self.location, error)

    def _write(self, lines: list[dict[str, Any]], suffix: str = "") -> None:
        name = f"{self.state.next_number:012d}{suffix}.json"
        self._files.write(name, _seal(lines), exclusive=True)
        self.state.next_number += 1

    def _compact(self) -> None:
        """Fold all files into one and remove them. A crash on the way leaves both, and both say the same."""
        old = list(self._files.numbered())
        state = self.state
        for batch_id in sorted(state.batches)[: -self._retain]:
            record = state.batches.pop(batch_id)
            for gate, (offered, kept) in record.gates.items():
                before = state.totals.get(gate, (0, 0))
                state.totals[gate] = (before[0] + offered, before[1] + kept)
            for gate, counts in (record.classes or {}).items():
                state.class_totals[gate] = added(state.class_totals.get(gate, ()), counts)
            state.compacted_batches += 1
        # A replay needs the decisions of the last few batches, and by arrival those of the ring's slots.
        state.decisions = state.decisions[-max(self._retain, SLOTS) :]
        totals = {
            "kind": "totals",
            "gates": state.totals,
            "classes": state.class_totals,
            "batches": state.compacted_batches,
        }
        decisions = [_encode(decision) for decision in state.decisions]
        # One controller state is enough: the last.
        for line in decisions[:-1]:
            line.pop("controller", None)
        batches = [_encode(batch) for _, batch in sorted(state.batches.items())]
        errors = [_encode(message) for message in state.errors]
        self._write([totals, *decisions, *batches, *errors], suffix=".compact")
        for name in old:
            self._files.delete(name)
        self._since_compaction = 0

    def close(self) -> None:
        """Write what an earlier failure left over and let go of the journal; a second time it does nothing."""
        if self._unsaved:
            try:
                self.append()
            except JournalError as error:
                log.warning("%s; %d records are lost", error, len(self._unsaved))
        self._files.release()


_COMPACT_EVERY = 256
_ERRORS_KEPT = 20


def read_journal(location: str | Path, filesystem: fs.FileSystem | None = None) -> JournalState:
    """Read a journal without opening it for writing, for a report or a viewer, also while the job runs."""
    files = _Directory(location, filesystem)
    if not files.exists():
        raise JournalError(f"there is no journal in {files.location}")
    return _read(files)


def _read(files: _Directory) -> JournalState:
    state = JournalState()
    names = sorted(files.names())
    damaged: list[str] = []
    if "owner.json" in names:
        try:
            state.owner = json.loads(files.read("owner.json"))
        except (ValueError, OSError) as error:
            damaged.append(f"journal file {files.location}/owner.json is damaged and ignored: {error}")
    numbered = {int(match.group(1)): match.string for name in names if (match := _NAME.fullmatch(name))}
    # Files before the newest compacted one are leftovers of a crash while compacting.
    compact = max((number for number, name in numbered.items() if ".compact" in name and _intact(files, name)), default=0)
    for number, name in sorted(numbered.items()):
        if number < compact:
            continue
        try:
            for record in _open(files.read(name)):
                state.apply(record)
        except FileNotFoundError:
            continue  # compacted away while a viewer was reading
        except (ValueError, KeyError, TypeError) as error:
            damaged.append(f"journal file {files.location}/{name} is torn or damaged and ignored: {error}")
    foreign = [name for name in names if not _NAME.fullmatch(name) and name not in _OWN and not name.startswith(".")]
    damaged += [f"journal file {files.location}/{name} is not Penstock's and is ignored" for name in foreign]
    state.damage = damaged
    state.next_number = max(numbered, default=-1) + 1
    return state


def _intact(files: _Directory, name: str) -> bool:
    try:
        return any(True for _ in _open(files.read(name)))
    except (ValueError, OSError):
        return False


def _encode(record: DecisionRecord | BatchRecord | str) -> dict[str, Any]:
    if isinstance(record, str):
        return {"kind": "error", "message": record}
    kind = "decision" if isinstance(record, DecisionRecord) else "batch"
    return {"kind": kind} | {key: value for key, value in asdict(record).items() if value is not None}


def _seal(lines: Iterable[Mapping[str, Any]]) -> bytes:
    body = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
    return f"{_FORMAT} {xxhash.xxh64_hexdigest(body)}\n".encode() + body


def _open(content: bytes) -> Iterator[Mapping[str, Any]]:
    header, _, body = content.partition(b"\n")
    fields = header.decode(errors="replace").split()
    if len(fields) != 2 or fields[0] != _FORMAT:
        raise ValueError(f"it does not begin with {_FORMAT}")
    if fields[1] != xxhash.xxh64_hexdigest(body):
        raise ValueError("its checksum does not match")
    for line in body.splitlines():
        yield json.loads(line)


class _Directory:
    """The few file operations a journal needs, on any filesystem that pyarrow reaches."""

    def __init__(self, location: str | Path, filesystem: fs.FileSystem | None) -> None:
        self._fs, self._path = (filesystem, str(location)) if filesystem is not None else resolve(location, "the journal")
        self._local = isinstance(self._fs, fs.LocalFileSystem)
        self._lock: int | None = None
        self.location = self._path

    def exists(self) -> bool:
        found: bool = self._fs.get_file_info(self._path).type == fs.FileType.Directory
        return found

    def prepare(self) -> None:
        """Make the directory, see that it can be written, and take the lock."""
        try:
            self._fs.create_dir(self._path, recursive=True)
            self.write(".probe", b"")
            self.delete(".probe")
        except OSError as error:
            reason = error.strerror or str(error).splitlines()[0]
            raise JournalError(f"the journal in {self.location} can't be written: {reason}") from error
        if self._local:
            self._lock = os.open(f"{self._path}/lock", os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self.release()
                raise JournalError(
                    f"the journal in {self.location} is in use by another job: give each job a journal of its own"
                ) from error

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def names(self) -> Iterator[str]:
        for info in self._fs.get_file_info(fs.FileSelector(self._path, allow_not_found=True)):
            yield info.base_name

    def numbered(self) -> Iterator[str]:
        return (name for name in self.names() if _NAME.fullmatch(name))

    def read(self, name: str) -> bytes:
        with self._fs.open_input_stream(f"{self._path}/{name}") as stream:
            content: bytes = stream.read()
        return content

    def write(self, name: str, content: bytes, *, exclusive: bool = False) -> None:
        """Write a file whole: under a temporary name first, on the disk before it is renamed."""
        path, temporary = f"{self._path}/{name}", f"{self._path}/.{name}.tmp"
        if exclusive and self._fs.get_file_info(path).type != fs.FileType.NotFound:
            raise OSError(f"{name} is there already: another job writes here")
        try:
            if self._local:
                with Path(temporary).open("wb") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())
            else:
                with self._fs.open_output_stream(temporary) as stream:
                    stream.write(content)
            self._fs.move(temporary, path)
        except OSError:
            if self._local:
                Path(temporary).unlink(missing_ok=True)
            raise

    def delete(self, name: str) -> None:
        self._fs.delete_file(f"{self._path}/{name}")
