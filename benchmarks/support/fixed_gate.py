"""A gate with a fixed keep and without a shedder, for benchmarks on a batch of rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.drop.units import WholeKeys, WholeWindows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["apply_gate"]


def apply_gate(
    df: DataFrame, name: str, keep: float, *, unit: WholeKeys | WholeWindows | None = None, from_us: int = 0
) -> DataFrame:
    """Return the rows that a gate keeps: single rows, identified by ``id``, or whole units; windows from ``from_us`` on."""
    from penstock.spark.gates import GateSpecification, build_gate  # noqa: PLC0415 - needs Spark

    identity = ("id",) if unit is None else None
    gate, kept = build_gate(df, GateSpecification(name=name, identity=identity, unit=unit), time.time())
    entries = (keep, float(unit.ordinal(from_us))) if isinstance(unit, WholeWindows) else gate.state.entries(keep)
    gate.publish(gate.state.put_in_force(entries))
    return kept
