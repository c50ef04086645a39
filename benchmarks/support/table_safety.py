"""Tables of plans with few entries, at rates just above what the nodes can process.

No plan may drop everything, and no error may be above what was reported. Every planner that prepares plans in advance
gets a number of entries from 2 to 10,000: C-FIT ``max_entries``, its forerunner ``size``, Solver and Solver-W
``max_programs``. Networks have 2 to 8 inputs on two nodes, with and without splits; rates lie 0.1% to 30% above the
boundary, with one to all inputs loaded. The exact planner is the judge. Solver-W reports an expected error, so its mean
error counts, over rates drawn from its workload.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Row
from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder
from penstock.planning import EarlyFit, Exact, Exponential, Fit, Planner, Solver, SolverW
from penstock.planning.flows import Flows, Vector

__all__ = ["check_tables", "draw_network"]

_ENTRIES = (2, 3, 10, 30, 100, 1000, 10_000)
_QUICK_ENTRIES = (2, 30, 1000)
_MAX_RATE = 1000.0
_TOLERANCE = 1e-6
_MEAN = 30.0


def draw_network(inputs: int, seed: int, *, splits: bool) -> Network:
    """Draw chains over two nodes, with different costs on each. With splits, every second one also has an output on the first."""
    rng = np.random.default_rng(seed)
    builder = NetworkBuilder().node("A").node("B")
    for number in range(inputs):
        costs = rng.uniform(0.004, 0.03, 3)
        builder.input(f"i{number}", max_rate=_MAX_RATE)
        builder.operator(f"a{number}", "A", f"i{number}", cost=float(costs[0]), selectivity=float(rng.uniform(0.5, 1.0)))
        builder.operator(f"b{number}", "B", f"a{number}", cost=float(costs[1]))
        builder.output(f"q{number}", f"b{number}", weight=float(rng.uniform(0.5, 2.0)))
        if splits and number % 2 == 0:
            builder.operator(f"c{number}", "A", f"a{number}", cost=float(costs[2])).output(f"r{number}", f"c{number}")
    return builder.build()


@dataclass
class _Tally:
    """What the plans of one planner with one number of inputs did."""

    plans: int = 0
    zeros: int = 0
    overloads: int = 0
    broken: int = 0
    """Plans further from the best than reported; for Solver-W, tables whose mean error is above the expected one."""
    refused: int = 0
    worst: float = 0.0
    reported: list[float] = field(default_factory=list)
    build_s: float = 0.0


def check_tables(*, quick: bool, say: Say) -> tuple[list[Row], list[Bar], list[Claim]]:
    """Plan with every planner, number of inputs and number of entries; return rows, bars and claims for a benchmark."""
    rows: list[Row] = []
    tallies: list[_Tally] = []
    for inputs in (2, 4, 8) if quick else range(2, 9):
        for name, build in _PLANNERS.items():
            say(f"{inputs} inputs: {name}")
            tally = _Tally()
            for entries in _QUICK_ENTRIES if quick else _ENTRIES:
                for splits in (False, True):
                    network = draw_network(inputs, seed=inputs, splits=splits)
                    _check(tally, network, name, partial(build, network, entries), 10 if quick else 40)
            tallies.append(tally)
            rows.append(
                {
                    "inputs": inputs,
                    "method": name,
                    "plans": tally.plans,
                    "plans of zero": tally.zeros,
                    "worst error %": 100 * tally.worst,
                    "least reported %": 100 * min(tally.reported, default=1.0),
                    "most reported %": 100 * max(tally.reported, default=1.0),
                    "above reported": tally.broken,
                    "longest build s": tally.build_s,
                }
            )
    bars = [
        Bar.at_most("tables: plans of zero", sum(tally.zeros for tally in tallies), 0),
        Bar.at_most("tables: errors above what was reported", sum(tally.broken for tally in tallies), 0),
        Bar.at_most("tables: plans that overload a node", sum(tally.overloads for tally in tallies), 0),
        Bar.at_most("tables: numbers of entries that were refused", sum(tally.refused for tally in tallies), 0),
    ]
    return rows, bars, _check_eight_inputs(say)


def _check(tally: _Tally, network: Network, method: str, build: Callable[[], Planner], count: int) -> None:
    """Build one planner, plan for rates just above the boundary, and count what went wrong."""
    start_s = time.perf_counter()
    try:
        planner = build()
    except PenstockError:
        tally.refused += 1
        return
    tally.build_s = max(tally.build_s, time.perf_counter() - start_s)
    reported = float(planner.error)  # type: ignore[attr-defined]
    tally.reported.append(reported)
    exact, flows, rng = Exact(network), Flows(network), np.random.default_rng(len(network.inputs))
    errors = [_measure(tally, planner, exact, _near(flows, rng)) for _ in range(count)]
    tally.worst = max(tally.worst, *errors)
    if method != "solver-w":
        tally.broken += sum(error > reported + _TOLERANCE for error in errors)
        return
    drawn = rng.exponential(_MEAN / len(network.inputs), (4 * count, len(network.inputs)))
    tally.broken += float(np.mean([_measure(tally, planner, exact, rates) for rates in drawn])) > reported + _TOLERANCE


def _measure(tally: _Tally, planner: Planner, exact: Exact, rates: Vector) -> float:
    plan = planner.plan(dict(zip(planner.network.inputs, rates.tolist(), strict=True)))
    if not plan.overloaded:
        return 0.0
    best = exact.score(rates)
    tally.plans += 1
    tally.zeros += plan.score <= 0.0
    tally.overloads += not plan.feasible
    return max(0.0, 1.0 - plan.score / best)


def _near(flows: Flows, rng: np.random.Generator) -> Vector:
    """Draw rates 0.1% to 30% above the boundary, with one to all inputs loaded."""
    count = len(flows.inputs)
    is_loaded = np.isin(np.arange(count), rng.choice(count, size=int(rng.integers(1, count + 1)), replace=False))
    direction = np.where(is_loaded, rng.random(count) ** 2 + 1e-3, 0.0)
    above = 10.0 ** rng.uniform(-3.0, np.log10(0.3))
    rates: Vector = direction / float(np.max(flows.full_loads @ direction / flows.capacity)) * (1.0 + above)
    return rates


def _check_eight_inputs(say: Say) -> list[Claim]:
    """Ask C-FIT for 8 inputs at 10%: without a number of entries, and with that of the paper."""
    from benchmarks.support.fit_networks import chains  # noqa: PLC0415 - only here

    network = chains((16.0, 8.0) * 4, max_rate=_MAX_RATE)
    say("8 inputs at 10%")
    start_s = time.perf_counter()
    try:
        answer = f"error {Fit(network, 0.1).error:.1%}"
    except PenstockError as error:
        answer = str(error)
    refused_s = time.perf_counter() - start_s
    fit = Fit(network, 0.1, max_entries=42_472)
    return [
        Claim("8 inputs at 10% without max_entries, refused within 1 s", "-", f"{refused_s:.2f} s: {answer}", refused_s <= 1.0),
        Claim(
            "8 inputs with the 42,472 entries of table 3 guarantee 10%",
            "10%",
            f"{fit.entries:,} entries guarantee {fit.error:.1%}",
            fit.error <= 0.1,
        ),
    ]


def _build_solver_w(network: Network, entries: int) -> Planner:
    count = len(network.inputs)
    workload = Exponential([_MEAN / count] * count, [_MAX_RATE] * count)
    return SolverW(network, 0.01, workload=workload, max_programs=entries)


_PLANNERS: dict[str, Callable[[Network, int], Planner]] = {
    "fit": lambda network, entries: Fit(network, 0.1, max_entries=entries),
    "early-fit": lambda network, entries: EarlyFit(network, size=entries),
    "solver": lambda network, entries: Solver(network, 0.01, max_programs=entries),
    "solver-w": _build_solver_w,
}
