"""The filter by arrival: the entry of the slot in which a row arrived, from a table in a file that Spark reads by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.decision.events import MeterReading
from penstock.drop.tables import SLOT_SHIFT
from penstock.spark.columns import bigint, has_arrival
from penstock.spark.connect.public_filter import Counts, PublicFilter, number_in
from penstock.spark.connect.table_file import TableFile
from penstock.spark.gates.specification import GateSpecification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["SlotFilter"]


class SlotFilter(PublicFilter):
    """Looks up the slot and the class of a row; one that does not say when it arrived is always kept."""

    def __init__(
        self, specification: GateSpecification, schema: StructType, classes: int, base_us: int, table_file: TableFile
    ) -> None:
        super().__init__(specification, schema, classes, base_us)
        self._file = table_file

    def _read_table(self, spark: SparkSession) -> Column:
        return self._file.read(spark)

    def _threshold_of(self, table: Column, index: Column) -> Column:
        slot = F.shiftright(self.micros(), SLOT_SHIFT)
        age = F.least(F.greatest(slot - table.getField("oldest"), bigint(0)), table.getField("last")).cast("int")
        threshold = F.get(table.getField("thresholds"), self._entry(age, index))
        return F.when(has_arrival(self.arrival), threshold) if self.may_lack_arrival else threshold

    def _count_offered(self, table: Column) -> Mapping[str, Column]:  # noqa: ARG002 - by batch it matters
        return {}

    def _count_kept(self, table: Column) -> Mapping[str, Column]:
        # Where the table can't be read, no row is in it.
        older = F.when(F.shiftright(self.micros(), SLOT_SHIFT) > table.getField("oldest"), F.lit(None)).otherwise(F.lit(1))
        # Few and simple: an observation takes rows out of the generated code, and each count costs some nanoseconds per row.
        if not self.may_lack_arrival:
            return {"since_base_us": F.sum(self.since_base()), "older": F.count(older)}
        is_timed = self.has_arrival()
        return {
            "timed": F.count_if(is_timed),
            "since_base_us": F.sum(F.when(is_timed, self.since_base())),
            "older": F.count(F.when(is_timed, older)),
        }

    def count_unread(self, kept: Counts) -> int:
        """Return the rows of a batch that were kept because the table could not be read."""
        older = number_in(kept, "older")
        return older if older and older == _timed(kept) and not self._file.is_whole() else 0

    def read_counts(self, offered: Counts, kept: Counts) -> MeterReading:
        """Return what was counted in a batch."""
        timed = _timed(kept)
        reading = MeterReading(
            kept=timed,
            mean_arrival_s=self.mean_s(kept.get("since_base_us"), timed),
            null_arrivals=number_in(kept, "rows") - timed,
            older_than_ring=number_in(kept, "older") - self.count_unread(kept),
        )
        return self.add_classes(reading, offered, kept)


def _timed(kept: Counts) -> int:
    """Rows that say when they arrived: all, unless they were counted."""
    return number_in(kept, "timed" if "timed" in kept else "rows")
