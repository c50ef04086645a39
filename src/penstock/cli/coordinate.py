"""``penstock coordinate``: the coordinator of a network."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.network import Network

__all__ = ["coordinate"]

_POLL_S = 0.02
_STATUS_S = 1.0
METHODS = ("exact", "solver", "solver-w", "fit")


def coordinate(  # noqa: PLR0917 - options of a command
    path: Path = typer.Argument(..., metavar="NETWORK.yaml", help="The network, as YAML."),
    directory: Path = typer.Option(Path("penstock-run"), "--dir", help="The directory in which the network runs."),
    method: str = typer.Option("exact", "--method", help=f"How to plan: {', '.join(METHODS)}."),
    epsilon: float = typer.Option(0.05, "--epsilon", help="Relative error of solver, solver-w and fit."),
    seconds: str | None = typer.Option(None, "--for", help="Stop after this time, such as 60s."),
    parent: int | None = typer.Option(None, "--parent", hidden=True),
) -> None:
    """Coordinate the nodes of a network: collect what they measure, plan for all of them, and announce the plan in force."""
    from penstock.cluster.run_directory import RunDirectory  # noqa: PLC0415
    from penstock.cluster.status import write_status  # noqa: PLC0415
    from penstock.coordination import COORDINATOR, Coordinator, DirectoryMailbox  # noqa: PLC0415 - commands load what they need
    from penstock.duration import parse_duration  # noqa: PLC0415
    from penstock.network import load_network  # noqa: PLC0415

    network = load_network(path)
    if method not in METHODS:
        raise PenstockError(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    run_directory = RunDirectory(directory)
    fingerprint = run_directory.claim(network)
    home = run_directory.coordinator
    lock = run_directory.lock(home, f"a coordinator is already running in {run_directory.root}: a network has only one")
    nodes = tuple(dict.fromkeys(operator.node for operator in network.operators.values()))
    mailbox = DirectoryMailbox(run_directory.messages, COORDINATOR, nodes, fingerprint)
    options = _choose_planner_options(network, method, epsilon)
    coordinator = Coordinator(network, mailbox, method, state=home / "state.json", **options)
    stop_signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: stop_signals.append(received))
    end_s = None if seconds is None else time.monotonic() + parse_duration(seconds, "--for")
    status_s = 0.0
    typer.echo("the coordinator is running", err=True)
    while not stop_signals and (end_s is None or time.monotonic() < end_s) and parent in (None, os.getppid()):
        has_announced = coordinator.step()
        if has_announced or time.monotonic() - status_s > _STATUS_S:
            write_status(home / "status.json", coordinator.status())
            status_s = time.monotonic()
        time.sleep(_POLL_S)
    lock.release()


def _choose_planner_options(network: Network, method: str, epsilon: float) -> dict[str, Any]:
    """Return the options of a planner; solver-w expects rates around a quarter of their maximum."""
    from penstock.planning import Exponential  # noqa: PLC0415

    if method == "exact":
        return {}
    if method != "solver-w":
        return {"epsilon": epsilon}
    max_rates = [stream.max_rate for stream in network.inputs.values()]
    return {"epsilon": epsilon, "workload": Exponential([max_rate / 4.0 for max_rate in max_rates], max_rates)}
