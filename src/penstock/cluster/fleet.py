"""The processes of a network on this machine: started together, watched, stopped together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.cluster.deployment import check_deployable
from penstock.cluster.run_directory import RunDirectory
from penstock.cluster.status import read_status
from penstock.coordination.managers import CENTRAL
from penstock.network.model import Network

__all__ = ["LocalFleet"]

_GRACE_S = 60.0
COORDINATOR = "coordinator"


class LocalFleet:
    """One process a node, and one for the coordinator where the manager needs it. Each writes its log beside its state."""

    def __init__(
        self,
        path: Path,
        network: Network,
        directory: Path,
        *,
        manager: str = "exact",
        pace: str = "2s",
        epsilon: float = 0.05,
        keep: Mapping[str, float] | None = None,
    ) -> None:
        self.network, self.run_directory = network, RunDirectory(directory)
        self._path, self._manager, self._epsilon = path, manager if keep is None else "none", epsilon
        self._parent = ["--parent", str(os.getpid())]  # they stop if we are gone
        self._arguments = ["--dir", str(directory), "--manager", manager, "--pace", pace, "--epsilon", str(epsilon)]
        if keep is not None:
            self._arguments += ["--keep", ",".join(f"{name}={share}" for name, share in keep.items())]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}
        self.failed: dict[str, str] = {}
        """Who has ended with an error, and its last words."""

    def start(self, *, reset: bool = False) -> None:
        """Start them all; what is wrong with the network is said before."""
        check_deployable(self.network)
        self.run_directory.claim(self.network, reset=reset)
        for node in self.network.nodes:
            self.start_one(node)
        if self._manager in CENTRAL:
            self.start_one(COORDINATOR)

    def start_one(self, name: str) -> None:
        """Start the process of a node, or the coordinator's; also again, after it has ended."""
        if name == COORDINATOR:
            command = ["coordinate", str(self._path), "--dir", str(self.run_directory.root), "--method", self._manager]
            command += ["--epsilon", str(self._epsilon)]
            place = self.run_directory.coordinator
        else:
            command = ["run", str(self._path), "--node", name, *self._arguments]
            place = self.run_directory.node(name)
        place.mkdir(parents=True, exist_ok=True)
        self.logs[name] = place / "log.txt"
        self.failed.pop(name, None)
        with self.logs[name].open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "penstock", *command, *self._parent],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for whoever watches; they are told once
            )

    @property
    def alive(self) -> bool:
        """Whether some node still runs."""
        return any(process.poll() is None for name, process in self.processes.items() if name != COORDINATOR)

    def notice(self) -> None:
        """Find who has ended with an error; the others go on."""
        for name, process in self.processes.items():
            if process.poll() not in (None, 0, -signal.SIGTERM) and name not in self.failed:
                self.failed[name] = _last_words(self.logs[name])

    def status(self, name: str) -> dict[str, Any] | None:
        """What a process last wrote of itself."""
        return read_status(self.logs[name].parent / "status.json")

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
        self.notice()


def _last_words(log: Path) -> str:
    """Why a process ended, from its log: what it said in one line, or its last."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    said = [line.removeprefix("penstock: ") for line in lines if line.startswith("penstock: ")]
    return said[-1] if said else lines[-1] if lines else "it left no message"
