"""A gate over public functions: what drivers need of it, with a filter for each way in which a query may be driven."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from penstock.control.base import GateCount
from penstock.decision.events import MeterReading
from penstock.decision.gate_state import SlotGate
from penstock.drop.tables import KeepTable, to_micros
from penstock.drop.units import WholeKeys, WholeWindows
from penstock.errors import PenstockError
from penstock.journal.records import DecisionRecord
from penstock.journal.state import JournalState
from penstock.spark.connect.batch_table_filter import BatchTableFilter
from penstock.spark.connect.detection import is_connect
from penstock.spark.connect.public_filter import Counts, number_in
from penstock.spark.connect.slot_filter import SlotFilter
from penstock.spark.connect.table_file import TableFile
from penstock.spark.connect.unwritten import find_unwritten
from penstock.spark.gates.class_index import class_index_of
from penstock.spark.gates.row_filter import hashed_unit, key_types
from penstock.spark.gates.specification import GateSpecification
from penstock.spark.versions import find_internals, minor_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["ConnectGate", "build_connect_gate"]

_OLDEST = (4, 0)
"""Before it, Spark Connect had no scalar subqueries for DataFrames, which is how a gate reads its table."""


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
        self.state = SlotGate(
            specification.name, class_index_of(specification).shares(), unit_name=hashed_unit(specification, schema).name
        )
        self.state.arrival_column = specification.arrival
        unit = specification.unit
        self.key_types = key_types(schema, unit) if isinstance(unit, WholeKeys) else ()
        self._file = TableFile(f"{directory}/tables/{specification.name.encode().hex()}.json", self.state.ring.columns)
        self._file.prepare(self.state.tables()[0])
        self._given = (self.specification, schema, self.state.shares.count, to_micros(time.time()))
        self._by_arrival = SlotFilter(*self._given, self._file)
        self._by_batch: BatchTableFilter | None = None
        self._filter: SlotFilter | BatchTableFilter = self._by_arrival
        self._choose: Any = lambda _: None
        self._seen: tuple[Counts, Counts] | None = None

    @property
    def name(self) -> str:
        """The name, which decides which rows are dropped."""
        return self.specification.name

    @property
    def kept_name(self) -> str:
        """The name of the observation behind it."""
        return self._filter.kept_name

    def apply(self, df: DataFrame) -> DataFrame:
        """Put the gate on a DataFrame; over Spark Connect, ``set_how`` may exchange the filter until the query starts."""
        if not is_connect(df):
            return self._filter.apply(df)
        from penstock.spark.connect.plan_choice import PlanChoice  # noqa: PLC0415 - needs the packages of Spark Connect

        choice = PlanChoice(self._filter.apply(df))
        self._choose = lambda chosen: choice.choose(chosen.apply(df))
        return choice.to_df(df)

    def read_batches_from(self, place: Path) -> None:
        """Say in which file Spark's Python workers read where the tables of a query's batches are, before it starts by batch."""
        self._by_batch = BatchTableFilter(*self._given, str(place))

    def set_how(self, *, by_arrival: bool) -> None:
        """Say how decisions take effect here, before a query starts."""
        chosen = self._by_arrival if by_arrival else self._by_batch
        assert chosen is not None  # noqa: S101 - the driver by batch has said where it reads
        if chosen is not self._filter:
            self._choose(chosen)
            self._filter = chosen

    # -- what drivers need ---------------------------------------------------------------------------------------------

    def publish(self, tables: Sequence[KeepTable]) -> None:
        """Put a table of slots in force for every batch that starts from now on."""
        self._file.write(tables[0])

    def find_unwritten(self, state: JournalState) -> Sequence[DecisionRecord]:
        """Return what takes back the decisions of a journal that never held here: their client died before it wrote the table."""
        return find_unwritten(state, self.name, self.state.ring, self._file.reached)

    def hold_table(self) -> AbstractContextManager[None]:
        """Keep the table of slots for this process, while a query reads it."""
        return self._file.hold(self.name)

    def see(self, observed: Mapping[str, Mapping[str, Any]]) -> None:
        """Take what a batch's observations counted, by name."""
        offered, kept = observed.get(self._filter.offered_name), observed.get(self._filter.kept_name)
        self._seen = None if offered is None or kept is None else (offered, kept)

    def count(self) -> GateCount | None:
        """Return the rows offered and kept in the batch seen last; ``None`` if its report had no counts."""
        if self._seen is None:
            return None
        offered, kept = self._seen
        return GateCount(number_in(offered, "rows"), number_in(kept, "rows"))

    @property
    def unread(self) -> int:
        """Rows of the batch seen last that were kept because the table could not be read."""
        return 0 if self._seen is None else self._filter.count_unread(self._seen[1])

    def take_reading(self) -> MeterReading:
        """Return what else was counted in the batch seen last."""
        return MeterReading() if self._seen is None else self._filter.read_counts(*self._seen)

    def event_time(self) -> int | None:
        """Rows have no event time that matters here."""
        return None


def build_connect_gate(df: DataFrame, specification: GateSpecification, directory: str | None) -> tuple[Any, DataFrame]:
    """Check the specification and return the gate, which offers what drivers need, with the gated DataFrame."""
    if directory is None:
        raise PenstockError(
            "over Spark Connect the shedder needs journal=, a directory that both this process and Spark see: "
            "tables and journals lie there"
        )
    _check_server(df.sparkSession)
    gate = ConnectGate(df.sparkSession, specification, df.schema, directory)
    return gate, gate.apply(df)


def _check_server(spark: SparkSession) -> None:
    """Warn of a server of a version that was never tested, and refuse one that is too old."""
    version = spark.version  # the server's, which may be another one than the client's
    if minor_version(version) < _OLDEST:
        raise PenstockError(
            f"gates over Spark Connect need a server of Spark {'.'.join(map(str, _OLDEST))} or later, "
            f"and this one is {version}: use a classic Spark session"
        )
    find_internals(version)


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
