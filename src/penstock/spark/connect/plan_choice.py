"""A part of a plan of Spark Connect that may still be exchanged, until the query is started.

A gate is put on a DataFrame before it is known how its query will be driven. Over Connect a DataFrame is a description that the
client sends when a query starts, so the gate's part of it can be chosen then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.connect import proto
from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame
from pyspark.sql.connect.plan import LogicalPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.client import SparkConnectClient

__all__ = ["PlanChoice"]


class PlanChoice(LogicalPlan):
    """Stands for one of several DataFrames with the same columns.

    Parameters
    ----------
    default
        What it stands for at first.
    """

    def __init__(self, default: DataFrame) -> None:
        super().__init__(_plan_of(default))
        self._chosen = _plan_of(default)

    def choose(self, df: DataFrame) -> None:
        """Stand for another DataFrame from now on."""
        self._chosen = _plan_of(df)

    def plan(self, session: SparkConnectClient) -> proto.Relation:
        """Return the plan of what it stands for, under a number that stays the same: columns refer to it."""
        relation = proto.Relation()
        relation.CopyFrom(self._chosen.plan(session))
        relation.common.plan_id = self._plan_id
        return relation

    def to_df(self, like: DataFrame) -> DataFrame:
        """Return it as a DataFrame of the same session as another one."""
        chosen: DataFrame = ConnectDataFrame(self, like.sparkSession)  # type: ignore[arg-type] # Connect's own session
        return chosen


def _plan_of(df: DataFrame) -> LogicalPlan:
    connect: Any = df  # a DataFrame of Connect has its plan
    plan: LogicalPlan = connect._plan
    return plan
