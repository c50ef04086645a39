"""``penstock coordinate``: the coordinator of a network."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import typer

from penstock.errors import PenstockError

__all__ = ["coordinate"]

_POLL_S = 0.02
METHODS = ("exact", "solver", "solver-w", "fit")


def coordinate(  # noqa: PLR0917 - options of a command
    path: Path = typer.Argument(..., metavar="NETWORK.yaml", help="The network, as YAML."),
    directory: Path = typer.Option(Path("penstock-run"), "--dir", help="The directory in which the network runs."),
    method: str = typer.Option("exact", "--method", help=f"How to plan: {', '.join(METHODS)}."),
    epsilon: float = typer.Option(0.05, "--epsilon", help="Relative error of solver, solver-w and fit."),
    seconds: str | None = typer.Option(None, "--for", help="Stop by itself after this long."),
    parent: int | None = typer.Option(None, "--parent", hidden=True),
) -> None:
    """Coordinate the nodes of a network: collect what they measure, plan, and say which plan is in force."""
    from penstock.cluster.node import RunDirectory, write_status  # noqa: PLC0415
    from penstock.coordination import COORDINATOR, Coordinator, DirectoryMailbox  # noqa: PLC0415 - commands load what they need
    from penstock.duration import parse_duration  # noqa: PLC0415
    from penstock.network import load_network  # noqa: PLC0415
    from penstock.planning import Exponential  # noqa: PLC0415

    network = load_network(path)
    if method not in METHODS:
        raise PenstockError(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    run_directory = RunDirectory(directory)
    mark = run_directory.claim(network)
    place = run_directory.coordinator
    lock = run_directory.lock(place, f"a coordinator runs already in {run_directory.root}: a network has one")
    options: dict[str, Any] = {} if method == "exact" else {"epsilon": epsilon}
    if method == "solver-w":
        limits = [stream.max_rate for stream in network.inputs.values()]
        options["workload"] = Exponential([limit / 4.0 for limit in limits], limits)
    nodes = tuple(dict.fromkeys(operator.node for operator in network.operators.values()))
    mailbox = DirectoryMailbox(run_directory.messages, COORDINATOR, nodes, mark)
    coordinator = Coordinator(network, mailbox, method, state=place / "state.json", **options)
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: stopping.append(got))
    end = None if seconds is None else time.monotonic() + parse_duration(seconds, "--for")
    shown = 0.0
    typer.echo("coordinator runs", err=True)
    while not stopping and (end is None or time.monotonic() < end) and parent in (None, os.getppid()):
        announced = coordinator.step()
        if announced or time.monotonic() - shown > 1.0:
            write_status(place / "status.json", coordinator.status())
            shown = time.monotonic()
        time.sleep(_POLL_S)
    os.close(lock)
