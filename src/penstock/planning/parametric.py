"""Exact plans for many rates at once: while a basis stays feasible, its solution is linear in the rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.planning.exact import Exact, keep_of
from penstock.planning.flows import Vector

__all__ = ["Parametric"]

_TOLERANCE = 1e-10
_LARGEST = 400


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A basis: ``x = base + slope @ rates`` is the best solution wherever ``least + bound @ rates`` is not negative."""

    base: Vector
    slope: NDArray[np.float64]
    least: Vector
    bound: NDArray[np.float64]
    score: float
    worth: Vector


class Parametric:
    """The exact planner as a function of the rates, piece by piece.

    Rates are only bounds of the program, so a basis that was optimal once is dual feasible for ever: wherever its solution also
    keeps all bounds it is optimal again, and that is a few products of small matrices, for thousands of rates at a time. The
    program is solved only where no known basis fits. A space of rates has few bases (as many as inputs, for chains that share a
    bottleneck), so nearly all plans cost microseconds.
    """

    def __init__(self, exact: Exact) -> None:
        self._exact = exact
        program = exact.program
        self._matrix = (
            program.matrix() if program.cost.size + program.height <= _LARGEST and not exact.network.has_floors else None
        )
        self._pieces: list[_Piece] = []
        self._single: list[Vector] = []
        self.solved = 0
        """How many programs were solved."""

    def solve(self, rates: NDArray[np.float64]) -> tuple[Vector, NDArray[np.int64]]:
        """The best score at each row of rates, and a number that ``keep`` takes."""
        scores, numbers = np.empty(rates.shape[0]), np.empty(rates.shape[0], dtype=np.int64)
        left = np.arange(rates.shape[0])
        for number, piece in enumerate(self._pieces):
            if not left.size:
                break
            left = self._fill(rates, left, piece, scores, numbers, number=number)
        while left.size:
            row = int(left[0])
            new = self._piece(rates[row])
            if new is None:
                scores[row] = self._exact.score(rates[row])
                self._single.append(self._exact.flow())
                numbers[row] = -len(self._single)
                left = left[1:]
            else:
                self._pieces.append(new)
                left = self._fill(rates, left, new, scores, numbers, number=len(self._pieces) - 1)
        return scores, numbers

    @staticmethod
    def _fill(
        rates: NDArray[np.float64],
        left: NDArray[np.int64],
        piece: _Piece,
        scores: Vector,
        numbers: NDArray[np.int64],
        *,
        number: int,
    ) -> NDArray[np.int64]:
        """Take a piece wherever it fits, and return the rows where it does not."""
        asked = rates[left]
        fits = np.all(asked @ piece.bound.T + piece.least >= -_TOLERANCE, axis=1)
        done = left[fits]
        scores[done] = asked[fits] @ piece.worth + piece.score
        numbers[done] = number
        rest: NDArray[np.int64] = left[~fits]
        return rest

    def keep(self, rates: Vector, number: int) -> Vector:
        """The keep at each location, for rates and the number that ``solve`` gave them."""
        if number < 0:
            y = self._single[-number - 1]
        else:
            piece = self._pieces[number]
            y = (piece.base + piece.slope @ rates) * self._exact.program.unit
        return keep_of(self._exact.flows, rates, y)

    def _piece(self, rates: Vector) -> _Piece | None:
        """The best basis as a function of the rates; ``None`` if it can't be had in good digits."""
        self.solved += 1
        if self._matrix is None:
            return None
        program, matrix = self._exact.program, self._matrix
        # At a rate of 0 both bounds are one, and which of them a basis names says nothing of other rates.
        score = self._exact.score(np.maximum(rates, 1e-7 * program.unit[: rates.size]))
        basic, at_upper, full = self._exact.basis()
        inputs, count = rates.size, program.cost.size
        per_rate = np.zeros((count, inputs))  # the upper bounds, by rate
        per_rate[np.arange(inputs), np.arange(inputs)] = 1.0 / program.unit[:inputs]
        slope, base = np.where(at_upper[:, None], per_rate, 0.0), np.zeros(count)
        if basic.sum() != full.sum() or at_upper[inputs:].any():
            return None
        if basic.any():
            square = matrix[np.ix_(full, basic)]
            try:
                solved = np.linalg.solve(square, np.column_stack([program.upper[full], -matrix[full] @ slope]))
            except np.linalg.LinAlgError:
                return None
            base[basic], slope[basic] = solved[:, 0], solved[:, 1:]
        rest = ~full
        least = np.concatenate([base[basic], -base[:inputs], program.upper[rest] - matrix[rest] @ base])
        bound = np.concatenate([slope[basic], per_rate[:inputs] - slope[:inputs], -matrix[rest] @ slope])
        piece = _Piece(
            base, slope, least, bound, float(program.cost @ base) * program.scale, program.cost @ slope * program.scale
        )
        near = abs(piece.score + float(piece.worth @ rates) - score) <= 1e-5 * (1.0 + abs(score))
        return piece if near and np.all(least + bound @ rates >= -_TOLERANCE) else None
