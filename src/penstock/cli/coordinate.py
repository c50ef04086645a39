"""``penstock coordinate``: the coordinator of a network."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cluster.channels import Channels
    from penstock.cluster.run_directory import RunDirectory
    from penstock.coordination import ClusterCoordinator, Coordinator
    from penstock.network import Network

__all__ = ["coordinate"]

_POLL_S = 0.02
_STATUS_S = 1.0
_WATCH_S = 2.0
METHODS = ("exact", "solver", "solver-w", "fit")


def coordinate(  # noqa: PLR0917 - options of a command
    path: Path = typer.Argument(..., metavar="NETWORK.yaml", help="The network, as YAML."),
    directory: Path = typer.Option(Path("penstock-run"), "--dir", help="The directory in which the network runs."),
    method: str = typer.Option("exact", "--method", help=f"How to plan: {', '.join(METHODS)}."),
    cluster: str | None = typer.Option(None, "--cluster", help="Coordinate only this cluster, under --manager d-fit."),
    epsilon: float = typer.Option(0.05, "--epsilon", help="Relative error of solver, solver-w, fit and d-fit."),
    seconds: str | None = typer.Option(None, "--for", help="Stop after this time, such as 60s."),
    parent: int | None = typer.Option(None, "--parent", hidden=True),
) -> None:
    """Coordinate the nodes of a network or a cluster: collect what they measure, plan for all of them, and announce the plan."""
    from penstock.cluster.channels import ChannelsLostError, open_channels  # noqa: PLC0415 - commands load what they need
    from penstock.cluster.run_directory import RunDirectory  # noqa: PLC0415
    from penstock.duration import parse_duration  # noqa: PLC0415
    from penstock.network import load_network  # noqa: PLC0415

    network = load_network(path)
    if method not in METHODS:
        raise PenstockError(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    run_s = None if seconds is None else parse_duration(seconds, "--for")
    run_directory = RunDirectory(directory)
    make: Callable[[Channels], Coordinator | ClusterCoordinator]
    if cluster is None:
        home, who = run_directory.coordinator, "the coordinator"
        make = partial(_make_coordinator, network, run_directory, method, epsilon)
        taken = f"a coordinator is already running in {run_directory.root}: a network has only one"
    else:
        _check_cluster(network, cluster)
        home, who = run_directory.cluster(cluster), f"the coordinator of cluster {cluster!r}"
        make = partial(_make_cluster_coordinator, network, run_directory, cluster, epsilon)
        taken = f"{who} is already running in {run_directory.root}: a cluster has only one"
    run_directory.claim(network)
    lock = run_directory.lock(home, taken)
    is_over = _watch_for_end(run_s, parent)
    channels = open_channels(network, run_directory)
    coordinator = None
    while coordinator is None and channels.open((), is_new=not (home / "state.json").exists(), is_over=is_over):
        with suppress(ChannelsLostError):  # it is waited for
            coordinator = make(channels)
    if coordinator is not None:
        typer.echo(f"{who} is running", err=True)
        _serve(coordinator, channels, home, is_over)
        channels.close()
    lock.release()


def _check_cluster(network: Network, cluster: str) -> None:
    """Raise if there is no such cluster, or the clusters form no tree."""
    from penstock.coordination import ClusterCoordinator  # noqa: PLC0415

    ClusterCoordinator.peers_of(network, cluster)


def _make_coordinator(
    network: Network, run_directory: RunDirectory, method: str, epsilon: float, channels: Channels
) -> Coordinator:
    from penstock.coordination import COORDINATOR, Coordinator  # noqa: PLC0415

    nodes = tuple(dict.fromkeys(operator.node for operator in network.operators.values()))
    options = _choose_planner_options(network, method, epsilon)
    mailbox = channels.build_mailbox(COORDINATOR, nodes)
    return Coordinator(network, mailbox, method, state=run_directory.coordinator / "state.json", **options)


def _make_cluster_coordinator(
    network: Network, run_directory: RunDirectory, cluster: str, epsilon: float, channels: Channels
) -> ClusterCoordinator:
    from penstock.coordination import ClusterCoordinator  # noqa: PLC0415

    peers = ClusterCoordinator.peers_of(network, cluster)
    mailbox = channels.build_mailbox(cluster, peers)
    return ClusterCoordinator(network, cluster, mailbox, epsilon, state=run_directory.cluster(cluster) / "state.json")


def _watch_for_end(run_s: float | None, parent: int | None) -> Callable[[], bool]:
    """Return whether to stop: after a signal, at the end of the time, or when the process that started this one has ended."""
    stop_signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: stop_signals.append(received))
    end_s = None if run_s is None else time.monotonic() + run_s
    return lambda: bool(stop_signals) or (end_s is not None and time.monotonic() > end_s) or parent not in (None, os.getppid())


def _serve(coordinator: Coordinator | ClusterCoordinator, channels: Channels, home: Path, is_over: Callable[[], bool]) -> None:
    """Let a coordinator act until it is over."""
    from penstock.cluster.status import write_status  # noqa: PLC0415

    status_s = watch_s = 0.0
    while not is_over():
        has_announced = coordinator.step()
        if has_announced or time.monotonic() - status_s > _STATUS_S:
            write_status(home / "status.json", coordinator.status())
            status_s = time.monotonic()
        if time.monotonic() - watch_s > _WATCH_S:
            channels.watch()
            watch_s = time.monotonic()
        time.sleep(_POLL_S)


def _choose_planner_options(network: Network, method: str, epsilon: float) -> dict[str, Any]:
    """Return the options of a planner; solver-w expects rates around a quarter of their maximum."""
    from penstock.planning import Exponential  # noqa: PLC0415

    if method == "exact":
        return {}
    if method != "solver-w":
        return {"epsilon": epsilon}
    max_rates = [stream.max_rate for stream in network.inputs.values()]
    return {"epsilon": epsilon, "workload": Exponential([max_rate / 4.0 for max_rate in max_rates], max_rates)}
