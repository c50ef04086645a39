"""What a gate over public functions costs, per row against the classic gate, and per batch over Spark Connect.

- Per row: the plans of ``gate`` (a range of longs with a timestamp, the ``noop`` sink) on one core, with the classic gate and
  with the one that Spark Connect gets: by arrival with 200 decisions, and by batch with old rows shed first. All are in one
  session: the gate over public functions is the same plan whichever way it reaches Spark. The best of several rounds counts,
  as in ``gate``.
- Per batch: a Spark Connect server of its own, and a streaming job of batches of 1,000 rows (``rate-micro-batch``, into
  ``noop``) without the gate and with it, by arrival and by batch, in turn. The time of an arm in a round is the median of the
  times that Spark reports for its batches (``triggerExecution``), without the first ones; the median round counts. Then the
  same, but by arrival, over another server, which talks to its Python workers through Unix domain sockets (Spark 4.1 and later).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gate import apply_gate, base_rows, scan, shed_old_rows, spread_decisions
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from benchmarks.support.timing import best_of, pin_to_one_core
from penstock.errors import PenstockError
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run"]

_ROOT = Path(__file__).parents[1]
_ROWS, _QUICK_ROWS = 30_000_000, 3_000_000
_ROUNDS, _QUICK_ROUNDS = 7, 2
_BATCHES, _WARM_UP = 40, 10
_BATCH_ROWS = 1_000
_MAX_RATIO, _MAX_ADDED_MS = 3.0, 60.0
_WAIT_S = 1_200.0
_SOCKETS = "spark.python.unix.domain.socket.enabled"


def run(*, quick: bool, say: Say) -> Result:
    """Time rows, then batches."""
    rows = _QUICK_ROWS if quick else _ROWS
    say(f"{rows:,} rows per arm, in turn")
    with pin_to_one_core(), fresh_session("connect", 1) as (spark, scratch):
        base = base_rows(spark, rows)
        arms = {
            "plain scan": base,
            "classic gate": apply_gate(base, "classic", arrival="arrival", identity=("id",), is_bounded=False),
            "gate over public functions": _apply_public_gate(base, scratch),
            "classic gate, by batch": apply_gate(base, "ages", by="batch", arrival="arrival", identity=("id",)),
            "gate over public functions, by batch": _apply_gate_by_batch(base, scratch),
        }
        times_s = best_of({name: scan(df) for name, df in arms.items()}, rounds=3 if quick else 7, warm_up=3)
    table: list[Row] = [
        {"arm": name, "ns per row": 1e9 * time_s / rows, "ms per batch": None} for name, time_s in times_s.items()
    ]
    say("batches over Spark Connect")
    number_of_rounds = _QUICK_ROUNDS if quick else _ROUNDS
    batches_ms = _time_batches(number_of_rounds, ("plain", "by arrival", "by batch"), sockets=False)
    say("batches over Spark Connect, through Unix domain sockets")
    sockets_ms = _time_batches(number_of_rounds, ("plain", "by batch"), sockets=True)
    timed_ms = batches_ms | {f"{name}, sockets": time_ms for name, time_ms in sockets_ms.items()}
    table += [{"arm": name, "ns per row": None, "ms per batch": time_ms} for name, time_ms in timed_ms.items()]
    bars = []
    for what, way in (("", "by arrival"), (", by batch", "by batch")):
        ratio = times_s[f"gate over public functions{what}"] / times_s[f"classic gate{what}"]
        added_ms = batches_ms[way] - batches_ms["plain"]
        bars.append(Bar.at_most(f"gate over public functions / classic gate, {way}, time per row", ratio, _MAX_RATIO))
        bars.append(Bar.at_most(f"with the gate {way} - without, ms per batch", added_ms, _MAX_ADDED_MS))
    added_ms = sockets_ms["by batch"] - sockets_ms["plain"]
    bars.append(Bar.at_most("the same by batch, through Unix domain sockets", added_ms, _MAX_ADDED_MS))
    return Result("connect", table, bars)


def _apply_public_gate(df: DataFrame, scratch: Path) -> DataFrame:
    from penstock.spark.connect.connect_gate import ConnectGate  # noqa: PLC0415 - needs Spark
    from penstock.spark.gates import GateSpecification  # noqa: PLC0415

    specification = GateSpecification(name="public", arrival="arrival", identity=("id",))
    gate = ConnectGate(df.sparkSession, specification, df.schema, str(scratch))
    spread_decisions(gate.state, time.time())
    gate.publish(gate.state.tables())
    return gate.apply(df)


def _apply_gate_by_batch(df: DataFrame, scratch: Path) -> DataFrame:
    from penstock.spark.connect.batch_tables import BatchTables, directory_of, place_of  # noqa: PLC0415 - needs Spark
    from penstock.spark.connect.connect_gate import ConnectGate  # noqa: PLC0415
    from penstock.spark.gates import GateSpecification  # noqa: PLC0415

    specification = GateSpecification(name="public by batch", arrival="arrival", identity=("id",))
    gate = ConnectGate(df.sparkSession, specification, df.schema, str(scratch))
    offsets, directory = scratch / "offsets", directory_of(str(scratch), "query")
    place = place_of(directory, gate.name)
    gate.read_batches_from(place)
    gate.set_how(by_arrival=False)
    tables = BatchTables(directory, offsets)
    tables.prepare({gate.name: place}, {}, 0)
    offsets.mkdir()
    (offsets / "0").touch()  # batch 0 runs
    tables.offer(0, {gate.name: shed_old_rows(gate.state)[0]}, 0)
    return gate.apply(df)


def _time_batches(rounds: int, arms: Sequence[str], *, sockets: bool) -> dict[str, float]:
    """Run the arms in a process of its own: one process has either a classic session or one of Spark Connect."""
    with tempfile.TemporaryDirectory(prefix="penstock-connect-") as scratch:
        command = [sys.executable, "-m", __name__, scratch, str(rounds), str(sockets).lower(), *arms]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(  # noqa: S603 - this program
            command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False, timeout=_WAIT_S
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise PenstockError(f"the job over Spark Connect failed: {lines[-1]}")
    return {str(name): float(time_ms) for name, time_ms in json.loads(done.stdout.splitlines()[-1]).items()}


class _Job:
    """The streaming job with and without the gate; each run returns the median milliseconds of its batches."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        self._spark, self._scratch = spark, scratch
        self._numbers = count()

    def run(self, arm: str) -> float:
        from penstock import Shedder  # noqa: PLC0415 - needs Spark

        number = next(self._numbers)
        options = {"rowsPerBatch": _BATCH_ROWS, "numPartitions": 2, "startTimestamp": int(time.time() * 1e3) - 3_600_000}
        rows = self._spark.readStream.format("rate-micro-batch").options(**options).load()
        checkpoint = str(self._scratch / f"checkpoint{number}")
        with Shedder("1 min", controller="keep-all", journal=self._scratch / f"journal{number}") as shedder:
            if arm != "plain":
                rows = shedder.gate(rows, name="in", arrival="timestamp", identity="value")
            writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.start() if arm == "plain" else shedder.start(writer, by="batch" if arm == "by batch" else "arrival")
            times = _collect_times(query)
            query.stop()
        return statistics.median(times[_WARM_UP:])


def _collect_times(query: Any) -> list[float]:
    times: dict[int, float] = {}
    while len(times) < _BATCHES:
        if (failure := query.exception()) is not None:
            raise failure
        time.sleep(1.0)
        times |= {report["batchId"]: float(report["durationMs"]["triggerExecution"]) for report in query.recentProgress}
    return [times[number] for number in sorted(times)[:_BATCHES]]


def _main(scratch: str, rounds: str, sockets: str, *arms: str) -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - needs Spark

    conf: dict[str, Any] = {"spark.ui.enabled": "false", _SOCKETS: sockets}
    spark = SparkSession.builder.remote("local[2]").config(map=conf).getOrCreate()
    try:
        job = _Job(spark, Path(scratch))
        times: dict[str, list[float]] = {arm: [] for arm in arms}
        for number in range(int(rounds) + 1):
            for arm in times if number % 2 else reversed(times):
                time_ms = job.run(arm)
                if number:  # the first round compiles the code
                    times[arm].append(time_ms)
        print(json.dumps({arm: statistics.median(rounds_ms) for arm, rounds_ms in times.items()}))
    finally:
        spark.stop()


if __name__ == "__main__":
    _main(*sys.argv[1:])
