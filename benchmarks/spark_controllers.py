"""All controllers and three baselines on Spark.

The same job and the same bursts for every controller, by batch, and for three baselines that only delay rows: Spark
alone; a cap on the rows of a batch, such as ``maxOffsetsPerTrigger``; the PID rate estimator of DStreams. Four
settings: 1.5 and 3 times the capacity, 1.5 times with the cost of a row doubled halfway, and 1.5 times with a process
that takes a core from halfway on. ``benchmarks.support.spark_arms`` describes the job and the measures.
"""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result
from benchmarks.support.spark_arms import (
    CAP,
    DOUBLED,
    PID_THROTTLE,
    TARGET_S,
    THREE_TIMES,
    Arm,
    Setting,
    delay_curves,
    draw,
    run_arms,
    value_of,
)
from penstock.control import Controller, MicroBatch

__all__ = ["plot", "run"]

_LENGTH_S, _QUICK_LENGTH_S = 60.0, 40.0
_OURS, _SEAMLESS, _AT_MEAN = "MicroBatch", "SEaMLeSS", "MicroBatch, mean at D"
_ARMS: dict[str, str | Controller] = {
    "Spark alone": "keep-all",
    CAP: "keep-all",
    PID_THROTTLE: "keep-all",
    "Aurora": "aurora",
    "CTRL": "ctrl",
    _SEAMLESS: "seamless",
    _OURS: "micro-batch",
    _AT_MEAN: MicroBatch(TARGET_S, worst=4 / 3),
}
"""The controller of each arm, all of them by batch."""
_QUICK_ARMS = (_SEAMLESS, _OURS, _AT_MEAN)
_SETTINGS = (Setting("1.5 times capacity", 1.5), THREE_TIMES, DOUBLED, Setting("CPU hog", 1.5, hog=True))


def run(*, quick: bool, say: Say) -> Result:
    """Run every arm in every setting."""
    names = _QUICK_ARMS if quick else tuple(_ARMS)
    arms = run_arms(
        {name: (_ARMS[name], "by batch") for name in names},
        (THREE_TIMES, DOUBLED) if quick else _SETTINGS,
        _QUICK_LENGTH_S if quick else _LENGTH_S,
        say,
    )
    return Result(
        "spark-controllers", [arm.row for arm in arms], bars=_bars(arms), claims=_claims(arms), lines=delay_curves(arms)
    )


def _bars(arms: list[Arm]) -> list[Bar]:
    settings = list(dict.fromkeys(arm.setting.name for arm in arms))
    steady = [name for name in settings if "capacity" in name]
    bars = [Bar.at_most(f"mean violation at {name}, s", value_of(arms, name, _OURS, "mean violation s"), 0.05) for name in steady]
    for name in settings:
        worst = value_of(arms, name, _OURS, "max violation s")
        others = [value_of(arms, name, arm, "max violation s") for arm in _ARMS if arm not in (_OURS, _AT_MEAN)]
        next_best = min((value for value in others if math.isfinite(value)), default=math.inf)
        # At most 0.7 s, or half of the best other arm's.
        bars.append(Bar.at_most(f"max violation, {name}, s", worst, max(0.7, next_best / 2)))
    bars += [
        Bar.at_least(f"goodput relative to what D allows, {name}", value_of(arms, name, _OURS, "of what D allows"), 0.92)
        for name in steady
    ]
    bars += [
        Bar.at_most(
            f"loss above SEaMLeSS, {name}, percentage points",
            value_of(arms, name, _OURS, "loss %") - value_of(arms, name, _SEAMLESS, "loss %"),
            3.0,
        )
        for name in settings
    ]
    doubled = [arm for arm in arms if arm.name == _OURS and arm.setting.doubled]
    bars += [
        Bar.at_most("batches from the doubling until the delay is within its target", arm.recovery_batches, 5) for arm in doubled
    ]
    return bars


def _claims(arms: list[Arm]) -> list[Claim]:
    claims = []
    for name in dict.fromkeys(arm.setting.name for arm in arms):
        ours, seamless, at_mean = (value_of(arms, name, arm, "mean violation s") for arm in (_OURS, _SEAMLESS, _AT_MEAN))
        claims.append(
            Claim(
                f"{name}: MicroBatch violates less than SEaMLeSS",
                "SEaMLeSS (Pham et al.): 0.09 s on the authors' engine",
                f"{ours:.4f} s against {seamless:.3f} s",
                ours <= seamless,
            )
        )
        loss, seamless_loss = (value_of(arms, name, arm, "loss %") for arm in (_AT_MEAN, _SEAMLESS))
        claims.append(
            Claim(
                f"{name}: with the mean delay as its aim, as SEaMLeSS has, MicroBatch loses at most 3 percentage points more",
                "design: the loss equals that of SEaMLeSS",
                f"{loss:.1f} % at a violation of {at_mean:.3f} s against {seamless_loss:.1f} % at {seamless:.3f} s",
                loss <= seamless_loss + 3.0,
            )
        )
    return claims


def plot(result: Result, path: Path) -> None:
    """Draw the mean delay of the batches, one panel per setting, cut off at 10 s."""
    draw(result, path, title="Every controller on Spark, target 2 s")
