"""``python -m benchmarks``: run a benchmark, or list them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import EXPERIMENTS, experiment_named, plot_of
from penstock.cli import run_app
from penstock.errors import PenstockError

__all__ = ["bench"]

app = typer.Typer(name="benchmarks", add_completion=False, pretty_exceptions_enable=False)

_WIDE = 200  # into a file all columns fit


@app.command()
def bench(
    name: str | None = typer.Argument(None, help="The experiment; without one they are listed."),
    quick: bool = typer.Option(False, "--quick", help="Fewer rows and repetitions: a look, not a measurement."),
    out: Path | None = typer.Option(None, "--out", help="Write result.json there, and a plot if there is one."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON and nothing else."),
) -> None:
    """Run a benchmark or an experiment from a paper; exit status 1 if a bar does not hold."""
    if name is None:
        _list(EXPERIMENTS, as_json)
        return
    experiment = experiment_named(name)
    if out is not None:
        _prepare(out)
    notes = Console(stderr=True, highlight=False, quiet=as_json)
    result = experiment.run(quick=quick, say=lambda text: notes.print(f"[dim]{name}: {text}[/dim]"))
    if out is not None:
        (out / "result.json").write_text(result.to_json() + "\n")
        if (plot := plot_of(name)) is not None:
            plot(result, out / f"{name}.png")
    if as_json:
        typer.echo(result.to_json())
    else:
        Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE).print(result)
    if not result.holds:
        raise typer.Exit(1)


def _list(experiments: dict[str, str], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([{"name": name, "what": what} for name, what in experiments.items()], indent=2))
        return
    table = Table("name", "what it measures", title="python -m benchmarks NAME", title_justify="left")
    for name, what in experiments.items():
        table.add_row(name, what)
    Console(highlight=False).print(table)


def _prepare(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PenstockError(f"--out {out} can't be made: {error.strerror}") from error


if __name__ == "__main__":
    run_app(app)
