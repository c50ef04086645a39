"""Gates on Spark: one native filter for every kind of drop, ``u(row) < table[index(row)]``.

``specification`` says what a user asked for and checks it. ``row_filter`` and ``window_filter`` are the expressions, and
``clock_filter`` decides row by row as LAS does. ``class_index`` says which entry of the table a row reads, ``meters`` count, and
``gate`` puts them together.
``one_way`` leaves out of a query's plan what its way of deciding does not need. ``whole_windows`` removes results that whole
windows leave in part.
"""

from __future__ import annotations

from penstock.spark.gates.gate import Gate, build_gate
from penstock.spark.gates.one_way import settle_way
from penstock.spark.gates.specification import GateSpecification
from penstock.spark.gates.whole_windows import keep_whole_windows

__all__ = ["Gate", "GateSpecification", "build_gate", "keep_whole_windows", "settle_way"]
