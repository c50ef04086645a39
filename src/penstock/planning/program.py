"""The linear program of the exact planner, and its form in HiGHS."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.planning.flows import Flows, Vector

__all__ = ["Program", "build_program"]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Maximise ``cost @ x`` subject to ``matrix @ x <= upper`` and ``x >= 0``, where x of an input is at most its rate.

    x is the rate that passes each location, divided by the ``unit`` of the location, so that all numbers are near 1. The last
    ``floors`` rows have lower limits, not upper limits.
    """

    unit: Vector
    cost: Vector
    scale: float
    """The score is ``scale * (cost @ x)``."""
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Vector
    upper: Vector
    floors: int

    @property
    def height(self) -> int:
        """The number of rows."""
        return self.upper.size

    def matrix(self) -> NDArray[np.float64]:
        """Return the rows as a dense matrix."""
        matrix = np.zeros((self.height, self.cost.size))
        np.add.at(matrix, (self.rows, self.columns), self.values)
        return matrix

    def to_highs(self) -> highspy.Highs:
        """Return a HiGHS model of the program. Later plans only change its bounds."""
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = self.cost.size, self.height
        program.col_cost_, program.sense_ = self.cost, highspy.ObjSense.kMaximize
        program.col_lower_, program.col_upper_ = np.zeros(self.cost.size), np.full(self.cost.size, highspy.kHighsInf)
        lower = np.full(self.height, -highspy.kHighsInf)
        lower[self.height - self.floors :] = 0.0
        program.row_lower_, program.row_upper_ = lower, self.upper
        by_column = np.lexsort((self.rows, self.columns))
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.columns, minlength=self.cost.size))])
        program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        program.a_matrix_.start_ = starts.astype(np.int32)
        program.a_matrix_.index_ = self.rows[by_column].astype(np.int32)
        program.a_matrix_.value_ = self.values[by_column]
        model = highspy.Highs()  # type: ignore[no-untyped-call]  # HiGHS has incomplete type hints
        for name, value in (("output_flag", False), ("presolve", "off"), ("solver", "simplex"), ("threads", 1)):
            model.setOptionValue(name, value)
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            model.setOptionValue(name, 1e-10)
        model.setOptionValue("small_matrix_value", 1e-12)
        if model.passModel(program) == highspy.HighsStatus.kError:
            raise PenstockError(
                "HiGHS rejects the linear program: a cost or a selectivity is orders of magnitude apart from the others"
            )
        return model


def build_program(flows: Flows, floored: NDArray[np.int64]) -> Program:
    """Build the program of a network; ``floored`` are the indices of the outputs that have a floor."""
    unit, inputs, count = _estimate_magnitudes(flows), len(flows.inputs), len(flows.locations)
    splits = np.arange(inputs, count)
    rows, columns, values, upper = [], [], [], []
    height = 0
    for matrix, limit in ((flows.loads, flows.capacity), (flows.links, flows.bandwidths)):
        rows.append(matrix.rows + height)
        columns.append(matrix.columns)
        values.append(matrix.values * unit[matrix.columns] / limit[matrix.rows])
        upper.append(np.ones(matrix.height))
        height += matrix.height
    # y is at most what arrives: one row per location downstream of another.
    sources = flows.sources
    rows += [sources.rows - inputs + height, splits - inputs + height]
    columns += [sources.columns, splits]
    values += [-sources.values * unit[sources.columns] / unit[sources.rows], np.ones(splits.size)]
    upper.append(np.zeros(splits.size))
    height += splits.size
    for number, output in enumerate(floored.tolist()):
        entries = flows.through.rows == output
        rows.append(np.full(int(entries.sum()), height + number))
        columns.append(flows.through.columns[entries])
        values.append(flows.through.values[entries] * unit[flows.through.columns[entries]])
        upper.append(np.array([highspy.kHighsInf]))
    cost = flows.value * unit
    # Scale by the smallest positive cost, or HiGHS would treat it as zero; but keep the largest within HiGHS's range too.
    positive = cost[cost > 0]
    scale = 1e3 * max(float(positive.min()), 1e-9 * float(positive.max())) if positive.size else 1.0
    lists = np.concatenate(rows), np.concatenate(columns), np.concatenate(values), np.concatenate(upper)
    return Program(unit, cost / scale, scale, *lists, floors=floored.size)


def _estimate_magnitudes(flows: Flows) -> Vector:
    """Estimate the greatest rate that can pass each location."""
    heaviest = np.zeros(len(flows.inputs))
    full = flows.full_loads
    np.maximum.at(heaviest, full.columns, full.values / flows.capacity[full.rows])
    rates = np.divide(1.0, heaviest, out=np.ones(heaviest.size), where=heaviest > 0)
    greatest = flows.propagate(rates, np.ones(len(flows.locations)))
    return np.where(greatest > 0, greatest, 1.0)
