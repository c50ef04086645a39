"""What a gate costs on a Kafka scan, and what it saves when it stands before parsing.

The time per row of a whole plan that reads a topic of JSON rows (about 500 bytes, 16 fields) into the ``noop`` sink, on
one core: ``local[1]``, with the JVM pinned where the system can do that. The broker has the other core, and what it
reads is in the page cache. All arms run in turn in one session, and the best of several rounds counts. The arms:

- the scan alone, and behind it a gate by batch with ages that keeps every row;
- the scan with every row parsed by ``from_json``;
- the same behind a gate that keeps one row in ten, and the same with the gate behind the parsing.

What a gate saves is the work above the scan: a row must be read to be dropped, but it need not be parsed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from benchmarks.support.timing import best_of, pin_to_one_core
from penstock.drop.tables import to_micros
from penstock.errors import PenstockError
from penstock.spark.fresh_session import fresh_session
from penstock.testing.kafka import KafkaBroker, fetch_connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["plot", "run"]

_ROWS, _QUICK_ROWS = 600_000, 150_000
_KEEP = 0.1
_TOPIC, _PARTITIONS = "rows", 2
_FIELDS = 12
_SCHEMA = ", ".join(["id bigint", "host string", "at string", "bytes double", *(f"f{n} string" for n in range(_FIELDS))])
_SCAN, _GATED, _PARSED = "scan", "scan, gate that keeps all", "scan, parse all"
_BEFORE, _BEHIND = "scan, gate at 0.1, parse", "scan, parse, gate at 0.1"


def run(*, quick: bool, say: Say) -> Result:
    """Time every arm."""
    import pyspark  # noqa: PLC0415 - needs Spark

    count = _QUICK_ROWS if quick else _ROWS
    jars = ",".join(str(jar) for jar in fetch_connector(pyspark.__version__))
    with KafkaBroker() as broker:
        say(f"writing {count:,} rows to a topic")
        _fill(broker, count)
        with pin_to_one_core(), fresh_session("kafka-cost", 1, **{"spark.jars": jars}) as (spark, _):
            arms = _arms(spark, broker.address)
            say(f"{len(arms)} arms of {count:,} rows in turn")
            times = best_of({name: _scan(df) for name, df in arms.items()}, rounds=10 if quick else 15, warm_up=3)
    return _result({name: total_s / count for name, total_s in times.items()})


def _result(cost_s: dict[str, float]) -> Result:
    scan, parsed = cost_s[_SCAN], cost_s[_PARSED]
    rows: list[Row] = [
        {"arm": name, "ns per row": row_s * 1e9, "of the scan": row_s / scan, "above the scan, ns": (row_s - scan) * 1e9}
        for name, row_s in cost_s.items()
    ]
    bars = [
        Bar.at_most("gate on a Kafka scan / the scan alone", cost_s[_GATED] / scan, 1.05),
        Bar.at_least(
            "work saved at keep 0.1: parse all / gate, parse, above the scan", _saved(parsed, cost_s[_BEFORE], scan), 5.0
        ),
    ]
    before, behind = cost_s[_BEFORE], cost_s[_BEHIND]
    claim = Claim(
        "a gate that stands behind the parsing is moved before it by Spark: as cheap within 10 %",
        "the gate is a filter like any other",
        f"{behind * 1e9:,.0f} ns per row against {before * 1e9:,.0f}",
        behind <= 1.1 * before,
    )
    return Result("kafka-cost", rows, bars, claims=[claim])


def _saved(all_s: float, gated_s: float, scan_s: float) -> float:
    """How many times less work is done above the scan; at most one over the keep, whatever noise says.

    >>> _saved(all_s=11.0, gated_s=2.5, scan_s=1.0), _saved(all_s=11.0, gated_s=0.9, scan_s=1.0)
    (6.666666666666667, 10.0)
    """
    work_s = max(0.0, all_s - scan_s)
    return min(1.0 / _KEEP, work_s / max(1e-12, gated_s - scan_s))


def _fill(broker: KafkaBroker, count: int) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra

    broker.create_topic(_TOPIC, _PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20, "log_level": 0})
    body = {f"f{n}": f"value {n} of a row that is long enough" for n in range(_FIELDS)}
    for number in range(count):
        row = {"id": number, "host": f"host{number % 97}", "at": "2026-11-16T10:00:00Z", "bytes": number * 1.5}
        producer.produce(_TOPIC, value=json.dumps(row | body), key=str(number % 97), partition=number % _PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
            while len(producer) > 50_000:
                producer.poll(0.05)
    if producer.flush(60):
        raise PenstockError(f"rows could not be written to topic {_TOPIC!r}")


def _arms(spark: SparkSession, address: str) -> dict[str, DataFrame]:
    rows = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", _TOPIC).load()
    return {
        _SCAN: rows,
        _GATED: _apply_gate(rows, "all", 1.0),
        _PARSED: _parse(rows),
        _BEFORE: _parse(_apply_gate(rows, "before", _KEEP)),
        _BEHIND: _apply_gate(_parse(rows), "behind", _KEEP),
    }


def _parse(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    parsed = rows.select(
        "topic", "partition", "offset", "timestamp", F.from_json(F.col("value").cast("string"), _SCHEMA).alias("v")
    )
    return parsed.select("topic", "partition", "offset", "timestamp", "v.*")


def _apply_gate(df: DataFrame, name: str, keep: float) -> DataFrame:
    from penstock.decision.gate_state import SlotGate  # noqa: PLC0415 - belongs to the gate
    from penstock.journal.records import OlderRows  # noqa: PLC0415
    from penstock.spark.gates import GateSpecification, build_gate  # noqa: PLC0415 - needs Spark

    now_s = time.time()
    gate, kept = build_gate(df, GateSpecification(name=name, arrival="timestamp"), now_s)
    state = gate.state
    assert isinstance(state, SlotGate)  # noqa: S101 - a gate of rows
    older = OlderRows(to_micros(now_s - 3600.0), state.entries(keep))
    gate.publish(state.put_in_force(state.entries(keep), older, to_micros(now_s + 3600.0)))
    return kept


def _scan(df: DataFrame) -> Callable[[], None]:
    return lambda: df.write.format("noop").mode("overwrite").save()


def plot(result: Result, path: Path) -> None:
    """Draw the time per row of each arm."""
    from penstock.simulation.plotting import bars  # noqa: PLC0415 - needs Matplotlib

    arms = [(str(row["arm"]), float(row["ns per row"] or 0.0)) for row in result.rows]
    bars(arms, path, title="Time per row of a Kafka topic on one core", label="nanoseconds")
