"""What to shed? Costs of tuples from sketches, as in LAS, and shedders that drop by them.

A shedder (`Las`, `CostAware`, and the baselines `BaseLine`, `StrawMan`, `FullKnowledge`) decides tuple by tuple in front of an
operator, which learns what tuples cost and tells the shedder.

References
----------
Rivetti, Anceaume, Busnel, Querzoni and Sericola, *Load-Aware Shedding in Stream Processing Systems* (LAS), 2016.
"""

from __future__ import annotations

from penstock.las.baselines import BaseLine, FullKnowledge, StrawMan
from penstock.las.constraint import ABS, AVG, Constraint, Sliding
from penstock.las.cost_aware import CostAware, DecayingOperator
from penstock.las.countmin import CostSketch, CountMin, UniversalHash
from penstock.las.las import Las
from penstock.las.operator_sketches import Matrices, Operator, Sync
from penstock.las.tuple_shedder import TupleShedder

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
