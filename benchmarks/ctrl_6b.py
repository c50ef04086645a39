"""CTRL (Tu and Prabhakar), figure 6B: open loop against feedback with a sinusoidal cost.

As figure 6A, but the cost of a row swings by half around 5 ms with a period of 100 s. Both controllers know only the
mean; a third arm estimates the cost at run time. ``benchmarks.support.ctrl_figure6`` describes the whole setup.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support import ctrl_figure6
from benchmarks.support.protocol import Say
from benchmarks.support.results import Result
from penstock.simulation.profile import Profile

__all__ = ["plot", "run"]


def run(*, quick: bool, say: Say) -> Result:
    """Run every arm with a sinusoidal cost."""
    return ctrl_figure6.run_figure("ctrl-6b", Profile.sine(0.005, 0.5, 100.0), quick=quick, say=say)


def plot(result: Result, path: Path) -> None:
    """Draw the delay over time."""
    ctrl_figure6.draw(result, path, "Open loop against feedback, sinusoidal cost")
