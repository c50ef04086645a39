"""Results by window without those of windows that were dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.spark.columns import column_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.gates.gate import Gate

__all__ = ["keep_whole_windows"]


def keep_whole_windows(df: DataFrame, all_gates: Sequence[Gate], window: str, gate: str | None) -> DataFrame:
    """Return the rows of windows that were kept, by the gate of that name or the only one that keeps whole windows."""
    gates = [one for one in all_gates if one.windows is not None and gate in (None, one.name)]
    if len(gates) != 1 or gates[0].windows is None:
        which = f"named {gate!r}" if gate is not None else "of windows"
        raise PenstockError(f"this shedder has {len(gates)} gates {which}: say with gate= which one is meant")
    types = gates[0].windows.group_types
    missing = [name for name in (window, *types) if name not in df.columns]
    if missing:
        raise PenstockError(f"whole(): there is no column {missing[0]!r}; the columns are {', '.join(df.columns)}")
    for name, kind in types.items():
        if (here := df.schema[name].dataType.simpleString()) != kind:
            raise PenstockError(f"whole(): column {name!r} is {here} here and {kind} at the gate: cast it before the gate")
    return df.where(gates[0].is_whole(column_named(window), [column_named(name) for name in types]))
