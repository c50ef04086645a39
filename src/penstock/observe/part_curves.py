"""Keep and rows shed over time, by gate and by class: from the batches that a journal still holds one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.observe.downsampling import Buckets
from penstock.observe.query_series import QuerySeries

__all__ = ["Part", "choose_parts", "name_kind", "trace_parts"]

Vector = NDArray[np.float64]
_MOST_PARTS = 8
"""More lines than that nobody tells apart; the table has the others."""


@dataclass(frozen=True, slots=True)
class Part:
    """A gate, or one class of it."""

    gate: str
    index: int | None
    label: str

    @property
    def key(self) -> str:
        """What its curves are called."""
        return self.gate if self.index is None else f"{self.gate}/{self.index}"

    def count(self, line: Mapping[str, Any]) -> tuple[int, int]:
        """Return the rows offered and kept in a batch, as the journal has them."""
        if self.index is None:
            offered, kept = line["gates"].get(self.gate, (0, 0))
            return int(offered), int(kept)
        counts = (line.get("classes") or {}).get(self.gate, ())
        return (int(counts[self.index][0]), int(counts[self.index][1])) if self.index < len(counts) else (0, 0)


def choose_parts(series: QuerySeries, names: Mapping[str, Sequence[str]] | None = None) -> tuple[list[Part], int]:
    """Return what is drawn apart, classes or gates without classes, and how many are left out.

    Of many, those with the most rows are drawn; of one, nothing, since the curves of the query say it all.
    """
    found: list[tuple[int, Part]] = []
    for gate, (offered, _) in series.totals.items():
        labels, classes = (names or {}).get(gate, ()), series.classes.get(gate, ())
        if len(classes) < 2:
            found.append((offered, Part(gate, None, gate)))
            continue
        for index, (rows, _) in enumerate(classes):
            label = labels[index] if index < len(labels) else f"class {index + 1}"
            found.append((rows, Part(gate, index, label if len(series.totals) == 1 else f"{gate}: {label}")))
    if len(found) < 2:
        return [], 0
    ranked = sorted(range(len(found)), key=lambda number: -found[number][0])[:_MOST_PARTS]
    chosen = [found[number][1] for number in sorted(ranked)]
    return chosen, len(found) - len(chosen)


def name_kind(parts: Sequence[Part]) -> str:
    """Return what parts are: gates, classes or both."""
    kinds = {"gate" if part.index is None else "class" for part in parts}
    if kinds == {"class"} and len({part.gate for part in parts}) == 1:
        return "class"
    return "gate" if kinds == {"gate"} else "gate and class" if kinds else ""


def trace_parts(series: QuerySeries, parts: Sequence[Part], table: Mapping[str, Vector], buckets: Buckets) -> dict[str, Vector]:
    """Return ``keep/...`` and ``shed/...`` of each part, in the buckets of all other curves.

    Buckets of a journal that was compacted do not know of gates and classes: nothing is drawn there. A part without any row in a
    batch keeps its line where it was.
    """
    numbers = table["batch_id"]
    rows = np.flatnonzero(numbers >= min(series.recent, default=0)) if parts else np.array([], dtype=np.int64)
    lines = [(row, line) for row in rows.tolist() if (line := series.recent.get(int(numbers[row]))) is not None]
    is_known = np.zeros(len(numbers))
    is_known[[row for row, _ in lines]] = 1.0
    covered = buckets.sum(is_known) > 0.0
    spans = np.isfinite(table["span_s"])
    span_s = buckets.sum(np.where(is_known > 0.0, table["span_s"], 0.0))
    curves: dict[str, Vector] = {}
    for part in parts:
        offered, kept = np.zeros(len(numbers)), np.zeros(len(numbers))
        for row, line in lines:
            offered[row], kept[row] = part.count(line)
        total = buckets.sum(offered)
        shed = buckets.sum(np.where(spans, offered - kept, 0.0))
        with np.errstate(invalid="ignore", divide="ignore"):
            keep = np.where(total > 0.0, buckets.sum(kept) / total, np.nan)
            curves[f"shed/{part.key}"] = np.where(covered & (span_s > 0.0), shed / span_s, np.nan)
        curves[f"keep/{part.key}"] = np.where(covered, _hold(keep), np.nan)
    return curves


def _hold(values: Vector) -> Vector:
    """Return values with the last known one where one is not known.

    >>> _hold(np.array([np.nan, 1.0, np.nan, 0.5])).tolist()
    [nan, 1.0, 1.0, 0.5]
    """
    if not len(values):
        return values
    position = np.where(np.isfinite(values), np.arange(len(values)), 0)
    return values[np.maximum.accumulate(position)]
