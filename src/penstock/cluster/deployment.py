"""From a node of a network to streaming queries with gates at every drop location."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.cluster.operators import add_watermark, apply_operator, arrival_column, build_frames, open_stream
from penstock.cluster.transport import Transport
from penstock.errors import PenstockError
from penstock.journal.records import OutputRecord
from penstock.network.model import Network, arc_name
from penstock.network.queries import NodeQuery, queries_of
from penstock.spark.catalyst import RowMeter, new_tag, tagged
from penstock.spark.gates import Gate, GateSpecification, build_gate
from penstock.spark.writers import batch_writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DeployedQuery", "Deployment", "check_deployable"]


class _Probe:
    """Counts the rows that pass, in the generated code."""

    def __init__(self, spark: SparkSession) -> None:
        self._meter = RowMeter(spark)
        self._condition = tagged(new_tag(), self._meter.counting(F.lit(1).cast("bigint")))

    def apply(self, df: DataFrame) -> DataFrame:
        return df.where(self._condition)

    def take(self) -> int:
        return self._meter.take()


def check_deployable(network: Network) -> None:
    """Refuse what can be planned but not run."""
    used = {operator.node for operator in network.operators.values()}
    for name, node in network.nodes.items():
        if name not in used:
            line = f"line {node.line}: " if node.line is not None else ""
            raise PenstockError(f"{line}node {name!r} runs no operator: place one there, or remove the node")
    for name, output in network.outputs.items():
        if output.source in network.inputs:
            line = f"line {output.line}: " if output.line is not None else ""
            raise PenstockError(
                f"{line}output {name!r} reads input {output.source!r} itself, which no node runs: put an operator between"
            )


@dataclass(slots=True)
class DeployedQuery:
    """One streaming query of a node: its stream, its gates, and what it does to each micro-batch."""

    plan: NodeQuery
    df: DataFrame
    part: Network
    spark: SparkSession
    entry_gates: dict[str, Gate]
    arc_gates: dict[str, Gate]
    probes: dict[str, _Probe]
    network: Network
    transport: Transport
    outputs: dict[str, Any]
    written: dict[str, OutputRecord] = field(default_factory=dict)
    """What the last batch wrote to each output."""
    expected_rows: int | None = None
    """How many rows the batch has at the entries, where that is known."""

    @property
    def gates(self) -> tuple[Gate, ...]:
        """All gates, those of the stream first."""
        return (*self.entry_gates.values(), *self.arc_gates.values())

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Run the branches of one micro-batch and write what leaves."""
        self.written.clear()
        plan = self.plan
        frames: dict[str, DataFrame] = {plan.tip: df}
        held: list[DataFrame] = []
        try:
            if len(self.part.consumers[plan.tip]) > 1:
                self._hold(plan.tip, frames, held)
            for name in plan.branches:
                operator = self.part.operators[name]
                sources = [self._pass_gate(source, name, frames) for source in operator.sources]
                frames[name] = self.probes[name].apply(apply_operator(self.network, operator, sources))
                if len(self.part.consumers[name]) > 1:
                    self._hold(name, frames, held)
            for source, target in plan.ends:
                self._write(self._pass_gate(source, target, frames), target, batch_id)
        finally:
            for frame in held:
                frame.unpersist()

    def _hold(self, name: str, frames: dict[str, DataFrame], held: list[DataFrame]) -> None:
        """What several read is computed once."""
        frames[name] = frames[name].persist()
        held.append(frames[name])

    def _pass_gate(self, source: str, target: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        gate = self.arc_gates.get(arc_name(source, target))
        return frames[source] if gate is None else gate.apply(frames[source])

    def _write(self, df: DataFrame, target: str, batch_id: int) -> None:
        if target not in self.network.outputs:
            self.transport.write(target, df, batch_id, self.expected_rows)
            return
        writer = self.outputs[target]
        table = writer(df, batch_id)
        self.written[target] = _measure_delay(table, arrival_column(self.network, df))

    def take_counts(self, entries: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int], dict[str, tuple[int, int]]]:
        """Rows into and out of each operator since the last call, and (offered, kept) at each gate behind a split.

        ``entries`` are the rows that the gates at the entries kept.
        """
        out = {**dict.fromkeys(self.plan.entries, 0), **entries}
        out |= {name: probe.take() for name, probe in self.probes.items()}
        kept = {name: gate.take_reading().kept for name, gate in self.arc_gates.items()}
        into = {
            name: sum(kept.get(arc_name(source, name), out.get(source, 0)) for source in self._sources(name))
            for name in self.plan.operators
        }
        split = {name: (out[name.partition("->")[0]], rows) for name, rows in kept.items()}
        return into, {name: out[name] for name in self.plan.operators}, split

    def _sources(self, name: str) -> tuple[str, ...]:
        """The sources of an operator, a cut by its arc's name."""
        cuts = set(self.plan.entries)
        sources = self.part.operators[name].sources
        return tuple(arc_name(source, name) if arc_name(source, name) in cuts else source for source in sources)


class Deployment:
    """The queries of one node."""

    def __init__(self, spark: SparkSession, network: Network, node: str, transport: Transport, outputs: Path) -> None:
        check_deployable(network)
        if node not in network.nodes:
            raise PenstockError(f"there is no node {node!r}; there are {', '.join(network.nodes)}")
        self.spark, self.network, self.node = spark, network, node
        self._transport = transport
        self._outputs = outputs
        self._frames = build_frames(spark, network)
        plans, self.part = queries_of(network, node)
        self.queries = tuple(self._build_query(plan) for plan in plans)

    def _build_query(self, plan: NodeQuery) -> DeployedQuery:
        base_s = time.time()
        frames: dict[str, DataFrame] = {}
        entry_gates: dict[str, Gate] = {}
        probes: dict[str, _Probe] = {}
        for entry in plan.entries:
            df = self._open(entry)
            if entry in self.part.inputs:
                entry_gates[entry], df = self._gate(df, entry, base_s)
            else:  # a cut: what comes through it was let through before
                probes[entry] = _Probe(self.spark)
                df = probes[entry].apply(df)
            frames[entry] = df
        for name in plan.stream:
            operator = self.part.operators[name]
            sources = [
                frames[arc] if (arc := arc_name(source, name)) in frames else frames[source] for source in operator.sources
            ]
            probes[name] = _Probe(self.spark)
            frames[name] = probes[name].apply(apply_operator(self.network, operator, sources))
        arc_gates = {}
        for name in (plan.tip, *plan.branches):
            if name in plan.branches:
                probes[name] = _Probe(self.spark)
            consumers = self.part.consumers[name]
            if len(consumers) > 1:
                for consumer in consumers:
                    arc = arc_name(name, consumer)
                    arc_gates[arc], _ = self._gate(self._frames[name.partition("->")[0]], arc, base_s)
        ends = [target for _, target in plan.ends if target in self.network.outputs]
        return DeployedQuery(
            plan,
            frames[plan.tip],
            self.part,
            self.spark,
            entry_gates,
            arc_gates,
            probes,
            self.network,
            self._transport,
            {target: self._sink(target) for target in ends},
        )

    def _open(self, entry: str) -> DataFrame:
        """An input is read from outside; an arc, from another node or from a query beside, through the transport."""
        source = entry.partition("->")[0]
        if source in self.network.inputs and entry in self.part.inputs:
            return open_stream(self.spark, self.network, source)
        given = self.network.work.get(entry, {}).get("max_batches")
        if given is not None and not (str(given).isdigit() and int(given) > 0):
            raise PenstockError(f"link {entry!r}: max_batches must be a positive whole number, got {given!r}")
        most = None if given is None else int(given)
        return add_watermark(self.network, self._transport.read(self.spark, entry, self._frames[source].schema, most))

    def _gate(self, df: DataFrame, name: str, base_s: float) -> tuple[Gate, DataFrame]:
        return build_gate(df, GateSpecification(name, arrival=arrival_column(self.network, df)), base_s)

    def _sink(self, name: str) -> Any:
        """Return what writes an output: Parquet beside the network's state, unless it says otherwise."""
        work = self.network.work.get(name, {})
        kind = str(work.get("format", "parquet"))
        options = dict(work.get("options", {}))
        path = str(work.get("path", self._outputs / name)) if kind not in ("console", "memory", "noop") else None
        if kind == "noop":
            return lambda df, _: df.toArrow()
        if kind == "parquet" and not options and ":" not in str(path).split("/", 1)[0]:
            return _CollectingWriter(Path(str(path)))
        try:
            return batch_writer(self.spark, kind, path=path, name=name, options=options)
        except PenstockError as error:
            raise PenstockError(f"output {name!r}: {error}") from error


class _CollectingWriter:
    """Parquet files of whole batches, through the driver: answers are few, and their delay is measured on the way."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, df: DataFrame, batch_id: int) -> pa.Table:
        import pyarrow.parquet as pq  # noqa: PLC0415 - pyarrow loads it slowly

        table = df.toArrow()
        if table.num_rows:
            self._directory.mkdir(parents=True, exist_ok=True)
            final = self._directory / f"batch_id={batch_id:09d}.parquet"
            temporary = self._directory / f".{final.name}"
            pq.write_table(table, temporary, coerce_timestamps="us")
            temporary.replace(final)
        return table


def _measure_delay(table: pa.Table | None, arrival: str | None) -> OutputRecord:
    """How late the rows of a batch are, where they still know when they came."""
    if table is None:
        return OutputRecord(None)
    if arrival is None or not table.num_rows:
        return OutputRecord(table.num_rows)
    arrived = table[arrival].cast(pa.timestamp("us")).cast(pa.int64()).drop_null().to_numpy() / 1e6
    if not arrived.size:
        return OutputRecord(table.num_rows)
    now_s = time.time()
    return OutputRecord(table.num_rows, float(now_s - arrived.mean()), float(now_s - arrived.min()))
