"""Checks of a DataFrame and of a query's plan: whether its gates can do what they promise, and which answers they make wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyspark
from pyspark.sql import DataFrame

from penstock.drop.units import BEHIND, WholeKeys, WholeWindows
from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.spark.connect.detection import is_connect
from penstock.spark.gates import Gate

__all__ = ["check_keys", "check_streaming", "check_windows", "find_gates", "find_risks", "refuse_windows"]

# Aggregates that weights cannot correct, as Spark writes them in a plan.
_NOT_SCALED = (
    "min",
    "max",
    "approx_count_distinct",
    "percentile",
    "percentile_approx",
    "approx_percentile",
    "median",
    "mode",
    "collect_set",
    "min_by",
    "max_by",
    "first",
    "last",
    "percentile_cont",
    "percentile_disc",
    "hll_sketch_agg",
)
_DISTINCT = ("Deduplicate", "DeduplicateWithinWatermark", "Distinct")  # nodes of a plan


def check_streaming(df: Any) -> None:
    """Refuse what is no streaming DataFrame of a session that is alive."""
    if is_connect(df) and not hasattr(df, "scalar"):
        raise PenstockError(
            f"gates over Spark Connect need a client of Spark 4.0 or later, and this one is {pyspark.__version__}: "
            "use a newer one, or a classic Spark session"
        )
    if not isinstance(df, DataFrame):
        raise PenstockError(f"a streaming DataFrame is needed, got {type(df).__name__}")
    context = None if is_connect(df) else df.sparkSession._sc
    if context is not None and (context._jsc is None or context._jsc.sc().isStopped()):
        raise PenstockError("the SparkSession of this DataFrame has been stopped: make a new one and read the stream again")
    if not df.isStreaming:
        raise PenstockError("a streaming DataFrame is needed, got one that is not: read it with spark.readStream")


def find_gates(plan: str, gates: Mapping[str, Gate], query: str | None) -> list[Gate]:
    """Return the gates that a query reads; refuse one that reads none."""
    in_plan = [gate for gate in gates.values() if f"-{gate.kept_tag})" in plan]
    if not in_plan:
        known = ", ".join(gates) or "none yet"
        what = f"query {query!r}" if query else "the query"
        raise PenstockError(
            f"{what} reads no gate of this shedder (gates: {known}): build it on the DataFrame that gate() returned"
        )
    check_keys(in_plan)
    return in_plan


def check_keys(gates: Sequence[Gate]) -> None:
    """Refuse gates of one family whose keys have different types: equal keys would not be hashed alike."""
    first: dict[tuple[str, int], Gate] = {}
    for gate in gates:
        if isinstance(gate.specification.unit, WholeKeys):
            other = first.setdefault((gate.specification.unit.family, len(gate.key_types)), gate)
            if other.key_types != gate.key_types:
                types = f"{', '.join(other.key_types)} and {', '.join(gate.key_types)}"
                raise PenstockError(
                    f"gates {other.name!r} and {gate.name!r} keep whole keys of different types ({types}), so equal keys would "
                    "not share their fate: cast them to one type before the gates, or give one gate a family of its own"
                )


def refuse_windows(gates: Sequence[Gate]) -> None:
    """Refuse gates in a query by arrival that are decided between two batches: those of whole windows, and by the clock."""
    for gate in gates:
        if gate.specification.clocked is not None:
            raise PenstockError(
                f"gate {gate.name!r} decides on each row of a batch from what is known when it begins: start its query by batch"
            )
        if gate.windows is not None:
            raise PenstockError(
                f"gate {gate.name!r} keeps whole windows, which are decided batch by batch: start its query by batch"
            )


def check_windows(plan: str, gates: Sequence[Gate]) -> None:
    """Refuse a query that would show windows in part: it must aggregate by the windows that its gates keep."""
    for gate in gates:
        if gate.windows is None:
            continue
        unit = gate.windows.unit
        if "Aggregate [" in plan:
            _check_same_windows(plan, gate.name, unit)
            if unit.overlap > 1 and f"-{gate.windows.whole_tag})" not in plan:
                raise PenstockError(
                    f"gate {gate.name!r} keeps whole windows that overlap, and those it drops would show in part: "
                    "pass the result of the aggregation through shedder.whole(...)"
                )
        _check_watermark(plan, gate.name, unit)


def _check_same_windows(plan: str, gate: str, unit: WholeWindows) -> None:
    """Look for the window in the plan, where Spark writes it as arithmetic: a remainder by the slide, plus the length, in us."""
    expected = (f"- {unit.offset}) % {unit.slide})", f"+ {unit.length})")
    if "precisetimestampconversion" in plan and not all(part in plan for part in expected):
        offset = f", offset {unit.offset / 1e6:g} s" if unit.offset else ""
        raise PenstockError(
            f"gate {gate!r} keeps whole windows of {unit.length / 1e6:g} s by {unit.slide / 1e6:g} s{offset}, and the query "
            "aggregates by others, which would show in part: give WholeWindows what F.window() has"
        )
    grouped = " ".join(re.findall(r"Aggregate \[(.*?)\], \[", plan))
    for name in unit.by:
        if f"{name}#" not in grouped:
            raise PenstockError(
                f"gate {gate!r} keeps whole windows of each {name!r}, and the query does not group by it: "
                "windows of all would show in part"
            )


def _check_watermark(plan: str, gate: str, unit: WholeWindows) -> None:
    for text in re.findall(r"EventTimeWatermark .*, ([^,\n]+)", plan):
        parts = re.findall(r"[0-9.]+ [a-z]+", text)
        try:
            span = sum(parse_duration(part, "a watermark") for part in parts if float(part.split()[0]))
        except PenstockError:  # months, which are longer than any gate remembers
            span = float("inf")
        windows = span * 1e6 / unit.slide + unit.overlap
        if windows > BEHIND:
            raise PenstockError(
                f"gate {gate!r} remembers what it decided of the last {BEHIND:,} windows, and with a watermark of {text.strip()} "
                f"older ones are still open ({unit.slide / 1e6:g} s per slide): take longer windows, or a shorter watermark"
            )


def find_risks(plan: str, gates: Sequence[Gate]) -> list[str]:
    """Return which answers of the query a gate makes wrong and weights cannot correct; one line each."""
    risks = [
        f"the watermark stands behind gate {name!r} and covers only the rows kept, so rows may count that would be too late in "
        "the job without shedding: put withWatermark before the gate"
        for name in _find_gates_before_watermark(plan, gates)
    ]
    if all(gate.specification.unit is not None for gate in gates):
        return risks
    names = [name for name in _NOT_SCALED if re.search(rf"\b{name}\(", plan)]
    names += ["distinct rows"] if any(re.search(rf"\b{name}\b", plan) for name in _DISTINCT) else []
    names += ["count(distinct)"] if re.search(r"\bcount\(distinct ", plan) else []
    if names:
        risks.append(
            f"{', '.join(names)} over a gate of rows covers only the rows kept; weights cannot correct it. A gate with "
            "unit=WholeKeys(...) or WholeWindows(...) gives exact answers for the keys or windows it keeps"
        )
    return risks


def _find_gates_before_watermark(plan: str, gates: Sequence[Gate]) -> list[str]:
    """Return the names of gates of whole keys or windows with a watermark behind them: a parent node in the plan."""
    names = []
    for gate in gates:
        lines = plan.partition(f"-{gate.kept_tag})")[0].splitlines()
        depth = _get_depth(lines.pop()) if lines else 0
        for line in reversed(lines):
            if _get_depth(line) < depth:
                depth = _get_depth(line)
                if "EventTimeWatermark" in line and gate.specification.unit is not None:
                    names.append(gate.name)
                    break
    return names


def _get_depth(line: str) -> int:
    return len(line) - len(line.lstrip(" :+-"))
