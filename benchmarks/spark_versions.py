"""What a gate costs per row on each Spark version, compared with that version's own rand().

The benchmark ``gate``, run by each version's own Python: the same arms, in turn, in one session. Versions differ in how fast they
scan; what counts is the ratio within one version. PySpark is fetched where it is not there (about 450 MB a version).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.errors import PenstockError
from penstock.testing.spark_versions import OLDER, run_on

__all__ = ["run"]

_ROOT = Path(__file__).parents[1]
_WAIT_S = 1_800.0
_RAND, _BATCH, _AGES = "rand() < 0.5", "gate by batch", "gate by batch, ages"
_ARRIVAL, _BOUNDED = "gate by arrival", "gate by arrival, bounded"


def run(*, quick: bool, say: Say) -> Result:
    """Run the benchmark on each version."""
    import pyspark  # noqa: PLC0415 - needs Spark

    arguments = ("-m", "benchmarks", "gate", "--json", *(["--quick"] if quick else []))
    rows: list[Row] = []
    say(f"Spark {pyspark.__version__}")
    newest = subprocess.run(  # noqa: S603 - this Python
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=_WAIT_S, cwd=_ROOT
    )
    rows.append(_row(pyspark.__version__, newest))
    for version in OLDER:
        say(f"Spark {version}")
        rows.append(_row(version, run_on(version, _ROOT, *arguments, wait_s=_WAIT_S)))
    bars = [
        Bar.at_most(f"Spark {row['version']}: {arm} / rand()", float(row[arm] or 0.0), 1.25)
        for row in rows
        for arm in (_ARRIVAL, _BOUNDED, _AGES)
    ]
    return Result("spark-versions", rows, bars)


def _row(version: str, done: subprocess.CompletedProcess[str]) -> Row:
    try:
        arms: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    except (ValueError, KeyError):
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise PenstockError(f"the benchmark 'gate' failed on Spark {version}: {lines[-1]}") from None
    by_name = {arm["arm"]: arm for arm in arms}
    times = {f"{name}, ns": by_name[name]["ns per row"] for name in (_RAND, _ARRIVAL)}
    return {"version": version} | times | {name: by_name[name]["of rand()"] for name in (_BATCH, _AGES, _ARRIVAL, _BOUNDED)}
