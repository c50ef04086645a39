"""``penstock explain``: what was seen before a batch, what was decided and why, in sentences."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.observe import QuerySeries
    from penstock.observe.explanation import Explanation

__all__ = ["explain"]


def explain(
    directory: str = typer.Argument(..., metavar="DIR", help="A checkpoint, a journal, or a directory that holds some."),
    batch: int | None = typer.Option(None, "--batch", help="The number of the batch; the last one if not given."),
    query: str | None = typer.Option(None, "--query", help="The query, where there are several."),
    as_json: bool = typer.Option(False, "--json", help="Print the sentences as JSON and nothing else."),
) -> None:
    """Explain one batch: what was seen, what was decided and why, and what came of it."""
    from penstock.observe import Observatory  # noqa: PLC0415 - commands load what they need
    from penstock.observe.choice import choose_query  # noqa: PLC0415

    observatory = Observatory([directory])
    watched = observatory.queries[str(choose_query(observatory, query))]
    number, explanation = _explain(watched.tail.series, batch, watched.tail.location)
    if as_json:
        typer.echo(json.dumps({"query": watched.name, "batch": number, **asdict(explanation)}))
        return
    typer.echo(f"{watched.name}, batch {number}")
    typer.echo(str(explanation))


def _explain(series: QuerySeries, batch: int | None, location: str) -> tuple[int, Explanation]:
    from penstock.observe.explanation import explain_batch  # noqa: PLC0415

    if not series.recent:
        raise PenstockError(f"the journal in {location} has no batch yet")
    number = max(series.recent) if batch is None else batch
    record, decision = series.recent.get(number), series.find_decision(number)
    if record is None and decision is None:
        held = f"{min(series.recent)} to {max(series.recent)}"
        gone = "has been folded into totals" if number < min(series.recent) and number >= 0 else "has not run"
        raise PenstockError(f"batch {number} {gone}: the journal in {location} holds batches {held} one by one")
    before = series.recent.get(number - 1)
    if decision is None:
        decision = series.find_decision_by_arrival(record or {})
    return number, explain_batch(decision, record, before)
