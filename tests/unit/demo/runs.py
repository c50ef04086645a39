"""Runs of the demo for its tests."""

from __future__ import annotations

import numpy as np

from penstock.demo.summary import ArmRun, Batch, Demo, Settings


def batch(start_s: float, end_s: float, offered: int, kept: int, delay_s: float) -> Batch:
    return Batch(start_s, end_s, offered, kept, kept / offered if offered else 1.0, delay_s)


ARRIVALS = np.arange(100) / 10.0  # ten rows a second for ten seconds


def demo() -> Demo:
    alone = ArmRun("Spark <alone>", 10.0, (batch(0, 3, 30, 30, 2.5),), keep=1.0)
    shed = ArmRun("with Penstock", 10.0, (batch(0, 1, 50, 20, 1.0), batch(1, 2, 50, 20, 1.5)), keep=0.4)
    return Demo(Settings(seconds=10.0), 0.0004, 4.0, 0.2, ARRIVALS, [alone, shed])
