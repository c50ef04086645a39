"""The exact planner at run time against all methods that plan in advance.

Figure 1 of Staying FIT (Tatbul et al.), two networks of its figure 9 and a split, with a thousand overloaded rate
vectors each. Measures how far the score is below the best one, how long a plan takes once the method is ready, and how
long it takes to get ready. Then the exact planner alone on large networks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.support.cold_linprog import cold_scorer
from benchmarks.support.fit_networks import chains, fan_out, figure9, overloaded_rates, random_chains, random_tree
from benchmarks.support.motivating_example import figure1
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from benchmarks.support.timing import time_call
from penstock.network import Network
from penstock.planning import EarlyFit, Exact, Exponential, Fit, Greedy, Planner, Solver, SolverW
from penstock.planning.bounds import RateBounds
from penstock.planning.fit_node import geometric_spread
from penstock.planning.point_quadtree import PointQuadtree
from penstock.simulation.plotting import bars as bar_chart

__all__ = ["plot", "run"]


def run(*, quick: bool, say: Say) -> Result:
    """Compare on small networks, then measure on large ones."""
    rows: list[Row] = []
    count = 100 if quick else 1000
    for label, network in (("table 1", figure1()), ("(64, 32)", figure9(1)), ("(88, 8)", figure9(4)), ("fan-out 8", fan_out(8))):
        say(label)
        rows += _compare(label, network, count)
    say("large networks")
    large_rows, bars = _time_large_networks(quick=quick)
    rows += large_rows
    say("lookups")
    lookup_rows, lookup_bars = _time_lookups(count)
    rows += lookup_rows
    bars += lookup_bars
    worst = {name: max(float(row["worst error %"] or 0) for row in rows if row["method"] == name) for name in ("solver", "fit")}
    claims = [
        Claim(f"{name} stays within its 5%", "yes", f"worst {value:.2f}%", value <= 5.0 + 1e-4) for name, value in worst.items()
    ]
    return Result("fit-exact", rows, bars=bars, claims=claims)


def _compare(label: str, network: Network, count: int) -> list[Row]:
    rates = overloaded_rates(network, count, seed=7)
    requests = [dict(zip(network.inputs, row.tolist(), strict=True)) for row in rates]
    limits = [stream.max_rate for stream in network.inputs.values()]
    best = np.array([Exact(network).plan(request).score for request in requests])
    workload = Exponential([0.5 * float(rates.mean())] * len(limits), limits)
    methods: dict[str, Callable[[], Planner]] = {
        "exact": lambda: Exact(network),
        "solver": lambda: Solver(network, 0.05),
        "solver-w": lambda: SolverW(network, 0.0144, workload=workload),
        "fit": lambda: Fit(network, 0.05),
        "early-fit": lambda: EarlyFit(network, error=0.05 * float(best.mean())),
        "greedy": lambda: Greedy(network),
    }
    rows: list[Row] = []
    for name, build in methods.items():
        planner, ready_s = time_call(build)
        start_s = time.perf_counter()
        scores = np.array([planner.plan(request).score for request in requests])
        plan_us = (time.perf_counter() - start_s) / count * 1e6
        error = 100 * (1 - scores / best)
        rows.append(
            {
                "network": label,
                "method": name,
                "ready after s": ready_s,
                "plan us": plan_us,
                "mean error %": float(error.mean()),
                "worst error %": float(max(0.0, error.max())),
            }
        )
    return rows


def _time_large_networks(*, quick: bool) -> tuple[list[Row], list[Bar]]:
    rows: list[Row] = []
    bars: list[Bar] = []
    for label, network, limit_ms in (
        ("tree of 100 nodes, 128 inputs", random_tree(100, 128), 2.0),
        ("chains over 1,000 nodes, 512 inputs", random_chains(1000, 512), 5.0),
    ):
        warm_ms, cold_ms, scipy_ms = _time_warm_and_cold(network, 10 if quick else 60)
        rows.append({"network": label, "method": "exact", "warm ms": warm_ms, "cold ms": cold_ms, "linprog ms": scipy_ms})
        bars.append(Bar.at_most(f"exact, warm, {label}, median ms", warm_ms, limit_ms))
        if limit_ms == 2.0:
            bars.append(Bar.at_least(f"cold against warm, {label}", cold_ms / warm_ms, 5.0))
    return rows, bars


def _time_warm_and_cold(network: Network, count: int) -> tuple[float, float, float]:
    """Return the median ms of a plan as rates drift: with a warm program, with a new one each time, and with linprog."""
    base = overloaded_rates(network, 1, seed=1, most=2.0)[0]
    rng = np.random.default_rng(2)
    warm, linprog = Exact(network), cold_scorer(network)
    warm.plan(dict(zip(network.inputs, base.tolist(), strict=True)))
    times: dict[str, list[float]] = {"warm": [], "cold": [], "linprog": []}
    for _ in range(count):
        base *= np.exp(0.1 * rng.standard_normal(base.size))
        base = np.minimum(base, 1000.0)
        rates = dict(zip(network.inputs, base.tolist(), strict=True))
        arms: Sequence[tuple[str, Callable[[], object]]] = (
            ("warm", partial(warm.plan, rates)),
            ("cold", partial(_plan_cold, network, rates)),
            ("linprog", partial(linprog, base)),
        )
        for name, arm in arms:
            times[name].append(time_call(arm)[1] * 1e3)
    return float(np.median(times["warm"])), float(np.median(times["cold"])), float(np.median(times["linprog"]))


def _plan_cold(network: Network, rates: dict[str, float]) -> object:
    return Exact(network).plan(rates)


def _time_lookups(count: int) -> tuple[list[Row], list[Bar]]:
    """Time the lookup of a plan that was computed in advance."""
    network = chains((32.0, 16.0) * 2)
    solver = Solver(network, 0.15)
    fit = Fit(network, spread=geometric_spread(RateBounds(network), 0.25))  # the paper's grid, which has an index
    table = fit.tables["A"]
    quadtree = PointQuadtree(table.points, table.scores)
    requests = overloaded_rates(network, count, seed=3).tolist()
    rows: list[Row] = []
    for name, entries, find in (
        ("region quadtree", solver.regions, solver.lookup),
        ("FIT index", fit.entries, fit.lookup),
        ("point quadtree", fit.entries, quadtree.find),
    ):
        start_s = time.perf_counter()
        for rates in requests:
            find(rates)
        lookup_us = (time.perf_counter() - start_s) / count * 1e6
        rows.append({"network": "4 inputs", "method": name, "regions or entries": entries, "lookup us": lookup_us})
    # The paper's point quadtree has a row but no bar; the index that our FIT uses instead has both.
    bars = [Bar.at_most(f"lookup, {row['method']}, 4 inputs, us", float(row["lookup us"] or 0), 20.0) for row in rows[:2]]
    return rows, bars


def plot(result: Result, path: Path) -> None:
    """Draw the mean error of each method on the network of table 1."""
    rows = [row for row in result.rows if row["network"] == "table 1" and row["method"] != "exact"]
    values = [(str(row["method"]), float(row["mean error %"] or 0)) for row in rows]
    bar_chart(
        values,
        path,
        title="Distance from the best score, the network of table 1",
        label="mean error, % (log; exact has none)",
        log=True,
    )
