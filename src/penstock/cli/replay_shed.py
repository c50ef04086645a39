"""``penstock replay-shed``: send rows again that were shed."""

from __future__ import annotations

import json

import typer

__all__ = ["replay_shed"]


def replay_shed(
    source: str = typer.Argument(..., metavar="FROM", help="What shed_to names: a directory, kafka:TOPIC, or a checkpoint."),
    target: str = typer.Argument(..., metavar="TO", help="A directory for Parquet files, or kafka:TOPIC."),
    servers: str | None = typer.Option(None, "--servers", help="A broker, such as host:9092."),
    gate: str | None = typer.Option(None, "--gate", help="Only what this gate shed."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON and nothing else."),
) -> None:
    """Send rows again that were shed, each batch once: a batch that was sent before is left out."""
    from penstock.shed.letters import open_letters  # noqa: PLC0415 - commands load what they need
    from penstock.shed.resending import open_target  # noqa: PLC0415

    letters = open_letters(source, servers)
    sink = open_target(target, servers, source)
    result = {"batches": 0, "rows": 0, "sent_before": 0}
    for letter in letters.list_letters():
        if gate not in (None, letter.gate):
            continue
        if sink.has(letter):
            result["sent_before"] += 1
            continue
        rows = letters.read(letter)
        sink.send(letter, rows)
        result["batches"] += 1
        result["rows"] += rows.num_rows
    if as_json:
        typer.echo(json.dumps(result))
        return
    before = f"; {result['sent_before']:,} batches were sent before" if result["sent_before"] else ""
    typer.echo(f"{result['rows']:,} rows of {result['batches']:,} batches sent to {target}{before}")
