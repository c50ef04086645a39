"""The shedder: gates on streaming DataFrames, a driver for each query, one report."""
# long because it is all that users call, and half of it says how

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control import Controller, build_controller
from penstock.decision import LossCeiling
from penstock.decision.backfill import Backfill
from penstock.decision.handover import ContinuedByBatch
from penstock.drop.priorities import Priorities
from penstock.drop.units import WholeKeys, WholeWindows
from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.journal import Report
from penstock.metrics import build_exporters
from penstock.spark.accumulator_metrics import AccumulatorExporter
from penstock.spark.arrival_driver import ArrivalDriver, build_arrival_driver
from penstock.spark.batch_driver import BatchDriver, BatchFunction
from penstock.spark.connect.connect_gate import build_connect_gate
from penstock.spark.connect.detection import is_connect, refuse_connect
from penstock.spark.connect.pipelines import PipelineFollower, call_outside_pipeline, core_of_flow, is_in_pipeline
from penstock.spark.connect.start import is_connect_backfill, start_over_connect
from penstock.spark.dead_letters.letter_writer import add_letters
from penstock.spark.dead_letters.targets import parse_target
from penstock.spark.driver_registry import DriverRegistry
from penstock.spark.gates import Gate, GateSpecification, build_gate, keep_whole_windows, settle_way
from penstock.spark.journal_opening import find_journal, open_journal
from penstock.spark.lazy_start import start_lazily
from penstock.spark.native_sinks import Way, choose_way, open_sink
from penstock.spark.plan_checks import check_streaming, check_windows, find_gates, find_risks
from penstock.spark.query_driver import QueryDriver
from penstock.spark.sinks.counted_writer import CountedWriter
from penstock.spark.writer_settings import WriterSettings, check_trigger, is_backfill, parse_backfill, trigger_arguments
from penstock.spark.writers import TABLE_FORMATS, build_writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Shedder"]


class Shedder:
    """Holds streaming queries at a delay target by dropping part of their input, and says what was dropped.

    Put gates on streaming DataFrames, build the job on them as usual, and start it through the shedder:

    - ``start(writer)`` for any sink of Spark's, ``foreach_batch(df, function)`` for a function of yours, ``write(df, format)``
      for a directory per batch: decisions take effect by batch, whose size is known before it runs;
    - ``start(writer, by="arrival")``, and ``attach(query)`` for a query that runs already: they take effect by arrival.

    Both ways are exact: a batch that is replayed after a crash drops the same rows again.

    Parameters
    ----------
    delay_target
        The delay to hold: a text such as ``"2s"``, seconds, or a timedelta.
    controller
        Decides once per batch how much to keep: a name (``"micro-batch"``, ``"seamless"``, ``"ctrl"``, ``"aurora"``,
        ``"keep-all"``) or an object. Each query gets a copy.
    prefer
        What to keep in an overload: ``"even"``, a sample that is even over time, as estimates need it, or ``"fresh"``, the newest
        rows, of which more fit at the same worst delay.
    expired
        What to do in an overload with rows that can't meet the target any more, after a downtime for example: ``"shed"`` them
        first, or ``"keep"`` as many as of all others, to catch up.
    floor
        The least share of older rows to keep, so that estimates remain unbiased if fresh rows are preferred or expired ones shed.
    max_loss
        The largest share of the rows that may be shed over a minute, whatever becomes of the delay.
    first_cost
        The time per row, such as ``"50us"``, if it is known before the first batch: otherwise only few rows are kept at first.
    backfill
        What to do with runs that end by themselves (``availableNow``, ``once``): ``"keep"`` all rows, or ``"shed"`` as always.
    journal
        A directory for the journals, one per query. By default each lies in the query's checkpoint.
    metrics
        Where numbers go: a port such as ``9464`` for Prometheus to scrape, ``"prometheus"`` for prometheus_client's registry,
        ``"opentelemetry"``, ``"spark"`` for Spark's metrics system, a registry or meter provider of yours, or a list of these.

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
        *,
        prefer: Literal["even", "fresh"] = "even",
        expired: Literal["shed", "keep"] = "shed",
        floor: float = 0.0,
        max_loss: float = 1.0,
        first_cost: str | float | timedelta | None = None,
        backfill: Literal["keep", "shed"] = "keep",
        metrics: Any = None,
    ) -> None:
        self._delay_target_s = parse_duration(delay_target, "delay_target")
        options = {
            "prefer": (prefer, "even"),
            "expired": (expired, "shed"),
            "floor": (floor, 0.0),
            "first_cost_s": (None if first_cost is None else parse_duration(first_cost, "first_cost"), None),
        }
        given = {option: value for option, (value, default) in options.items() if value != default}
        self._controller = build_controller(controller, self._delay_target_s, **given)
        self._max_loss = LossCeiling(max_loss).max_loss
        self._keeps_backfills = parse_backfill(backfill)
        self._journal = None if journal is None else str(journal)
        self._gates: dict[str, Gate] = {}
        self._has_spark_metrics = "spark" in (metrics if isinstance(metrics, list | tuple) else [metrics])
        self._registry = DriverRegistry(build_exporters(metrics, {"spark": AccumulatorExporter}))
        make_core = partial(core_of_flow, self._controller, self._max_loss, keeps_all=self._keeps_backfills)
        self._pipeline = PipelineFollower(self._gates, self._registry, make_core)
        self._created_s = time.time()

    @property
    def delay_target(self) -> float:
        """The delay to hold, in seconds. Set it while the job runs, to a text such as ``"5s"`` too: the next decision holds it.

        The journal says with each batch which target was in force. After a restart, the one given to the constructor holds again.
        """
        return self._delay_target_s

    @delay_target.setter
    def delay_target(self, delay_target: str | float | timedelta) -> None:
        self._delay_target_s = parse_duration(delay_target, "delay_target")
        self._controller.change_target(self._delay_target_s)
        for driver in self._registry.drivers:
            driver.core.change_target(self._delay_target_s)

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
        bounded: bool | None = None,
        shed_to: str | Path | Mapping[str, object] | None = None,
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
            For queries set by arrival, where the size of a batch is not known before it runs: of the rows beyond what is
            expected, by their rank in the partition, fewer and fewer are kept, so that no burst makes a batch take much longer
            than it may. There it costs about 3 ns per row, and is the default for gates of rows that say when they arrived.
        shed_to
            Where shed rows go, by batch only: a directory (Parquet), ``{"format": "kafka", "topic": ..., "servers": ...}``, or
            ``"offsets"`` for rows that stay in Kafka, to be found again by ``penstock shed-offsets``.

        Returns
        -------
        DataFrame
            The same columns, and the weight column.

        """
        call_outside_pipeline(partial(check_streaming, df), name)
        specification = GateSpecification(
            name=f"gate{len(self._gates) + 1}" if name is None else name,
            arrival=arrival,
            identity=(identity,) if isinstance(identity, str) else None if identity is None else tuple(identity),
            priorities=priorities,
            weight_column=weight_column,
            is_bounded=bounded,
            unit=unit,
            shed_to=None if shed_to is None else parse_target(shed_to),
        )
        return self.add_gate(df, specification)

    def add_gate(self, df: DataFrame, specification: GateSpecification) -> DataFrame:
        """Put a gate with all its internal options on a DataFrame, as ``load_aware`` does; users call ``gate``."""
        if specification.name in self._gates:
            raise PenstockError(
                f"a gate named {specification.name!r} exists already: give each gate of a shedder a name of its own"
            )
        if is_connect(df):
            if self._has_spark_metrics:
                refuse_connect(df, "metrics='spark'", "take 'prometheus' or 'opentelemetry', which need no JVM")
            gate, gated = call_outside_pipeline(partial(build_connect_gate, df, specification, self._journal), specification.name)
            self._gates[specification.name] = gate
            if is_in_pipeline():
                call_outside_pipeline(partial(self._pipeline.follow, gate), specification.name)
        else:
            self._gates[specification.name], gated = build_gate(df, specification, self._created_s)
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
        return keep_whole_windows(df, list(self._gates.values()), window, gate)

    # -- queries -------------------------------------------------------------------------------------------------------

    def start(self, writer: DataStreamWriter, by: Way | None = None, *, table: str | None = None) -> StreamingQuery:
        """Start a query with any sink of Spark's under control: ``shedder.start(df.writeStream.format(...).option(...))``.

        The sink keeps its semantics: files are committed once, in Spark's own log; a memory table has the query's name.

        Parameters
        ----------
        writer
            What to start. Its options, name, output mode, partitioning and trigger hold.
        by
            How decisions take effect. ``"batch"``: before each batch, whose size is known; Spark's sink is called from
            ``foreachBatch``, so that is what Spark's progress calls it. ``"arrival"``: for rows that arrive later, in a query
            that runs by itself; for gates that several queries read. By default by batch wherever that is possible in a
            classic session, and by arrival over Spark Connect, where ``"batch"`` needs directories that Spark sees too.
        table
            A table of the catalog to write to, as ``writer.toTable(table)`` does, which starts the query at once; by arrival.

        Raises
        ------
        PenstockError
            If the query reads no gate, can't run the way that is asked for, or has a ``continuous`` or ``realTime`` trigger.

        """
        if is_connect(writer):
            controller, loss = self._controller_for(writer), self._max_loss
            return start_over_connect(writer, by, self._gates, self._registry, controller=controller, max_loss=loss, table=table)
        if not isinstance(writer, DataStreamWriter):
            raise PenstockError(f"start() needs a DataStreamWriter such as df.writeStream.format('parquet'), got {writer!r}")
        check_streaming(writer._df)
        settings = WriterSettings(writer)
        plan = writer._df._jdf.queryExecution().analyzed().toString()
        gates = find_gates(plan, self._gates, settings.name)
        if by is None and self._registry.are_shared(gates):
            by = "arrival"
        sink = open_sink(writer, settings, gates, choose_way(by, table))
        if sink is not None:
            query = self._start_by_batch(writer._df, settings, sink)
            sink.register()
            return query
        driver = self._arrival_driver(plan, settings.name, settings.trigger)
        with self._registry.enlist(driver):
            whole = settings.logs_all_batches
            open_journal(driver, self._journal, settings.checkpoint, writer._df, settings.output_mode, logs_all_batches=whole)
            writer = settings.move(settle_way(writer._df, gates, by_arrival=True))
            return self._launch(driver, plan, writer.start if table is None else partial(writer.toTable, table))

    def attach(self, query: StreamingQuery) -> StreamingQuery:
        """Take control of a query that runs already and was built on this shedder's gates.

        Rows that a restart replays before this call were judged by an open gate. To have them judged as before, use ``start``.
        """
        refuse_connect(query, "attach()", "start the query with start(writer)")
        stream = getattr(getattr(query, "_jsq", None), "streamingQuery", None)
        if stream is None:
            raise PenstockError(f"attach() needs a running streaming query, got {query!r}")
        if not query.isActive:
            raise PenstockError(f"query {query.name or query.id!r} has ended: attach() needs a running one")
        check_trigger(stream().trigger())
        plan = stream().analyzedPlan().toString()  # its logical plan is the query thread's to make
        driver = self._arrival_driver(plan, query.name, stream().trigger())
        journal = find_journal(driver, self._journal, str(stream().resolvedCheckpointRoot()))
        with self._registry.enlist(driver):
            driver.open_journal(journal, str(query.id), is_new=False)
            return self._launch(driver, plan, lambda: query)

    def _arrival_driver(self, plan: str, name: str | None, trigger: Any) -> ArrivalDriver:
        gates, controller = find_gates(plan, self._gates, name), self._controller_for(trigger)
        driver = build_arrival_driver(gates, controller, self._registry.label(name), self._max_loss, self._registry.by_label)
        self._registry.refuse_taken_gates(driver)
        return driver

    def _controller_for(self, trigger: Any) -> Controller:
        controller = copy.deepcopy(self._controller)
        ends = is_connect_backfill(trigger) if is_connect(trigger) else is_backfill(trigger)
        return Backfill(controller) if self._keeps_backfills and ends else controller

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

        Over Spark Connect the table is set by arrival, as in ``start``, and the function runs at the server.

        ``trigger`` is a processing time such as ``"1s"``, or the arguments of ``DataStreamWriter.trigger``.
        """
        check_streaming(df)
        if not callable(function):
            raise PenstockError(f"foreach_batch() needs a function of (DataFrame, batch id), got {function!r}")
        writer = df.writeStream.outputMode(output_mode)
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", str(checkpoint))
        if name is not None:
            writer = writer.queryName(name)
        if (pace := trigger_arguments(trigger)) is not None:
            writer = writer.trigger(**pace)
        if is_connect(df):
            return self.start(writer.foreachBatch(function))
        return self._start_by_batch(df, WriterSettings(writer), function)

    def _start_by_batch(self, df: DataFrame, settings: WriterSettings, function: BatchFunction) -> StreamingQuery:
        plan = df._jdf.queryExecution().analyzed().toString()
        gates = find_gates(plan, self._gates, settings.name)
        check_windows(plan, gates)
        core = ContinuedByBatch(
            [gate.state for gate in gates],
            self._controller_for(settings.trigger),
            self._registry.label(settings.name),
            max_loss=self._max_loss,
            slot_gates=[gate.state for gate in gates if gate.has_slots],  # type: ignore[misc] # those have slots
        )
        driver = BatchDriver(gates[0].spark, add_letters(function, gates), gates, core, is_paced=settings.is_paced)
        self._registry.refuse_taken_gates(driver)
        with self._registry.enlist(driver):
            open_journal(driver, self._journal, settings.checkpoint, df, settings.output_mode)
            driver.carry_out(core.get_ready())
            writer = settings.new_writer(settle_way(df, gates))
            return self._launch(driver, plan, lambda: start_lazily(writer.foreachBatch(driver)), getattr(function, "note", None))

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
        """Start a query that writes to files, tables or topics, each batch once as far as the target allows; set by batch.

        - ``"parquet"``, ``"json"``, ``"csv"``: a directory ``path/batch_id=N`` per batch, which a replay replaces.
        - ``"delta"``: a ``path`` or ``table=``; Delta itself leaves out a batch that it has.
        - ``"iceberg"``: ``table=``, where a batch that is among the snapshots is left out.
        - ``"jdbc"``: ``url=``, ``table=``, perhaps ``key=``; a batch and its number are one transaction.
        - ``"kafka"``: ``topic=``, ``servers=``; at least once, with the batch's number in the headers.
        - ``"memory"`` and ``"console"``, to look at.

        Further options go to the format.
        """
        check_streaming(df)
        refuse_connect(df, "write()", "use start(df.writeStream.format(...))")
        function = build_writer(
            df.sparkSession,
            format,
            schema=df.schema,
            path=None if path is None else str(path),
            name=name,
            output_mode=output_mode,
            options=options,
        )
        if format in TABLE_FORMATS:
            gates = find_gates(df._jdf.queryExecution().analyzed().toString(), self._gates, name)
            function = CountedWriter(gates, function)
        return self.foreach_batch(df, function, checkpoint=checkpoint, name=name, output_mode=output_mode, trigger=trigger)

    def _launch(self, driver: QueryDriver, plan: str, start: Any, note: str | None = None) -> StreamingQuery:
        for risk in [*find_risks(plan, list(driver.gates.values())), *([note] if note else [])]:
            driver.warn(f"{driver.label}: {risk}")
        return self._registry.launch(driver, next(iter(driver.gates.values())).spark, start)

    def report(self) -> Report:
        """Return the ledger of all queries: print it, or take ``report().table``, an Arrow table."""
        return Report([driver.ledger(self._delay_target_s) for driver in self._registry.drivers if driver.has_journal])

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def stop(self) -> None:
        """Stop all queries, each after the batch it is in, and close their journals."""
        self._registry.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
