"""Load shedding for Spark Structured Streaming: hold a job at its delay target and say exactly what was dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.control import AgeRule, Aurora, Controller, Ctrl, Decision, GateCount, KeepAll, MicroBatch, Observation, Seamless
from penstock.drop.priorities import Priorities
from penstock.drop.units import WholeKeys, WholeWindows
from penstock.errors import JournalError, PenstockError
from penstock.journal import Report, read_journal

if TYPE_CHECKING:
    from penstock.spark import functions
    from penstock.spark.load_aware import LoadAware, load_aware
    from penstock.spark.replay import register_replay
    from penstock.spark.shedder import Shedder

__all__ = [
    "AgeRule",
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
    "Priorities",
    "Report",
    "Seamless",
    "Shedder",
    "WholeKeys",
    "WholeWindows",
    "functions",
    "load_aware",
    "read_journal",
    "register_replay",
]

# These need pyspark, which is an extra: they are loaded when they are first asked for.
_ON_SPARK = {
    "LoadAware": "penstock.spark.load_aware",
    "Shedder": "penstock.spark.shedder",
    "functions": "penstock.spark.functions",
    "load_aware": "penstock.spark.load_aware",
    "register_replay": "penstock.spark.replay",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_SPARK:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only for these

    try:
        module = import_module(_ON_SPARK[name])
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "pyspark":
            raise PenstockError(f"penstock.{name} needs PySpark: pip install 'penstock[spark]'") from error
        raise
    return module if name == "functions" else getattr(module, name)
