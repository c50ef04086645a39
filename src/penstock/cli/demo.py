"""``penstock demo``: a Spark job under a replayed burst, without and with shedding."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.live import LiveDemo
from penstock.duration import parse_duration
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.demo.summary import Demo

__all__ = ["demo"]


def demo(  # noqa: PLR0917 - typer makes options of them
    seconds: float = typer.Option(45.0, "--seconds", help="How long each of the two arms runs."),
    delay_target: str = typer.Option("2s", "--delay-target", help="The delay to hold, such as 2s or 1500ms."),
    overload: float = typer.Option(2.5, "--overload", help="Mean input rate as a multiple of the measured capacity."),
    source: str = typer.Option("replay", "--source", help="replay, or kafka: the same burst through a topic of a local broker."),
    out: Path = typer.Option(Path("demo"), "--out", help="The directory for report.html, demo.png and result.json."),
    seed: int = typer.Option(1, "--seed", help="Seed of the traffic: the same seed gives the same trace."),
    as_json: bool = typer.Option(False, "--json", help="Print the table as JSON and nothing else."),
    open_report: bool = typer.Option(False, "--open/--no-open", help="Open the report in a browser at the end."),
) -> None:
    """Run one Spark job twice on the same burst, without and with Penstock, and show a table, plots and an HTML report."""
    from penstock.demo.summary import Settings  # noqa: PLC0415 - commands load what they need

    target_s = parse_duration(delay_target, "--delay-target")
    settings = Settings(seconds=seconds, target_s=target_s, overload=overload, seed=seed, source=source)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PenstockError(f"--out {out}: the directory cannot be created: {error.strerror}") from error
    try:
        from penstock.demo.page import render_page  # noqa: PLC0415
        from penstock.demo.plots import draw_picture, need_matplotlib  # noqa: PLC0415
        from penstock.demo.run import ARMS, run_demo  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise PenstockError(f"the demo needs {error.name}: pip install 'penstock[spark,plots]'") from error

    need_matplotlib()
    labels = [label for label, _ in ARMS]
    with LiveDemo(Console(stderr=True, highlight=False, quiet=as_json), settings, labels) as live:
        result = run_demo(settings, live)
    png = draw_picture(result)
    report = out / "report.html"
    (out / "demo.png").write_bytes(png)
    report.write_text(render_page(result), encoding="utf-8")
    (out / "result.json").write_text(json.dumps(result.to_dict(), indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
        return
    _show(result, report)
    if open_report:
        webbrowser.open(report.resolve().as_uri())


def _show(result: Demo, report: Path) -> None:
    console = Console(highlight=False)
    title = f"delay target {result.settings.target_s:g} s"
    table = Table("", *(run.label for run in result.runs), title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, values in result.table:
        table.add_row(name, *values)
    console.print(table)
    for run in result.runs:
        for line in run.errors:
            console.print(f"! {run.label}: {line}", style="yellow", markup=False)
    console.print(f"report: {report}", soft_wrap=True)
