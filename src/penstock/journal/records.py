"""The records of a journal: decisions, and batches with their counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

__all__ = [
    "BatchRecord",
    "DecisionRecord",
    "OlderRows",
    "OutputRecord",
    "Record",
    "add_class_counts",
    "add_rows",
    "decode",
    "encode",
]


@dataclass(frozen=True, slots=True)
class OlderRows:
    """The table entries of one gate for rows of a batch that arrived before a moment."""

    line: int
    """The moment, in microseconds since the epoch."""
    entries: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A table in force for one batch (``batch_id``), or for all rows that arrive from a slot on (``from_slot``)."""

    gates: Mapping[str, tuple[float, ...]]
    """The table entries of each gate."""
    keep: float
    batch_id: int | None = None
    from_slot: int | None = None
    controller: Mapping[str, Any] | None = None
    """The state of the controller when it decided, for a restart."""
    older: Mapping[str, OlderRows] | None = None
    """By gate, where a batch treats old rows differently: ``gates`` holds for all others."""
    windows: Mapping[str, Any] | None = None
    """From time to time, for each gate of whole windows: all earlier decisions, so that older records can be forgotten."""
    learnt: Mapping[str, float] | None = None
    """What the controller knew of the engine when it decided, for people."""
    rows_per_byte: Mapping[str, float] | None = None
    """By source of files: what its batches had, from which the size of this one was estimated; for a restart."""
    layout: str | None = None
    """How sources cut a batch into partitions from here on, where the ranks of rows count."""
    is_shared: bool | None = None
    """Whether other queries read a gate of this one, or did once: then what their batches have had is not known here."""
    first_batch: int | None = None
    """Where a run by arrival begins: the first batch that it may run, so that one that it did not count is missed."""


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """What one batch wrote to one output of a network."""

    rows: int | None
    mean_delay_s: float | None = None
    worst_delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What one micro-batch did: its entry in the ledger, and measurements. A later record of the same batch replaces it."""

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
    expired: Mapping[str, int] | None = None
    """By gate: rows that were shed because they arrived too long ago."""
    expired_classes: Mapping[str, Sequence[int]] | None = None
    """The same for each class of the gates that have some."""
    from_future: int = 0
    """Rows kept whose arrival lay in the future."""
    delay_target_s: float | None = None
    """The target in force."""
    reachable_s: float | None = None
    """The delay that was held instead, if the target was out of reach."""
    latest: Mapping[str, int] | None = None
    """For each gate of whole windows: the latest event time so far, in microseconds."""
    classes: Mapping[str, Sequence[tuple[int, int]]] | None = None
    """For each gate with classes: (offered, kept) of each class."""
    work_s: float | None = None
    """Seconds that the rows kept took, if they were timed."""
    outputs: Mapping[str, OutputRecord] | None = None
    """For each output, on a node of a network."""
    recounted: bool = False
    """Whether it was counted again after a crash between Spark's commit and the entry in the journal."""
    estimated: bool | None = None
    """Whether counts by class and of expired rows and the mean arrival are estimates: an executor was lost, the batch was counted
    again, and the meters could not tell its rows from those of the next one. The rows offered and kept are exact."""

    @property
    def delay_s(self) -> float | None:
        """The mean delay of the rows kept; ``None`` if it is not known."""
        if self.end_s is None or self.mean_arrival_s is None:
            return None
        return max(0.0, self.end_s - self.mean_arrival_s)


Record = DecisionRecord | BatchRecord | str
"""A string is an error message."""


def encode(record: Record) -> dict[str, Any]:
    """Return a record as plain JSON values."""
    if isinstance(record, str):
        return {"kind": "error", "message": record}
    kind = "decision" if isinstance(record, DecisionRecord) else "batch"
    return {"kind": kind} | {key: value for key, value in asdict(record).items() if value is not None}


def decode(line: Mapping[str, Any]) -> Record:
    """Return the record that ``encode`` wrote."""
    kind, body = line["kind"], {key: value for key, value in line.items() if key != "kind"}
    if kind == "error":
        return str(body["message"])
    if kind == "decision":
        body["gates"] = {gate: tuple(entries) for gate, entries in body["gates"].items()}
        if "older" in body:
            body["older"] = {gate: OlderRows(int(old["line"]), tuple(old["entries"])) for gate, old in body["older"].items()}
        return DecisionRecord(**body)
    if kind != "batch":
        raise ValueError(f"unknown kind {kind!r}")
    body["gates"] = {gate: (offered, kept) for gate, (offered, kept) in body["gates"].items()}
    if "classes" in body:
        body["classes"] = {gate: decode_counts(counts) for gate, counts in body["classes"].items()}
    if "outputs" in body:
        body["outputs"] = {name: OutputRecord(**output) for name, output in body["outputs"].items()}
    return BatchRecord(**body)


def decode_counts(counts: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Return (offered, kept) pairs from JSON lists."""
    return [(int(offered), int(kept)) for offered, kept in counts]


def add_class_counts(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Add up counts class by class; a class that one of them lacks counts as zero.

    >>> add_class_counts([(10, 5)], [(1, 1), (2, 0)])
    [(11, 6), (2, 0)]
    """
    return [(a[0] + b[0], a[1] + b[1]) for a, b in zip_longest(one, other, fillvalue=(0, 0))]


def add_rows(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Add up rows class by class; a class that one of them lacks has none.

    >>> add_rows([10], [1, 2])
    [11, 2]
    """
    return [a + b for a, b in zip_longest(one, other, fillvalue=0)]
