"""What a gate costs per row, compared with rand() and with a drop in Python.

The time per row of a whole plan on one core: ``local[1]``, with the JVM and its Python worker pinned to one core where
the system can do that, because otherwise the worker would have a second core to itself. The plan is a range of longs
with a timestamp computed from each, the arm's filter, and the ``noop`` sink. All arms have the same plan except for the
filter. They run in turn in one session, and the best of several rounds counts, after four that warm up the JIT. The
arms:

- plain scan: no filter;
- ``rand() < 0.5``: Spark's own sampling, which would not drop the same rows on a replay;
- the same with the arrival time read for every row, as a gate by arrival does; otherwise the plan computes it only for
  kept rows;
- gate by batch: keep 0.5 for all rows; no arrival column;
- gate by batch with ages: rows older than a moment in the middle are shed, all others kept, so that half is kept too;
- gate by arrival: a ring of slots with 200 decisions, rows spread over all of it; also with every column hashed as
  identity;
- gate by arrival that is bounded, with a bound that no task reaches; gate by arrival with three classes;
- ``mapInArrow``: the same drop in Python, on fewer rows, because it is slow.

"Net" is the time above the plain scan: the filter alone, minus the work on the rows that it drops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from benchmarks.support.timing import best_of, pin_to_one_core
from penstock.decision.gate_state import SlotGate
from penstock.drop.priorities import Priorities
from penstock.drop.tables import KeepTable, slot_of, to_micros
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["apply_gate", "base_rows", "plot", "run", "scan", "shed_old_rows", "spread_decisions"]

_ROWS, _QUICK_ROWS, _PYTHON_SHARE = 30_000_000, 5_000_000, 10
_DECISIONS = 200
_SPAN_S = 900.0
"""The arrivals lie in the last quarter of an hour, within the ring's 18 minutes."""


def run(*, quick: bool, say: Say) -> Result:
    """Time every arm."""
    rows = _QUICK_ROWS if quick else _ROWS
    with pin_to_one_core(), fresh_session("gate", 1) as (spark, _):
        native = _native_arms(spark, rows)
        say(f"{len(native)} arms of {rows:,} rows in turn")
        times = best_of({name: scan(df) for name, df in native.items()}, rounds=6 if quick else 9, warm_up=4)
        say(f"mapInArrow on {rows // _PYTHON_SHARE:,} rows")
        python = {
            "mapInArrow": scan(base_rows(spark, rows // _PYTHON_SHARE).mapInArrow(_drop_half, "id bigint, arrival timestamp"))
        }
        slow = best_of(python, rounds=2 if quick else 4, warm_up=1)
    return _result(
        {name: total_s / rows for name, total_s in times.items()} | {"mapInArrow": slow["mapInArrow"] * _PYTHON_SHARE / rows}
    )


def _result(cost_s: dict[str, float]) -> Result:
    plain, rand = cost_s["plain scan"], cost_s["rand() < 0.5"]
    gate, python = cost_s["gate by arrival"], cost_s["mapInArrow"]
    bounded = cost_s["gate by arrival, bounded"]  # what a query by arrival has if nobody says otherwise
    rows: list[Row] = [
        {"arm": name, "ns per row": row_s * 1e9, "net ns": (row_s - plain) * 1e9, "of rand()": row_s / rand}
        for name, row_s in cost_s.items()
    ]
    bars = [
        Bar.at_most("gate by arrival / rand(), whole plan", gate / rand, 1.25),
        Bar.at_most("gate by arrival, bounded / rand(), whole plan", bounded / rand, 1.25),
        Bar.at_most("gate by batch with ages / rand(), whole plan", cost_s["gate by batch, ages"] / rand, 1.25),
        Bar.at_least("mapInArrow / gate by arrival, whole plan", python / gate, 10.0),
    ]
    return Result("gate", rows, bars)


def base_rows(spark: SparkSession, rows: int) -> DataFrame:
    """Return row numbers, with arrival times that end now."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    step_us = max(1, int(_SPAN_S * 1e6) // rows)
    first_us = int(time.time() * 1e6) - step_us * rows
    return spark.range(0, rows, 1, 1).select("id", F.timestamp_micros(F.col("id") * step_us + first_us).alias("arrival"))


def _native_arms(spark: SparkSession, rows: int) -> dict[str, DataFrame]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    base = base_rows(spark, rows)
    priorities = Priorities(F.col("id") % 3, {0: 1.0, 1: 2.0, 2: 4.0})
    return {
        "plain scan": base,
        "rand() < 0.5": base.where(F.rand() < 0.5),
        "rand() < 0.5, arrival read": base.where((F.rand() < 0.5) & (F.unix_micros("arrival") > 0)),
        "gate by batch": apply_gate(base, "batch", identity=("id",)),
        "gate by batch, ages": apply_gate(base, "ages", by="batch", arrival="arrival", identity=("id",)),
        "gate by arrival": apply_gate(base, "arrival", arrival="arrival", identity=("id",), is_bounded=False),
        "gate by arrival, all columns hashed": apply_gate(base, "all", arrival="arrival", is_bounded=False),
        "gate by arrival, bounded": apply_gate(base, "bounded", arrival="arrival", identity=("id",), is_bounded=True),
        "gate by arrival, 3 classes": apply_gate(
            base, "classes", arrival="arrival", identity=("id",), priorities=priorities, is_bounded=False
        ),
    }


def apply_gate(df: DataFrame, name: str, by: str = "arrival", **options: Any) -> DataFrame:
    """Put a classic gate on rows, with keeps around one half."""
    from penstock.spark.gates import GateSpecification, build_gate  # noqa: PLC0415 - needs Spark

    now_s = time.time()
    gate, kept = build_gate(df, GateSpecification(name=name, **options), now_s)
    state = gate.state
    assert isinstance(state, SlotGate)  # noqa: S101 - a gate of rows
    if options.get("arrival") is None:
        gate.publish(state.put_in_force(state.entries(0.5)))
        return kept
    if by == "batch":
        gate.publish(shed_old_rows(state))
        return kept
    gate.set_how(by_arrival=True)
    spread_decisions(state, now_s)
    gate.publish(state.tables())
    return kept


def shed_old_rows(state: SlotGate) -> Sequence[KeepTable]:
    """Put a decision by batch in force that keeps the newer half of the span; return its tables."""
    from penstock.journal.records import OlderRows  # noqa: PLC0415

    now_s = time.time()
    older = OlderRows(to_micros(now_s - _SPAN_S / 2), state.entries(0.0))
    return state.put_in_force(state.entries(1.0), older, to_micros(now_s))


def spread_decisions(state: SlotGate, now_s: float) -> None:
    """Put decisions in force over the whole span, with keeps around one half."""
    for number in range(_DECISIONS):
        slot = slot_of(now_s - _SPAN_S * (1 - number / _DECISIONS))
        state.put_in_force_from(slot, state.entries(0.4 if number % 2 else 0.6))


def scan(df: DataFrame) -> Callable[[], None]:
    """Return what runs a plan and throws its rows away."""
    return lambda: df.write.format("noop").mode("overwrite").save()


def _drop_half(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import numpy as np  # noqa: PLC0415 - this runs in a worker
    import pyarrow as pa  # noqa: PLC0415

    generator = np.random.default_rng(1)
    for batch in batches:
        yield batch.filter(pa.array(generator.random(batch.num_rows) < 0.5))


def plot(result: Result, path: Path) -> None:
    """Draw the time per row of each arm."""
    from penstock.simulation.plotting import bars  # noqa: PLC0415 - needs Matplotlib

    arms = [(str(row["arm"]), float(row["ns per row"] or 0.0)) for row in result.rows]
    bars(arms, path, title="Time per row on one core", label="nanoseconds (log)", log=True)
