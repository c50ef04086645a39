"""``python -m benchmarks``: list the benchmarks, or run one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import benchmark_named, list_benchmarks
from penstock.cli import run_app
from penstock.errors import PenstockError

__all__ = ["app", "bench", "main"]

app = typer.Typer(
    name="benchmarks",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_FILE_WIDTH = 200  # wide enough for every column when the output is not a terminal


@app.command()
def bench(
    name: str | None = typer.Argument(None, help="The benchmark to run. Without a name, list all benchmarks."),
    quick: bool = typer.Option(False, "--quick", help="Fewer rows and repetitions: a first look, not a measurement."),
    out: Path | None = typer.Option(None, "--out", help="Write result.json to this directory, and a plot if there is one."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON and nothing else."),
) -> None:
    """Run a benchmark, many of them from papers. The exit status is 1 if a bar does not hold."""
    if name is None:
        _print_list(as_json=as_json)
        return
    benchmark = benchmark_named(name)
    if out is not None:
        _create_directory(out)
    progress = Console(stderr=True, highlight=False, quiet=as_json)
    result = benchmark.run(quick=quick, say=lambda text: progress.print(f"[dim]{name}: {text}[/dim]"))
    if out is not None:
        (out / "result.json").write_text(result.to_json() + "\n")
        if (plot := getattr(benchmark, "plot", None)) is not None:
            plot(result, out / f"{name}.png")
    if as_json:
        typer.echo(result.to_json())
    else:
        Console(highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH).print(result)
    if not result.holds:
        raise typer.Exit(1)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    run_app(app, arguments, program="benchmarks")


def _print_list(*, as_json: bool) -> None:
    benchmarks = list_benchmarks()
    if as_json:
        typer.echo(json.dumps([{"name": name, "what": what} for name, what in benchmarks.items()], indent=2))
        return
    table = Table("name", "what it measures", title="python -m benchmarks NAME", title_justify="left")
    for name, what in benchmarks.items():
        table.add_row(name, what)
    Console(highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH).print(table)


def _create_directory(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PenstockError(f"cannot create the directory --out {out}: {error.strerror}") from error


if __name__ == "__main__":
    main()
