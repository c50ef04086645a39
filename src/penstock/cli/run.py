"""``penstock run``: a query network as Spark applications on this machine."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cluster.fleet import LocalFleet
    from penstock.network import Network

__all__ = ["run"]


def run(  # noqa: PLR0917 - options of a command
    path: Path = typer.Argument(..., metavar="NETWORK.yaml", help="The network, as YAML, with what its operators do."),
    node: str | None = typer.Option(None, "--node", help="Run only this node, in this process."),
    directory: Path = typer.Option(Path("penstock-run"), "--dir", help="Where the network's state, arcs and answers are."),
    manager: str = typer.Option(
        "exact", "--manager", help="Who decides what is shed: none, local, exact, solver, solver-w, fit, d-fit."
    ),
    pace: str = typer.Option("2s", "--pace", help="How often a query takes a micro-batch."),
    epsilon: float = typer.Option(0.05, "--epsilon", help="Relative error of solver, solver-w, fit and d-fit."),
    keep: str | None = typer.Option(None, "--keep", help="Fixed shares instead of a manager: i1=0.5,i2=0.25."),
    seconds: str | None = typer.Option(None, "--for", help="Stop by itself after this long."),
    reset: bool = typer.Option(False, "--reset", help="Start anew, also if the network has changed; answers are put aside."),
    parent: int | None = typer.Option(None, "--parent", hidden=True),
) -> None:
    """Run a query network: each node as a Spark application of its own, with gates at every drop location."""
    from penstock.coordination.managers import manager_named  # noqa: PLC0415 - commands load what they need
    from penstock.duration import parse_duration  # noqa: PLC0415
    from penstock.network import load_network  # noqa: PLC0415

    network = load_network(path)
    beside = str(path.absolute().parent)  # where its functions are, for us and for Spark's workers
    sys.path.insert(0, beside)
    os.environ["PYTHONPATH"] = os.pathsep.join([beside, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(os.pathsep)
    pace_s = parse_duration(pace, "--pace")
    run_s = None if seconds is None else parse_duration(seconds, "--for")
    shares = _shares(network, keep)
    if node is not None:
        from penstock.cluster.node import NodeRuntime, RunDirectory, stop_on_signals  # noqa: PLC0415

        if node not in network.nodes:
            raise PenstockError(f"there is no node {node!r}; there are {', '.join(network.nodes)}")
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # PySpark's, with whole stack traces
        chosen = manager_named(manager, network, node, epsilon=epsilon, keep=shares)
        runtime = NodeRuntime(network, node, RunDirectory(directory), chosen, pace_s=pace_s, reset=reset, parent=parent)
        stop_on_signals(runtime)
        runtime.run(run_s, on_ready=lambda: typer.echo(f"node {node} runs", err=True))
        return
    from penstock.cluster.fleet import LocalFleet  # noqa: PLC0415

    for name in network.nodes:
        manager_named(manager, network, name, epsilon=epsilon, keep=shares)  # what is wrong with it is said here, once
    fleet = LocalFleet(path, network, directory, manager=manager, pace=pace, epsilon=epsilon, keep=shares)
    fleet.start(reset=reset)
    raise typer.Exit(_watch(fleet, run_s))


def _shares(network: Network, text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    arcs = {f"{source}->{target}" for source, targets in network.consumers.items() for target in targets}
    found: dict[str, float] = {}
    for pair in text.split(","):
        name, _, share = (part.strip() for part in pair.partition("="))
        try:
            found[name] = float(share)
        except ValueError:
            raise PenstockError(f"--keep {pair!r}: a share is written i1=0.5") from None
        if not 0.0 <= found[name] <= 1.0:
            raise PenstockError(f"--keep {pair!r}: a share lies in [0, 1]")
        if name not in network.inputs and name not in arcs:
            raise PenstockError(f"--keep {pair!r}: there is no input or arc {name!r}")
    return found


def _watch(fleet: LocalFleet, seconds: float | None) -> int:
    """Show what goes on until told to stop, or until all have ended; 1 if one failed."""
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: stopping.append(got))
    began = time.monotonic()
    try:
        with Live(_view(fleet), console=Console(stderr=True), refresh_per_second=2) as live:
            while fleet.alive and not stopping and (seconds is None or time.monotonic() - began < seconds):
                time.sleep(0.25)
                fleet.notice()
                live.update(_view(fleet))
    finally:
        fleet.stop()
    for name, message in fleet.failed.items():
        who = "the coordinator" if name == "coordinator" else f"node {name!r}"
        typer.echo(f"penstock: {message if message.startswith(who) else f'{who} stopped: {message}'}", err=True)
    return 1 if fleet.failed else 0


def _view(fleet: LocalFleet) -> Table:
    table = Table("node", "state", "batches", "offered", "kept", "a batch every", "decided by")
    for name, process in fleet.processes.items():
        state = "running" if process.poll() is None else "failed" if name in fleet.failed else "stopped"
        table.add_row(name, state, *(Text(text) for text in _shown(fleet.status(name), name)))
    return table


def _shown(status: dict[str, Any] | None, name: str) -> tuple[str, str, str, str, str]:
    if status is None:
        return "", "", "", "", "starting"
    if name == "coordinator":
        return "", "", "", "", f"{status['method']}: plan {status['plan']}, {status['plans_computed']} made"
    counts = [status["gates"].get(entry, (0, 0)) for entry in status["measurements"]["rates"]]
    offered, kept = sum(count[0] for count in counts), sum(count[1] for count in counts)
    share = f"{kept:,} ({kept / offered:.0%})" if offered else "0"
    every = f"{max(status['cycles_s'].values()):.1f} s" if status["cycles_s"] else ""
    return str(sum(status["batches"].values())), f"{offered:,}", share, every, status["reason"] or "all let in"
