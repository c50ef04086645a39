"""What it is worth to know the size of a batch: the same job on Spark by batch, with a native sink, and with a bounded gate.

The job, the bursts and the measures of ``spark-controllers``. By batch the size of a batch is known before it runs. With a native
sink it is not: a decision holds for rows that arrive after it, and the rate of the last batches stands in for their number. A
bounded gate lets fewer and fewer rows of a partition through beyond what the controller expects.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import spark_controllers
from benchmarks.spark_controllers import DOUBLED, THREE_TIMES, Arm, column, drawn, run_arms
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result

__all__ = ["plot", "run"]

_LENGTH_S, _QUICK_LENGTH_S = 60.0, 40.0


def run(*, quick: bool, say: Say) -> Result:
    """Run all arms."""
    arms = run_arms(
        {
            "SEaMLeSS, native": ("seamless", "native"),
            "MicroBatch, native": ("micro-batch", "native"),
            "MicroBatch, bounded": ("micro-batch", "bounded"),
            "MicroBatch, by batch": ("micro-batch", "by batch"),
        },
        (THREE_TIMES,) if quick else (THREE_TIMES, DOUBLED),
        _QUICK_LENGTH_S if quick else _LENGTH_S,
        say,
    )
    settings = list(dict.fromkeys(arm.setting.name for arm in arms))
    claims = [_claim(arms, setting) for setting in settings]
    return Result("spark-native", [arm.row for arm in arms], claims=claims, lines=drawn(arms))


def _claim(arms: list[Arm], setting: str) -> Claim:
    known, bounded, plain = (
        column(arms, setting, f"MicroBatch, {form}", "mean violation s") for form in ("by batch", "bounded", "native")
    )
    return Claim(
        f"{setting}: mean violation with the size known, bounded, expected",
        "design: the gain comes from seeing the size",
        f"{known:.3f} s, {bounded:.3f} s, {plain:.3f} s",
        max(known, bounded) < plain,
    )


def plot(result: Result, path: Path) -> None:
    """Draw the mean delay of the batches, one panel a setting."""
    spark_controllers.plot(result, path, title="The same job by batch and with native sinks, target 2 s")
