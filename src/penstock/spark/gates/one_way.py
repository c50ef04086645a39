"""The plan of a query with only one way in its gates: by batch, or by arrival.

A gate is built before it is known how its query will be driven, and has expressions for both ways. Spark would analyse them all
and remove half of them again in every micro-batch. Here that is done once, when a query starts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from penstock.spark.catalyst import has_switch
from penstock.spark.versions import internals_of

if TYPE_CHECKING:
    from penstock.spark.gates.gate import Gate

__all__ = ["settle_way"]

log = logging.getLogger("penstock")

_RULES = ("ConstantFolding", "SimplifyConditionals", "BooleanSimplification")
_FIELDS = 10_000
"""Enough for all columns of a node: a line of a plan is cut where it has more."""
_ROUNDS = 2
"""What the last rule leaves may be something for the first again."""


def settle_way(df: DataFrame, gates: Sequence[Gate], *, by_arrival: bool = False) -> DataFrame:
    """Return the DataFrame of a query without what its gates would need the other way.

    Only the nodes of gates change, by rules of Spark's own optimiser. It stays as it is where a gate has yet to change its way:
    by batch, it still reads slots while a batch of a run by arrival is open. And where the classes of a gate are an expression
    of the user's, in which the rules would evaluate what must be evaluated in every batch, such as the time.
    """
    if any(gate.reads_slots != by_arrival or not gate.specification.has_plain_classes for gate in gates):
        return df
    java, jvm = df._jdf, df.sparkSession._jvm
    plan = java.queryExecution().analyzed()
    try:
        settled = _settle(jvm, plan)
        return DataFrame(internals_of(df.sparkSession).dataset(jvm, java.sparkSession(), settled), df.sparkSession)
    except Exception:  # nothing is lost: Spark does the same in every batch
        log.debug("gates keep the expressions for both ways", exc_info=True)
        return df


def _settle(jvm: Any, node: Any) -> Any:
    """Return a node with all below it settled; the same one where no gate is there."""
    seq = node.children()
    children = [seq.apply(position) for position in range(seq.size())]
    settled = [_settle(jvm, child) for child in children]
    if has_switch(node.simpleString(_FIELDS)):
        # The rules go through all that is below a node, and the user's part of the plan is none of their business.
        nothing = [jvm.org.apache.spark.sql.catalyst.plans.logical.OneRowRelation() for _ in children]
        node = node.withNewChildren(jvm.PythonUtils.toSeq(nothing))
        for rule in _RULES * _ROUNDS:
            node = getattr(jvm.org.apache.spark.sql.catalyst.optimizer, rule).apply(node)
    elif all(new is old for new, old in zip(settled, children, strict=True)):
        return node
    return node.withNewChildren(jvm.PythonUtils.toSeq(settled))
