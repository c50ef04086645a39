"""One arm of the benchmark ``executor-kills``: ``killed_job.py ARM DIRECTORY KILLS [WORD ...]``; prints what it found."""

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
    "speculation": {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "50ms",
        "spark.speculation.task.duration.threshold": "1s",
    },
    "decommissioning": {
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
        "spark.storage.decommission.replicationReattemptInterval": "1s",
    },
    "allocation": {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.initialExecutors": "2",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
    },
}
"""Tasks that run twice at once; executors that are asked to leave; executors that come and go with the load."""

_MOST_KILLS = 12
"""Of a job that is to go on until Spark itself has counted a batch wrong."""

if __name__ == "__main__":
    arm, directory, kills, words = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    settings = {name: value for word in words for name, value in RESTLESS.get(word, {}).items()}
    with StandaloneCluster(workers=2) as cluster:
        found = run_arm(
            arm,
            cluster,
            directory,
            kills,
            most_kills=_MOST_KILLS if "miscounted" in words else 0,
            is_polite="decommissioning" in words,
            freezes="speculation" in words,
            repairs="unrepaired" not in words,
            partitions=1 if "allocation" in words else 8,
            **settings,
        )
        print(json.dumps(asdict(found)))
