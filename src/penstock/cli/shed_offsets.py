"""``penstock shed-offsets``: which rows of Kafka a gate has shed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import typer

from penstock.errors import PenstockError

__all__ = ["shed_offsets"]


def shed_offsets(  # noqa: PLR0917 - options of a command
    checkpoint: str = typer.Argument(..., metavar="CHECKPOINT", help="The checkpoint of a query with shed_to='offsets'."),
    servers: str | None = typer.Option(None, "--servers", help="A broker: reads the rows, which batches shed by age need."),
    gate: str | None = typer.Option(None, "--gate", help="Only this gate."),
    batch: int | None = typer.Option(None, "--batch", help="Only this batch."),
    skip_missing: bool = typer.Option(False, "--skip-missing", help="With a broker: leave out rows that it has removed already."),
    count: bool = typer.Option(False, "--count", help="Print how many there are, by gate."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON, a line per row, and nothing else."),
) -> None:
    """List the rows of Kafka that were shed: gate, batch, topic, partition, offset and, if rows are read, the reason."""
    from penstock.shed.shed_log import ShedLog  # noqa: PLC0415 - commands load what they need

    records = list(ShedLog(checkpoint).read())
    gates = sorted({record.gate for record in records})
    if gate is not None and gate not in gates:
        raise PenstockError(f"{checkpoint}: gate {gate!r} has shed nothing there; those that have: {', '.join(gates) or 'none'}")
    counts: Counter[str] = Counter()
    if not count and not as_json:
        typer.echo("gate,batch,topic,partition,offset,reason")
    for name, number, *row in _list_rows(checkpoint, servers, gate, batch, skips_missing=skip_missing):
        counts[str(name)] += 1
        if not count:
            fields = ("gate", "batch", "topic", "partition", "offset", "reason")
            values = (name, number, *row)
            typer.echo(json.dumps(dict(zip(fields, values, strict=True))) if as_json else ",".join(map(str, values)))
    if count:
        typer.echo(
            json.dumps(counts) if as_json else "\n".join(f"{name}: {rows:,} rows" for name, rows in sorted(counts.items()))
        )


def _list_rows(
    checkpoint: str, servers: str | None, gate: str | None, batch: int | None, *, skips_missing: bool
) -> Iterator[tuple[str, int, str, int, int, str]]:
    from penstock.shed.coordinates import find_shed_offsets  # noqa: PLC0415
    from penstock.shed.letters import REASON, Letter, OffsetLetters  # noqa: PLC0415
    from penstock.shed.shed_log import ShedLog  # noqa: PLC0415

    letters = None if servers is None else OffsetLetters(checkpoint, servers, skips_missing=skips_missing)
    for record in ShedLog(checkpoint).read():
        if gate not in (None, record.gate) or batch not in (None, record.batch):
            continue
        if letters is not None:
            rows = letters.read(Letter(checkpoint, record.gate, record.batch))
            columns = (rows[name].to_pylist() for name in ("topic", "partition", "offset", REASON))
            for row in zip(*columns, strict=True):
                yield (record.gate, record.batch, *row)
            continue
        if record.has_ages:
            raise PenstockError(
                f"batch {record.batch} was shed by age, too: name a broker with --servers, to read the timestamps"
            )
        for part, offsets in find_shed_offsets(record):
            for offset in offsets.tolist():
                yield record.gate, record.batch, part.topic, part.partition, offset, ""
