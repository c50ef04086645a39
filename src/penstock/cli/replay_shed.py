"""``penstock replay-shed``: send rows again that were shed."""

from __future__ import annotations

import json

import typer

from penstock.errors import PenstockError

__all__ = ["replay_shed"]


def replay_shed(  # noqa: PLR0917 - options of a command
    source: str = typer.Argument(..., metavar="FROM", help="What shed_to names: a directory, kafka:TOPIC, or a checkpoint."),
    target: str = typer.Argument(..., metavar="TO", help="A directory for Parquet files, or kafka:TOPIC."),
    servers: str | None = typer.Option(None, "--servers", help="A broker, such as host:9092."),
    gate: str | None = typer.Option(None, "--gate", help="Only what this gate shed."),
    skip_missing: bool = typer.Option(False, "--skip-missing", help="Leave out rows that Kafka has removed already."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON and nothing else."),
) -> None:
    """Send rows again that were shed, each batch once: a batch that was sent before is left out."""
    from penstock.shed.letters import open_letters  # noqa: PLC0415 - commands load what they need
    from penstock.shed.resending import open_target  # noqa: PLC0415

    letters = open_letters(source, servers, skips_missing=skip_missing)
    sink = open_target(target, servers, source)
    result = {"batches": 0, "rows": 0, "sent_before": 0}
    there = letters.list_letters()
    gates = sorted({letter.gate for letter in there})
    if gate is not None and gate not in gates:
        raise PenstockError(f"{source}: gate {gate!r} has shed nothing there; those that have: {', '.join(gates) or 'none'}")
    for letter in there:
        if gate not in (None, letter.gate):
            continue
        if sink.has(letter):
            result["sent_before"] += 1
            continue
        rows = letters.read(letter)
        sink.send(letter, rows)
        result["batches"] += 1
        result["rows"] += rows.num_rows
    if skip_missing:
        result["missing_offsets"] = letters.missing_offsets
    if as_json:
        typer.echo(json.dumps(result))
        return
    before = f"; {result['sent_before']:,} batches were sent before" if result["sent_before"] else ""
    gone = f"; {letters.missing_offsets:,} offsets of them are gone from Kafka" if letters.missing_offsets else ""
    typer.echo(f"{result['rows']:,} rows of {result['batches']:,} batches sent to {target}{before}{gone}")
