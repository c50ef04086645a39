"""Executors killed while batches run: what comes out, and whether each row was counted once.

A standalone master and two workers of one core each, on the loopback. A gate whose keep changes with every batch stands ahead of
work that takes time, and an executor is killed at a random moment again and again, with SIGKILL; the master starts another one.
The arms:

- function: ``foreach_batch`` with a function that shuffles;
- aggregate: an aggregation with state, so that the shuffle is Spark's own;
- arrival: a query by arrival that shuffles into files;
- plain: files by batch without any shuffle;
- function without repair: as the first, but batches that lost an executor are not counted again. Its counts must be wrong, or the
  other arms would prove nothing.

Rows are compared one by one with those that the journaled decisions keep, and the counts of every batch with them. By arrival,
an earlier run has left decisions for the seconds in which the rows arrive, another one for each batch. A task ahead of a shuffle
whose executor is lost runs again, and Spark adds up what both runs counted; a batch that lost an executor is counted again, so
its counts must be right.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.support.killed_executors import ARMS, run_arm
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.testing.standalone import StandaloneCluster

__all__ = ["run"]

_KILLS = {"function": 35, "aggregate": 35, "arrival": 20, "plain": 10}
_QUICK_KILLS = {"function": 4, "aggregate": 3, "arrival": 2, "plain": 1}
_UNREPAIRED, _QUICK_UNREPAIRED = 15, 5


def run(*, quick: bool, say: Say) -> Result:
    """Kill executors in every arm."""
    kills = _QUICK_KILLS if quick else _KILLS
    runs = [(arm, kills[arm], True) for arm in ARMS] + [("function", _QUICK_UNREPAIRED if quick else _UNREPAIRED, False)]
    rows: list[Row] = []
    for arm, count, repairs in runs:
        say(f"{arm}: {count} kills{'' if repairs else ', without repair'}")
        with StandaloneCluster(workers=2) as cluster, tempfile.TemporaryDirectory() as scratch:
            found = asdict(run_arm(arm, cluster, Path(scratch), count, repairs=repairs))
        rows.append({name: value for name, value in found.items() if name not in ("speculated_tasks", "gone")})
    repaired = [row for row in rows if row["repairs"]]
    total = {name: sum(int(row[name] or 0) for row in repaired) for name in ("kills", "wrong_rows", "wrong_counts")}
    return Result(
        "executor-kills",
        rows,
        [
            Bar.at_least("executors killed", total["kills"], sum(kills.values())),
            Bar.at_most("rows wrong", total["wrong_rows"], 0),
            Bar.at_most("batches whose counts are wrong", total["wrong_counts"], 0),
            Bar.at_most("rows wrong without repair", int(rows[-1]["wrong_rows"] or 0), 0),
            Bar.at_least("batches whose counts are wrong without repair", int(rows[-1]["wrong_counts"] or 0), 1),
        ],
    )
