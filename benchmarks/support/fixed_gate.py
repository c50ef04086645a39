"""A gate with a fixed keep and without a shedder, for benchmarks on a batch of rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["apply_gate"]


def apply_gate(df: DataFrame, name: str, keep: float, *, from_us: int = 0, **options: Any) -> DataFrame:
    """Return the rows that a gate keeps: single rows, identified by ``id``, or whole units; windows from ``from_us`` on."""
    from penstock.spark.gate import Gate  # noqa: PLC0415 - needs Spark

    identity = None if options.get("unit") is not None else ["id"]
    gate, kept = Gate.build(
        df, name=name, base_s=time.time(), arrival=None, identity=identity, classes=None, weights=None, weight=None, **options
    )
    if gate.windows is not None:
        gate.publish_batch((keep, float(gate.windows.unit.ordinal(from_us))))
    else:
        gate.publish_batch(gate.keeps(keep))
    return kept
