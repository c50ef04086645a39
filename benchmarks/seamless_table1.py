"""SEaMLeSS (Pham et al.), table I: violation and loss on a network of 1,140 operators.

SEaMLeSS, CTRL and Aurora with several headrooms on QN-complex, a network of about 1,140 operators, some of them shared,
under bursty arrivals. Means of five runs, and the worst violation of all of them. ``benchmarks.support.qn_complex``
describes network and arrivals.
"""

from __future__ import annotations

import numpy as np

from benchmarks.support.averages import average_row
from benchmarks.support.protocol import Say
from benchmarks.support.qn_complex import ARMS, run_arms
from benchmarks.support.results import Claim, Result, Row

__all__ = ["run"]

_PAPER = {
    "SEaMLeSS": (0.73, 0.09, 32.85),
    "CTRL, H = 0.99": (41.10, 23.33, 0.0),
    "Aurora, H = 0.92": (1.16, 0.09, 37.59),
    "Aurora, H = 0.93": (1.80, 0.19, 36.82),
}
_MORE = ("Aurora, H = 0.80", "Aurora, H = 0.85", "Aurora, H = 0.95")


def run(*, quick: bool, say: Say) -> Result:
    """Run all arms; if it must be quick, those that the claims are about."""
    arms = [arm for arm in ARMS if not (quick and arm in _MORE)]
    runs = run_arms(arms, 1 if quick else 5, say)
    rows: list[Row] = []
    for arm, outcomes in runs.items():
        worst, mean, loss = _PAPER.get(arm, (None, None, None))
        rows.append(average_row(arm, outcomes, **{"paper: max s": worst, "paper: mean s": mean, "paper: loss %": loss}))
    by_arm = {str(row["arm"]): row for row in rows}
    ours, ctrl = by_arm["SEaMLeSS"], by_arm["CTRL, H = 0.99"]
    aurora_loss = _aurora_loss_at(_number(ours, "mean violation s"), rows)
    claims = [
        Claim(
            "CTRL sheds nothing on shared operators, and its delay grows without bound",
            "0 %, 23 s mean violation",
            f"{_number(ctrl, 'loss %'):.1f} %, {_number(ctrl, 'mean violation s'):.0f} s",
            _number(ctrl, "loss %") < 1.0 and _number(ctrl, "mean violation s") > 10.0,
        ),
        Claim(
            "at equal mean violation SEaMLeSS loses less than Aurora",
            "32.9 % against 37.6 %",
            f"{_number(ours, 'loss %'):.1f} % against {aurora_loss:.1f} % (interpolated between two headrooms)",
            _number(ours, "loss %") < aurora_loss,
        ),
        Claim(
            "0.01 more headroom makes Aurora's violation much larger",
            "0.09 s to 0.19 s",
            f"{_number(by_arm['Aurora, H = 0.92'], 'mean violation s'):.3f} s to "
            f"{_number(by_arm['Aurora, H = 0.93'], 'mean violation s'):.3f} s",
            _number(by_arm["Aurora, H = 0.93"], "mean violation s")
            > 1.5 * _number(by_arm["Aurora, H = 0.92"], "mean violation s"),
        ),
    ]
    return Result("seamless-table1", rows, claims=claims)


def _aurora_loss_at(violation_s: float, rows: list[Row]) -> float:
    """Interpolate the loss of an Aurora with this mean violation between two headrooms that were run."""
    aurora = sorted((_number(row, "mean violation s"), _number(row, "loss %")) for row in rows if "Aurora" in str(row["arm"]))
    return float(np.interp(violation_s, [violation for violation, _ in aurora], [loss for _, loss in aurora]))


def _number(row: Row, column: str) -> float:
    return float(row[column] or 0.0)
