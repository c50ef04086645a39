"""Optimal plans for many rates at once: as long as a basis stays feasible, its solution is linear in the rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.planning.exact import Exact
from penstock.planning.flows import Vector, feasible_keep

__all__ = ["Parametric"]

_TOLERANCE = 1e-10
_MAX_SIZE = 400


@dataclass(frozen=True, slots=True, eq=False)
class _Basis:
    """A basis of the program: ``x = base + slope @ rates`` is optimal wherever ``slack + slack_slope @ rates >= 0``."""

    base: Vector
    slope: NDArray[np.float64]
    slack: Vector
    slack_slope: NDArray[np.float64]
    score: float
    score_slope: Vector


class Parametric:
    """The exact planner as a piecewise linear function of the rates, one basis per piece.

    Rates are only bounds of the program, so a basis that was optimal once stays dual feasible. Wherever its solution also
    satisfies all bounds, it is optimal again. Checking that takes a few products of small matrices, for thousands of rates at a
    time. The program is solved only where no known basis fits. A space of rates has few bases (as many as inputs, for chains
    that share a bottleneck), so nearly all plans take microseconds.
    """

    def __init__(self, exact: Exact) -> None:
        self._exact = exact
        program = exact.program
        self._matrix = (
            program.matrix() if program.cost.size + program.height <= _MAX_SIZE and not exact.network.has_floors else None
        )
        self._bases: list[_Basis] = []
        self._solutions: list[Vector] = []  # for rates whose basis could not be used
        self.programs_solved = 0
        """The number of linear programs solved."""

    def solve(self, rates: NDArray[np.float64]) -> tuple[Vector, NDArray[np.int64]]:
        """Return the optimal score for each row of rates, and a number for each row to pass to ``keep``."""
        scores, numbers = np.empty(rates.shape[0]), np.empty(rates.shape[0], dtype=np.int64)
        open_rows = np.arange(rates.shape[0])
        for number, basis in enumerate(self._bases):
            if not open_rows.size:
                break
            open_rows = self._fill(rates, open_rows, basis, scores, numbers, number=number)
        while open_rows.size:
            row = int(open_rows[0])
            new = self._find_basis(rates[row])
            if new is None:
                scores[row] = self._exact.score(rates[row])
                self._solutions.append(self._exact.flow())
                numbers[row] = -len(self._solutions)
                open_rows = open_rows[1:]
            else:
                self._bases.append(new)
                open_rows = self._fill(rates, open_rows, new, scores, numbers, number=len(self._bases) - 1)
        return scores, numbers

    @staticmethod
    def _fill(
        rates: NDArray[np.float64],
        open_rows: NDArray[np.int64],
        basis: _Basis,
        scores: Vector,
        numbers: NDArray[np.int64],
        *,
        number: int,
    ) -> NDArray[np.int64]:
        """Use a basis for the open rows where it is feasible, and return the rows that stay open."""
        open_rates = rates[open_rows]
        fits = np.all(open_rates @ basis.slack_slope.T + basis.slack >= -_TOLERANCE, axis=1)
        done = open_rows[fits]
        scores[done] = open_rates[fits] @ basis.score_slope + basis.score
        numbers[done] = number
        rest: NDArray[np.int64] = open_rows[~fits]
        return rest

    def keep(self, rates: Vector, number: int) -> Vector:
        """Return the keep at each location, for rates and the number that ``solve`` returned for them."""
        if number < 0:
            y = self._solutions[-number - 1]
        else:
            basis = self._bases[number]
            y = (basis.base + basis.slope @ rates) * self._exact.program.unit
        return feasible_keep(self._exact.flows, rates, y)

    def _find_basis(self, rates: Vector) -> _Basis | None:
        """Solve the program and return its optimal basis, or ``None`` if it is not numerically sound."""
        self.programs_solved += 1
        if self._matrix is None:
            return None
        program, matrix = self._exact.program, self._matrix
        # At a rate of 0 both bounds coincide, and which of them the basis names means nothing at other rates.
        score = self._exact.score(np.maximum(rates, 1e-7 * program.unit[: rates.size]))
        basic, at_upper, tight = self._exact.basis()
        inputs, count = rates.size, program.cost.size
        per_rate = np.zeros((count, inputs))  # upper bounds of x per unit of rate
        per_rate[np.arange(inputs), np.arange(inputs)] = 1.0 / program.unit[:inputs]
        slope, base = np.where(at_upper[:, None], per_rate, 0.0), np.zeros(count)
        if basic.sum() != tight.sum() or at_upper[inputs:].any():
            return None
        if basic.any():
            square = matrix[np.ix_(tight, basic)]
            try:
                solution = np.linalg.solve(square, np.column_stack([program.upper[tight], -matrix[tight] @ slope]))
            except np.linalg.LinAlgError:
                return None
            base[basic], slope[basic] = solution[:, 0], solution[:, 1:]
        loose = ~tight
        slack = np.concatenate([base[basic], -base[:inputs], program.upper[loose] - matrix[loose] @ base])
        slack_slope = np.concatenate([slope[basic], per_rate[:inputs] - slope[:inputs], -matrix[loose] @ slope])
        basis = _Basis(
            base, slope, slack, slack_slope, float(program.cost @ base) * program.scale, program.cost @ slope * program.scale
        )
        is_accurate = abs(basis.score + float(basis.score_slope @ rates) - score) <= 1e-5 * (1.0 + abs(score))
        return basis if is_accurate and np.all(slack + slack_slope @ rates >= -_TOLERANCE) else None
