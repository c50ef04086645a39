"""CTRL (Tu and Prabhakar), figure 6A: open loop against feedback with a constant cost.

Pareto arrivals at 1.25 times the capacity on average, 5 ms per row, target 2 s, five seeds. Measures delay, violation,
the share of periods above the target, and loss. ``benchmarks.support.ctrl_figure6`` describes the whole setup.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support import ctrl_figure6
from benchmarks.support.protocol import Say
from benchmarks.support.results import Result

__all__ = ["plot", "run"]


def run(*, quick: bool, say: Say) -> Result:
    """Run every arm with a constant cost."""
    return ctrl_figure6.run_figure("ctrl-6a", 0.005, quick=quick, say=say)


def plot(result: Result, path: Path) -> None:
    """Draw the delay over time."""
    ctrl_figure6.draw(result, path, "Open loop against feedback, constant cost")
