"""A gate over public functions: a hash of the row below the entry of its slot and class, and two observations that count."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.control.base import GateCount
from penstock.decision.events import MeterReading
from penstock.decision.gate_state import SlotGate
from penstock.drop.hashing import seed_value
from penstock.drop.tables import SCALE, SLOT_SHIFT, KeepTable, to_micros
from penstock.drop.units import WholeKeys, WholeWindows
from penstock.errors import PenstockError
from penstock.spark.columns import bigint, column_named, has_arrival
from penstock.spark.connect.table_file import TableFile
from penstock.spark.gates.class_index import class_index_of
from penstock.spark.gates.row_filter import hashed_unit, key_types
from penstock.spark.gates.specification import GateSpecification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["ConnectGate", "build_connect_gate"]


# long because it is the filter, its counts and what drivers ask of a gate
class ConnectGate:
    """One location where rows are dropped, without the JVM. It offers what drivers need of the classic ``Gate``."""

    windows = None
    """No gate here keeps whole windows."""

    def __init__(self, spark: SparkSession, specification: GateSpecification, schema: StructType, directory: str) -> None:
        specification.check(schema)
        _refuse_options(specification)
        self.spark = spark
        self.directory = directory
        self.specification = replace(specification, is_bounded=False)  # no public function knows the rank of a row
        self._unit = hashed_unit(specification, schema)
        self._may_lack_arrival = schema[self._arrival].nullable
        self._index = class_index_of(specification)
        shares = self._index.shares()
        self.state = SlotGate(specification.name, shares, unit_name=self._unit.name)
        self.state.arrival_column = specification.arrival
        unit = specification.unit
        self.key_types = key_types(schema, unit) if isinstance(unit, WholeKeys) else ()
        self._file = TableFile(f"{directory}/tables/{specification.name.encode().hex()}.json", self.state.ring.columns)
        self._file.prepare(self.state.tables()[0])
        self._base_us = to_micros(time.time())
        self._seen: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name, which decides which rows are dropped."""
        return self.specification.name

    @property
    def offered_name(self) -> str:
        """The name of the observation in front of the gate."""
        return f"penstock offered {self.name!r}"

    @property
    def kept_name(self) -> str:
        """The name of the observation behind it."""
        return f"penstock kept {self.name!r}"

    # -- the expression ------------------------------------------------------------------------------------------------

    def apply(self, df: DataFrame) -> DataFrame:
        """Put the gate on a DataFrame."""
        table, index = self._file.read(self.spark), self._index.column()
        hashed = F.xxhash64(bigint(seed_value(self._unit.seed)), *self._unit.columns(df.schema))
        offered = df.observe(self.offered_name, *self._count_offered(index))
        # A table that can't be read keeps everything.
        threshold = F.coalesce(self._threshold_of(table, index), bigint(int(SCALE)))
        kept = offered.where(F.shiftrightunsigned(hashed, 11) < threshold)
        if self.specification.weight_column is not None:
            kept = kept.withColumn(self.specification.weight_column, F.lit(SCALE) / threshold)
        return kept.observe(self.kept_name, *self._count_kept(table, index))

    def _threshold_of(self, table: Column, index: Column) -> Column:
        """Return what the hash of a row must be below: the entry of its slot and class; one without an arrival is always kept."""
        columns = self.state.ring.columns
        entry = self._age(table) if columns == 1 else self._age(table) * F.lit(columns) + index
        threshold = F.get(table.getField("thresholds"), entry)
        return F.when(has_arrival(self._arrival), threshold) if self._may_lack_arrival else threshold

    def _count_offered(self, index: Column) -> list[Column]:
        counts = [F.count(F.lit(1)).alias("rows")]
        return counts + (self._by_class(index) if self._index.counts_offered else [])

    def _count_kept(self, table: Column, index: Column) -> list[Column]:
        micros = F.unix_micros(column_named(self._arrival))
        since_base = (micros - bigint(self._base_us)).cast("double")
        # Where the table can't be read, no row is in it.
        older = F.when(F.shiftright(micros, SLOT_SHIFT) > table.getField("oldest"), F.lit(None)).otherwise(F.lit(1))
        # Few and simple: an observation takes rows out of the generated code, and each count costs some nanoseconds per row.
        counts = {"rows": F.count(F.lit(1)), "since_base_us": F.sum(since_base), "older": F.count(older)}
        if self._may_lack_arrival:
            is_timed = F.coalesce(has_arrival(self._arrival), F.lit(False))
            counts["timed"] = F.count_if(is_timed)
            counts["since_base_us"] = F.sum(F.when(is_timed, since_base))
            counts["older"] = F.count(F.when(is_timed, older))
        named = [count.alias(name) for name, count in counts.items()]
        return named + (self._by_class(index) if self._index.counts_kept else [])

    def _by_class(self, index: Column) -> list[Column]:
        return [F.count_if(index == F.lit(number)).alias(f"class{number}") for number in range(self.state.shares.count)]

    def _age(self, table: Column) -> Column:
        slot = F.shiftright(F.unix_micros(column_named(self._arrival)), SLOT_SHIFT)
        return F.least(F.greatest(slot - table.getField("oldest"), bigint(0)), table.getField("last")).cast("int")

    @property
    def _arrival(self) -> str:
        assert self.specification.arrival is not None  # noqa: S101 - checked when the gate was made
        return self.specification.arrival

    # -- what drivers need ---------------------------------------------------------------------------------------------

    def set_how(self, *, by_arrival: bool) -> None:
        """Decisions take effect by arrival here, always."""

    def publish(self, tables: Sequence[KeepTable]) -> None:
        """Put a table in force for every batch that starts from now on."""
        self._file.write(tables[0])

    def see(self, observed: Mapping[str, Mapping[str, Any]]) -> None:
        """Take what a batch's observations counted, by name."""
        offered, kept = observed.get(self.offered_name), observed.get(self.kept_name)
        self._seen = None if offered is None or kept is None else {"offered": offered, "kept": kept}

    def count(self) -> GateCount | None:
        """Return the rows offered and kept in the batch seen last; ``None`` if its report had no counts."""
        return (
            None if self._seen is None else GateCount(_number(self._seen["offered"], "rows"), _number(self._seen["kept"], "rows"))
        )

    @property
    def unread(self) -> int:
        """Rows of the batch seen last that were kept because the table could not be read."""
        kept = {} if self._seen is None else self._seen["kept"]
        older = _number(kept, "older")
        return older if older and older == _timed(kept) and not self._file.is_whole() else 0

    def take_reading(self) -> MeterReading:
        """Return what else was counted in the batch seen last."""
        if self._seen is None:
            return MeterReading()
        offered, kept = self._seen["offered"], self._seen["kept"]
        timed, since_base_us = _timed(kept), kept.get("since_base_us")
        return MeterReading(
            kept=timed,
            mean_arrival_s=(self._base_us + float(since_base_us or 0.0) / timed) / 1e6 if timed else None,
            offered_by_class=self._read_classes(offered) if self._index.counts_offered else None,
            kept_by_class=self._read_classes(kept) if self._index.counts_kept else None,
            null_arrivals=_number(kept, "rows") - timed,
            older_than_ring=_number(kept, "older") - self.unread,
        )

    def event_time(self) -> int | None:
        """Rows have no event time that matters here."""
        return None

    def _read_classes(self, counts: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(_number(counts, f"class{number}") for number in range(self.state.shares.count))


def _timed(kept: Mapping[str, Any]) -> int:
    """Rows that say when they arrived: all, unless they were counted."""
    return _number(kept, "timed" if "timed" in kept else "rows")


def _number(counts: Mapping[str, Any], name: str) -> int:
    return int(counts.get(name) or 0)


def build_connect_gate(df: DataFrame, specification: GateSpecification, directory: str | None) -> tuple[Any, DataFrame]:
    """Check the specification and return the gate, which offers what drivers need, with the gated DataFrame."""
    if directory is None:
        raise PenstockError(
            "over Spark Connect the shedder needs journal=, a directory that both this process and Spark see: "
            "tables and journals lie there"
        )
    gate = ConnectGate(df.sparkSession, specification, df.schema, directory)
    return gate, gate.apply(df)


def _refuse_options(specification: GateSpecification) -> None:
    """Say what is missing, and what can't be had over public functions."""
    name = specification.name
    if specification.arrival is None:
        raise PenstockError(f"gate {name!r} needs arrival=, the column of arrival times: over Spark Connect decisions go by it")
    missing = {
        "unit=WholeWindows(...)": isinstance(specification.unit, WholeWindows),
        "bounded=True": specification.is_bounded is True,
        "shed_to=": specification.shed_to is not None,
    }
    for option, is_asked in missing.items():
        if is_asked:
            raise PenstockError(f"gate {name!r}: {option} needs a classic Spark session, and this one is Spark Connect's")
