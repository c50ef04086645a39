"""Rows of the linear program that give several drop locations one keep, or none at all."""

from __future__ import annotations

import highspy
import numpy as np
from numpy.typing import NDArray

from penstock.network.drops import Ties
from penstock.planning.flows import Flows, Vector
from penstock.planning.program import Program

__all__ = ["TieRows"]


class TieRows:
    """Holds the locations of a group at one keep: ``y_1 / r_1 = y_2 / r_2`` for inputs, ``y_1 = y_2`` behind one split.

    The rates are coefficients of the first kind, so they are set before each solution. An input without tuples is left out of
    its group then: nothing of it can pass.
    """

    def __init__(self, model: highspy.Highs, program: Program, flows: Flows, ties: Ties) -> None:
        index, inputs = flows.location_index, len(flows.inputs)
        groups = [[index[name] for name in group if name in index] for group in ties.groups]
        self.groups: list[NDArray[np.int64]] = [np.array(sorted(group)) for group in groups if len(group) > 1]
        self._model, self._unit = model, program.unit
        self._rows: list[tuple[int, int, int]] = []  # the row, and the two inputs that it ties
        height = program.height
        for group in self.groups:
            for other in group[1:].tolist():
                pair = (int(group[0]), int(other))
                model.addRow(0.0, 0.0, 2, np.array(pair, dtype=np.int32), np.array(self._weigh(1.0 / self._unit[list(pair)])))
                if other < inputs:
                    self._rows.append((height, *pair))
                height += 1
        self._fixed = [index[name] for name in ties.fixed if name in index]
        for location in self._fixed:  # what passes is what arrives
            model.changeRowBounds(flows.loads.height + flows.links.height + location - inputs, 0.0, 0.0)

    def __bool__(self) -> bool:
        """Whether there is anything to hold."""
        return bool(self.groups or self._fixed)

    def _weigh(self, per_row: Vector) -> Vector:
        """Return the coefficients of two locations from the tuples that each has per unit; the greater one becomes 1."""
        weights = np.array([1.0 / per_row[0], -1.0 / per_row[1]])
        return weights / float(np.max(np.abs(weights)))

    def update(self, rates: Vector) -> None:
        """Set the rates of the inputs."""
        for row, one, other in self._rows:
            if rates[one] <= 0.0 or rates[other] <= 0.0:
                self._model.changeRowBounds(row, -highspy.kHighsInf, highspy.kHighsInf)
                continue
            self._model.changeRowBounds(row, 0.0, 0.0)
            pair = [one, other]
            for column, value in zip(pair, self._weigh(rates[pair] / self._unit[pair]).tolist(), strict=True):
                self._model.changeCoeff(row, column, value)

    def equalize(self, keep: Vector, rates: Vector) -> Vector:
        """Return keeps that are equal within each group to the last digit: the least of them."""
        for group in self.groups:
            arriving = [location for location in group.tolist() if location >= rates.size or rates[location] > 0.0]
            if arriving:
                keep[group] = keep[arriving].min()
        keep[self._fixed] = 1.0
        return keep
