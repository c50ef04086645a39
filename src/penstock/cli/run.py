"""``penstock run``: a query network as Spark applications on this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.coordination import Manager
    from penstock.network import Network

__all__ = ["MANAGERS", "Fleet", "manager_maker", "run"]

CENTRAL = ("exact", "solver", "solver-w", "fit")
MANAGERS = ("none", "local", *CENTRAL, "d-fit")
_GRACE_S = 60.0


def run(  # noqa: PLR0917 - options of a command
    path: Path = typer.Argument(..., metavar="NETWORK.yaml", help="The network, as YAML, with what its operators do."),
    node: str | None = typer.Option(None, "--node", help="Run only this node, in this process."),
    directory: Path = typer.Option(Path("penstock-run"), "--dir", help="Where the network's state, arcs and answers are."),
    manager: str = typer.Option("exact", "--manager", help=f"Who decides what is shed: {', '.join(MANAGERS)}."),
    pace: str = typer.Option("2s", "--pace", help="How often a query takes a micro-batch."),
    epsilon: float = typer.Option(0.05, "--epsilon", help="Relative error of solver, solver-w, fit and d-fit."),
    keep: str | None = typer.Option(None, "--keep", help="Fixed shares instead of a manager: i1=0.5,i2=0.25."),
    seconds: str | None = typer.Option(None, "--for", help="Stop by itself after this long."),
    reset: bool = typer.Option(False, "--reset", help="Start anew, also if the network has changed; answers stay."),
) -> None:
    """Run a query network: each node as a Spark application of its own, with gates at every drop location."""
    from penstock.duration import parse_duration  # noqa: PLC0415 - commands load what they need
    from penstock.network import load_network  # noqa: PLC0415

    network = load_network(path)
    sys.path.insert(0, str(path.absolute().parent))  # where its functions are
    pace_s = parse_duration(pace, "--pace")
    run_s = None if seconds is None else parse_duration(seconds, "--for")
    maker = manager_maker(manager, epsilon=epsilon, keep=_shares(network, keep))
    if node is not None:
        run_node(network, node, directory, maker, pace_s, run_s=run_s, reset=reset)
        return
    for name in network.nodes:
        maker(network, name)  # whatever is wrong with it is said here, once
    arguments = ["--dir", str(directory), "--manager", manager, "--pace", pace, "--epsilon", str(epsilon)]
    fleet = Fleet(
        path, network, directory, [*arguments, *(["--keep", keep] if keep else [])], manager=manager if not keep else "fixed"
    )
    fleet.start(reset=reset, epsilon=epsilon)
    raise typer.Exit(fleet.watch(run_s))


def run_node(
    network: Network,
    node: str,
    directory: Path,
    maker: Callable[[Network, str], Manager],
    pace_s: float,
    *,
    run_s: float | None,
    reset: bool,
) -> None:
    """Run one node in this process until a signal."""
    from penstock.spark.node import NodeRuntime, Workplace, stop_on_signals  # noqa: PLC0415

    runtime = NodeRuntime(network, node, Workplace(directory), maker, pace_s=pace_s, reset=reset)
    stop_on_signals(runtime)
    runtime.run(run_s, on_ready=lambda: typer.echo(f"node {node} runs", err=True))


def manager_maker(name: str, *, epsilon: float = 0.05, keep: dict[str, float] | None = None) -> Callable[[Network, str], Manager]:
    """Return what makes the manager of a node."""
    from penstock import coordination as together  # noqa: PLC0415

    if keep is not None:
        return lambda network, node: together.Fixed(network, node, keep)
    if name == "none":
        return together.Open
    if name == "local":
        return together.Local
    if name == "d-fit":
        return lambda network, node: together.Peer(network, node, epsilon)
    if name in CENTRAL:
        return together.Follower
    raise PenstockError(f"there is no manager {name!r}; there are {', '.join(MANAGERS)}")


def _shares(network: Network, text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    found: dict[str, float] = {}
    for pair in text.split(","):
        name, _, share = pair.partition("=")
        try:
            found[name.strip()] = float(share)
        except ValueError:
            raise PenstockError(f"--keep {pair!r}: a share is written i1=0.5") from None
        if not 0.0 <= found[name.strip()] <= 1.0:
            raise PenstockError(f"--keep {pair!r}: a share lies in [0, 1]")
        arcs = {f"{source}->{target}" for source, targets in network.consumers.items() for target in targets}
        if name.strip() not in network.inputs and name.strip() not in arcs:
            raise PenstockError(f"--keep {pair!r}: there is no input or arc {name.strip()!r}")
    return found


class Fleet:
    """The processes of a network on this machine: started together, watched, stopped together."""

    def __init__(self, path: Path, network: Network, directory: Path, arguments: list[str], *, manager: str) -> None:
        self._path, self._network, self._directory, self._arguments, self._manager = path, network, directory, arguments, manager
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}
        self._failed: dict[str, str] = {}
        self._stopping = False

    def start(self, *, reset: bool = False, epsilon: float = 0.05) -> None:
        """Start a process a node, and the coordinator if there is one."""
        from penstock.spark.deploy import check_deployable  # noqa: PLC0415
        from penstock.spark.node import Workplace  # noqa: PLC0415

        check_deployable(self._network)
        workplace = Workplace(self._directory)
        workplace.claim(self._network, reset=reset)
        for node in self._network.nodes:
            self._spawn(node, ["run", str(self._path), "--node", node, *self._arguments], workplace.node(node))
        if self._manager in CENTRAL:
            command = ["coordinate", str(self._path), "--dir", str(self._directory), "--method", self._manager]
            self._spawn("coordinator", [*command, "--epsilon", str(epsilon)], workplace.root / "coordinator")

    def _spawn(self, name: str, command: list[str], place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.logs[name] = place / "log.txt"
        with self.logs[name].open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "penstock", *command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us; they are told once
            )

    def watch(self, seconds: float | None) -> int:
        """Show what goes on until told to stop, or until all have ended; 1 if one failed."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask_to_stop)
        began = time.monotonic()
        console = Console(stderr=True)
        try:
            with Live(self._view(), console=console, refresh_per_second=2, transient=False) as live:
                while self._alive() and not self._stopping:
                    if seconds is not None and time.monotonic() - began > seconds:
                        break
                    time.sleep(0.25)
                    self._notice()
                    live.update(self._view())
        finally:
            self.stop()
        self._notice()
        for name, message in self._failed.items():
            typer.echo(f"penstock: {name} stopped: {message}", err=True)
        return 1 if self._failed else 0

    def _ask_to_stop(self, *_: Any) -> None:
        self._stopping = True

    def _alive(self) -> bool:
        nodes = [process for name, process in self.processes.items() if name != "coordinator"]
        return any(process.poll() is None for process in nodes)

    def _notice(self) -> None:
        """Find who has ended with an error; the others go on."""
        for name, process in self.processes.items():
            if process.poll() not in (None, 0, -signal.SIGTERM) and name not in self._failed:
                self._failed[name] = last_words(self.logs[name])

    def stop(self) -> None:
        """Stop all: politely, between two batches, and those that don't listen for good."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _view(self) -> Table:
        table = Table("node", "state", "batches", "offered", "kept", "load", "decided by")
        for name, process in self.processes.items():
            state = "running" if process.poll() is None else "stopped" if name not in self._failed else "failed"
            place = self.logs[name].parent / "status.json"
            table.add_row(name, state, *(Text(text) for text in _shown(read_status(place), name)))
        return table


def _shown(status: dict[str, Any] | None, name: str) -> tuple[str, str, str, str, str]:
    if status is None:
        return "", "", "", "", "starting"
    if name == "coordinator":
        return "", "", "", "", f"{status['method']}: plan {status['plan']}, {status['plans_made']} made"
    entries = list(status["facts"]["rates"])
    offered = sum(status["gates"].get(entry, [0, 0])[0] for entry in entries)
    kept = sum(status["gates"].get(entry, [0, 0])[1] for entry in entries)
    share = f"{kept:,} ({kept / offered:.0%})" if offered else "0"
    return str(sum(status["batches"].values())), f"{offered:,}", share, _load(status), status["why"] or "all let in"


def _load(status: dict[str, Any]) -> str:
    cycle = {query: seconds for query, seconds in status["cycles_s"].items() if seconds}
    return ", ".join(f"{seconds:.1f} s" for seconds in cycle.values()) and f"every {max(cycle.values()):.1f} s"


def read_status(path: Path) -> dict[str, Any] | None:
    """What a process last wrote of itself."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found


def last_words(log: Path) -> str:
    """Why a process ended, from its log: what it said in one line, or its last."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    said = [line.removeprefix("penstock: ") for line in lines if line.startswith("penstock: ")]
    return said[-1] if said else lines[-1] if lines else "it left no message"
