"""The linear program behind the exact plan, and its warm start in HiGHS."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.planning.flows import Flows, Vector

__all__ = ["Program", "program_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Maximise ``cost @ x`` over ``matrix @ x <= upper``, x not negative, and x of an input at most its rate.

    x is what passes each location in its own ``unit``, so that all numbers are near 1. ``floors`` rows at the end are no upper
    but lower limits.
    """

    unit: Vector
    cost: Vector
    scale: float
    """What the score is more than ``cost @ x``."""
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Vector
    upper: Vector
    floors: int

    @property
    def height(self) -> int:
        """How many rows there are."""
        return self.upper.size

    def matrix(self) -> NDArray[np.float64]:
        """The rows in full."""
        found = np.zeros((self.height, self.cost.size))
        np.add.at(found, (self.rows, self.columns), self.values)
        return found

    def started(self) -> highspy.Highs:
        """Give it to HiGHS once; later only bounds change."""
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
        model = highspy.Highs()  # type: ignore[no-untyped-call]  # HiGHS ships some of its types
        for name, value in (("output_flag", False), ("presolve", "off"), ("solver", "simplex"), ("threads", 1)):
            model.setOptionValue(name, value)
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            model.setOptionValue(name, 1e-10)
        model.setOptionValue("small_matrix_value", 1e-12)
        if model.passModel(program) == highspy.HighsStatus.kError:
            raise PenstockError("HiGHS does not accept the linear program: a cost or a selectivity is far outside all others")
        return model


def program_of(flows: Flows, floored: NDArray[np.int64]) -> Program:
    """Write down the program of a network; ``floored`` are the outputs that have a floor."""
    unit, inputs, count = _magnitudes(flows), len(flows.inputs), len(flows.locations)
    splits = np.arange(inputs, count)
    rows, columns, values, upper = [], [], [], []
    height = 0
    for matrix, limit in ((flows.loads, flows.capacity), (flows.links, flows.bandwidths)):
        rows.append(matrix.rows + height)
        columns.append(matrix.columns)
        values.append(matrix.values * unit[matrix.columns] / limit[matrix.rows])
        upper.append(np.ones(matrix.height))
        height += matrix.height
    # y <= what arrives: a row for each location behind another.
    sources = flows.sources
    rows += [sources.rows - inputs + height, splits - inputs + height]
    columns += [sources.columns, splits]
    values += [-sources.values * unit[sources.columns] / unit[sources.rows], np.ones(splits.size)]
    upper.append(np.zeros(splits.size))
    height += splits.size
    for number, output in enumerate(floored.tolist()):
        chosen = flows.through.rows == output
        rows.append(np.full(int(chosen.sum()), height + number))
        columns.append(flows.through.columns[chosen])
        values.append(flows.through.values[chosen] * unit[flows.through.columns[chosen]])
        upper.append(np.array([highspy.kHighsInf]))
    cost = flows.value * unit
    # By the least of the worths, or HiGHS takes it for nothing; the greatest must stay within reach too.
    worths = cost[cost > 0]
    scale = 1e3 * max(float(worths.min()), 1e-9 * float(worths.max())) if worths.size else 1.0
    lists = np.concatenate(rows), np.concatenate(columns), np.concatenate(values), np.concatenate(upper)
    return Program(unit, cost / scale, scale, *lists, floors=floored.size)


def _magnitudes(flows: Flows) -> Vector:
    """What each location may pass at most, about."""
    heaviest = np.zeros(len(flows.inputs))
    full = flows.full_loads
    np.maximum.at(heaviest, full.columns, full.values / flows.capacity[full.rows])
    rates = np.divide(1.0, heaviest, out=np.ones(heaviest.size), where=heaviest > 0)
    found = flows.passing(rates, np.ones(len(flows.locations)))
    return np.where(found > 0, found, 1.0)
