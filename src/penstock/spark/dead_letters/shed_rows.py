"""The rows that a batch sheds: the complement of a gate's filter, over the same rows of the same batch.

Spark has planned the batch already, with the rows that its sources give it. The part of that plan in front of the gate is run
once more, with the opposite condition. Sources read the same rows again, since they must be able to replay a batch anyway; what
the table keeps is the same too, because it changes only between batches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from penstock.errors import PenstockError
from penstock.spark.versions import internals_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.gates import Gate
    from penstock.spark.running_query import RunningQuery

__all__ = ["check_replayable", "find_offered", "list_leaves", "read_offered", "to_batch", "walk"]

_CHECK = "spark.sql.streaming.unsupportedOperationCheck"
_MEMORY = re.compile("Aggregate|Deduplicate|Distinct|Join|Limit|Offset|Sample|State|SessionWindow")
"""Nodes whose result depends on more than the rows of the batch, or on their order."""
_CHANCE = re.compile(r"\b(rand|randn|random|uuid|shuffle)\(")


def check_replayable(df: DataFrame, gate: str) -> None:
    """Refuse what can't be run once more within a batch: state, joins, chance."""
    plan = df._jdf.queryExecution().analyzed()
    for node in walk(plan):
        name = str(node.nodeName())
        if _MEMORY.search(name):
            raise PenstockError(
                f"gate {gate!r}: shed_to needs a gate in front of {name}, which a batch can't run twice: move it there"
            )
    match = _CHANCE.search(str(plan.toString()))
    if match is not None:
        raise PenstockError(
            f"gate {gate!r}: shed_to needs the same rows twice, and {match.group(1)}() in front of it gives others"
        )


def find_offered(running: RunningQuery, gate: Gate) -> Any:
    """Return the part of the running batch's plan in front of a gate; ``None`` if the batch does not have it."""
    for node in walk(running.analyzed_plan()):
        if node.nodeName() == "Filter" and f"-{gate.offered_tag})" in node.condition().toString():
            return node.child()
    return None


def read_offered(session: SparkSession, plan: Any) -> DataFrame:
    """Return the rows of a part of a plan; to Spark it is a stream still, see ``to_batch``."""
    jvm: Any = session._jvm
    return DataFrame(internals_of(session).dataset(jvm, session._jsparkSession, plan), session)


def to_batch(df: DataFrame) -> DataFrame:
    """Return rows that can be written, as Spark does for ``foreachBatch``."""
    session = df.sparkSession
    before = str(session.conf.get(_CHECK, "true"))
    session.conf.set(_CHECK, "false")  # else Spark refuses to plan a stream outside of a query
    try:
        rows = df._jdf.queryExecution().toRdd()
    finally:
        session.conf.set(_CHECK, before)
    return DataFrame(internals_of(session).internal_dataset(session._jsparkSession, rows, df._jdf.schema()), session)


def walk(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a logical plan."""
    yield plan
    children = plan.children()
    for position in range(children.size()):
        yield from walk(children.apply(position))


def list_leaves(plan: Any) -> list[Any]:
    """Return the nodes of a logical plan that read sources."""
    return [node for node in walk(plan) if not node.children().size()]
