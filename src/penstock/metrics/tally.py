"""Counts what a query does, from the records of its journal: in the job as they are written, elsewhere as they are read."""

from __future__ import annotations

import bisect
import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.journal.records import BatchRecord, DecisionRecord, Record
from penstock.journal.state import JournalState
from penstock.metrics.instruments import BOUNDS_S

__all__ = ["Histogram", "QueryTally", "Sample", "TallyBook", "clean_label"]

log = logging.getLogger("penstock")

MOST_QUERIES = 200
MOST_GATES = 100
_LONGEST_LABEL = 120
_REMEMBERED = 64
OTHER = "other"
"""The label of all gates beyond the first ``MOST_GATES``."""


def clean_label(text: str) -> str:
    r"""Return a name as a label: not too long, and always possible to encode.

    >>> clean_label("caf\u00e9 \ud800")
    'café ?'
    """
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return whole if len(whole) <= _LONGEST_LABEL else f"{whole[: _LONGEST_LABEL - 3]}..."


@dataclass(frozen=True, slots=True)
class Sample:
    """One number: of which instrument, with which labels."""

    key: str
    labels: tuple[str, ...]
    value: float


@dataclass(slots=True)
class Histogram:
    """How many values fell into each bucket.

    >>> histogram = Histogram()
    >>> histogram.add(0.3)
    >>> histogram.count, histogram.total, histogram.cumulate()[3:5]
    (1, 0.3, [('0.5', 1), ('1.0', 1)])
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total: float = 0.0

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def add(self, value: float) -> None:
        """Count a value; a bucket holds its upper limit."""
        self.counts[bisect.bisect_left(BOUNDS_S, value)] += 1
        self.total += value

    def cumulate(self) -> list[tuple[str, int]]:
        """Return (upper limit, values up to it), as Prometheus wants it."""
        limits = [*map(str, BOUNDS_S), "+Inf"]
        return list(zip(limits, itertools.accumulate(self.counts), strict=True))


@dataclass(slots=True)
class GateTotal:
    """Rows at one gate since its journal began."""

    offered: int = 0
    kept: int = 0
    expired: int = 0

    def add(self, record: BatchRecord, gate: str, sign: int) -> None:
        """Add a batch, or take it back."""
        offered, kept = record.gates.get(gate, (0, 0))
        self.offered += sign * offered
        self.kept += sign * kept
        self.expired += sign * (record.expired or {}).get(gate, 0)


class QueryTally:
    """The numbers of one query.

    Rows and batches continue those of the journal, so they are the ledger's, also after a restart. A batch whose record is
    replaced, because it is replayed or because its times have come, counts once. Histograms begin with the process.

    >>> tally = QueryTally("q")
    >>> batch = BatchRecord(0, {"in": (100, 40)}, start_s=10.0, end_s=12.0, mean_arrival_s=11.0)
    >>> tally.record([batch, batch], now_s=12.0)
    >>> [(sample.key, sample.labels, sample.value) for sample in tally.samples()][:3]
    [('offered', ('q', 'in'), 100), ('kept', ('q', 'in'), 40), ('shed', ('q', 'in', 'overload'), 60)]
    """

    def __init__(self, label: str, state: JournalState | None = None) -> None:
        state = JournalState() if state is None else state
        self.label = label
        self._lock = threading.Lock()
        self._gates = _sum_gates(state)
        self._recent = OrderedDict(sorted(state.batches.items())[-_REMEMBERED:])
        self._base = {sample.key + repr(sample.labels): sample.value for sample in _count_rows(label, self._gates)}
        self._counted = {"batches": _count_batches(state), "errors": 0, "journal_errors": 0}
        self._base |= {key + repr((label,)): float(value) for key, value in self._counted.items()}
        self._gauges: dict[str, float] = {"active": 1.0, "failing": 0.0}
        self.histograms: Mapping[str, Histogram] = {"delay": Histogram(), "duration": Histogram()}
        self.new_values: list[tuple[str, float]] = []
        """Values of the histograms since ``take_values``, for a library that wants them one by one."""
        for decision in reversed(state.decisions):
            if decision.gates:
                self._gauges["keep"] = decision.keep
                break
        if self._recent:
            self._set_gauges(self._recent[next(reversed(self._recent))])

    # -- what happens ---------------------------------------------------------------------------------------------------

    def record(self, records: Sequence[Record], now_s: float) -> None:
        """Take records that are in the journal now."""
        with self._lock:
            self._gauges |= {"last_write": now_s, "failing": 0.0}
            self._add(records, now_s)

    def miss(self, batches: Sequence[BatchRecord], now_s: float) -> None:
        """Take batches that the journal could not write."""
        with self._lock:
            self._gauges["failing"] = 1.0
            self._counted["journal_errors"] += 1
            self._add(batches, now_s)

    def fail(self) -> None:
        """Something failed without taking the job down."""
        with self._lock:
            self._counted["errors"] += 1

    def close(self) -> None:
        """The query has ended."""
        with self._lock:
            self._gauges["active"] = 0.0
            self._gauges.pop("batch_start", None)

    def sync(self, state: JournalState) -> None:
        """Take rows and batches from a journal that was read as a whole: some may have come and been folded in between."""
        with self._lock:
            self._gates = _sum_gates(state)
            self._counted["batches"] = _count_batches(state)

    def set_gauge(self, key: str, value: float | None) -> None:
        """Set a gauge that no record says; ``None`` leaves it out."""
        with self._lock:
            if value is None:
                self._gauges.pop(key, None)
            else:
                self._gauges[key] = value

    def _add(self, records: Sequence[Record], now_s: float) -> None:
        for record in records:
            if isinstance(record, BatchRecord):
                self._add_batch(record)
            elif isinstance(record, DecisionRecord) and record.gates:  # without gates, it marks the start of a run
                self._gauges["keep"] = record.keep
                if record.batch_id is not None and record.batch_id not in self._recent:
                    self._gauges["batch_start"] = now_s

    def _add_batch(self, record: BatchRecord) -> None:
        before = self._recent.pop(record.batch_id, None)
        self._recent[record.batch_id] = record
        while len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)
        for gate in record.gates.keys() | (before.gates.keys() if before is not None else set()):
            total = self._gates.setdefault(gate, GateTotal())
            total.add(record, gate, 1)
            if before is not None:
                total.add(before, gate, -1)
        if before is None:
            self._counted["batches"] += 1
            self._gauges.pop("batch_start", None)
        self._set_gauges(record)
        if record.end_s is None or (before is not None and before.end_s is not None):
            return
        if record.start_s is not None:
            self._observe("duration", max(0.0, record.end_s - record.start_s))
        if record.delay_s is not None and any(kept for _, kept in record.gates.values()):
            self._observe("delay", record.delay_s)

    def _observe(self, key: str, value: float) -> None:
        self.histograms[key].add(value)
        self.new_values = [*self.new_values[-_REMEMBERED:], (key, value)]

    def _set_gauges(self, record: BatchRecord) -> None:
        for key, value in (("target", record.delay_target_s), ("backlog", record.backlog_rows)):
            if value is not None:
                self._gauges[key] = float(value)
        if record.reachable_s is None:
            self._gauges.pop("reachable", None)
        else:
            self._gauges["reachable"] = record.reachable_s

    # -- what is exported -----------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether the query runs."""
        return self._gauges.get("active") != 0.0

    def samples(self) -> list[Sample]:
        """Return counters and gauges as they are now."""
        with self._lock:
            rows = list(_count_rows(self.label, self._gates))
            counted = [Sample(key, (self.label,), value) for key, value in self._counted.items()]
            gauges = [Sample(key, (self.label,), value) for key, value in self._gauges.items()]
        return [*rows, *counted, *gauges]

    def since_start(self, sample: Sample) -> float:
        """Return a counter without what the journal had when this process began."""
        return max(0.0, sample.value - self._base.get(sample.key + repr(sample.labels), 0.0))

    def take_values(self) -> list[tuple[str, float]]:
        """Return the new values of the histograms, once."""
        with self._lock:
            values, self.new_values = self.new_values, []
        return values

    def read_histogram(self, key: str) -> tuple[list[tuple[str, int]], float]:
        """Return a histogram as Prometheus wants it: cumulated buckets and the sum."""
        with self._lock:
            histogram = self.histograms[key]
            return histogram.cumulate(), histogram.total


def _count_rows(query: str, gates: Mapping[str, GateTotal]) -> Iterator[Sample]:
    totals: dict[str, GateTotal] = {}
    for number, (gate, total) in enumerate(gates.items()):
        named = totals.setdefault(clean_label(gate) if number < MOST_GATES else OTHER, GateTotal())
        named.offered += total.offered
        named.kept += total.kept
        named.expired += total.expired
    for gate, total in totals.items():
        labels = (query, gate)
        yield Sample("offered", labels, total.offered)
        yield Sample("kept", labels, total.kept)
        yield Sample("shed", (*labels, "overload"), max(0, total.offered - total.kept - total.expired))
        yield Sample("shed", (*labels, "expired"), total.expired)


def _sum_gates(state: JournalState) -> dict[str, GateTotal]:
    expired = state.expired_totals()
    return {gate: GateTotal(*counts, expired.get(gate, 0)) for gate, counts in state.totals().items()}


def _count_batches(state: JournalState) -> int:
    return len(state.batches) + state.compacted_batches


class TallyBook:
    """The tallies of all queries that one exporter shows, each under a name of its own, and not endlessly many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tallies: dict[str, QueryTally] = {}
        self._has_warned = False

    def watch(self, query: str, state: JournalState) -> QueryTally | None:
        """Return a tally for a query; ``None`` if too many run already. One that has ended makes room."""
        with self._lock:
            label = self._name_apart(clean_label(query))
            if label not in self._tallies and len(self._tallies) >= MOST_QUERIES and not self._make_room():
                if not self._has_warned:
                    log.warning("metrics show %d running queries at most: %r is left out", MOST_QUERIES, query)
                self._has_warned = True
                return None
            tally = self._tallies[label] = QueryTally(label, state)
            return tally

    def remove(self, label: str) -> None:
        """Show a query no more."""
        with self._lock:
            self._tallies.pop(label, None)

    @property
    def tallies(self) -> list[QueryTally]:
        """The tallies, oldest first."""
        with self._lock:
            return list(self._tallies.values())

    def _name_apart(self, label: str) -> str:
        names = itertools.chain((label,), (f"{label} ({number})" for number in itertools.count(2)))
        return next(name for name in names if name not in self._tallies or not self._tallies[name].is_active)

    def _make_room(self) -> bool:
        ended = next((label for label, tally in self._tallies.items() if not tally.is_active), None)
        if ended is not None:
            del self._tallies[ended]
        return ended is not None
