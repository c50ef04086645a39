"""One controlled query as a pure state machine: events in, instructions out. Spark, the simulator and tests drive it alike."""

from __future__ import annotations

from penstock.decision.by_arrival import ByArrival
from penstock.decision.by_batch import ByBatch
from penstock.decision.clock_gate import ClockGate
from penstock.decision.core import QueryCore
from penstock.decision.driver import Driver, carry_out
from penstock.decision.events import BatchEnded, BatchPlanned, BatchTimes, MeterReading
from penstock.decision.gate_state import GateState, SlotGate, WindowGate
from penstock.decision.instructions import Append, AppendLater, Instruction, Publish, Warn
from penstock.decision.loss_ceiling import LossCeiling

__all__ = [
    "Append",
    "AppendLater",
    "BatchEnded",
    "BatchPlanned",
    "BatchTimes",
    "ByArrival",
    "ByBatch",
    "ClockGate",
    "Driver",
    "GateState",
    "Instruction",
    "LossCeiling",
    "MeterReading",
    "Publish",
    "QueryCore",
    "SlotGate",
    "Warn",
    "WindowGate",
    "carry_out",
]
