"""Turns a node of a network into streaming queries, with a gate at every drop location."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.cluster.gate_units import build_unit, check_key_types, check_memory, link_windows
from penstock.cluster.operators import add_watermark, apply_operator, build_frames, find_arrival_column, open_stream
from penstock.cluster.transport import Transport
from penstock.errors import PenstockError
from penstock.journal.records import OutputRecord
from penstock.network.drops import GateUnit, derive_drops
from penstock.network.model import Network, arc_name
from penstock.network.queries import NodeQuery, queries_of
from penstock.spark.catalyst import RowMeter, new_tag, tag_condition
from penstock.spark.columns import bigint
from penstock.spark.gates import Gate, GateSpecification, build_gate
from penstock.spark.versions import internals_of
from penstock.spark.writers import build_writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DeployedQuery", "Deployment", "check_deployable"]


class _Probe:
    """Counts the rows that pass, inside the generated code."""

    def __init__(self, spark: SparkSession) -> None:
        self._meter = RowMeter(spark)
        self._condition = tag_condition(new_tag(), self._meter.add(bigint(1)))

    def apply(self, df: DataFrame) -> DataFrame:
        return df.where(self._condition)

    def take(self) -> int:
        return self._meter.take()


def check_deployable(network: Network) -> None:
    """Refuse a network that can be planned but not run.

    Raises
    ------
    PenstockError
        If a node runs no operator, an output reads an input directly, or what an operator asks to be dropped can't be.
    """
    derive_drops(network)
    used = {operator.node for operator in network.operators.values()}
    for name, node in network.nodes.items():
        if name not in used:
            line = f"line {node.line}: " if node.line is not None else ""
            raise PenstockError(f"{line}node {name!r} runs no operator: place one there, or remove the node")
    for name, output in network.outputs.items():
        if output.source in network.inputs:
            line = f"line {output.line}: " if output.line is not None else ""
            raise PenstockError(
                f"{line}output {name!r} reads input {output.source!r} directly, so no node runs it: put an operator between"
            )


@dataclass(slots=True)
class DeployedQuery:
    """One streaming query of a node: its stream, its gates, and what it does with each micro-batch."""

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
    units: dict[str, GateUnit]
    """What each gate keeps or drops as a whole; rows where it is missing."""
    output_records: dict[str, OutputRecord] = field(default_factory=dict)
    """What the last batch wrote to each output."""
    expected_rows: int | None = None
    """How many rows the batch has at the entries; ``None`` if that is not known."""

    @property
    def gates(self) -> tuple[Gate, ...]:
        """All gates, those of the stream first."""
        return (*self.entry_gates.values(), *self.arc_gates.values())

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Run the branches of one micro-batch and write what leaves the query."""
        self.output_records.clear()
        plan = self.plan
        frames: dict[str, DataFrame] = {plan.tip: df}
        persisted: list[DataFrame] = []
        try:
            if len(self.part.consumers[plan.tip]) > 1:
                self._persist(plan.tip, frames, persisted)
            for name in plan.branches:
                operator = self.part.operators[name]
                sources = [self._pass_gate(source, name, frames) for source in operator.sources]
                frames[name] = self.probes[name].apply(apply_operator(self.network, operator, sources))
                if len(self.part.consumers[name]) > 1:
                    self._persist(name, frames, persisted)
            for source, target in plan.ends:
                self._write(self._pass_gate(source, target, frames), target, batch_id)
        finally:
            for frame in persisted:
                frame.unpersist()

    def _persist(self, name: str, frames: dict[str, DataFrame], persisted: list[DataFrame]) -> None:
        """Compute once what several operators read."""
        frames[name] = frames[name].persist()
        persisted.append(frames[name])

    def _pass_gate(self, source: str, target: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        gate = self.arc_gates.get(arc_name(source, target))
        return frames[source] if gate is None else gate.apply(frames[source])

    def _write(self, df: DataFrame, target: str, batch_id: int) -> None:
        if target not in self.network.outputs:
            self.transport.write(target, df, batch_id, self.expected_rows)
            return
        writer = self.outputs[target]
        table = writer(df, batch_id)
        self.output_records[target] = _measure_delay(table, find_arrival_column(self.network, df))

    def take_counts(self, entries: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int], dict[str, tuple[int, int]]]:
        """Return the rows into and out of each operator since the last call, and (offered, kept) of each gate behind a split.

        ``entries`` says how many rows each gate at an entry kept.
        """
        out = {**dict.fromkeys(self.plan.entries, 0), **entries}
        out |= {name: probe.take() for name, probe in self.probes.items()}
        kept = {name: gate.take_reading().kept for name, gate in self.arc_gates.items()}
        into = {
            name: sum(kept.get(arc_name(source, name), out.get(source, 0)) for source in self._name_sources(name))
            for name in self.plan.operators
        }
        split = {name: (out[name.partition("->")[0]], rows) for name, rows in kept.items()}
        return into, {name: out[name] for name in self.plan.operators}, split

    def _name_sources(self, name: str) -> tuple[str, ...]:
        """Return the sources of an operator; one that is read through the transport goes by the name of its arc."""
        cuts = set(self.plan.entries)
        sources = self.part.operators[name].sources
        return tuple(arc_name(source, name) if arc_name(source, name) in cuts else source for source in sources)


class Deployment:
    """The queries of one node, built and ready to start.

    Parameters
    ----------
    spark
        The session of the node.
    network
        The whole network.
    node
        The name of the node.
    transport
        Carries rows from and to other queries.
    outputs
        The directory below which outputs are written that name no path.

    Raises
    ------
    PenstockError
        If the network can't be run, the node is unknown, or an operator does not fit.
    """

    def __init__(self, spark: SparkSession, network: Network, node: str, transport: Transport, outputs: Path) -> None:
        check_deployable(network)
        if node not in network.nodes:
            raise PenstockError(f"there is no node {node!r}; there are {', '.join(network.nodes)}")
        self.spark, self.network, self.node = spark, network, node
        self._transport = transport
        self._outputs = outputs
        self._frames = build_frames(spark, network)
        drops = derive_drops(network)
        self.notes = drops.notes
        """Which answers may be partial when rows are dropped."""
        self._units = drops.at(node)
        check_key_types(drops, self._frames)
        check_memory(network, self._units)
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
                entry_gates[entry], df = self._build_gate(df, entry, base_s)
            else:  # rows of another query on this node, which its gate has let pass already
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
                    arc_gates[arc], _ = self._build_gate(self._frames[name.partition("->")[0]], arc, base_s)
        gates = (*entry_gates.values(), *arc_gates.values())
        units = {gate.name: self._units[gate.name] for gate in gates if gate.name in self._units}
        link_windows(gates, units)
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
            {target: self._build_sink(target) for target in ends},
            units,
        )

    def _open(self, entry: str) -> DataFrame:
        """Open an input from outside, or an arc from another query through the transport."""
        source = entry.partition("->")[0]
        if source in self.network.inputs and entry in self.part.inputs:
            return open_stream(self.spark, self.network, source)
        max_batches, max_rows = (self._read_limit(entry, name) for name in ("max_batches", "max_rows"))
        stream = self._transport.read(self.spark, entry, self._frames[source].schema, max_batches, max_rows)
        return add_watermark(self.network, stream)

    def _read_limit(self, arc: str, name: str) -> int | None:
        given = self.network.work.get(arc, {}).get(name)
        if given is not None and not (str(given).isdigit() and int(given) > 0):
            raise PenstockError(f"link {arc!r}: {name} must be a positive whole number, got {given!r}")
        return None if given is None else int(given)

    def _build_gate(self, df: DataFrame, name: str, base_s: float) -> tuple[Gate, DataFrame]:
        unit = self._units.get(name, GateUnit())
        # An arc behind a split may have a gate at both ends: the second must not drop the very rows that the first has dropped.
        seed_name = unit.group or (
            name if name not in self.part.inputs or name in self.network.inputs else f"{name} on {self.node}"
        )
        specification = GateSpecification(
            name, arrival=find_arrival_column(self.network, df), unit=build_unit(unit, df.columns), seed_name=seed_name
        )
        try:
            return build_gate(df, specification, base_s)
        except PenstockError as error:
            if unit.kind == "rows":
                raise
            raise PenstockError(f"{error}; 'drop: rows' at the operators behind it drops rows instead of {unit.kind}") from error

    def _build_sink(self, name: str) -> Any:
        """Return what writes an output: by default Parquet below the run directory."""
        work = self.network.work.get(name, {})
        kind = str(work.get("format", "parquet"))
        options = dict(work.get("options", {}))
        path = str(work.get("path", self._outputs / name)) if kind not in ("console", "memory", "noop") else None
        if kind == "noop":
            return lambda df, _: internals_of(df.sparkSession).to_arrow(df)
        if kind == "parquet" and not options and ":" not in str(path).split("/", 1)[0]:
            return _CollectingWriter(Path(str(path)))
        try:
            return build_writer(self.spark, kind, path=path, name=name, options=options)
        except PenstockError as error:
            raise PenstockError(f"output {name!r}: {error}") from error


class _CollectingWriter:
    """Writes one Parquet file per batch, through the driver: answers are few, and their delay is measured on the way."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, df: DataFrame, batch_id: int) -> pa.Table:
        import pyarrow.parquet as pq  # noqa: PLC0415 - pyarrow loads it slowly

        table = internals_of(df.sparkSession).to_arrow(df)
        if table.num_rows:
            self._directory.mkdir(parents=True, exist_ok=True)
            final = self._directory / f"batch_id={batch_id:09d}.parquet"
            temporary = self._directory / f".{final.name}"
            pq.write_table(table, temporary, coerce_timestamps="us")
            temporary.replace(final)
        return table


def _measure_delay(table: pa.Table | None, arrival: str | None) -> OutputRecord:
    """Return how many rows a batch wrote and how late they are, if they still have the time they arrived."""
    if table is None:
        return OutputRecord(None)
    if arrival is None or not table.num_rows:
        return OutputRecord(table.num_rows)
    arrivals_s = table[arrival].cast(pa.timestamp("us")).cast(pa.int64()).drop_null().to_numpy() / 1e6
    if not arrivals_s.size:
        return OutputRecord(table.num_rows)
    now_s = time.time()
    return OutputRecord(table.num_rows, float(now_s - arrivals_s.mean()), float(now_s - arrivals_s.min()))
