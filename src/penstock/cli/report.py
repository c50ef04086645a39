"""``penstock report``: what jobs did, after the fact or in between, as text, JSON, Markdown or one HTML file."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console

from penstock.errors import PenstockError

__all__ = ["report"]


def report(
    directories: list[str] = typer.Argument(
        ..., metavar="DIR...", help="Checkpoints, journals, directories that hold some, or the --dir of a network."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON and nothing else."),
    as_markdown: bool = typer.Option(False, "--markdown", help="Print Markdown."),
    html: Path | None = typer.Option(None, "--html", help="Write the dashboard's page to this file, with everything inside."),
) -> None:
    """Report what jobs offered, kept and shed, their delays, and why they decided as they did."""
    from penstock.observe import Observatory  # noqa: PLC0415 - commands load what they need
    from penstock.observe.embedding import embed  # noqa: PLC0415
    from penstock.observe.terminal import render_all, render_query, to_markdown  # noqa: PLC0415

    if as_json + as_markdown > 1:
        raise PenstockError("give one of --json and --markdown")
    observatory = Observatory(directories)
    data = embed(observatory)
    if html is not None:
        from penstock.dashboard.html_page import render_report_page  # noqa: PLC0415

        try:
            html.write_text(render_report_page(data), encoding="utf-8")
        except OSError as error:
            raise PenstockError(f"--html {html}: the report can't be written: {error.strerror}") from None
    if as_json:
        typer.echo(json.dumps({"overview": data["overview"], "queries": data["details"]}, indent=2))
    elif as_markdown:
        typer.echo(to_markdown(data["overview"], data["details"]), nl=False)
    elif html is not None:
        typer.echo(f"report: {html}")
    else:
        console = Console(highlight=False)
        if len(data["details"]) != 1:
            console.print(render_all(data["overview"]))
        for number, detail in data["details"].items():
            console.print(render_query(detail, data["curves"][number]))
