"""A gate without a shedder, at one keep: what experiments with a batch of rows need."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["gated"]


def gated(df: DataFrame, name: str, keep: float, *, from_us: int = 0, **options: Any) -> DataFrame:
    """Return what a gate lets through: rows told apart by ``id``, or whole units; of windows, from a time on."""
    from penstock.spark.gate import Gate  # noqa: PLC0415 - needs Spark

    identity = None if options.get("unit") is not None else ["id"]
    gate, found = Gate.build(
        df, name=name, base_s=time.time(), arrival=None, identity=identity, classes=None, weights=None, weight=None, **options
    )
    if gate.windows is not None:
        gate.publish_batch((keep, float(gate.windows.unit.ordinal(from_us))))
    else:
        gate.publish_batch(gate.keeps(keep))
    return found
