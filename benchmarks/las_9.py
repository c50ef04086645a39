"""LAS (Rivetti et al.), figure 9: abrupt changes, phases A to G.

Each phase has 20,000 tuples, AVG(64 ms); throughput, distribution and costs change abruptly. A: as fast as the
operator. B: 50% under-provisioned. C: as A. D: the most frequent key and a rare one of the maximum cost swap. E: 50%
over-provisioned. F: as A, with all costs doubled. G: as A. Straw-Man knows the mean cost of phase A. The paper's
constraint covers the whole stream; the result shows means over windows of 4,000 tuples.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.support.las_runs import METHODS
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from penstock.simulation.las_queue import LasRun, Method, Stream, phases, simulate_las
from penstock.simulation.plotting import by_panel, lines

__all__ = ["plot", "run"]

_TAU_S, _WINDOW, _LENGTH = 64e-3, 4_000, 20_000


def run(*, quick: bool, say: Say) -> Result:
    """Run the phases on several seeds."""
    seeds = 3 if quick else 50
    rows: list[Row] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    final_ms: dict[str, dict[str, float]] = {}
    for method in METHODS[1:]:
        say(method)
        runs = [_run(method, seed) for seed in range(seeds)]
        waits, dropped = (np.mean([_windows(run, what) for run in runs], axis=0) for what in ("wait", "dropped"))
        xs = [float(_WINDOW * (number + 1)) for number in range(waits.size)]
        curves[f"{method}|Q, ms"] = (xs, waits.tolist())
        curves[f"{method}|dropped, %"] = (xs, dropped.tolist())
        for number, name in enumerate("ABCDEFG"):
            part = slice(number * _LENGTH // _WINDOW, (number + 1) * _LENGTH // _WINDOW)
            final_ms.setdefault(method, {})[name] = float(waits[part][-1])
            rows.append(
                {
                    "shedder": method,
                    "phase": name,
                    "Q ms": float(waits[part].mean()),
                    "Q ms at its end": float(waits[part][-1]),
                    "dropped %": float(dropped[part].mean()),
                }
            )
    return Result("las-9", rows, claims=_claims(final_ms), lines=curves)


def _claims(final_ms: dict[str, dict[str, float]]) -> list[Claim]:
    return [
        Claim(
            "Straw-Man cannot handle D",
            "strong deterioration",
            f"{final_ms['straw-man']['D']:.0f} ms at its end, LAS {final_ms['las']['D']:.0f} ms",
            final_ms["straw-man"]["D"] > 2 * final_ms["las"]["D"],
        ),
        Claim(
            "Straw-Man diverges in F and cannot recover in G",
            "yes",
            f"{final_ms['straw-man']['F']:.0f} and {final_ms['straw-man']['G']:.0f} ms",
            final_ms["straw-man"]["G"] > 640,
        ),
        Claim(
            "LAS converges to tau within F",
            "quickly",
            f"{final_ms['las']['F']:.0f} ms at its end",
            final_ms["las"]["F"] <= 2 * 64,
        ),
        Claim(
            "ours converges within F",
            "-",
            f"{final_ms['cost-aware']['F']:.0f} ms at its end",
            final_ms["cost-aware"]["F"] <= 2 * 64,
        ),
    ]


def _run(method: Method, seed: int) -> LasRun:
    stream, _ = phases(seed)
    # The operator has already executed some tuples of phase A.
    warm = Stream(stream.arrivals_s[:2048], stream.keys[:2048], stream.costs_s[:2048])
    mean_s = float(stream.costs_s[:_LENGTH].mean())
    return simulate_las(stream, method, _TAU_S, seed=seed, warm=warm, mean_cost_s=mean_s)


def _windows(run: LasRun, what: str) -> np.ndarray:
    kept = run.kept.reshape(-1, _WINDOW)
    if what == "dropped":
        return np.asarray(100.0 * (1.0 - kept.mean(axis=1)))
    waits = np.where(run.kept, run.waits_s, 0.0).reshape(-1, _WINDOW)
    return np.asarray(1e3 * waits.sum(axis=1) / np.maximum(kept.sum(axis=1), 1))


def plot(result: Result, path: Path) -> None:
    """Draw both panels of the figure."""
    lines(by_panel(result.lines), path, title="Figure 9: phases A to G", x="tuples", target=64.0, log=["Q, ms"])
