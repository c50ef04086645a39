"""Load-aware shedding over a grid of settings: does ours ever do worse.

Drops of the cost-aware policy relative to the better of Full Knowledge and LAS (Rivetti et al.), and its mean queuing
latency relative to tau, with AVG(tau): keys from uniform to Zipf-3.0, 1 to 4,096 columns, tau from 6.4 ms to 2 s, 25 and
50% under-provisioned, and arrivals that are even, Poisson, on and off, in square bursts of 512 tuples at 4 and 16 times
the rate, and in the phases of the paper's figure 9. Then costs that are tripled, or permuted every 2,048 tuples: how many
windows of N = 1,024 executed tuples pass until Q is below tau again. Seeds are others than those used for tuning.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from benchmarks.support.las_cells import (
    ARRIVALS,
    CHANGES,
    CONSTRAINTS,
    Cell,
    ChangeCell,
    Outcome,
    Recovery,
    measure_cell,
    measure_change,
)
from benchmarks.support.las_runs import run_on_threads
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from penstock.simulation.plotting import by_panel, lines

__all__ = ["plot", "run"]

_SKEWS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
_COLUMNS = (1, 8, 54, 544, 4_096)
_TAUS_S = (6.4e-3, 64e-3, 0.64, 2.0)
_UNDER = (0.25, 0.5)
_HEADLINES = {54: 0.80, 544: 0.68}
"""Bars for Zipf-1.0 with even arrivals, as in the paper, by columns."""
_FIRST_SEED, _SEEDS, _WORST, _QUICK_STEP = 2_000, 5, 12, 11
_HEADLINE_SEEDS = 60
"""Cells with a bar of their own need more: what can be gained depends on which keys are expensive."""


def run(*, quick: bool, say: Say) -> Result:
    """Run all cells, or if ``quick`` every eleventh of them beside those with a bar of their own."""
    cells = [
        Cell(skew, columns, tau_s, under, arrivals)  # cells with the same stream stand together
        for skew, under, arrivals, tau_s, columns in product(_SKEWS, _UNDER, ARRIVALS, _TAUS_S, _COLUMNS)
    ]
    changes = [
        ChangeCell(change, constraint, columns, tau_s, under)
        for change, constraint in product(CHANGES, CONSTRAINTS)
        for columns, tau_s, under in product(_HEADLINES, _TAUS_S, _UNDER)
    ]
    seeds = range(_FIRST_SEED, _FIRST_SEED + (2 if quick else _SEEDS))
    if quick:
        cells = [cell for number, cell in enumerate(cells) if number % _QUICK_STEP == 0 or _is_headline(cell)]
        changes = changes[::3]
    more = range(_FIRST_SEED, _FIRST_SEED + (10 if quick else _HEADLINE_SEEDS))
    found = run_on_threads(lambda cell: measure_cell(cell, more if _is_headline(cell) else seeds), cells, say)
    outcomes = dict(zip(cells, found, strict=True))
    say("changed costs")
    tasks = [(cell, seed) for cell in changes for seed in seeds]
    recoveries = run_on_threads(lambda task: measure_change(*task), tasks, say)
    by_change = {cell: [run for (each, _), run in zip(tasks, recoveries, strict=True) if each == cell] for cell in changes}
    return Result(
        "las-grid",
        [*_worst_rows(outcomes), *_change_rows(by_change)],
        bars=_bars(outcomes, by_change),
        claims=_claims(outcomes),
        lines=_curves(outcomes),
    )


def _is_headline(cell: Cell) -> bool:
    return cell.skew == 1.0 and cell.arrivals == "even" and cell.columns in _HEADLINES


def _worst_rows(outcomes: dict[Cell, Outcome]) -> list[Row]:
    worst = sorted(outcomes, key=lambda cell: -outcomes[cell].ratio)[:_WORST]
    longest = sorted(outcomes, key=lambda cell: -outcomes[cell].wait)[:3]
    headlines = [cell for cell in outcomes if _is_headline(cell)]
    kinds = [("most drops", worst), ("longest Q", longest), ("its bar", headlines)]
    return [_row(kind, cell, outcomes[cell]) for kind, cells in kinds for cell in cells]


def _row(kind: str, cell: Cell, outcome: Outcome) -> Row:
    return {
        "cell": kind,
        "skew": f"{cell.skew:.1f}",
        "columns": cell.columns,
        "tau ms": cell.tau_s * 1e3,
        "under %": 100 * cell.under,
        "arrivals": cell.arrivals,
        "ours dropped %": 100 * outcome.ours,
        "Full Knowledge %": 100 * outcome.full,
        "LAS %": 100 * outcome.las,
        "ratio": outcome.ratio,
        "Q / tau": outcome.wait,
        "LAS Q / tau": outcome.las_wait,
    }


def _change_rows(by_change: dict[ChangeCell, list[Recovery]]) -> list[Row]:
    worst = sorted(by_change, key=lambda cell: -max(run.windows for run in by_change[cell]))[:4]
    return [
        {
            "cell": f"{cell.change}, {cell.constraint}",
            "skew": "1.0",
            "columns": cell.columns,
            "tau ms": cell.tau_s * 1e3,
            "under %": 100 * cell.under,
            "arrivals": "even",
            "Q / tau": sum(run.wait for run in by_change[cell]) / len(by_change[cell]),
            "windows until Q is back": max(run.windows for run in by_change[cell]),
            "above again, runs": f"{sum(run.comes_again for run in by_change[cell])} of {len(by_change[cell])}",
        }
        for cell in worst
    ]


def _bars(outcomes: dict[Cell, Outcome], by_change: dict[ChangeCell, list[Recovery]]) -> list[Bar]:
    bars = [Bar.at_most("drops relative to the better of both, worst cell", max(o.ratio for o in outcomes.values()), 1.05)]
    for columns, limit in _HEADLINES.items():
        for under in _UNDER:
            cells = [c for c in outcomes if _is_headline(c) and c.columns == columns and c.under == under]
            what = f"the same, Zipf-1.0, {columns} columns, {100 * under:.0f}%, worst tau"
            bars.append(Bar.at_most(what, max(outcomes[cell].ratio for cell in cells), limit))
    longest = max(outcome.wait for cell, outcome in outcomes.items() if cell.has_constant_costs)
    bars.append(Bar.at_most("Q relative to tau, constant costs, worst cell", longest, 1.0))
    for change in CHANGES:
        windows = max(run.windows for cell, runs in by_change.items() if cell.change == change for run in runs)
        bars.append(Bar.at_most(f"costs {change}: windows until Q is below tau, worst run", windows, 2.0))
    return bars


def _claims(outcomes: dict[Cell, Outcome]) -> list[Claim]:
    ratios = [outcome.ratio for outcome in outcomes.values()]
    fewer = sum(ratio < 1.0 for ratio in ratios)
    late = sum(outcome.las_wait > 1.0 for outcome in outcomes.values())
    return [
        Claim("ours drops fewer in most cells", "-", f"{fewer} of {len(ratios)}, mean {sum(ratios) / len(ratios):.2f}", None),
        Claim("cells in which LAS exceeds tau", "-", f"{late} of {len(ratios)}", None),
    ]


def _curves(outcomes: dict[Cell, Outcome]) -> dict[str, tuple[list[float], list[float]]]:
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for arrivals in ARRIVALS:
        chosen = [outcome for cell, outcome in outcomes.items() if cell.arrivals == arrivals]
        xs = [100.0 * (number + 1) / len(chosen) for number in range(len(chosen))]
        curves[f"{arrivals}|drops / better of Full Knowledge and LAS"] = (xs, sorted(outcome.ratio for outcome in chosen))
        curves[f"{arrivals}|Q / tau"] = (xs, sorted(outcome.wait for outcome in chosen))
    return curves


def plot(result: Result, path: Path) -> None:
    """Draw the sorted ratios of all cells, by arrivals."""
    lines(by_panel(result.lines), path, title="Cost-aware shedding over the grid", x="cells up to this value, %", target=1.0)
