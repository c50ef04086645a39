"""Paper 001, figure 6A: open loop against feedback with a constant cost.

Pareto arrivals at 1.25 times the capacity on average, 5 ms a row, target 2 s, five seeds. Counted are delay, violation, the
share of periods above the target, and loss. See ``ctrl_6`` for all of the setting.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support import ctrl_figure6
from benchmarks.support.protocol import Say
from benchmarks.support.results import Result

__all__ = ["plot", "run"]


def run(*, quick: bool, say: Say) -> Result:
    """Run it."""
    return ctrl_figure6.figure("ctrl-6a", 0.005, quick=quick, say=say)


def plot(result: Result, path: Path) -> None:
    """Draw it."""
    ctrl_figure6.draw(result, path, "Open loop against feedback, constant cost")
