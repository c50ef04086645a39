"""The command line, one file per command: ``penstock demo``, ``simulate``, ``plan``, ``network``, ``run`` and others."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from typing import NoReturn

import typer

from penstock.cli.coordinate import coordinate
from penstock.cli.dashboard import dashboard
from penstock.cli.demo import demo
from penstock.cli.explain import explain
from penstock.cli.feedback import feedback
from penstock.cli.metrics import metrics
from penstock.cli.network import network
from penstock.cli.plan import plan
from penstock.cli.replay_shed import replay_shed
from penstock.cli.report import report
from penstock.cli.run import run
from penstock.cli.shed_offsets import shed_offsets
from penstock.cli.simulate import simulate
from penstock.cli.stats import stats
from penstock.cli.watch import watch
from penstock.errors import PenstockError

__all__ = ["app", "main", "run_app"]

app = typer.Typer(
    name="penstock",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(simulate)
app.command()(plan)
app.command()(network)
app.command()(run)
app.command()(coordinate)
app.command()(stats)
app.command()(watch)
app.command()(feedback)
app.command()(dashboard)
app.command()(report)
app.command()(explain)
app.command()(metrics)
app.command(name="shed-offsets")(shed_offsets)
app.command(name="replay-shed")(replay_shed)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"penstock {version_of('penstock')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."),  # noqa: ARG001 - its callback acts
) -> None:
    """Load shedding for Spark Structured Streaming: hold a job at its delay target and report exactly what was dropped."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    run_app(app, arguments)


def run_app(commands: typer.Typer, arguments: list[str] | None = None, *, program: str = "penstock") -> NoReturn:
    """Run commands and exit: with status 0, with 1 if a command asks for it, or with 2 and one line that says what to correct.

    Parameters
    ----------
    commands
        The commands to run.
    arguments
        Their arguments; those of this process if ``None``.
    program
        The name of the program. Error messages start with it.

    """
    try:
        code = commands(args=arguments, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except PenstockError as error:
        _fail(program, str(error))
    except Exception as error:
        # Usage errors: the class is click's or typer's own, by version, and this is what they share.
        if not hasattr(error, "format_message"):
            raise
        _fail(program, error.format_message())
    sys.exit(code if isinstance(code, int) else 0)


def _fail(program: str, message: str) -> NoReturn:
    typer.echo(f"{program}: {' '.join(message.split())}", err=True)
    sys.exit(2)
