"""What to shed: the cost of a tuple learnt by sketches (paper 004), and dropping the dear ones."""

from __future__ import annotations

from penstock.las.constraint import ABS, AVG, Constraint, Sliding
from penstock.las.cost_aware import CostAware, DecayingOperator
from penstock.las.countmin import CostSketch, CountMin, UniversalHash
from penstock.las.operator_sketches import Matrices, Operator, Sync
from penstock.las.shedder import BaseLine, FullKnowledge, Las, StrawMan, TupleShedder

__all__ = [
    "ABS",
    "AVG",
    "BaseLine",
    "Constraint",
    "CostAware",
    "CostSketch",
    "CountMin",
    "DecayingOperator",
    "FullKnowledge",
    "Las",
    "Matrices",
    "Operator",
    "Sliding",
    "StrawMan",
    "Sync",
    "TupleShedder",
    "UniversalHash",
]
