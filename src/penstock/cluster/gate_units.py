"""The units of a network's gates as Spark's gates know them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.decision import WindowGate
from penstock.drop.units import BEHIND, WholeKeys, WholeWindows
from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.network.drops import Drops, GateUnit
from penstock.network.model import ARROW, Network
from penstock.spark.gates import Gate
from penstock.spark.gates.row_filter import key_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["build_unit", "check_key_types", "check_memory", "equalize", "link_windows"]


def build_unit(unit: GateUnit, columns: Iterable[str]) -> WholeKeys | WholeWindows | None:
    """Return the unit of a gate on a DataFrame with these columns; ``None`` for rows. Spark ignores the case of names."""
    names = {name.lower(): name for name in columns}
    if unit.kind == "keys":
        return WholeKeys(*(names.get(name.lower(), name) for name in unit.columns), family=unit.group)
    if unit.window is None:
        return None
    time, length_s, offset_s = unit.window.time, unit.window.length / 1e6, unit.window.offset / 1e6
    return WholeWindows(names.get(time.lower(), time), length_s, offset=offset_s)


def check_key_types(drops: Drops, frames: Mapping[str, DataFrame]) -> None:
    """Refuse keys of different types at gates that must decide alike, whichever nodes they are on.

    Raises
    ------
    PenstockError
        If equal keys would not be hashed alike.
    """
    first: dict[str, tuple[str, tuple[str, ...]]] = {}
    for gate, unit in drops.units.items():
        df = frames[gate.name.partition(ARROW)[0]]
        whole = build_unit(unit, df.columns)
        if not isinstance(whole, WholeKeys) or any(name not in df.columns for name in whole.columns):
            continue
        types = key_types(df.schema, whole)
        name, expected = first.setdefault(unit.group, (gate.name, types))
        if types != expected:
            shown = f"{', '.join(expected)} and {', '.join(types)}"
            raise PenstockError(
                f"gates {name!r} and {gate.name!r} drop whole keys of different types ({shown}), so equal keys would not share "
                "their fate: cast them to one type, or give the operators behind them 'drop: rows'"
            )


def check_memory(network: Network, units: Mapping[str, GateUnit]) -> None:
    """Refuse windows so short that a gate would forget what it decided while a watermark keeps them open.

    Raises
    ------
    PenstockError
        If that may happen.
    """
    marks = {
        name: parse_duration(str(work["watermark"]), f"input {name!r}: watermark")
        for name, work in network.work.items()
        if name in network.inputs and "watermark" in work
    }
    for gate, unit in units.items():
        if unit.window is not None and max(marks.values(), default=0.0) * 1e6 / unit.window.length + 1 > BEHIND:
            raise PenstockError(
                f"gate {gate!r} remembers what it decided of the last {BEHIND:,} windows, and with a watermark of "
                f"{max(marks.values()):g} s older ones are still open ({unit.window.length / 1e6:g} s each): take longer "
                "windows, a shorter watermark, or 'drop: rows' at the aggregate"
            )


def link_windows(gates: Sequence[Gate], units: Mapping[str, GateUnit]) -> None:
    """Let the gates of one query that drop the same windows decide alike about them."""
    groups: dict[str, list[WindowGate]] = {}
    for gate in gates:
        if isinstance(gate.state, WindowGate) and gate.name in units:
            groups.setdefault(units[gate.name].group, []).append(gate.state)
    for members in groups.values():
        for state in members:
            state.decide_with([other for other in members if other is not state])


def equalize(keeps: Mapping[str, float], units: Mapping[str, GateUnit]) -> dict[str, float]:
    """Return the keeps of a query's gates so that units stay whole: gates of one group get the least of theirs.

    >>> tied = GateUnit("windows", group="i")
    >>> equalize({"i": 0.5, "j": 0.25, "k": 0.1}, {"i": tied, "j": tied})
    {'i': 0.25, 'j': 0.25, 'k': 0.1}
    """
    least: dict[str, float] = {}
    for name, keep in keeps.items():
        if name in units and not units[name].is_open:
            least[units[name].group] = min(keep, least.get(units[name].group, 1.0))
    return {
        name: keep if name not in units else 1.0 if units[name].is_open else least[units[name].group]
        for name, keep in keeps.items()
    }
