"""What some nodes and all nodes below them can process, as linear inequalities, and the best plan under them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.planning.flows import Flows, Vector
from penstock.planning.program import Layout, estimate_magnitudes, pass_model
from penstock.planning.sparse_matrix import SparseMatrix

__all__ = ["Inequalities", "InequalityProgram", "combine_inequalities"]

_ROUNDING = 1e-12
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Inequalities:
    """The best score at some rates is the greatest ``worth @ x`` with ``limits @ x <= upper``, ``entering @ x <= rates``, x >= 0.

    x is what passes the drop locations of these nodes, then those of each child, each in a unit of its own. There are as many
    numbers as the nodes have operators, however many streams there are: a table of feasible inputs has the same content as
    samples, whose number grows exponentially with the streams.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=0.5).output("q", "a").build()
    >>> inequalities = combine_inequalities(Flows(network), [])
    >>> Inequalities.from_body(inequalities.to_body()).columns
    ('i',)
    """

    columns: tuple[str, ...]
    """Where rows enter: at these nodes, and, as streams from outside, at nodes below."""
    worth: Vector
    limits: SparseMatrix
    upper: Vector
    entering: SparseMatrix
    """By column: the rate that the plan lets in there."""
    unit: Vector
    """The unit of what passes these nodes' own locations: a plan lets ``x * unit`` pass. It stays at home."""

    def is_close_to(self, other: Inequalities) -> bool:
        """Return whether both are equal but for rounding."""
        pairs = [(self.worth, other.worth), (self.upper, other.upper)]
        pairs += [(one.values, two.values) for one, two in zip(self._matrices, other._matrices, strict=True)]
        return (
            self.columns == other.columns
            and all(_have_one_shape(one, two) for one, two in zip(self._matrices, other._matrices, strict=True))
            and all(one.shape == two.shape and np.allclose(one, two, rtol=_ROUNDING, atol=0.0) for one, two in pairs)
        )

    @property
    def _matrices(self) -> tuple[SparseMatrix, SparseMatrix]:
        return self.limits, self.entering

    def to_body(self) -> dict[str, Any]:
        """Return the body of a message: plain JSON values."""
        matrices = {
            name: [matrix.rows.tolist(), matrix.columns.tolist(), matrix.values.tolist()]
            for name, matrix in (("limits", self.limits), ("entering", self.entering))
        }
        return {"columns": list(self.columns), "worth": self.worth.tolist(), "upper": self.upper.tolist(), **matrices}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Inequalities:
        """Read the body of a message.

        Raises
        ------
        PenstockError
            If a number is out of range.

        """
        columns = tuple(str(name) for name in body["columns"])
        worth, upper = (np.array(body[name], dtype=np.float64).reshape(-1) for name in ("worth", "upper"))
        limits = _read_matrix(body["limits"], upper.size, worth.size)
        entering = _read_matrix(body["entering"], len(columns), worth.size)
        numbers = np.concatenate([worth, upper, limits.values, entering.values])
        if not np.all(np.isfinite(numbers)) or np.any(worth < 0) or np.any(upper < 0) or np.any(entering.values < 0):
            raise PenstockError("inequalities must have finite numbers, and those of worth, rates and upper limits not negative")
        return cls(columns, worth, limits, upper, entering, np.zeros(0))


def combine_inequalities(flows: Flows, children: Sequence[Inequalities]) -> Inequalities:
    """Return the inequalities of some nodes, given those of their children.

    Parameters
    ----------
    flows
        The flows of what the nodes run. An output that is a column of a child is an arc to it.
    children
        The inequalities of the children.

    Examples
    --------
    A feeds B, which can process less:

    >>> from penstock.network import NetworkBuilder
    >>> from penstock.network.coefficients import part_of
    >>> network = (
    ...     NetworkBuilder().node("A").node("B").input("i").operator("a", "A", "i", cost=0.5)
    ...     .operator("b", "B", "a", cost=1.0).output("q", "b").build()
    ... )
    >>> child = combine_inequalities(Flows(part_of(network, "B")), [])
    >>> InequalityProgram(combine_inequalities(Flows(part_of(network, "A")), [child])).solve(np.array([5.0]))[0]
    1.0
    """
    count, inputs = len(flows.locations), len(flows.inputs)
    unit = estimate_magnitudes(flows)
    arcs = {name for child in children for name in child.columns}
    rows_of = {name: row for row, name in enumerate(flows.outputs)}
    below = [name for child in children for name in child.columns if name not in rows_of]
    columns = (*flows.inputs, *dict.fromkeys(below))
    positions = {name: position for position, name in enumerate(columns)}
    weights = np.array([0.0 if name in arcs else weight for name, weight in zip(flows.outputs, flows.weights, strict=True)])
    own_worth = np.zeros(count)
    np.add.at(own_worth, flows.through.columns, flows.through.values * weights[flows.through.rows])
    limits, entering, upper = _Entries(), _Entries(), [np.ones(flows.loads.height)]
    loads, sources = flows.loads, flows.sources
    limits.add(loads.rows, loads.columns, loads.values * unit[loads.columns] / flows.capacity[loads.rows])
    height = loads.height
    splits = np.arange(inputs, count)  # what passes is at most what arrives
    limits.add(sources.rows - inputs + height, sources.columns, -sources.values * unit[sources.columns] / unit[sources.rows])
    limits.add(splits - inputs + height, splits, np.ones(splits.size))
    upper.append(np.zeros(splits.size))
    height += splits.size
    entering.add(np.arange(inputs), np.arange(inputs), unit[:inputs])
    first = count
    for child in children:
        limits.add(child.limits.rows + height, child.limits.columns + first, child.limits.values)
        upper.append(child.upper)
        height += child.upper.size
        for column, name in enumerate(child.columns):
            is_column = child.entering.rows == column
            into, rates = child.entering.columns[is_column] + first, child.entering.values[is_column]
            if name not in rows_of:
                entering.add(np.full(into.size, positions[name]), into, rates)
                continue
            scale = float(rates.max(initial=0.0)) or 1.0  # what enters the child is at most what leaves for it
            leaves = flows.through.rows == rows_of[name]
            own = flows.through.columns[leaves]
            limits.add(np.full(into.size, height), into, rates / scale)
            limits.add(np.full(own.size, height), own, -flows.through.values[leaves] * unit[own] / scale)
            upper.append(np.zeros(1))
            height += 1
        first += child.worth.size
    worth = np.concatenate([own_worth * unit, *(child.worth for child in children)])
    return Inequalities(columns, worth, limits.to_matrix(height), np.concatenate(upper), entering.to_matrix(len(columns)), unit)


class InequalityProgram:
    """Finds the best plan under inequalities. One warm model: a new plan changes only the rates.

    Parameters
    ----------
    inequalities
        The inequalities.

    """

    def __init__(self, inequalities: Inequalities) -> None:
        self._load(inequalities)

    def update(self, inequalities: Inequalities) -> None:
        """Plan under other inequalities from now on, if possible starting from the last basis."""
        before, size = self._model, self._size
        self._load(inequalities)
        if size == self._size:
            self._model.setBasis(before.getBasis())

    def _load(self, inequalities: Inequalities) -> None:
        self.inequalities = inequalities
        limits, entering = inequalities.limits, inequalities.entering
        self._first, self._size = limits.height, (inequalities.worth.size, limits.height, entering.height)
        self._scale = _row_scales(entering)
        rows = np.concatenate([limits.rows, entering.rows + limits.height])
        columns = np.concatenate([limits.columns, entering.columns])
        values = np.concatenate([limits.values, entering.values / self._scale[entering.rows]])
        worth = inequalities.worth
        positive = worth[worth > 0]
        # Scale by the smallest positive worth, or HiGHS would treat it as zero; but keep the largest within HiGHS's range too.
        scale = 1e3 * max(float(positive.min()), 1e-9 * float(positive.max())) if positive.size else 1.0
        upper = np.concatenate([inequalities.upper, np.zeros(entering.height)])
        lower = np.full(upper.size, -highspy.kHighsInf)
        most = np.full(worth.size, highspy.kHighsInf)
        layout = Layout.of(rows, columns, worth.size)
        self._model = pass_model(worth / scale, most, (lower, upper), layout, values)

    def solve(self, rates: Vector) -> tuple[float, Vector]:
        """Return the best score at these rates, by column, and x.

        Raises
        ------
        PenstockError
            If HiGHS cannot solve the program.

        """
        for column, rate in enumerate((rates / self._scale).tolist()):
            self._model.changeRowBounds(self._first + column, -highspy.kHighsInf, rate)
        self._model.run()
        if self._model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            self._model.clearSolver()  # the warm basis may be numerically bad: try again from scratch
            self._model.run()
        status = self._model.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise PenstockError(f"HiGHS could not solve the linear program: {self._model.modelStatusToString(status)}")
        x = np.maximum(np.array(self._model.getSolution().col_value), 0.0)
        return float(self.inequalities.worth @ x), x


class _Entries:
    """The entries of a matrix under construction."""

    def __init__(self) -> None:
        self._rows: list[NDArray[np.int64]] = []
        self._columns: list[NDArray[np.int64]] = []
        self._values: list[Vector] = []

    def add(self, rows: NDArray[np.int64], columns: NDArray[np.int64], values: Vector) -> None:
        self._rows.append(rows)
        self._columns.append(columns)
        self._values.append(values)

    def to_matrix(self, height: int) -> SparseMatrix:
        return SparseMatrix(height, np.concatenate(self._rows), np.concatenate(self._columns), np.concatenate(self._values))


def _row_scales(matrix: SparseMatrix) -> Vector:
    """Return the greatest number of each row; 1 where there is none."""
    greatest = np.zeros(matrix.height)
    np.maximum.at(greatest, matrix.rows, np.abs(matrix.values))
    return np.where(greatest > 0, greatest, 1.0)


def _have_one_shape(one: SparseMatrix, other: SparseMatrix) -> bool:
    return one.height == other.height and np.array_equal(one.rows, other.rows) and np.array_equal(one.columns, other.columns)


def _read_matrix(parts: Sequence[Sequence[float]], height: int, width: int) -> SparseMatrix:
    rows, columns = (np.array(part, dtype=np.int64).reshape(-1) for part in parts[:2])
    values = np.array(parts[2], dtype=np.float64).reshape(-1)
    is_inside = rows.size == columns.size == values.size and np.all(
        (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    )
    if not is_inside:
        raise PenstockError(f"the entries of a matrix of {height} rows and {width} columns are not within it")
    return SparseMatrix(height, rows, columns, values)
