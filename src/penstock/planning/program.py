"""The linear program of the exact planner, and its form in HiGHS."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.planning.flows import Flows, Vector

__all__ = ["Layout", "Program", "build_program", "estimate_magnitudes", "pass_model"]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the entries of a matrix are, column by column, as HiGHS takes them. New numbers do not change it."""

    order: NDArray[np.int64]
    rows: NDArray[np.int32]
    starts: NDArray[np.int32]

    @classmethod
    def of(cls, rows: NDArray[np.int64], columns: NDArray[np.int64], width: int) -> Layout:
        """Return the layout of a matrix with this many columns."""
        order = np.lexsort((rows, columns))
        starts = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=width))])
        return cls(order, rows[order].astype(np.int32), starts.astype(np.int32))


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
    layout: Layout

    @property
    def height(self) -> int:
        """The number of rows."""
        return self.upper.size

    def matrix(self) -> NDArray[np.float64]:
        """Return the rows as a dense matrix."""
        matrix = np.zeros((self.height, self.cost.size))
        np.add.at(matrix, (self.rows, self.columns), self.values)
        return matrix

    def to_highs(self, before: highspy.Highs | None = None) -> highspy.Highs:
        """Return a HiGHS model of the program. Later plans only change its bounds.

        With the model of a program ``before`` that has other numbers, its last basis is where the first plan starts from.
        """
        lower = np.full(self.height, -highspy.kHighsInf)
        lower[self.height - self.floors :] = 0.0
        model = pass_model(self.cost, np.full(self.cost.size, highspy.kHighsInf), (lower, self.upper), self.layout, self.values)
        if before is not None:
            model.setBasis(before.getBasis())
        return model


def pass_model(cost: Vector, most: Vector, bounds: tuple[Vector, Vector], layout: Layout, values: Vector) -> highspy.Highs:
    """Return a HiGHS model that maximises ``cost @ x``, for x from 0 to ``most`` and rows of the matrix within bounds.

    Raises
    ------
    PenstockError
        If HiGHS rejects the numbers.
    """
    model = _make_model()
    numbers = (cost, np.zeros(cost.size), most, *bounds)
    matrix = (layout.starts, layout.rows, values[layout.order], np.zeros(cost.size, dtype=np.int32))
    # As arrays: a HighsLp would convert every number by itself.
    shape = (cost.size, bounds[0].size, values.size, int(highspy.MatrixFormat.kColwise), int(highspy.ObjSense.kMaximize), 0.0)
    if model.passModel(*shape, *numbers, *matrix) == highspy.HighsStatus.kError:
        raise PenstockError(
            "HiGHS rejects the linear program: a cost or a selectivity is orders of magnitude apart from the others"
        )
    return model


def _make_model() -> highspy.Highs:
    model = highspy.Highs()  # type: ignore[no-untyped-call]  # HiGHS has incomplete type hints
    for name, value in (("output_flag", False), ("presolve", "off"), ("solver", "simplex"), ("threads", 1)):
        model.setOptionValue(name, value)
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
        model.setOptionValue(name, 1e-10)
    model.setOptionValue("small_matrix_value", 1e-12)
    return model


def build_program(flows: Flows, floored: NDArray[np.int64], before: Program | None = None, *, rescale: bool = True) -> Program:
    """Build the program of a network; ``floored`` are the indices of the outputs that have a floor.

    ``before`` is the program of the same network with other numbers, if there is one. Without ``rescale`` its units serve again.
    """
    unit = estimate_magnitudes(flows) if before is None or rescale else before.unit
    inputs, count = len(flows.inputs), len(flows.locations)
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
    layout = Layout.of(lists[0], lists[1], count) if before is None else before.layout
    return Program(unit, cost / scale, scale, *lists, floors=floored.size, layout=layout)


def estimate_magnitudes(flows: Flows) -> Vector:
    """Estimate the greatest rate that can pass each location."""
    heaviest = np.zeros(len(flows.inputs))
    full = flows.full_loads
    np.maximum.at(heaviest, full.columns, full.values / flows.capacity[full.rows])
    rates = np.divide(1.0, heaviest, out=np.ones(heaviest.size), where=heaviest > 0)
    greatest = flows.propagate(rates, np.ones(len(flows.locations)))
    return np.where(greatest > 0, greatest, 1.0)
