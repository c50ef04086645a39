"""What tells one batch of one query from all others, for a sink that is to take it once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchIdentity"]


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """A batch as a sink sees it."""

    query: str
    """Spark's id of the query: the same after a restart from the checkpoint."""
    run: str
    """Spark's id of this run: another after every start."""
    number: int

    @classmethod
    def read(cls, df: DataFrame, batch_id: int) -> BatchIdentity:
        """Return the identity of the batch that is running in this thread."""
        context = df.sparkSession.sparkContext
        query, run = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "spark.jobGroup.id"))
        return cls(str(query), str(run), batch_id)
