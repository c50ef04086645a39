"""The filter by batch: a keep for rows that arrived before a moment and one for all others, from the table of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.decision.events import MeterReading
from penstock.spark.connect.batch_lookup import TABLE_SCHEMA, make_lookup
from penstock.spark.connect.public_filter import Counts, PublicFilter, number_in
from penstock.spark.gates.specification import GateSpecification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["BatchTableFilter"]


class BatchTableFilter(PublicFilter):
    """Looks up the age and the class of a row, in units that the table names: microseconds, or slots in one that is set by slots.

    The table comes from a Python function in the subquery, which waits until the client has decided about the batch
    (``batch_lookup``).
    """

    def __init__(self, specification: GateSpecification, schema: StructType, classes: int, base_us: int, place: str) -> None:
        super().__init__(specification, schema, classes, base_us)
        self._name, self._place = specification.name, place

    def _read_table(self, spark: SparkSession) -> Column:
        look_up = F.udf(make_lookup(self._place, self._name), TABLE_SCHEMA, useArrow=False)
        return spark.range(0, 1, numPartitions=1).select(look_up("id")).scalar()  # one task, however large the cluster

    def _threshold_of(self, table: Column, index: Column) -> Column:
        oldest, newest = table.getField("oldest"), table.getField("newest")
        unit = F.call_function("shiftright", self.micros(), table.getField("shift"))
        age = F.least(F.greatest(unit, oldest), newest) - oldest
        if self.may_lack_arrival:  # such rows have an entry of their own
            age = F.when(self.has_arrival(), age).otherwise(newest - oldest + F.lit(1))
        return F.get(table.getField("thresholds"), self._entry(age.cast("int"), index))

    def _is_older(self, table: Column) -> Column:
        is_older = self.micros() < table.getField("line")
        return self.has_arrival() & is_older if self.may_lack_arrival else is_older

    def _count_older(self, table: Column) -> dict[str, Column]:
        is_older = self._is_older(table)
        return {"older": F.count_if(is_older), "older_since_base_us": F.sum(F.when(is_older, self.since_base()))}

    def _count_offered(self, table: Column) -> Mapping[str, Column]:
        return self._count_older(table)

    def _count_kept(self, table: Column) -> Mapping[str, Column]:
        since_base = self.since_base()
        counts = {
            "since_base_us": F.sum(F.when(self.has_arrival(), since_base) if self.may_lack_arrival else since_base),
            "future": F.count_if(self.micros() > table.getField("latest")),
            "unread": F.count_if(table.getField("line").isNull()),
            **self._count_older(table),
        }
        return {**counts, "missing": F.count_if(~self.has_arrival())} if self.may_lack_arrival else counts

    def count_unread(self, kept: Counts) -> int:
        """Return the rows of a batch that were kept because there was no table."""
        return number_in(kept, "unread")

    def read_counts(self, offered: Counts, kept: Counts) -> MeterReading:
        """Return what was counted in a batch."""
        missing = number_in(kept, "missing")
        timed = number_in(kept, "rows") - missing
        expired = number_in(offered, "older") - number_in(kept, "older")
        expired_us = float(offered.get("older_since_base_us") or 0.0) - float(kept.get("older_since_base_us") or 0.0)
        reading = MeterReading(
            kept=timed,
            mean_arrival_s=self.mean_s(kept.get("since_base_us"), timed),
            null_arrivals=missing,
            expired=expired,
            mean_expired_arrival_s=self.mean_s(expired_us, expired),
            from_future=number_in(kept, "future"),
        )
        return self.add_classes(reading, offered, kept)
