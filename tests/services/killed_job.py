"""One arm of the benchmark ``executor-kills``: ``killed_job.py ARM DIRECTORY KILLS [restless]``; prints what it found."""

# ruff: noqa: T201 - that is its result

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.support.killed_executors import run_arm
from penstock.testing.standalone import StandaloneCluster

RESTLESS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.initialExecutors": "2",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
}
"""Executors that are asked to leave, tasks that run twice at once, executors that come and go with the load."""

if __name__ == "__main__":
    arm, directory, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    settings = RESTLESS if "restless" in sys.argv[4:] else {}
    with StandaloneCluster(workers=2) as cluster:
        print(json.dumps(asdict(run_arm(arm, cluster, directory, kills, is_polite=bool(settings), **settings))))
