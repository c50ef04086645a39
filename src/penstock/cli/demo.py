"""``penstock demo``: a Spark job under a replayed burst, without and with shedding."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.live import LiveDemo
from penstock.duration import parse_duration
from penstock.errors import PenstockError

__all__ = ["demo"]


def demo(  # noqa: PLR0917 - typer makes options of them
    seconds: float = typer.Option(45.0, "--seconds", help="How long each of the two arms runs."),
    delay_target: str = typer.Option("2s", "--delay-target", help="The delay to hold, such as 2s or 1500ms."),
    overload: float = typer.Option(2.5, "--overload", help="Mean input as a multiple of the measured capacity."),
    out: Path = typer.Option(Path("demo"), "--out", help="Where report.html and demo.png go."),
    seed: int = typer.Option(1, "--seed", help="Of the traffic; the same seed is the same trace."),
    as_json: bool = typer.Option(False, "--json", help="Print the table as JSON and nothing else."),
    open_report: bool = typer.Option(False, "--open/--no-open", help="Open the report in a browser at the end."),
) -> None:
    """Run one Spark job twice on the same burst, as Spark does it and with Penstock: a table, plots, an HTML report."""
    from penstock.demo.summary import Settings  # noqa: PLC0415 - commands load what they need

    settings = Settings(seconds=seconds, target_s=parse_duration(delay_target, "--delay-target"), overload=overload, seed=seed)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PenstockError(f"--out {out} can't be made: {error.strerror}") from error
    try:
        from penstock.demo.page import page  # noqa: PLC0415
        from penstock.demo.plots import need_matplotlib, picture  # noqa: PLC0415
        from penstock.demo.run import ARMS, run_demo  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise PenstockError(f"the demo needs {error.name}: pip install 'penstock[spark,plots]'") from error

    need_matplotlib()
    labels = [label for label, _ in ARMS]
    with LiveDemo(Console(stderr=True, highlight=False, quiet=as_json), settings, labels) as live:
        found = run_demo(settings, live)
    png = picture(found)
    (out / "demo.png").write_bytes(png)
    (out / "report.html").write_text(page(found, png), encoding="utf-8")
    (out / "result.json").write_text(json.dumps(found.to_dict(), indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
        return
    console = Console(highlight=False)
    table = Table("", *labels, title=f"delay target {settings.target_s:g} s", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, values in found.table:
        table.add_row(name, *values)
    console.print(table)
    for run in found.runs:
        for line in run.errors:
            console.print(f"! {run.label}: {line}", style="yellow", markup=False)
    console.print(f"report: {out / 'report.html'}", soft_wrap=True)
    if open_report:
        webbrowser.open((out / "report.html").resolve().as_uri())
