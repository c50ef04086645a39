"""``penstock watch``: what the dashboard shows, live in the terminal. It reads journals only; jobs may run or have ended."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.observe import Observatory

__all__ = ["watch"]

_REFRESH_S = 1.0
_POINTS = 60


def watch(
    directories: list[str] = typer.Argument(
        ..., metavar="DIR...", help="Checkpoints, journals, directories that hold some, or the --dir of a network."
    ),
    query: str | None = typer.Option(None, "--query", help="The query to show, where there are several."),
    as_json: bool = typer.Option(False, "--json", help="Print the last batch as JSON and exit."),
) -> None:
    """Show the delay, what is kept and shed, and why, until Ctrl-C; of several queries a table."""
    from penstock.observe import Observatory  # noqa: PLC0415 - commands load what they need
    from penstock.observe.choice import choose_query  # noqa: PLC0415

    observatory = Observatory(directories)
    number = choose_query(observatory, query, is_needed=as_json)
    if as_json:
        typer.echo(json.dumps(describe_last_batch(observatory, str(number))))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.print(render(observatory, number))
        return
    with Live(render(observatory, number), console=console, auto_refresh=False, screen=False) as live:
        try:
            while True:
                observatory.poll()
                live.update(render(observatory, number), refresh=True)
                time.sleep(_REFRESH_S)
        except KeyboardInterrupt:
            return


def render(observatory: Observatory, number: str | None) -> RenderableType:
    """Return what a query looks like now; without a number, all of them."""
    from penstock.observe.terminal import render_all, render_query  # noqa: PLC0415

    if number is None:
        return render_all(observatory.overview())
    return Group(render_query(observatory.detail(number), observatory.curves(number, points=4096), _POINTS))


def describe_last_batch(observatory: Observatory, number: str) -> dict[str, object]:
    """Return the newest batch of a journal as plain JSON values."""
    from penstock.journal.records import BatchRecord, decode  # noqa: PLC0415

    tail = observatory.queries[number].tail
    if not tail.series.recent:
        raise PenstockError(f"the journal in {tail.location} has no batch yet")
    line = tail.series.recent[max(tail.series.recent)]
    record = decode(line)
    assert isinstance(record, BatchRecord)  # noqa: S101 - a line of a batch
    return {key: value for key, value in line.items() if key != "kind"} | {"delay_s": record.delay_s}
