"""Which rows load-aware shedding hurts, and what weights can correct.

The share of tuples that each shedder keeps, by their cost. 25% under-provisioned, AVG(6.4 ms), Zipf-1.0, 544 columns.
Base Line and LAS drop cheap and expensive tuples alike; ours drops the expensive ones. With a floor of 5%, each tuple
that the floor keeps counts twenty times, and the count by cost is right again, with a larger spread.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from penstock.las import AVG, CostAware, CostSketch, DecayingOperator
from penstock.simulation.las_queue import Method, Stream, simulate_las, simulate_plain, synthetic
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_TAU_S, _EPSILON, _FLOOR, _GROUPS = 6.4e-3, 0.005, 0.05, 5
_METHODS: tuple[Method, ...] = ("base-line", "las", "full-knowledge", "cost-aware")


class _Recording(CostAware):
    """Records the weight of each tuple."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.weights: list[float] = []

    def shed(self, key: int, elapsed_s: float) -> bool:
        dropped = super().shed(key, elapsed_s)
        self.weights.append(0.0 if dropped else self.weight)
        return dropped


def run(*, quick: bool, say: Say) -> Result:
    """Count kept tuples by fifths of the cost."""
    seeds = range(2 if quick else 10)
    shares: dict[str, list[np.ndarray]] = {}
    for seed in seeds:
        say(f"seed {seed}")
        stream, warm = synthetic(seed=5000 + seed, permutation=seed), synthetic(seed=6000 + seed, permutation=seed, tuples=2048)
        group = np.searchsorted(np.linspace(0, 6.4e-3, _GROUPS + 1)[1:-1], stream.costs_s)
        for method in _METHODS:
            outcome = simulate_las(stream, method, _TAU_S, warm=warm, seed=seed, epsilon=_EPSILON)
            shares.setdefault(method, []).append(_share_by_group(outcome.kept.astype(float), group))
        weights = _weights_with_floor(stream, warm, seed)
        shares.setdefault("cost-aware, floor 5%", []).append(_share_by_group((weights > 0).astype(float), group))
        shares.setdefault("the same, weighted", []).append(_share_by_group(weights, group))
    means = {name: np.mean(values, axis=0) for name, values in shares.items()}
    edges = np.linspace(0, 6.4, _GROUPS + 1)
    labels = [f"{low:.1f} to {high:.1f} ms" for low, high in pairwise(edges.tolist())]
    rows: list[Row] = [
        {"cost": label} | {f"{name} %": 100.0 * float(values[number]) for name, values in means.items()}
        for number, label in enumerate(labels)
    ]
    return Result(
        "las-bias",
        rows,
        claims=_claims(shares),
        lines={name: (list(range(1, _GROUPS + 1)), (100 * values).tolist()) for name, values in means.items()},
    )


def _claims(shares: dict[str, list[np.ndarray]]) -> list[Claim]:
    means = {name: np.mean(values, axis=0) for name, values in shares.items()}
    weighted = shares["the same, weighted"]
    error = np.std(weighted, axis=0) / np.sqrt(len(weighted))
    return [
        Claim(
            "LAS hurts all costs alike",
            "-",
            f"{100 * means['las'].min():.0f} to {100 * means['las'].max():.0f}% kept",
            bool(np.ptp(means["las"]) < 0.1),
        ),
        Claim(
            "ours keeps cheap tuples and drops expensive ones",
            "-",
            f"{100 * means['cost-aware'][0]:.0f}% of the cheapest fifth, "
            f"{100 * means['cost-aware'][-1]:.0f}% of the most expensive",
            bool(means["cost-aware"][0] > means["cost-aware"][-1]),
        ),
        Claim(
            "with a floor and weights the count of the most expensive is right",
            "-",
            f"{100 * means['the same, weighted'][-1]:.0f}% of the arrivals, standard error {100 * error[-1]:.0f}",
            None,
        ),
    ]


def _share_by_group(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    return np.asarray(np.bincount(group, values, _GROUPS) / np.maximum(np.bincount(group, minlength=_GROUPS), 1))


def _weights_with_floor(stream: Stream, warm: Stream, seed: int) -> np.ndarray:
    sketch = CostSketch(_EPSILON, 0.1, seed)
    sketch.add(warm.keys, warm.costs_s)
    shedder = _Recording(AVG(_TAU_S), sketch.copy(), floor=_FLOOR, uniform=np.random.default_rng(seed).random)
    simulate_plain(stream, shedder, DecayingOperator(sketch))
    return np.array(shedder.weights)


def plot(result: Result, path: Path) -> None:
    """Draw the kept share over the cost."""
    lines({"kept, %": result.lines}, path, title="Which rows it hurts: kept by cost", x="fifth of the cost, cheapest first")
