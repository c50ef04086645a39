"""What must be true of a query for its gates' units to mean what they say; looked up in the query's plan."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.drop.units import BEHIND, Key, Window
from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.spark.gate import Gate

__all__ = ["check_keys", "check_windows", "refuse_windows", "with_late_watermark"]


def check_keys(gates: Sequence[Gate]) -> None:
    """Equal keys share their fate at all gates of a family only if they are hashed alike."""
    first: dict[tuple[str, int], Gate] = {}
    for gate in gates:
        if isinstance(gate.unit, Key):
            other = first.setdefault((gate.unit.family, len(gate.hashed)), gate)
            if other.hashed != gate.hashed:
                raise PenstockError(
                    f"gates {other.name!r} and {gate.name!r} keep whole keys of different types ({', '.join(other.hashed)} and "
                    f"{', '.join(gate.hashed)}), so equal keys would not share their fate: cast them to one type before the "
                    "gates, or give one gate a family of its own"
                )


def refuse_windows(gates: Sequence[Gate]) -> None:
    """Native sinks have no moment between two batches."""
    for gate in gates:
        if gate.windows is not None:
            raise PenstockError(
                f"gate {gate.name!r} keeps whole windows, which are decided batch by batch: use foreach_batch() or write() for it"
            )


def check_windows(plan: str, gates: Sequence[Gate]) -> None:
    """The windows that are aggregated must be those that are kept."""
    for gate in gates:
        if not isinstance(gate.unit, Window):
            continue
        if "Aggregate [" in plan:
            _check_same(plan, gate.name, gate.unit)
            if gate.unit.overlap > 1 and f"-{gate.whole_tag})" not in plan:
                raise PenstockError(
                    f"gate {gate.name!r} keeps whole windows that overlap, and those it drops would show in part: "
                    "pass the result of the aggregation through shedder.whole(...)"
                )
        _check_watermark(plan, gate.name, gate.unit)


def _check_same(plan: str, gate: str, unit: Window) -> None:
    """Spark writes windows as arithmetic in microseconds: a remainder by the slide, plus the length."""
    wanted = (f"- {unit.offset}) % {unit.slide})", f"+ {unit.length})")
    if "precisetimestampconversion" in plan and not all(part in plan for part in wanted):
        offset = f", offset {unit.offset / 1e6:g} s" if unit.offset else ""
        raise PenstockError(
            f"gate {gate!r} keeps whole windows of {unit.length / 1e6:g} s by {unit.slide / 1e6:g} s{offset}, and the query "
            "aggregates by others, which would show in part: give ps.window() what F.window() has"
        )
    grouped = " ".join(re.findall(r"Aggregate \[(.*?)\], \[", plan))
    for name in unit.by:
        if f"{name}#" not in grouped:
            raise PenstockError(
                f"gate {gate!r} keeps whole windows of each {name!r}, and the query does not group by it: "
                "windows of all would show in part"
            )


def _check_watermark(plan: str, gate: str, unit: Window) -> None:
    for text in re.findall(r"EventTimeWatermark .*, ([^,\n]+)", plan):
        parts = re.findall(r"[0-9.]+ [a-z]+", text)
        try:
            span = sum(parse_duration(part, "a watermark") for part in parts if float(part.split()[0]))
        except PenstockError:  # months: longer than anything remembered
            span = float("inf")
        windows = span * 1e6 / unit.slide + unit.overlap
        if windows > BEHIND:
            raise PenstockError(
                f"gate {gate!r} remembers what it decided of the last {BEHIND:,} windows, and with a watermark of {text.strip()} "
                f"older ones are still open ({unit.slide / 1e6:g} s a slide): take longer windows, or a shorter watermark"
            )


def with_late_watermark(plan: str, gates: Sequence[Gate]) -> list[str]:
    """Gates of whole units with a watermark behind them: it would see only what they keep."""
    found = []
    for gate in gates:
        lines = plan.partition(f"-{gate.kept_tag})")[0].splitlines()
        depth = _depth(lines.pop()) if lines else 0
        for line in reversed(lines):
            if _depth(line) < depth:
                depth = _depth(line)
                if "EventTimeWatermark" in line and gate.unit is not None:
                    found.append(gate.name)
                    break
    return found


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" :+-"))
