"""The processes of a network on this machine: started together, watched, and stopped together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.cluster.channels import open_channels
from penstock.cluster.deployment import check_deployable
from penstock.cluster.run_directory import RunDirectory
from penstock.cluster.status import read_status
from penstock.coordination.dfit import DFit
from penstock.coordination.managers import CENTRAL
from penstock.network.model import Network

__all__ = ["LocalFleet"]

_STOP_TIMEOUT_S = 60.0
COORDINATOR = "coordinator"


class LocalFleet:
    """Runs one process per node, and one for the coordinator, or for that of each cluster, if the manager needs it.

    Each writes its log beside its state.

    Parameters
    ----------
    path
        The YAML file of the network, which each process loads.
    network
        The network in it.
    directory
        The run directory, where the processes keep state, logs and messages.
    manager
        Who decides where to shed, as in ``penstock run --manager``.
    pace
        How often a query takes a micro-batch, such as ``"2s"``.
    epsilon
        The relative error that approximate planners may make.
    keep
        Fixed keep probabilities by gate, instead of a manager.
    conf
        Settings of Spark for every node, such as ``{"spark.jars.packages": ...}``.
    """

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
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self.network, self.run_directory = network, RunDirectory(directory)
        self._path, self._manager, self._epsilon = path, manager if keep is None else "none", epsilon
        self._parent = ["--parent", str(os.getpid())]  # they stop when this process is gone
        self._arguments = ["--dir", str(directory), "--manager", manager, "--pace", pace, "--epsilon", str(epsilon)]
        if keep is not None:
            self._arguments += ["--keep", ",".join(f"{name}={share}" for name, share in keep.items())]
        for name, value in (conf or {}).items():
            self._arguments += ["--conf", f"{name}={value}"]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}
        self.failures: dict[str, str] = {}
        """The processes that ended with an error, and the message each left."""

    def start(self, *, reset: bool = False) -> None:
        """Check the network, then start all processes.

        ``reset`` starts from scratch, even if the network has changed; earlier answers are moved aside.
        """
        check_deployable(self.network)
        channels = open_channels(self.network, self.run_directory)
        self.run_directory.claim(self.network, reset=reset)
        if reset:
            channels.reset()
        for node in self.network.nodes:
            self.start_process(node)
        if self._manager in CENTRAL:
            self.start_process(COORDINATOR)
        if self._manager == DFit.name:
            for cluster in self.network.clusters:
                self.start_process(cluster)

    def start_process(self, name: str) -> None:
        """Start the process of a node, the coordinator's, or that of a cluster's; also to restart one that has ended."""
        if name not in self.network.nodes:
            command = ["coordinate", str(self._path), "--dir", str(self.run_directory.root), "--epsilon", str(self._epsilon)]
            is_cluster = name in self.network.clusters
            command += ["--cluster", name] if is_cluster else ["--method", self._manager]
            directory = self.run_directory.cluster(name) if is_cluster else self.run_directory.coordinator
        else:
            command = ["run", str(self._path), "--node", name, *self._arguments]
            directory = self.run_directory.node(name)
        directory.mkdir(parents=True, exist_ok=True)
        self.logs[name] = directory / "log.txt"
        self.failures.pop(name, None)
        with self.logs[name].open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-m", "penstock", *command, *self._parent],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C stops the watching process, which then stops these once
            )

    @property
    def is_alive(self) -> bool:
        """Whether at least one node still runs."""
        return any(process.poll() is None for name, process in self.processes.items() if name in self.network.nodes)

    def collect_failures(self) -> None:
        """Note in ``failures`` which processes have ended with an error; the others go on."""
        for name, process in self.processes.items():
            if process.poll() not in (None, 0, -signal.SIGTERM) and name not in self.failures:
                self.failures[name] = _read_message(self.logs[name])

    def status(self, name: str) -> dict[str, Any] | None:
        """Return the last status that a process wrote; ``None`` before the first."""
        return read_status(self.logs[name].parent / "status.json")

    def stop(self) -> None:
        """Stop all processes after the batches that are running; kill those that do not end in time."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.collect_failures()


def _read_message(log: Path) -> str:
    """Return why a process ended, from its log: the last message of Penstock, or else the last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    messages = [line.removeprefix("penstock: ") for line in lines if line.startswith("penstock: ")]
    return messages[-1] if messages else lines[-1] if lines else "it left no message"
