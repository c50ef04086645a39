"""The shedder: gates on streaming DataFrames, a control loop for each query, one report."""

from __future__ import annotations

import copy
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control import Controller, GateCount, controller_named
from penstock.drop.units import Key, Window
from penstock.duration import is_zero_duration, parse_duration
from penstock.errors import PenstockError
from penstock.journal.report import QueryLedger, Report
from penstock.spark.by_arrival import ArrivalLoop
from penstock.spark.by_batch import BatchFunction, BatchLoop
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.gate import Buckets, Gate
from penstock.spark.listener import ReportListener
from penstock.spark.loop import ControlLoop
from penstock.spark.plan_checks import check_keys, check_windows, refuse_windows
from penstock.spark.recount import recount
from penstock.spark.writers import batch_writer

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Shedder"]

log = logging.getLogger("penstock")

_LAST_WORD_S = 5.0


class Shedder:
    """Holds streaming queries at a delay target by dropping part of their input, and says what was dropped.

    Put gates on streaming DataFrames, build the job on them as usual, and start it through the shedder:

    - ``start(writer)`` for any native sink, ``watch(query)`` for a query that runs already: decisions take effect by arrival;
    - ``foreach_batch(df, function)`` and ``write(df, format, ...)``: they take effect by batch, which reacts a batch sooner.

    Both are exact: a batch that is replayed after a crash drops the same rows again. The controller decides once a batch
    how much to keep; a name (``"micro-batch"``, ``"seamless"``, ...) or an object. Each query has one of its own.
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
        self._loops: list[ControlLoop] = []
        self._listener: ReportListener | None = None
        self._made_s = time.time()

    # -- gates ---------------------------------------------------------------------------------------------------------

    def gate(
        self,
        df: DataFrame,
        *,
        name: str | None = None,
        arrival: str | None = None,
        identity: str | Sequence[str] | None = None,
        classes: str | Column | None = None,
        weights: Mapping[Any, float] | None = None,
        weight: str | None = None,
        bounded: bool = False,
        buckets: Buckets | None = None,
        unit: Key | Window | None = None,
        costs: Mapping[Any, float] | None = None,
        floor: float = 0.0,
    ) -> DataFrame:
        """Return the DataFrame with a gate behind it: one native filter that keeps what the controller says.

        ``arrival`` is the column with the time a row came in: Kafka's ``timestamp``, the replay source's ``arrival``.
        ``identity`` names the columns that tell rows apart (default: Kafka's topic, partition and offset, else all columns):
        rows that are equal there share their fate. ``classes`` is a column or an expression and ``weights`` gives each of its
        values a weight: a class of weight 10 is kept ten times as often as one of weight 1, up to all of it; ``None`` stands
        for all other values. ``weight`` adds a column with one over the row's keep probability, to scale sums back up.

        ``bounded`` is for native sinks, where the size of a batch is not known before it runs: of the rows beyond what is
        expected, by their rank in the partition, fewer and fewer are kept, so that no burst makes a batch take much longer than
        it may. It costs about 5 ns a row.

        ``costs`` says what a row of each class costs, relative to the others: of two classes of the same weight the dearer one is
        kept less. ``floor`` is the least keep of every class, as long as there is that much to share out.

        ``unit`` is what is kept or dropped as one: ``ps.key("user_id")`` keeps whole keys, the same ones at every gate, so that
        both sides of a join keep the same; ``ps.window("timestamp", "10s", "5s")`` keeps whole windows, so that every window that
        is delivered is exact (by batch only; for windows that overlap see ``whole``). By default it is the row.

        ``buckets`` is for whoever shares the keep out by a rule of its own, as ``load_aware`` does.

        The name must be the same after a restart: it decides which rows are dropped. By default it is ``gate1``, ``gate2``, ...
        """
        _check_streaming(df)
        name = f"gate{len(self._gates) + 1}" if name is None else name
        if name in self._gates:
            raise PenstockError(f"a gate named {name!r} exists already: give each gate of a shedder a name of its own")
        gate, gated = Gate.build(
            df,
            name=name,
            base_s=self._made_s,
            arrival=arrival,
            identity=[identity] if isinstance(identity, str) else identity,
            classes=classes,
            weights=weights,
            weight=weight,
            bounded=bounded,
            buckets=buckets,
            unit=unit,
            costs=costs,
            floor=floor,
        )
        self._gates[name] = gate
        return gated

    def whole(self, df: DataFrame, window: str = "window", *, gate: str | None = None) -> DataFrame:
        """Return results by window without those of windows that were dropped.

        Where windows overlap a row that is kept for one of them lies in others too, which were dropped and would show in part.
        Not needed for windows that don't overlap. ``window`` is the column that ``F.window`` made.
        """
        found = [own for own in self._gates.values() if own.windows is not None and gate in (None, own.name)]
        if len(found) != 1 or found[0].windows is None:
            which = f"named {gate!r}" if gate is not None else "of windows"
            raise PenstockError(f"this shedder has {len(found)} gates {which}: say with gate= which one is meant")
        by = found[0].windows.unit.by
        missing = [name for name in (window, *by) if name not in df.columns]
        if missing:
            raise PenstockError(f"whole(): there is no column {missing[0]!r}; the columns are {', '.join(df.columns)}")
        for name, kind in found[0].windows.by_types.items():
            if (here := df.schema[name].dataType.simpleString()) != kind:
                raise PenstockError(f"whole(): column {name!r} is {here} here and {kind} at the gate: cast it before the gate")
        return df.where(found[0].whole(F.col(f"`{window}`"), [F.col(f"`{name}`") for name in by]))

    # -- queries -------------------------------------------------------------------------------------------------------

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start a query with a native sink under control: ``shedder.start(df.writeStream.format(...).option(...))``."""
        if not isinstance(writer, DataStreamWriter):
            raise PenstockError(f"start() needs a DataStreamWriter such as df.writeStream.format('parquet'), got {writer!r}")
        df = writer._df
        _check_streaming(df)
        settings = _WriterSettings(writer)
        plan = df._jdf.queryExecution().analyzed().toString()
        gates = self._gates_in(plan, settings.name)
        refuse_windows(gates)
        loop = ArrivalLoop(gates, self._new_controller(), self.delay_target_s, self._label(settings.name))
        self._refuse_taken(loop)
        self._open(loop, settings.checkpoint, df, settings.output_mode)
        loop.warn_of(plan)
        return self._launch(loop, writer.start)

    def watch(self, query: StreamingQuery) -> StreamingQuery:
        """Take control of a query that runs already and was built on this shedder's gates.

        Rows that a restart replays before this call were judged by an open gate. To have them judged as before, use ``start``.
        """
        stream = getattr(getattr(query, "_jsq", None), "streamingQuery", None)
        if stream is None:
            raise PenstockError(f"watch() needs a running streaming query of a classic Spark session, got {query!r}")
        if not query.isActive:
            raise PenstockError(f"query {query.name or query.id!r} has ended: watch() needs a running one")
        gates = self._gates_in(stream().logicalPlan().toString(), query.name)
        refuse_windows(gates)
        loop = ArrivalLoop(gates, self._new_controller(), self.delay_target_s, self._label(query.name))
        self._refuse_taken(loop)
        root = str(stream().resolvedCheckpointRoot())
        loop.open_journal(self._journal_of(loop, root), str(query.id), fresh=False)
        return self._launch(loop, lambda: query)

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
        pace = _trigger(trigger)
        loop = BatchLoop(function, gates, self._new_controller(), self.delay_target_s, self._label(name))
        self._refuse_taken(loop)
        self._open(loop, None if checkpoint is None else str(checkpoint), df, output_mode)
        loop.warn_of(plan)
        writer = df.writeStream.foreachBatch(loop).outputMode(output_mode)
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", str(checkpoint))
        if name is not None:
            writer = writer.queryName(name)
        if pace is not None:
            loop.paced = "processingTime" in pace
            writer = writer.trigger(**pace)
        return self._launch(loop, writer.start)

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
        function = batch_writer(
            df.sparkSession,
            format,
            path=None if path is None else str(path),
            name=name,
            output_mode=output_mode,
            options=options,
        )
        return self.foreach_batch(df, function, checkpoint=checkpoint, name=name, output_mode=output_mode, trigger=trigger)

    def _launch(self, loop: ControlLoop, start: Callable[[], StreamingQuery]) -> StreamingQuery:
        """Start the query and tie it to its loop; a start that fails leaves nothing behind."""
        self._loops.append(loop)
        arrivals = [other for other in self._loops if isinstance(other, ArrivalLoop)]
        for other in arrivals:
            other.share_gates_with(arrivals)
        self._listen(loop.gates[0].spark)
        try:
            query = start()
            loop.query = query
            if isinstance(loop, ArrivalLoop):
                loop.attach(query)
        except BaseException:
            self._loops.remove(loop)
            if loop.query is not None:
                loop.query.stop()
            loop.close()
            raise
        return query

    def _open(self, loop: ControlLoop, checkpoint: str | None, df: DataFrame, output_mode: str) -> None:
        """Read the journal back before the query starts; count what a crash left uncounted."""
        if checkpoint is None:
            if self._journal is not None:
                loop.open_journal(self._journal_of(loop, ""), None, fresh=True)
            return
        place = Checkpoint(checkpoint)
        query_id = place.query_id()
        loop.open_journal(self._journal_of(loop, checkpoint), query_id, fresh=query_id is None)
        again = functools.partial(self._recount, loop, place, df, output_mode)
        if isinstance(loop, ArrivalLoop):
            loop.recount = again
        known = loop.journal.state.batches
        for batch_id in (batch_id for batch_id in place.committed() if known and batch_id > max(known)):
            counts = loop.guarded(f"count batch {batch_id} again", again, batch_id)
            if counts is not None:
                record = loop.batch_record(batch_id, counts, {}, recounted=True)
                loop.guarded("journal the counts of a batch", loop.journal.append, record)

    @staticmethod
    def _recount(loop: ControlLoop, place: Checkpoint, df: DataFrame, output_mode: str, batch_id: int) -> dict[str, GateCount]:
        decision = loop.journal.state.decision_for(batch_id)
        if isinstance(loop, BatchLoop) and decision is not None:
            loop.publish(decision)
        log.info("%s: batch %d was committed but not counted before a crash; counting it now", loop.label, batch_id)
        return recount(df, output_mode, place, batch_id, gates=loop.gates)

    def _journal_of(self, loop: ControlLoop, checkpoint: str) -> str:
        """One journal a query: in its checkpoint, or below the place the user named."""
        return f"{checkpoint}/penstock" if self._journal is None else f"{self._journal}/{loop.label}"

    def _new_controller(self) -> Controller:
        return copy.deepcopy(self._controller)

    def _label(self, name: str | None) -> str:
        label = name or f"query{len(self._loops) + 1}"
        if any(loop.label == label and loop.query is not None and loop.query.isActive for loop in self._loops):
            raise PenstockError(f"a query named {label!r} runs under this shedder already: give each a name of its own")
        return label

    def _gates_in(self, plan: str, query: str | None) -> list[Gate]:
        gates = [gate for gate in self._gates.values() if f"-{gate.kept_tag})" in plan]
        if not gates:
            made = ", ".join(self._gates) or "none yet"
            what = f"query {query!r}" if query else "the query"
            raise PenstockError(
                f"{what} reads no gate of this shedder (gates: {made}): build it on the DataFrame that gate() returned"
            )
        check_keys(gates)
        return gates

    def _refuse_taken(self, loop: ControlLoop) -> None:
        """A gate that is set by batch serves one query; set by arrival it may serve several."""
        for other in self._loops:
            if other.query is None or not other.query.isActive:
                continue
            for gate in loop.gates:
                if gate in other.gates and (isinstance(loop, BatchLoop) or isinstance(other, BatchLoop)):
                    raise PenstockError(
                        f"gate {gate.name!r} serves query {other.label!r} already, and a gate that is set by batch serves "
                        f"one: call gate() again for query {loop.label!r}"
                    )

    def _listen(self, spark: SparkSession) -> None:
        if self._listener is None:
            self._listener = ReportListener(self._on_report, self._on_end, self._has_native)
            spark.streams.addListener(self._listener)

    def _has_native(self) -> bool:
        return any(isinstance(loop, ArrivalLoop) for loop in self._loops)

    def _on_report(self, run_id: str, text: str) -> None:
        for loop in self._of_run(run_id):
            if isinstance(loop, ArrivalLoop):
                loop.report(text)

    def _on_end(self, run_id: str) -> None:
        """Close the journal of a query that has ended, whoever ended it."""
        for loop in self._of_run(run_id):
            loop.ended.set()
            _finish(loop)

    def _of_run(self, run_id: str) -> list[ControlLoop]:
        return [loop for loop in self._loops if loop.query is not None and str(loop.query.runId) == run_id]

    # -- report and end ------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Return the ledger of all queries: print it, or take ``report().table``, an Arrow table."""
        opened = [loop for loop in self._loops if loop.has_journal]
        return Report(
            [
                QueryLedger(
                    loop.label,
                    loop.how,
                    self.delay_target_s,
                    loop.journal.state.copy(),
                    {gate.name: gate.class_names for gate in loop.gates if gate.sharing is None},
                    {gate.name: gate.unit_name for gate in loop.gates},
                )
                for loop in opened
            ]
        )

    def stop(self) -> None:
        """Stop all queries, each after the batch it is in, and close their journals."""
        for loop in self._loops:
            if isinstance(loop, BatchLoop):
                loop.stop()
            elif loop.query is not None:
                loop.query.stop()
        for loop in self._loops:
            if loop.query is not None:
                loop.ended.wait(_LAST_WORD_S)  # its last reports are still on their way
            _finish(loop)
        if self._listener is not None and self._gates:
            try:
                next(iter(self._gates.values())).spark.streams.removeListener(self._listener)
            except Exception:  # the session may be gone, and its listeners with it
                log.debug("the listener could not be removed", exc_info=True)
            self._listener = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def _trigger(trigger: str | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The arguments of Spark's trigger; it wants its intervals spelt out."""
    if not isinstance(trigger, str):
        return None if trigger is None else dict(trigger)
    if is_zero_duration(trigger):
        return {"processingTime": "0 seconds"}
    return {"processingTime": f"{max(1, round(1e3 * parse_duration(trigger, 'trigger')))} milliseconds"}


def _finish(loop: ControlLoop) -> None:
    if isinstance(loop, ArrivalLoop):
        loop.finish()
    else:
        loop.close()


class _WriterSettings:
    """What a writer was told; Spark has no public way to ask."""

    def __init__(self, writer: DataStreamWriter) -> None:
        options = _private(writer._jwrite, "extraOptions")
        self.name = _option(options, "queryName")
        self.checkpoint = _option(options, "checkpointLocation") or self._session_checkpoint(writer)
        self.output_mode = str(_private(writer._jwrite, "outputMode").toString()).lower()

    def _session_checkpoint(self, writer: DataStreamWriter) -> str | None:
        root = writer._spark.conf.get("spark.sql.streaming.checkpointLocation", None)
        return f"{root}/{self.name}" if root and self.name else None


def _private(java: Any, name: str) -> Any:
    field = java.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(java)


def _option(options: Any, name: str) -> str | None:
    found = options.get(name)
    return str(found.get()) if found.isDefined() else None


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
