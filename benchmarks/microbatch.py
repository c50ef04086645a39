"""All controllers on a simulated micro-batch engine.

Bursts, a cost that doubles halfway, and an overhead of 0.1 or 0.3 s per batch. 2 ms per row, target 2 s, 120 s; on-off
arrivals (as bursty as BC-pAug89) at 1.5 and 3 times the capacity before the cost doubles at 60 s; batch times vary by 5
%. "By batch", the size of a batch is known before it runs; "by arrival", it is not. A bounded gate keeps fewer and
fewer of the rows beyond the number that the controller expects. No controller is given cost, overhead or headroom.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.support.averages import average_row, run_seeds
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from penstock.control import Aurora, Controller, Ctrl, KeepAll, MicroBatch, Seamless
from penstock.simulation.micro_batch_engine import simulate_micro_batches
from penstock.simulation.outcome import Outcome
from penstock.simulation.plotting import lines
from penstock.simulation.profile import Profile
from penstock.simulation.traffic import on_off

__all__ = ["plot", "run"]

_TARGET_S, _COST_S, _LENGTH_S, _NOISE = 2.0, 0.002, 120.0, 0.05
_KINDS: dict[str, type[Controller]] = {
    "nothing": KeepAll,
    "Aurora": Aurora,
    "CTRL": Ctrl,
    "SEaMLeSS": Seamless,
    "MicroBatch": MicroBatch,
}


def run(*, quick: bool, say: Say) -> Result:
    """Run every controller in every setting."""
    seeds = 3 if quick else 10
    rows: list[Row] = []
    curves = {}
    for overhead_s in (0.1, 0.3):
        for load in (1.5, 3.0):
            for how in ("by batch", "by arrival", "bounded"):
                for name, kind in (_KINDS if how != "bounded" else {"MicroBatch": MicroBatch}).items():
                    say(f"{name} {how}, overhead {overhead_s} s, {load} times the capacity")
                    runs = run_seeds(lambda seed, k=kind, o=overhead_s, x=load, h=how: _run(k(_TARGET_S), o, x, h, seed), seeds)  # type: ignore[misc]
                    setting = {
                        "overhead s": overhead_s,
                        "load": load,
                        "how": how,
                        "least loss %": 100 * _least_loss(overhead_s, load),
                    }
                    rows.append(average_row(name, runs, **setting))
                    if overhead_s == 0.1 and load == 3.0 and how == "by batch" and name != "nothing":
                        series = runs[0].series
                        curves[name] = ((series["t_s"] + series["batch_s"]).tolist(), series["delay_s"].tolist())
    return Result("microbatch", rows, bars=_bars(rows), claims=_claims(rows), lines=curves)


def _run(controller: Controller, overhead_s: float, load: float, how: str, seed: int) -> Outcome:
    return simulate_micro_batches(
        on_off(load / _COST_S, _LENGTH_S, seed=seed),
        controller,
        cost_s=Profile.step(_COST_S, 2 * _COST_S, _LENGTH_S / 2),
        overhead_s=overhead_s,
        how="by batch" if how == "by batch" else "by arrival",
        bounded=how == "bounded",
        noise=_NOISE,
        seed=seed,
    )


def _least_loss(overhead_s: float, load: float) -> float:
    """Return the smallest possible loss with batches of half the target: ``1 - (1 - o / B) / rho``, averaged over both halves."""
    share = 1.0 - overhead_s / (_TARGET_S / 2.0)
    return float(np.mean([1.0 - share / load, 1.0 - share / (2.0 * load)]))


def _rows_of(rows: list[Row], arm: str, how: str = "by batch") -> list[Row]:
    return [row for row in rows if row["arm"] == arm and row["how"] == how]


def _bars(rows: list[Row]) -> list[Bar]:
    ours = _rows_of(rows, "MicroBatch")
    return [
        Bar.at_most("MicroBatch by batch: mean violation, s", max(float(row["mean violation s"] or 0) for row in ours), 0.05),
        Bar.at_most(
            "MicroBatch by batch: loss above the minimum, percentage points", max(_above_minimum(row) for row in ours), 3.0
        ),
    ]


def _above_minimum(row: Row) -> float:
    return float(row["loss %"] or 0) - float(row["least loss %"] or 0)


def _claims(rows: list[Row]) -> list[Claim]:
    def worst(arm: str, column: str) -> float:
        return max(float(row[column] or 0) for row in _rows_of(rows, arm))

    return [
        Claim(
            "mean violation, by batch, worst of four settings",
            "design: below 0.001 s; SEaMLeSS 0.14 to 0.23 s",
            f"MicroBatch {worst('MicroBatch', 'mean violation s'):.4f} s, SEaMLeSS {worst('SEaMLeSS', 'mean violation s'):.2f} s",
            worst("MicroBatch", "mean violation s") < 0.1 * worst("SEaMLeSS", "mean violation s"),
        ),
        Claim(
            "worst violation, by batch",
            "design: below 0.7 s; SEaMLeSS 2.1 to 4.1 s",
            f"MicroBatch {worst('MicroBatch', 'max violation s'):.2f} s, SEaMLeSS {worst('SEaMLeSS', 'max violation s'):.2f} s",
            worst("MicroBatch", "max violation s") < 0.5 * worst("SEaMLeSS", "max violation s"),
        ),
    ]


def plot(result: Result, path: Path) -> None:
    """Draw the mean delay of batches, by batch, at 3 times the capacity and 0.1 s of overhead."""
    lines({"mean delay of a batch, s": result.lines}, path, title="Bursts, and a cost that doubles at 60 s", target=_TARGET_S)
