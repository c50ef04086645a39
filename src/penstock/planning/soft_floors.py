"""How much of the floors can be had when they overload a node by themselves."""

from __future__ import annotations

import highspy
import numpy as np

from penstock.errors import PenstockError
from penstock.planning.flows import Vector
from penstock.planning.program import Layout, Program, pass_model

__all__ = ["find_floor_share"]


def find_floor_share(program: Program, most: Vector, least: Vector, least_through: Vector) -> float:
    """Return the greatest share of all floors that can be had together: 1 if they can be had in full.

    It is a linear program over x and the share: every floor, times the share, is a lower limit, and the share is maximised.

    Parameters
    ----------
    program
        The program of the network. Its last rows are the outputs with a floor.
    most, least
        By input: the x that arrives, and the x that the floor asks for.
    least_through
        By output with a floor: the throughput that the floor asks for.
    """
    count, height = program.cost.size, program.height - program.floors
    is_limit = program.rows < height
    rows, columns, values = [program.rows[is_limit]], [program.columns[is_limit]], [program.values[is_limit]]
    floored = np.flatnonzero(least > 0)
    asked = [(np.array([number]), np.array([1.0]), float(least[number])) for number in floored.tolist()]
    for number, wanted in enumerate(least_through.tolist()):
        entries = np.flatnonzero(program.rows == height + number)
        asked.append((program.columns[entries], program.values[entries], wanted))
    asked = [floor for floor in asked if floor[2] > 0]
    for number, (members, weights, wanted) in enumerate(asked, start=height):
        rows.append(np.full(members.size + 1, number))
        columns.append(np.append(members, count))
        values.append(np.append(weights / wanted, -1.0))
    worth = np.append(np.zeros(count), 1.0)
    limits = np.concatenate([most, np.full(count - most.size, highspy.kHighsInf), [1.0]])
    lower = np.concatenate([np.full(height, -highspy.kHighsInf), np.zeros(len(asked))])
    upper = np.concatenate([program.upper[:height], np.full(len(asked), highspy.kHighsInf)])
    layout = Layout.of(np.concatenate(rows), np.concatenate(columns), count + 1)
    model = pass_model(worth, limits, (lower, upper), layout, np.concatenate(values))
    model.run()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise PenstockError(f"HiGHS could not lower the floors: {model.modelStatusToString(model.getModelStatus())}")
    return float(np.clip(model.getInfo().objective_function_value, 0.0, 1.0))
