"""What one query did over time, in columns: of every batch that its journal holds, and of the older ones in buckets."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.drop.tables import LEAST_BOUND, slot_of
from penstock.journal.history import Bucket, History
from penstock.journal.records import add_class_counts, add_rows

__all__ = ["COLUMNS", "QuerySeries", "RECENT"]

COLUMNS = (
    *("end_s", "span_s", "batches", "offered", "kept", "expired", "took_s", "delay_s", "delay_min_s", "delay_max_s"),
    *("target_s", "reachable_s", "keep", "backlog", "cost_s", "overhead_s", "batch_time_s", "batch_id"),
)
_AT = {name: position for position, name in enumerate(COLUMNS)}
_MOST_BATCHES = 131_072
"""Batches held one by one; beyond, the older half goes into buckets, as in a journal."""
RECENT = 4096
"""Batches and decisions that are kept as the journal has them."""
_ERRORS = 20
_FEW_CLASSES = 32


class QuerySeries:
    """The batches of one query as numbers to draw, with bounded memory whatever the journal holds.

    Lines of a journal go in, in order; a later line of the same batch replaces the earlier one.

    >>> series = QuerySeries()
    >>> series.add_line({"kind": "batch", "batch_id": 0, "gates": {"in": [10, 4]}, "start_s": 5.0, "end_s": 6.0, "keep": 0.4})
    >>> series.column("kept").tolist(), series.totals
    ([4.0], {'in': (10, 4)})
    """

    def __init__(self) -> None:
        self._data: NDArray[np.float64] = np.empty((256, len(COLUMNS)))
        self._count = 0
        self._rows: OrderedDict[int, int] = OrderedDict()  # of recent batches, in _data
        self.recent: OrderedDict[int, Mapping[str, Any]] = OrderedDict()
        """The last batches as the journal has them, by number."""
        self.decisions: deque[Mapping[str, Any]] = deque(maxlen=RECENT)
        """The last decisions as the journal has them."""
        self.totals: dict[str, tuple[int, int]] = {}
        """(offered, kept) by gate since the journal began."""
        self.expired: dict[str, int] = {}
        self.expired_classes: dict[str, list[int]] = {}
        self.classes: dict[str, list[tuple[int, int]]] = {}
        """(offered, kept) by class of each gate that has some."""
        self.outputs: dict[str, tuple[int, int, float]] = {}
        """Rows, rows with a known delay, and the sum of their delays, by output of a network."""
        self.batches = 0
        self.errors: list[str] = []
        self._history = History()
        self._learnt: dict[int | None, Mapping[str, float]] = {}
        self._last_learnt: Mapping[str, float] = {}
        self.version = 0
        """Counts changes."""

    # -- changes -------------------------------------------------------------------------------------------------------

    def add_line(self, line: Mapping[str, Any], seen_s: float | None = None) -> None:
        """Add one line of a journal. A batch whose end nobody knows yet ended when its line was seen, until a line says more."""
        kind = line["kind"]
        self.version += 1
        if kind == "batch":
            self._add_batch(line, seen_s)
        elif kind == "decision":
            self._add_decision(line)
        elif kind == "totals":
            self._add_totals(line)
        elif kind == "error":
            self.errors = [*self.errors, str(line["message"])][-_ERRORS:]

    def _add_totals(self, line: Mapping[str, Any]) -> None:
        self.totals = {gate: (int(offered), int(kept)) for gate, (offered, kept) in line["gates"].items()}
        self.expired = {gate: int(rows) for gate, rows in line.get("expired", {}).items()}
        self.expired_classes = {gate: [int(n) for n in rows] for gate, rows in line.get("expired_classes", {}).items()}
        self.classes = {gate: [(int(o), int(k)) for o, k in counts] for gate, counts in line.get("classes", {}).items()}
        self.outputs = {name: (int(t[0]), int(t[1]), float(t[2])) for name, t in line.get("outputs", {}).items()}
        self.batches = int(line["batches"])
        self._history = History.from_rows(line.get("history", ()))

    def _add_decision(self, line: Mapping[str, Any]) -> None:
        if not line["gates"]:
            return  # it marks the start of a run, and decides nothing
        few = {gate: _drop_bound(entries) for gate, entries in line["gates"].items() if len(entries) <= _FEW_CLASSES}
        dropped = {"controller", "windows"}
        self.decisions.append({key: value for key, value in line.items() if key not in dropped} | {"gates": few})
        if "learnt" in line:
            self._last_learnt = line["learnt"]
            self._learnt[line.get("batch_id")] = line["learnt"]
            while len(self._learnt) > 2 * RECENT:
                self._learnt.pop(next(iter(self._learnt)))

    def _add_batch(self, line: Mapping[str, Any], seen_s: float | None) -> None:
        number = int(line["batch_id"])
        before = self.recent.pop(number, None)
        if before is None:
            self.batches += 1
        else:
            self._count_up(before, -1)
        self._count_up(line, 1)
        row = self._rows.get(number)
        values = self._measure(line, seen_s, row)
        self.recent[number] = line
        if row is None:
            row = self._append_row()
            self._rows[number] = row
        self._data[row] = values
        while len(self.recent) > RECENT:
            self.recent.popitem(last=False)
        while len(self._rows) > RECENT:
            self._rows.popitem(last=False)

    def _append_row(self) -> int:
        if self._count == _MOST_BATCHES:
            self._fold(_MOST_BATCHES // 2)
        if self._count == len(self._data):
            self._data = np.concatenate([self._data, np.empty_like(self._data)])
        self._count += 1
        return self._count - 1

    def _fold(self, count: int) -> None:
        """Put the oldest batches into buckets."""
        for row in self._data[:count]:
            self._history.add(_to_bucket(row))
        self._data[: self._count - count] = self._data[count : self._count]
        self._count -= count
        for number in self._rows:
            self._rows[number] -= count

    def _count_up(self, line: Mapping[str, Any], sign: int) -> None:
        for gate, (offered, kept) in line["gates"].items():
            total = self.totals.get(gate, (0, 0))
            self.totals[gate] = (total[0] + sign * int(offered), total[1] + sign * int(kept))
        for gate, rows in (line.get("expired") or {}).items():
            self.expired[gate] = self.expired.get(gate, 0) + sign * int(rows)
        for gate, by_class in (line.get("expired_classes") or {}).items():
            self.expired_classes[gate] = add_rows(self.expired_classes.get(gate, ()), [sign * int(rows) for rows in by_class])
        for gate, counts in (line.get("classes") or {}).items():
            more = [(sign * int(offered), sign * int(kept)) for offered, kept in counts]
            self.classes[gate] = add_class_counts(self.classes.get(gate, ()), more)
        for name, output in (line.get("outputs") or {}).items():
            rows, delay_rows, delay_sum_s = self.outputs.get(name, (0, 0, 0.0))
            more_rows, mean_s = int(output["rows"] or 0), output.get("mean_delay_s")
            known = 0 if mean_s is None else more_rows
            self.outputs[name] = (
                *(rows + sign * more_rows, delay_rows + sign * known),
                delay_sum_s + sign * known * (mean_s or 0.0),
            )

    def _measure(self, line: Mapping[str, Any], seen_s: float | None, row: int | None) -> list[float]:
        """Return the columns of a batch."""
        end_s, start_s = line.get("end_s"), line.get("start_s")
        if end_s is None:
            before_s = math.nan if row is None else float(self._data[row, 0])
            end_s = before_s if math.isfinite(before_s) else seen_s
        last = self._count - 1 if row is None else row - 1
        last_s = float(self._data[last, 0]) if last >= 0 else math.nan
        begin_s = last_s if math.isfinite(last_s) else start_s
        offered = sum(int(offered) for offered, _ in line["gates"].values())
        kept = sum(int(kept) for _, kept in line["gates"].values())
        arrival_s = line.get("mean_arrival_s")
        delay_s = max(0.0, end_s - arrival_s) if end_s is not None and arrival_s is not None and kept > 0 else None
        learnt = self._learnt.get(int(line["batch_id"])) or self._last_learnt
        number = _number
        return [
            number(end_s),
            number(None if end_s is None or begin_s is None or end_s <= begin_s else end_s - begin_s),
            1.0,
            float(offered),
            float(kept),
            float(sum((line.get("expired") or {}).values())),
            number(None if start_s is None or line.get("end_s") is None else max(0.0, line["end_s"] - start_s)),
            *(number(delay_s),) * 3,
            *(number(line.get(name)) for name in ("delay_target_s", "reachable_s", "keep", "backlog_rows")),
            *(number(learnt.get(name)) for name in ("cost_s", "overhead_s", "batch_time_s")),
            float(line["batch_id"]),
        ]

    # -- answers -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one value of every batch that is held, oldest first."""
        return self._data[: self._count, _AT[name]]

    def table(self, since_s: float = -math.inf, until_s: float = math.inf) -> dict[str, NDArray[np.float64]]:
        """Return all columns over a span of time, ordered by time, with buckets for what is not held batch by batch."""
        buckets = [_to_row(bucket) for bucket in self._history if since_s - bucket.width_s <= bucket.start_s <= until_s]
        data = self._data[: self._count]
        known = np.isfinite(data[:, 0]) & (data[:, 0] >= since_s) & (data[:, 0] <= until_s)
        rows = np.concatenate([np.array(buckets).reshape(-1, len(COLUMNS)), data[known]])
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return {name: rows[:, position] for name, position in _AT.items()}

    def last(self, name: str) -> float | None:
        """Return the latest known value of a column."""
        values = self.column(name)[-RECENT:]
        known = values[np.isfinite(values)]
        return float(known[-1]) if len(known) else None

    def span(self) -> tuple[float, float] | None:
        """Return when the first batch ended that is known, and the last one."""
        ends = self.column("end_s")
        ends = ends[np.isfinite(ends)]
        first = next((bucket.start_s for bucket in self._history), None)
        if not len(ends):
            return None if first is None else (first, first)
        return (float(ends.min()) if first is None else min(first, float(ends.min())), float(ends.max()))

    def find_decision(self, batch_id: int) -> Mapping[str, Any] | None:
        """Return the decision for a batch; the later one if there are two."""
        return next((decision for decision in reversed(self.decisions) if decision.get("batch_id") == batch_id), None)

    def find_decision_by_arrival(self, line: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the decision for rows that arrived when those of a batch did; without any, everything was kept."""
        moment_s = line.get("mean_arrival_s") or line.get("start_s")
        slot = None if moment_s is None else slot_of(moment_s)
        for decision in reversed(self.decisions):
            if decision.get("from_slot") is not None and (slot is None or decision["from_slot"] <= slot):
                return dict(decision)
        return {"gates": {}, "keep": 1.0 if line.get("keep") is None else line["keep"]}

    def count_classes(self, gate: str, batches: int = 50) -> list[tuple[int, int]]:
        """Return (offered, kept) by class of a gate over the last batches."""
        counts: Sequence[tuple[int, int]] = ()
        for line in list(self.recent.values())[-batches:]:
            counts = add_class_counts(counts, [(int(o), int(k)) for o, k in (line.get("classes") or {}).get(gate, ())])
        return list(counts)


def _drop_bound(entries: Sequence[float]) -> Sequence[float]:
    """Return the keeps of a table. The last entry of a bounded gate is no keep but a number of rows.

    >>> _drop_bound([0.4, 1099511627776.0]), _drop_bound([1.0, 0.4])
    ([0.4], [1.0, 0.4])
    """
    return entries[:-1] if len(entries) > 1 and entries[-1] >= LEAST_BOUND else entries


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _to_bucket(row: NDArray[np.float64]) -> Bucket | None:
    if not math.isfinite(row[0]):
        return None
    value = {name: float(row[position]) for name, position in _AT.items()}
    known = {name: 0.0 if math.isnan(number) else number for name, number in value.items()}
    has_delay = math.isfinite(value["delay_s"])
    kept = int(value["kept"])
    counts: dict[str, Any] = {name: int(known[name]) for name in ("batches", "offered", "kept", "expired")}
    lasts: dict[str, Any] = {name: known[name] for name in ("target_s", "cost_s", "overhead_s", "batch_time_s")}
    return Bucket(
        value["end_s"],
        0.0,
        **counts,
        span_s=known["span_s"],
        busy_s=known["took_s"],
        delay_rows=kept if has_delay else 0,
        delay_sum_s=kept * known["delay_s"],
        delay_min_s=value["delay_min_s"] if has_delay else math.inf,
        delay_max_s=known["delay_max_s"],
        keep_min=1.0 if math.isnan(value["keep"]) else value["keep"],
        **lasts,
    )


def _to_row(bucket: Bucket) -> list[float]:
    """Return a bucket as if it were a batch, at the middle of its span."""
    nan = math.nan
    values = {
        "end_s": bucket.start_s + bucket.width_s / 2.0,
        "span_s": bucket.span_s or nan,
        "batches": float(bucket.batches),
        "offered": float(bucket.offered),
        "kept": float(bucket.kept),
        "expired": float(bucket.expired),
        "took_s": bucket.busy_s / bucket.batches if bucket.batches else nan,
        "delay_s": bucket.delay_sum_s / bucket.delay_rows if bucket.delay_rows else nan,
        "delay_min_s": bucket.delay_min_s if bucket.delay_rows else nan,
        "delay_max_s": bucket.delay_max_s if bucket.delay_rows else nan,
        "keep": bucket.kept / bucket.offered if bucket.offered else 1.0,
        **{name: getattr(bucket, name) or nan for name in ("target_s", "cost_s", "overhead_s", "batch_time_s")},
    }
    return [values.get(name, nan) for name in COLUMNS]
