"""What a page, a terminal or a report shows of one query, as plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.observe.downsampling import Buckets, assign_buckets, break_gaps
from penstock.observe.explanation import explain_batch, explain_shortly
from penstock.observe.part_curves import choose_parts, name_kind, trace_parts
from penstock.observe.query_series import QuerySeries

__all__ = ["list_decisions", "plain", "summarise", "trace"]

Vector = NDArray[np.float64]
_RECENT_BATCHES = 20
_DIGITS = 5


def trace(
    series: QuerySeries,
    since_s: float = -math.inf,
    until_s: float = math.inf,
    points: int = 600,
    classes: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return curves over a span of time, with at most so many points each, and ``None`` where a line must break.

    ``parts`` says which gates and classes have curves of their own, ``keep/...`` and ``shed/...``, and what to call them.
    """
    table = series.table(since_s, until_s)
    times = table["end_s"]
    buckets = assign_buckets(times, points)
    parts, left = choose_parts(series, classes)
    columns = _draw(table, buckets) | trace_parts(series, parts, table, buckets)
    moments = buckets.mean(times)
    gaps = break_gaps(moments)
    curves: dict[str, list[float | None]] = {name: _insert_gaps(values, gaps) for name, values in columns.items()}
    between = [(moments[gap - 1] + moments[gap]) / 2.0 for gap in gaps]
    shown = np.insert(moments, gaps, between) if gaps else moments
    return {
        "t": [round(float(moment), 3) for moment in shown],
        **curves,
        "parts": {part.key: part.label for part in parts},
        "parts_by": name_kind(parts),
        "parts_left": left,
        "batches": int(table["batches"].sum()),
        "is_exact": buckets.count == len(times) and not (table["batches"] > 1).any(),
    }


def _draw(table: Mapping[str, Vector], buckets: Buckets) -> dict[str, Vector]:
    span_s = buckets.sum(table["span_s"])
    known = np.isfinite(table["span_s"])

    def rate(values: Vector) -> Vector:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(span_s > 0.0, buckets.sum(np.where(known, values, 0.0)) / span_s, np.nan)

    offered, kept, expired = table["offered"], table["kept"], table["expired"]
    total = buckets.sum(offered)
    with np.errstate(invalid="ignore", divide="ignore"):
        rows_kept = np.where(total > 0.0, buckets.sum(kept) / total, buckets.mean(table["keep"]))
        capacity = (table["batch_time_s"] - table["overhead_s"]) / (table["cost_s"] * table["batch_time_s"])
    return {
        "delay": buckets.mean(table["delay_s"], kept),
        "delay_min": buckets.min(table["delay_min_s"]),
        "delay_max": buckets.max(table["delay_max_s"]),
        "target": buckets.last(table["target_s"]),
        "reachable": buckets.last(table["reachable_s"]),
        "arrivals": rate(offered),
        "kept_rate": rate(kept),
        "capacity": buckets.mean(np.where(np.isfinite(capacity), np.maximum(capacity, 0.0), np.nan)),
        "keep": rows_kept,
        "overload_rate": rate(np.maximum(0.0, offered - kept - expired)),
        "expired_rate": rate(expired),
        "cost_s": buckets.mean(table["cost_s"]),
        "overhead_s": buckets.mean(table["overhead_s"]),
        "took_s": buckets.mean(table["took_s"], table["batches"]),
        "allowed_s": buckets.last(table["batch_time_s"]),
        "backlog": buckets.max(table["backlog"]),
        "batch": buckets.last(table["batch_id"]),
    }


def _insert_gaps(values: Vector, gaps: Sequence[int]) -> list[float | None]:
    return plain(np.insert(values, gaps, np.nan) if gaps else values)


def plain(values: Vector) -> list[float | None]:
    """Return numbers for JSON: short ones, and ``None`` for what is not known."""
    return [
        float(f"{value:.{_DIGITS}g}") if abs(value) < 1e7 else round(value) if math.isfinite(value) else None
        for value in values.tolist()
    ]


def summarise(series: QuerySeries, classes: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """Return how a query does now and what it did in all."""
    offered = sum(offered for offered, _ in series.totals.values())
    kept = sum(kept for _, kept in series.totals.values())
    recent = {name: series.column(name)[-_RECENT_BATCHES:] for name in ("span_s", "offered", "kept", "took_s")}
    known = np.isfinite(recent["span_s"])
    span_s = float(recent["span_s"][known].sum())
    cost_s, overhead_s, allowed_s = (series.last(name) for name in ("cost_s", "overhead_s", "batch_time_s"))
    capacity = (allowed_s - overhead_s) / (cost_s * allowed_s) if cost_s and allowed_s and overhead_s is not None else None
    recent_offered = float(recent["offered"].sum())
    span = series.span()
    return {
        "batches": series.batches,
        "last_batch": next(reversed(series.recent), None),
        "first_s": None if span is None else span[0],
        "last_s": None if span is None else span[1],
        "delay_s": series.last("delay_s"),
        "target_s": series.last("target_s"),
        "reachable_s": _last_reachable(series),
        "keep": float(recent["kept"].sum()) / recent_offered if recent_offered else series.last("keep"),
        "arrivals": float(recent["offered"][known].sum()) / span_s if span_s > 0.0 else None,
        "capacity": None if capacity is None else max(0.0, capacity),
        "cost_s": cost_s,
        "overhead_s": overhead_s,
        "took_s": series.last("took_s"),
        "allowed_s": allowed_s,
        "backlog": series.last("backlog"),
        "offered": offered,
        "kept": kept,
        "shed": offered - kept,
        "expired": sum(series.expired.values()),
        "gates": _describe_gates(series, classes or {}),
        "outputs": {
            name: {"rows": rows, "delay_s": delay_sum_s / delay_rows if delay_rows else None}
            for name, (rows, delay_rows, delay_sum_s) in series.outputs.items()
        },
    }


def _last_reachable(series: QuerySeries) -> float | None:
    """Return what is held instead of the target, if the last batch says so."""
    values = series.column("reachable_s")[-1:]
    return float(values[0]) if len(values) and math.isfinite(values[0]) else None


def _describe_gates(series: QuerySeries, names: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    last = series.decisions[-1] if series.decisions else None
    gates = []
    for gate, (offered, kept) in series.totals.items():
        entries = [] if last is None else last["gates"].get(gate, [])
        labels, recent, expired = names.get(gate, ()), series.count_classes(gate), series.expired_classes.get(gate, ())
        classes = [
            {
                "name": labels[index] if index < len(labels) else f"class {index + 1}",
                "offered": counts[0],
                "kept": counts[1],
                "expired": expired[index] if index < len(expired) else 0,
                "keep": entries[index] if index < len(entries) else None,
                "recent": recent[index] if index < len(recent) else (0, 0),
            }
            for index, counts in enumerate(series.classes.get(gate, ())[:_MOST_CLASSES])
        ]
        keep = entries[0] if len(entries) == 1 else None
        counted = {"offered": offered, "kept": kept, "expired": series.expired.get(gate, 0)}
        gates.append({"name": gate, **counted, "keep": keep, "classes": classes})
    return gates


_MOST_CLASSES = 32


def list_decisions(series: QuerySeries, count: int = 30, decider: str = "the controller") -> list[dict[str, Any]]:
    """Return the last decisions, the newest first, each with its reason."""
    listed: list[dict[str, Any]] = []
    for decision in reversed(series.decisions):
        if len(listed) == count:
            break
        number = decision.get("batch_id")
        batch = None if number is None else series.recent.get(number)
        before = None if number is None else series.recent.get(number - 1)
        explanation = explain_batch(decision, batch, before)
        listed.append(
            {
                "batch": number,
                "slot": decision.get("from_slot"),
                "keep": decision["keep"],
                "reason": explain_shortly(decision, batch, before, decider),
                "seen": " ".join(explanation.seen),
                "decided": " ".join(explanation.decided),
                "happened": " ".join(explanation.happened),
                "at_s": None if batch is None else batch.get("start_s"),
            }
        )
    return listed
