"""The shedder: gates on streaming DataFrames, a driver for each query, one report."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control import Controller, controller_named
from penstock.decision import ByArrival, ByBatch
from penstock.drop.priorities import Priorities
from penstock.drop.units import WholeKeys, WholeWindows
from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.journal import QueryLedger, Report
from penstock.spark.arrival_driver import ArrivalDriver, check_arrival_columns
from penstock.spark.batch_driver import BatchDriver, BatchFunction
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.columns import column_named
from penstock.spark.driver_registry import DriverRegistry
from penstock.spark.gates import Gate, GateSpecification, build_gate
from penstock.spark.plan_checks import check_keys, check_windows, find_risks, refuse_windows
from penstock.spark.query_driver import QueryDriver
from penstock.spark.recount import recount
from penstock.spark.writer_settings import WriterSettings, trigger_arguments
from penstock.spark.writers import build_writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.decision import SlotGate

__all__ = ["Shedder"]


class Shedder:
    """Holds streaming queries at a delay target by dropping part of their input, and says what was dropped.

    Put gates on streaming DataFrames, build the job on them as usual, and start it through the shedder:

    - ``start(writer)`` for any native sink, ``attach(query)`` for a query that runs already: decisions take effect by arrival;
    - ``foreach_batch(df, function)`` and ``write(df, format, ...)``: they take effect by batch, which reacts one batch sooner.

    Both are exact: a batch that is replayed after a crash drops the same rows again.

    Parameters
    ----------
    delay_target
        The delay to hold: a text such as ``"2s"``, seconds, or a timedelta.
    controller
        Decides once per batch how much to keep: a name (``"micro-batch"``, ``"seamless"``, ``"ctrl"``, ``"aurora"``,
        ``"keep-all"``) or an object. Each query gets a copy.
    journal
        A directory for the journals, one per query. By default each lies in the query's checkpoint.

    Examples
    --------
    A job that reads Kafka and holds a delay of two seconds::

        shedder = Shedder("2s")
        packets = shedder.gate(kafka_stream, arrival="timestamp")
        with shedder:
            query = shedder.write(packets, "parquet", "/data/packets", checkpoint="/data/checkpoint")
            query.awaitTermination()

    """

    def __init__(
        self,
        delay_target: str | float | timedelta,
        controller: str | Controller = "micro-batch",
        journal: str | Path | None = None,
    ) -> None:
        self.delay_target_s = parse_duration(delay_target, "delay_target")
        if isinstance(controller, str):
            controller = controller_named(controller, self.delay_target_s)
        elif not isinstance(controller, Controller):
            raise PenstockError(f"controller must be a name or a Controller, got {controller!r}")
        self._controller = controller
        self._journal = None if journal is None else str(journal)
        self._gates: dict[str, Gate] = {}
        self._registry = DriverRegistry()
        self._created_s = time.time()

    # -- gates ---------------------------------------------------------------------------------------------------------

    def gate(
        self,
        df: DataFrame,
        *,
        name: str | None = None,
        arrival: str | None = None,
        identity: str | Sequence[str] | None = None,
        priorities: Priorities | None = None,
        unit: WholeKeys | WholeWindows | None = None,
        weight_column: str | None = None,
        bounded: bool = False,
    ) -> DataFrame:
        """Return the DataFrame with a gate behind it: one native filter that keeps what the controller says.

        Parameters
        ----------
        df
            A streaming DataFrame.
        name
            Decides which rows are dropped, so it must be the same after a restart. By default ``gate1``, ``gate2``, ...
        arrival
            The column with the time at which a row came in: Kafka's ``timestamp``, the replay source's ``arrival``.
        identity
            The columns that tell rows apart (default: Kafka's topic, partition and offset, else all columns). Rows that are
            equal there share their fate.
        priorities
            Which rows to keep rather than others.
        unit
            What is kept or dropped as one, by default the row. ``WholeKeys("user_id")`` keeps whole keys, the same ones at
            every gate, so both sides of a join keep the same. ``WholeWindows("timestamp", "10s", "5s")`` keeps whole windows,
            so every window that is delivered is exact (by batch only; for windows that overlap see ``whole``).
        weight_column
            Adds a column of this name with one over the row's keep probability, which scales counts and sums back up.
        bounded
            For native sinks, where the size of a batch is not known before it runs: of the rows beyond what is expected, by
            their rank in the partition, fewer and fewer are kept, so that no burst makes a batch take much longer than it may.
            Costs about 5 ns per row.

        Returns
        -------
        DataFrame
            The same columns, and the weight column.

        """
        _check_streaming(df)
        specification = GateSpecification(
            name=f"gate{len(self._gates) + 1}" if name is None else name,
            arrival=arrival,
            identity=(identity,) if isinstance(identity, str) else None if identity is None else tuple(identity),
            priorities=priorities,
            weight_column=weight_column,
            is_bounded=bounded,
            unit=unit,
        )
        return self.add_gate(df, specification)

    def add_gate(self, df: DataFrame, specification: GateSpecification) -> DataFrame:
        """Put a gate with all its internal options on a DataFrame, as ``load_aware`` does; users call ``gate``."""
        if specification.name in self._gates:
            raise PenstockError(
                f"a gate named {specification.name!r} exists already: give each gate of a shedder a name of its own"
            )
        gate, gated = build_gate(df, specification, self._created_s)
        self._gates[gate.name] = gate
        return gated

    def whole(self, df: DataFrame, window: str = "window", *, gate: str | None = None) -> DataFrame:
        """Return results by window without those of windows that were dropped.

        Where windows overlap, a row that is kept for one of them lies in others too, which were dropped and would show in part.
        Not needed for windows that don't overlap.

        Parameters
        ----------
        df
            The result of an aggregation by window.
        window
            The column that ``F.window`` made.
        gate
            The name of the gate, where there are several that keep whole windows.

        """
        gates = [one for one in self._gates.values() if one.windows is not None and gate in (None, one.name)]
        if len(gates) != 1 or gates[0].windows is None:
            which = f"named {gate!r}" if gate is not None else "of windows"
            raise PenstockError(f"this shedder has {len(gates)} gates {which}: say with gate= which one is meant")
        types = gates[0].windows.group_types
        missing = [name for name in (window, *types) if name not in df.columns]
        if missing:
            raise PenstockError(f"whole(): there is no column {missing[0]!r}; the columns are {', '.join(df.columns)}")
        for name, kind in types.items():
            if (here := df.schema[name].dataType.simpleString()) != kind:
                raise PenstockError(f"whole(): column {name!r} is {here} here and {kind} at the gate: cast it before the gate")
        return df.where(gates[0].is_whole(column_named(window), [column_named(name) for name in types]))

    # -- queries -------------------------------------------------------------------------------------------------------

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start a query with a native sink under control: ``shedder.start(df.writeStream.format(...).option(...))``."""
        if not isinstance(writer, DataStreamWriter):
            raise PenstockError(f"start() needs a DataStreamWriter such as df.writeStream.format('parquet'), got {writer!r}")
        df = writer._df
        _check_streaming(df)
        settings = WriterSettings(writer)
        plan = df._jdf.queryExecution().analyzed().toString()
        driver = self._arrival_driver(plan, settings.name)
        with self._registry.enlist(driver):
            self._open(driver, settings.checkpoint, df, settings.output_mode)
            return self._launch(driver, plan, writer.start)

    def attach(self, query: StreamingQuery) -> StreamingQuery:
        """Take control of a query that runs already and was built on this shedder's gates.

        Rows that a restart replays before this call were judged by an open gate. To have them judged as before, use ``start``.
        """
        stream = getattr(getattr(query, "_jsq", None), "streamingQuery", None)
        if stream is None:
            raise PenstockError(f"attach() needs a running streaming query of a classic Spark session, got {query!r}")
        if not query.isActive:
            raise PenstockError(f"query {query.name or query.id!r} has ended: attach() needs a running one")
        plan = stream().analyzedPlan().toString()  # its logical plan is the query thread's to make
        driver = self._arrival_driver(plan, query.name)
        journal = self._journal_of(driver, str(stream().resolvedCheckpointRoot()))
        with self._registry.enlist(driver):
            driver.open_journal(journal, str(query.id), is_new=False)
            return self._launch(driver, plan, lambda: query)

    def _arrival_driver(self, plan: str, name: str | None) -> ArrivalDriver:
        gates = self._gates_in(plan, name)
        refuse_windows(gates)
        check_arrival_columns(gates)
        states: list[SlotGate] = [gate.state for gate in gates]  # type: ignore[misc] # no windows among them
        core = ByArrival(states, copy.deepcopy(self._controller), self._registry.label(name))
        driver = ArrivalDriver(gates, core, self._registry.by_label)
        self._registry.refuse_taken_gates(driver)
        return driver

    def foreach_batch(
        self,
        df: DataFrame,
        function: BatchFunction,
        *,
        checkpoint: str | Path | None = None,
        name: str | None = None,
        output_mode: str = "append",
        trigger: str | Mapping[str, Any] | None = None,
    ) -> StreamingQuery:
        """Start a query that calls ``function(batch_df, batch_id)`` for every batch, with the table set by batch.

        ``trigger`` is a processing time such as ``"1s"``, or the arguments of ``DataStreamWriter.trigger``.
        """
        _check_streaming(df)
        if not callable(function):
            raise PenstockError(f"foreach_batch() needs a function of (DataFrame, batch id), got {function!r}")
        plan = df._jdf.queryExecution().analyzed().toString()
        gates = self._gates_in(plan, name)
        check_windows(plan, gates)
        pace = trigger_arguments(trigger)
        core = ByBatch([gate.state for gate in gates], copy.deepcopy(self._controller), self._registry.label(name))
        is_paced = pace is not None and "processingTime" in pace
        driver = BatchDriver(gates[0].spark, function, gates, core, is_paced=is_paced)
        writer = df.writeStream.foreachBatch(driver).outputMode(output_mode)
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", str(checkpoint))
        if name is not None:
            writer = writer.queryName(name)
        if pace is not None:
            writer = writer.trigger(**pace)
        self._registry.refuse_taken_gates(driver)
        with self._registry.enlist(driver):
            self._open(driver, None if checkpoint is None else str(checkpoint), df, output_mode)
            return self._launch(driver, plan, writer.start)

    def write(
        self,
        df: DataFrame,
        format: str,  # noqa: A002 - Spark's own word
        path: str | Path | None = None,
        *,
        checkpoint: str | Path | None = None,
        name: str | None = None,
        output_mode: str = "append",
        trigger: str | Mapping[str, Any] | None = None,
        **options: object,
    ) -> StreamingQuery:
        """Start a query that writes Parquet, JSON or CSV files, a memory table or the console, with the table set by batch.

        Files are written to ``path/batch_id=N``, and a batch that is replayed replaces its own. Further options go to the format.
        """
        function = build_writer(
            df.sparkSession,
            format,
            path=None if path is None else str(path),
            name=name,
            output_mode=output_mode,
            options=options,
        )
        return self.foreach_batch(df, function, checkpoint=checkpoint, name=name, output_mode=output_mode, trigger=trigger)

    def _gates_in(self, plan: str, query: str | None) -> list[Gate]:
        gates = [gate for gate in self._gates.values() if f"-{gate.kept_tag})" in plan]
        if not gates:
            known = ", ".join(self._gates) or "none yet"
            what = f"query {query!r}" if query else "the query"
            raise PenstockError(
                f"{what} reads no gate of this shedder (gates: {known}): build it on the DataFrame that gate() returned"
            )
        check_keys(gates)
        return gates

    def _open(self, driver: QueryDriver, checkpoint: str | None, df: DataFrame, output_mode: str) -> None:
        """Read the journal back before the query starts; count what a crash left uncounted."""
        if checkpoint is None:
            if self._journal is not None:
                driver.open_journal(self._journal_of(driver, ""), None, is_new=True)
            return
        known = Checkpoint(checkpoint)
        query_id = known.query_id()
        driver.open_journal(self._journal_of(driver, checkpoint), query_id, is_new=query_id is None)
        driver.recount = partial(recount, df, output_mode, known, gates=list(driver.gates.values()))
        counted = driver.journal.state.batches
        driver.count_again([batch_id for batch_id in known.list_committed() if counted and batch_id > max(counted)])

    def _journal_of(self, driver: QueryDriver, checkpoint: str) -> str:
        """One journal per query: in its checkpoint, or below the directory that the user named."""
        return f"{checkpoint}/penstock" if self._journal is None else f"{self._journal}/{driver.label}"

    def _launch(self, driver: QueryDriver, plan: str, start: Any) -> StreamingQuery:
        for risk in find_risks(plan, list(driver.gates.values())):
            driver.warn(f"{driver.label}: {risk}")
        return self._registry.launch(driver, next(iter(driver.gates.values())).spark, start)

    # -- report and end ------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Return the ledger of all queries: print it, or take ``report().table``, an Arrow table."""
        return Report(
            [
                QueryLedger(
                    driver.label,
                    driver.core.how,
                    self.delay_target_s,
                    driver.journal.state.copy(),
                    {name: gate.state.class_names for name, gate in driver.gates.items() if gate.state.class_names},
                    {name: gate.state.unit_name for name, gate in driver.gates.items()},
                )
                for driver in self._registry.drivers
                if driver.has_journal
            ]
        )

    def stop(self) -> None:
        """Stop all queries, each after the batch it is in, and close their journals."""
        self._registry.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def _check_streaming(df: Any) -> None:
    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise PenstockError("Spark Connect is not supported yet: use a classic session (SparkSession.builder.master(...))")
    if not isinstance(df, DataFrame):
        raise PenstockError(f"a streaming DataFrame is needed, got {type(df).__name__}")
    context = df.sparkSession._sc
    if context._jsc is None or context._jsc.sc().isStopped():
        raise PenstockError("the SparkSession of this DataFrame has been stopped: make a new one and read the stream again")
    if not df.isStreaming:
        raise PenstockError("a streaming DataFrame is needed, got one that is not: read it with spark.readStream")
