"""Freshest first against an even sample in the simulator: three targets, four loads, three kinds of arrivals.

1 ms per row, 0.2 s of overhead, batch times that vary by 5 %, targets of 10, 5 and 3.3 overheads. On BC-pAug89 where
``PENSTOCK_DATA`` has it, else on on-off arrivals as bursty; on exponential ones; on constant ones. Both arms see the
same arrivals and seeds, after 20 s. Fresh rows get 5 % less time (``worst=0.95``), so that what is compared is the
rows kept at no greater worst delay.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.control import MicroBatch
from penstock.simulation.micro_batch_engine import simulate_micro_batches
from penstock.simulation.plotting import lines
from penstock.simulation.trace import load_trace
from penstock.simulation.traffic import Traffic

__all__ = ["plot", "run"]

_COST_S, _OVERHEAD_S, _NOISE, _START_S, _LENGTH_S = 0.001, 0.2, 0.05, 20.0, 140.0
_TARGETS = {10.0: 1.05, 5.0: 1.15, 3.3: 1.3}
_WORST: dict[Literal["even", "fresh"], float] = {"even": 1.0, "fresh": 0.95}
"""The longest wait in targets: fresh rows get a little less, so that their worst delay is not the greater one."""
_LOADS = (1.2, 1.5, 3.0, 10.0)


def run(*, quick: bool, say: Say) -> Result:
    """Run both arms."""
    seeds = 2 if quick else 5
    rows: list[Row] = []
    for kind in ("constant", "exponential", _bursty_name()):
        for load in _LOADS:
            for multiple in _TARGETS:
                say(f"{kind}, {load:g} times, target {multiple:g} o")
                rows += _compare(kind, load, multiple, seeds)
    return Result("freshness-simulated", rows, bars=_bars(rows), lines=_curves(rows))


def _trace_path() -> Path | None:
    path = Path(os.environ.get("PENSTOCK_DATA", "")) / "bc_paug89_full.csv.gz"
    return path if "PENSTOCK_DATA" in os.environ and path.is_file() else None


def _bursty_name() -> str:
    return "on-off" if _trace_path() is None else "BC-pAug89"


def _arrivals(kind: str, rate: float, seed: int) -> NDArray[np.float64]:
    if kind == "BC-pAug89":
        times = load_trace(_trace_path() or Path()).t
        speed = rate / (times.size / (times[-1] - times[0]))
        sped: NDArray[np.float64] = (times - times[0]) / speed
        skipped_s = seed * min(_LENGTH_S / 4, max(0.0, float(sped[-1]) - _LENGTH_S) / 5)  # at high rates the trace is short
        return sped[(sped >= skipped_s) & (sped < skipped_s + _LENGTH_S)] - skipped_s
    options = {"rate": rate, "duration_s": _LENGTH_S}
    return Traffic.of(kind, **options, **({} if kind == "constant" else {"seed": seed})).arrivals()


def _compare(kind: str, load: float, multiple: float, seeds: int) -> list[Row]:
    target_s = multiple * _OVERHEAD_S
    rows: list[Row] = []
    for prefer, longest in _WORST.items():
        kept, worst, loss = [], [], []
        for seed in range(seeds):
            outcome = simulate_micro_batches(
                _arrivals(kind, load / _COST_S, seed),
                MicroBatch(target_s, longest, prefer=prefer),
                cost_s=_COST_S,
                overhead_s=_OVERHEAD_S,
                noise=_NOISE,
                seed=seed,
            )
            counted = outcome.series["t_s"] >= _START_S
            kept.append(float(outcome.series["kept"][counted].sum()))
            worst.append(float(np.nanmax(outcome.series["worst_s"][counted])))
            loss.append(outcome.loss)
        rows.append(
            {
                "arrivals": kind,
                "load": load,
                "target in o": multiple,
                "prefer": prefer,
                "kept": float(np.mean(kept)),
                "of even": float(np.mean(kept)) / float(rows[0]["kept"] or 1.0) if rows else 1.0,
                "worst delay s": float(np.mean(worst)),
                "loss %": 100.0 * float(np.mean(loss)),
            }
        )
    return rows


def _bars(rows: list[Row]) -> list[Bar]:
    bars = []
    for multiple, limit in _TARGETS.items():
        for kind in dict.fromkeys(str(row["arrivals"]) for row in rows):
            even, fresh = [
                row for row in rows if row["load"] == 3.0 and row["target in o"] == multiple and row["arrivals"] == kind
            ]
            name = f"{kind}, 3 times, target {multiple:g} o"
            bars.append(Bar.at_least(f"fresh / even, rows kept, {name}", float(fresh["of even"] or 0.0), limit))
            excess = float(fresh["worst delay s"] or 0.0) - float(even["worst delay s"] or 0.0)
            bars.append(Bar.at_most(f"worst delay of fresh minus that of even, {name}, s", excess, 0.0))
    return bars


def _curves(rows: list[Row]) -> dict[str, tuple[list[float], list[float]]]:
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        if row["prefer"] == "fresh":
            x, y = curves.setdefault(f"{row['arrivals']}, {float(row['target in o'] or 0):g} o", ([], []))
            x.append(float(row["load"] or 0.0))
            y.append(float(row["of even"] or 0.0))
    return curves


def plot(result: Result, path: Path) -> None:
    """Draw the rows kept relative to an even sample, by load."""
    lines({"rows kept, relative to an even sample": result.lines}, path, title="Freshest first, by load")
