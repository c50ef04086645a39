"""SEaMLeSS (Pham et al.), figure 4: response times on a network of 1,140 operators.

SEaMLeSS, CTRL and Aurora at a headroom of 0.92 on QN-complex, a network of about 1,140 operators, some of them shared,
under bursty arrivals. ``benchmarks.support.qn_complex`` describes network and arrivals; ``seamless-table1`` has more
headrooms.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.averages import average_row, mean_between
from benchmarks.support.protocol import Say
from benchmarks.support.qn_complex import TARGET_S, run_arms
from benchmarks.support.results import Claim, Result
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_ARMS = ("SEaMLeSS", "CTRL, H = 0.99", "Aurora, H = 0.92")


def run(*, quick: bool, say: Say) -> Result:
    """Run the three controllers that the figure shows."""
    runs = run_arms(list(_ARMS), 1 if quick else 5, say)
    ctrl = runs["CTRL, H = 0.99"][0]
    early, late = mean_between(ctrl, 0, 100), mean_between(ctrl, 300, 400)
    ours = mean_between(runs["SEaMLeSS"][0], 300, 400)
    claims = [
        Claim(
            "under CTRL the response time keeps growing",
            "only rows of the first 66 of 400 s are processed in 420 s",
            f"{early:.1f} s in the first 100 s, {late:.1f} s in the last",
            late > 5 * TARGET_S and late > 2 * early,
        ),
        Claim("SEaMLeSS stays near the target", "near 2 s", f"{ours:.2f} s in the last 100 s", ours < 1.5 * TARGET_S),
    ]
    rows = [average_row(arm, outcomes) for arm, outcomes in runs.items()]
    curves = {arm: (outcomes[0].series["t_s"].tolist(), outcomes[0].series["delay_s"].tolist()) for arm, outcomes in runs.items()}
    return Result("seamless-4", rows, claims=claims, lines=curves)


def plot(result: Result, path: Path) -> None:
    """Draw the response times over time."""
    label = "response time, s"
    lines({label: result.lines}, path, title="A complex query network", target=TARGET_S, log=(label,))
