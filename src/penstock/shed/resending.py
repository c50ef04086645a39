"""Sends shed rows again, a batch at a time, and remembers which were sent."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import PenstockError
from penstock.filesystem import write_atomically
from penstock.shed.letters import REASON, Letter, need_servers
from penstock.shed.topics import TopicWriter

__all__ = ["DirectoryTarget", "ResendTarget", "TopicTarget", "open_target"]

_COORDINATES = ("topic", "partition", "offset")
_MESSAGE = {"key", "value"}


class ResendTarget(ABC):
    """Where rows are sent again."""

    @abstractmethod
    def has(self, letter: Letter) -> bool:
        """Return whether a batch was sent before."""

    @abstractmethod
    def send(self, letter: Letter, rows: pa.Table) -> None:
        """Send the rows of a batch."""


class DirectoryTarget(ResendTarget):
    """One Parquet file per batch, under a name that says which: sent twice, it is the same file. A file stream reads it once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PenstockError(f"{directory} can't be written: {error.strerror}") from None

    def has(self, letter: Letter) -> bool:
        """Return whether the file is there."""
        return self._path(letter).exists()

    def send(self, letter: Letter, rows: pa.Table) -> None:
        """Write the file, as a whole."""
        path = self._path(letter)
        temporary = path.with_name(f".{path.name}.tmp")
        pq.write_table(rows, temporary, coerce_timestamps="us")
        temporary.replace(path)

    def _path(self, letter: Letter) -> Path:
        return self._directory / f"{_slug(letter)}.parquet"


class TopicTarget(ResendTarget):
    """A topic: a transaction per batch. Which batches were sent is noted in a file after each.

    A crash in between sends one batch again, with the same headers.
    """

    def __init__(self, servers: str, topic: str, notes: Path) -> None:
        self._writer, self._notes = TopicWriter(servers, topic), notes
        try:
            self._sent: set[str] = set(json.loads(notes.read_text(encoding="utf-8")))
        except FileNotFoundError:
            self._sent = set()
        except (OSError, ValueError) as error:
            raise PenstockError(f"{notes} can't be read: {error}") from None

    def has(self, letter: Letter) -> bool:
        """Return whether the batch is noted."""
        return _slug(letter) in self._sent

    def send(self, letter: Letter, rows: pa.Table) -> None:
        """Send the rows, then note the batch."""
        self._writer.send(_to_messages(letter, rows))
        self._sent.add(_slug(letter))
        write_atomically(self._notes, json.dumps(sorted(self._sent)).encode(), durable=True)


def _to_messages(
    letter: Letter, rows: pa.Table
) -> Iterator[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]]:
    """Yield rows of Kafka as they were, with their time; others as JSON."""
    has_message = set(rows.column_names) >= _MESSAGE
    own = {"gate": letter.gate, "batch": str(letter.batch), "query": letter.query}
    times = _to_millis(rows["timestamp"]) if has_message and "timestamp" in rows.column_names else [0] * rows.num_rows
    for row, millis in zip(rows.to_pylist(), times, strict=True):
        marks = dict(own)
        if REASON in row:
            marks["reason"] = row.pop(REASON)
        if set(_COORDINATES) <= set(row):
            marks |= {name: str(row[name]) for name in _COORDINATES}
        headers: list[tuple[str, bytes | None]] = [(f"penstock-{name}", value.encode()) for name, value in marks.items()]
        if not has_message:
            yield None, json.dumps(row, default=str).encode(), headers, 0
            continue
        before = [(header["key"], header["value"]) for header in row.get("headers") or ()]
        yield _to_bytes(row["key"]), _to_bytes(row["value"]), before + headers, millis


def _to_millis(times: pa.ChunkedArray) -> list[int]:
    """Return timestamps in milliseconds since the epoch, 0 for none; Parquet files of Spark have them without a zone, in UTC."""
    if not pa.types.is_timestamp(times.type):
        return [0] * len(times)
    per_ms = {"s": 0.001, "ms": 1, "us": 1_000, "ns": 1_000_000}[times.type.unit]
    return [0 if value is None else int(value // per_ms) for value in times.cast(pa.int64()).to_pylist()]


def _to_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _slug(letter: Letter) -> str:
    query = re.sub(r"[^0-9A-Za-z-]", "_", letter.query)[-60:]
    return f"{query}-{re.sub(r'[^0-9A-Za-z-]', '_', letter.gate)}-{letter.batch:09d}"


def open_target(target: str, servers: str | None, source: str) -> ResendTarget:
    """Return where to send: a directory, or ``kafka:TOPIC``, with notes beside the letters.

    Where those are far away, in a topic or on an object store, the notes lie in the working directory.
    """
    if not target.startswith("kafka:"):
        if "://" in target:
            raise PenstockError(f"rows are sent to a directory on this machine or to kafka:TOPIC, got {target!r}")
        return DirectoryTarget(Path(target))
    topic = target.removeprefix("kafka:")
    if source == target:
        raise PenstockError(f"{source} can't be sent to itself")
    name = f"penstock-resent-{re.sub(r'[^0-9A-Za-z._-]', '_', topic)}.json"
    if source.startswith("kafka:") or ("://" in source and not source.startswith("file:")):
        notes = Path(f"{re.sub(r'[^0-9A-Za-z._-]', '_', source.removeprefix('kafka:'))}.{name}")
    else:
        notes = Path(source.removeprefix("file://").removeprefix("file:")) / f".{name}"
    return TopicTarget(need_servers(servers, target), topic, notes)
