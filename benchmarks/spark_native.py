"""What it is worth to know the size of a batch: by batch, by arrival and by arrival behind a bounded gate on Spark.

The job, the bursts and the measures of ``spark-controllers``. "By batch", the size of a batch is known before it runs.
By arrival ("native") it is not: a decision holds for the rows that arrive after it, and the rate of the last batches
replaces their number. A bounded gate keeps fewer and fewer of a partition's rows beyond the number that the controller
expects.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result
from benchmarks.support.spark_arms import DOUBLED, THREE_TIMES, Arm, delay_curves, draw, run_arms, value_of

__all__ = ["plot", "run"]

_LENGTH_S, _QUICK_LENGTH_S = 60.0, 40.0


def run(*, quick: bool, say: Say) -> Result:
    """Run every arm in every setting."""
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
    return Result("spark-native", [arm.row for arm in arms], claims=claims, lines=delay_curves(arms))


def _claim(arms: list[Arm], setting: str) -> Claim:
    by_batch, bounded, native = (
        value_of(arms, setting, f"MicroBatch, {form}", "mean violation s") for form in ("by batch", "bounded", "native")
    )
    return Claim(
        f"{setting}: mean violation with the size known, bounded, expected",
        "design: the gain comes from knowing the size",
        f"{by_batch:.3f} s, {bounded:.3f} s, {native:.3f} s",
        max(by_batch, bounded) < native,
    )


def plot(result: Result, path: Path) -> None:
    """Draw the mean delay of the batches, one panel per setting, cut off at 10 s."""
    draw(result, path, title="The same job by batch and by arrival, target 2 s")
