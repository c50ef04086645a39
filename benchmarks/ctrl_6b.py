"""Paper 001, figure 6B: open loop against feedback with a sinusoidal cost.

As figure 6A, but the cost of a row swings by half around 5 ms with a period of 100 s. Both controllers know the mean only; a
third arm estimates the cost while it runs. See ``ctrl_6`` for all of the setting.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support import ctrl_figure6
from benchmarks.support.protocol import Say
from benchmarks.support.results import Result
from penstock.simulation.profile import Profile

__all__ = ["plot", "run"]


def run(*, quick: bool, say: Say) -> Result:
    """Run it."""
    return ctrl_figure6.figure("ctrl-6b", Profile.sine(0.005, 0.5, 100.0), quick=quick, say=say)


def plot(result: Result, path: Path) -> None:
    """Draw it."""
    ctrl_figure6.draw(result, path, "Open loop against feedback, sinusoidal cost")
