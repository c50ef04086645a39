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
    directory: Path = typer.Option(
        Path("penstock-run"), "--dir", help="The directory for the network's state, the rows between nodes, and the answers."
    ),
    manager: str = typer.Option(
        "exact",
        "--manager",
        help="Who decides what is shed: none, local (each node for itself), a coordinator that plans with exact, solver, "
        "solver-w or fit, or d-fit (no coordinator but for clusters). The last four are those of Staying FIT (Tatbul et al.).",
    ),
    pace: str = typer.Option("2s", "--pace", help="How often a query takes a micro-batch."),
    epsilon: float = typer.Option(0.05, "--epsilon", help="Relative error of solver, solver-w, fit and d-fit."),
    keep: str | None = typer.Option(None, "--keep", help="Keep fixed shares instead of using a manager: i1=0.5,i2=0.25."),
    seconds: str | None = typer.Option(None, "--for", help="Stop after this time, such as 60s."),
    reset: bool = typer.Option(
        False, "--reset", help="Start from scratch, even if the network has changed; earlier answers are moved aside."
    ),
    conf: list[str] = typer.Option(
        [], "--conf", metavar="NAME=VALUE", help="A setting of Spark for every node, such as spark.jars.packages=...; repeat it."
    ),
    parent: int | None = typer.Option(None, "--parent", hidden=True),
) -> None:
    """Run a query network: each node as its own Spark application, with a gate at every drop location."""
    from penstock.coordination.managers import manager_named  # noqa: PLC0415 - commands load what they need
    from penstock.duration import parse_duration  # noqa: PLC0415
    from penstock.network import load_network  # noqa: PLC0415

    network = load_network(path)
    _add_to_python_path(path.absolute().parent)
    pace_s = parse_duration(pace, "--pace")
    run_s = None if seconds is None else parse_duration(seconds, "--for")
    shares = _parse_shares(network, keep)
    settings = _parse_settings(conf)
    if node is not None:
        from penstock.cluster.node import NodeRuntime, stop_on_signals  # noqa: PLC0415
        from penstock.cluster.run_directory import RunDirectory  # noqa: PLC0415

        if node not in network.nodes:
            raise PenstockError(f"there is no node {node!r}; there are {', '.join(network.nodes)}")
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # PySpark's, with whole stack traces
        node_manager = manager_named(manager, network, node, epsilon=epsilon, keep=shares)
        options: dict[str, Any] = {"pace_s": pace_s, "reset": reset, "conf": settings, "parent": parent}
        runtime = NodeRuntime(network, node, RunDirectory(directory), node_manager, **options)
        stop_on_signals(runtime)
        runtime.run(run_s, on_ready=lambda: typer.echo(f"node {node} is running", err=True))
        return
    from penstock.cluster.fleet import LocalFleet  # noqa: PLC0415

    for name in network.nodes:  # refuse here, once, what every node would refuse
        manager_named(manager, network, name, epsilon=epsilon, keep=shares)
    fleet = LocalFleet(path, network, directory, manager=manager, pace=pace, epsilon=epsilon, keep=shares, conf=settings)
    fleet.start(reset=reset)
    raise typer.Exit(_watch(fleet, run_s))


def _add_to_python_path(folder: Path) -> None:
    """Let this process and Spark's workers import the functions beside the network's file."""
    sys.path.insert(0, str(folder))
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *inherited]).rstrip(os.pathsep)


def _parse_shares(network: Network, text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    arcs = {f"{source}->{target}" for source, targets in network.consumers.items() for target in targets}
    shares: dict[str, float] = {}
    for item in text.split(","):
        name, _, value = (part.strip() for part in item.partition("="))
        try:
            shares[name] = float(value)
        except ValueError:
            raise PenstockError(f"--keep {item!r}: write shares as i1=0.5,i2=0.25") from None
        if not 0.0 <= shares[name] <= 1.0:
            raise PenstockError(f"--keep {item!r}: a share must lie in [0, 1]")
        if name not in network.inputs and name not in arcs:
            raise PenstockError(f"--keep {item!r}: there is no input or arc {name!r}")
    return shares


def _parse_settings(given: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name.startswith("spark."):
            raise PenstockError(f"--conf {item!r}: write a setting of Spark as spark.name=value")
        settings[name] = value
    return settings


def _watch(fleet: LocalFleet, seconds: float | None) -> int:
    """Show the nodes until a signal, the end of the time, or the end of all of them; return 1 if one failed."""
    stop_signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: stop_signals.append(received))
    begin_s = time.monotonic()
    try:
        with Live(_tabulate_nodes(fleet), console=Console(stderr=True), refresh_per_second=2) as live:
            while fleet.is_alive and not stop_signals and (seconds is None or time.monotonic() - begin_s < seconds):
                time.sleep(0.25)
                fleet.collect_failures()
                live.update(_tabulate_nodes(fleet))
    finally:
        fleet.stop()
    for name, message in fleet.failures.items():
        who = _name_process(fleet, name)
        typer.echo(f"penstock: {message if message.startswith(who) else f'{who} stopped: {message}'}", err=True)
    return 1 if fleet.failures else 0


def _name_process(fleet: LocalFleet, name: str) -> str:
    if name in fleet.network.nodes:
        return f"node {name!r}"
    return f"the coordinator of cluster {name!r}" if name in fleet.network.clusters else "the coordinator"


def _tabulate_nodes(fleet: LocalFleet) -> Table:
    table = Table("node", "state", "batches", "offered", "kept", "batch interval", "decision")
    for name, process in fleet.processes.items():
        state = "running" if process.poll() is None else "failed" if name in fleet.failures else "stopped"
        table.add_row(name, state, *(Text(cell) for cell in _describe_status(fleet.status(name))))
    return table


def _describe_status(status: dict[str, Any] | None) -> tuple[str, str, str, str, str]:
    """Return what the table shows of a process: batches, offered, kept, batch interval, decision."""
    if status is None:
        return "", "", "", "", "starting"
    if "plans_computed" in status:  # a coordinator
        return "", "", "", "", f"{status['method']}: plan {status['plan']}, {status['plans_computed']} computed"
    counts = [status["gates"].get(entry, (0, 0)) for entry in status["measurements"]["rates"]]
    offered, kept = sum(count[0] for count in counts), sum(count[1] for count in counts)
    kept_cell = f"{kept:,} ({kept / offered:.0%})" if offered else "0"
    interval = f"{max(status['cycles_s'].values()):.1f} s" if status["cycles_s"] else ""
    return str(sum(status["batches"].values())), f"{offered:,}", kept_cell, interval, status["reason"] or "no limits"
