"""What was shed, batch by batch, wherever it was written: a directory of Parquet files, a topic, or a log of offsets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import PenstockError
from penstock.shed.coordinates import find_shed_rows
from penstock.shed.shed_log import OffsetRange, ShedLog, ShedRecord
from penstock.shed.topics import Message, TopicReader
from penstock.storage import Store, open_store

__all__ = ["Letter", "Letters", "OffsetLetters", "ParquetLetters", "REASON", "TopicLetters", "need_servers", "open_letters"]

REASON = "penstock_reason"
_REASONS = ("", "overload", "expired")
"""By the number that ``find_shed_rows`` gives."""
_HEADER = "penstock-"
_OWN = {"batch", "gate", "offset", "partition", "query", "reason", "run", "timestamp", "topic"}
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Letter:
    """What one gate shed in one batch of one query."""

    query: str
    gate: str
    batch: int


class Letters(ABC):
    """A place where shed rows are."""

    missing_offsets = 0
    """How many offsets were left out of what was read so far, since Kafka has removed their rows."""

    @abstractmethod
    def list_letters(self) -> list[Letter]:
        """Return what there is, oldest first."""

    @abstractmethod
    def read(self, letter: Letter) -> pa.Table:
        """Return the rows of one batch, with the column ``penstock_reason``. Those from Kafka have Kafka's columns."""


class ParquetLetters(Letters):
    """A directory that a gate wrote, on a disk or on any storage that pyarrow reads."""

    def __init__(self, directory: str | Path | Store) -> None:
        self._store = open_store(directory, "the directory of shed rows")

    def list_letters(self) -> list[Letter]:
        """Return the batches that have ended: Spark leaves a file ``_SUCCESS`` in each."""
        letters = [
            Letter(_read_value(query), _read_value(gate), int(_read_value(batch)))
            for query in self._list("penstock_query=")
            for gate in self._list("penstock_gate=", query)
            for batch in self._list("penstock_batch=", f"{query}/{gate}")
            if "_SUCCESS" in self._store.list_names(f"{query}/{gate}/{batch}")
        ]
        return sorted(letters, key=lambda letter: (letter.query, letter.batch, letter.gate))

    def read(self, letter: Letter) -> pa.Table:
        """Return the rows of a batch."""
        (query,) = (name for name in self._list("penstock_query=") if _read_value(name) == letter.query)
        (gate,) = (name for name in self._list("penstock_gate=", query) if _read_value(name) == letter.gate)
        place = f"{query}/{gate}/penstock_batch={letter.batch}"
        files = sorted(name for name in self._store.list_names(place) if name.endswith(".parquet") and name[0] not in "._")
        return pa.concat_tables(pq.read_table(pa.BufferReader(self._store.read(f"{place}/{name}"))) for name in files)

    def _list(self, start: str, folder: str = "") -> list[str]:
        return [name for name in self._store.list_names(folder) if name.startswith(start)]


def _read_value(name: str) -> str:
    """Return the value in the name of a directory by column, as Spark writes it."""
    return unquote(name.split("=", 1)[1])


class TopicLetters(Letters):
    """A topic that a gate wrote. Of a batch that was written more than once, only the last run counts.

    Within a run, a task that Spark tried again has written its rows again. Those from Kafka, which have coordinates, count once.
    The topic is read once to see which batches lie where, and a batch again when it is asked for.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self._reader = TopicReader(servers)
        self._ranges: dict[tuple[Letter, str], dict[int, OffsetRange]] = {}
        runs: dict[Letter, tuple[int, str]] = {}
        for part in self._reader.list_ranges(topic):
            for message in self._reader.read(part):
                found = _find_letter(message)
                if found is None:
                    continue
                letter, run = found
                ranges = self._ranges.setdefault(found, {})
                start = ranges[part.partition].start if part.partition in ranges else message.offset()
                ranges[part.partition] = OffsetRange(topic, part.partition, start, message.offset() + 1)
                runs[letter] = max(runs.get(letter, (-1, "")), (int(message.timestamp()[1]), run))
        self._runs = {letter: run for letter, (_, run) in runs.items()}

    def list_letters(self) -> list[Letter]:
        """Return the batches in the topic."""
        return sorted(self._runs, key=lambda letter: (letter.query, letter.batch, letter.gate))

    def read(self, letter: Letter) -> pa.Table:
        """Return the rows of a batch."""
        wanted = letter, self._runs[letter]
        messages = (message for part in self._ranges[wanted].values() for message in self._reader.read(part))
        return to_table(_drop_repeated(message for message in messages if _find_letter(message) == wanted))


def _drop_repeated(messages: Iterable[Message]) -> list[Message]:
    """Return each row once, where its headers say which it is."""
    rows: dict[tuple[object, ...], Message] = {}
    for number, message in enumerate(messages):
        own = _own_headers(message)
        coordinates = tuple(own.get(name) for name in ("topic", "partition", "offset"))
        rows.setdefault((number,) if None in coordinates else coordinates, message)
    return list(rows.values())


def _find_letter(message: Message) -> tuple[Letter, str] | None:
    """Return which batch a message belongs to, and which run wrote it; ``None`` if no gate did."""
    own = _own_headers(message)
    if not {"query", "gate", "batch", "run"} <= set(own):
        return None
    return Letter(own["query"], own["gate"], int(own["batch"])), own["run"]


def _own_headers(message: Message) -> dict[str, str]:
    """Return the headers that a dead letter has of a gate, by their short names; the last of each counts."""
    headers = message.headers() or ()
    own = {name.removeprefix(_HEADER): value for name, value in headers if name.startswith(_HEADER) and value is not None}
    return {name: value.decode() for name, value in own.items() if name in _OWN}


class OffsetLetters(Letters):
    """The log of offsets in a checkpoint; the rows are read from Kafka once more, and judged again.

    Parameters
    ----------
    checkpoint
        The query's checkpoint.
    servers
        The address of a broker.
    skips_missing
        Whether to leave out rows that the broker has removed already, instead of raising.
    """

    def __init__(self, checkpoint: str | Path, servers: str, *, skips_missing: bool = False) -> None:
        records = list(ShedLog(checkpoint).read())
        self._query = str(checkpoint)
        self._records = {Letter(self._query, record.gate, record.batch): record for record in records}
        self._reader, self._skips_missing = TopicReader(servers), skips_missing

    def list_letters(self) -> list[Letter]:
        """Return the batches in the log."""
        return list(self._records)

    def read(self, letter: Letter) -> pa.Table:
        """Return the rows of a batch."""
        record = self._records[letter]
        parts = [table for part in record.ranges for table in self._read_part(record, part)]
        return pa.concat_tables(parts) if parts else to_table([])

    def _read_part(self, record: ShedRecord, part: OffsetRange) -> Iterator[pa.Table]:
        messages: list[Message] = []
        left = self._reader.find_left(part) if self._skips_missing else part
        self.missing_offsets += left.start - part.start
        for message in self._reader.read(left):
            messages.append(message)
            if len(messages) == _ROWS_AT_ONCE:
                yield _choose(record, part, messages)
                messages = []
        if messages:
            yield _choose(record, part, messages)


def _choose(record: ShedRecord, part: OffsetRange, messages: list[Message]) -> pa.Table:
    """Return those of some messages that were shed."""
    offsets = np.array([message.offset() for message in messages], dtype=np.int64)
    micros = np.array([message.timestamp()[1] for message in messages], dtype=np.int64) * 1000
    reasons = find_shed_rows(record, part, offsets, micros)
    table = to_table(messages, are_letters=False).set_column(7, REASON, pa.array([_REASONS[reason] for reason in reasons]))
    return table.filter(pa.array(reasons > 0))


def to_table(messages: list[Message], *, are_letters: bool = True) -> pa.Table:
    """Return messages as rows with Kafka's columns as Spark names them; of dead letters, as they were when they were shed."""
    rows = []
    for message in messages:
        own = _own_headers(message) if are_letters else {}
        headers = [(name, value) for name, value in message.headers() or () if name.removeprefix(_HEADER) not in own]
        rows.append(
            {
                "key": message.key(),
                "value": message.value(),
                "headers": [{"key": name, "value": value} for name, value in headers],
                "topic": own.get("topic", message.topic()),
                "partition": int(own.get("partition", message.partition())),
                "offset": int(own.get("offset", message.offset())),
                "timestamp": int(own.get("timestamp", message.timestamp()[1])) * 1000,
                REASON: own.get("reason", ""),
            }
        )
    schema = pa.schema(
        {
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            REASON: pa.string(),
        }
    )
    return pa.Table.from_pylist(rows, schema=schema)


def open_letters(source: str, servers: str | None, *, skips_missing: bool = False) -> Letters:
    """Return the letters at an address: a directory, a checkpoint with a log of offsets, or ``kafka:TOPIC``.

    With ``skips_missing``, rows that Kafka has removed already are left out.

    Raises
    ------
    PenstockError
        If nothing is there, or a broker is needed and not named.
    """
    if source.startswith("kafka:"):
        return TopicLetters(need_servers(servers, source), source.removeprefix("kafka:"))
    if ShedLog(source).exists():
        return OffsetLetters(source, need_servers(servers, source), skips_missing=skips_missing)
    store = open_store(source, "the directory of shed rows")
    if not store.exists():
        raise PenstockError(f"there are no shed rows in {source}: name a directory, a checkpoint, or kafka:TOPIC")
    return ParquetLetters(store)


def need_servers(servers: str | None, what: str) -> str:
    """Return the address of the broker, which must be there."""
    if servers is None:
        raise PenstockError(f"{what} needs --servers, the address of a broker such as host:9092")
    return servers
