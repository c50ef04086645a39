"""Load shedding for Spark Structured Streaming: hold a job at its delay target and say exactly what was dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.control import Aurora, Controller, Ctrl, Decision, GateCount, KeepAll, MicroBatch, Observation, Seamless
from penstock.drop.units import key, window
from penstock.errors import JournalError, PenstockError

if TYPE_CHECKING:
    from penstock.journal.journal import read_journal
    from penstock.journal.report import Report
    from penstock.spark.functions import avg, count, sum, total  # noqa: A004 - as in SQL
    from penstock.spark.load_aware import LoadAware, load_aware
    from penstock.spark.replay import register_replay
    from penstock.spark.shedder import Shedder

__all__ = [
    "Aurora",
    "Controller",
    "Ctrl",
    "Decision",
    "GateCount",
    "JournalError",
    "KeepAll",
    "LoadAware",
    "MicroBatch",
    "Observation",
    "PenstockError",
    "Report",
    "Seamless",
    "Shedder",
    "avg",
    "count",
    "key",
    "load_aware",
    "read_journal",
    "register_replay",
    "sum",
    "total",
    "window",
]

# These need pyspark or live beside what does, and pyspark is an extra: they are loaded when they are first asked for.
_ON_SPARK = {
    "avg": "penstock.spark.functions",
    "count": "penstock.spark.functions",
    "sum": "penstock.spark.functions",
    "total": "penstock.spark.functions",
    "LoadAware": "penstock.spark.load_aware",
    "Report": "penstock.journal.report",
    "Shedder": "penstock.spark.shedder",
    "load_aware": "penstock.spark.load_aware",
    "read_journal": "penstock.journal.journal",
    "register_replay": "penstock.spark.replay",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_SPARK:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only for these

    try:
        return getattr(import_module(_ON_SPARK[name]), name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "pyspark":
            raise PenstockError(f"penstock.{name} needs PySpark: pip install 'penstock[spark]'") from error
        raise
