"""The directory in which a network runs: what every process of it must agree on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from penstock.coordination.fingerprint import describe_changes, describe_network, fingerprint
from penstock.errors import PenstockError
from penstock.filesystem import DirectoryLock, is_locked, write_atomically
from penstock.network.model import Network

__all__ = ["RunDirectory"]


class RunDirectory:
    """A directory that all nodes of a network see.

    ``network.json`` says which network it is; ``arcs``, ``outputs``, ``messages`` and ``nodes/<name>`` hold the rest.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    @property
    def arcs(self) -> Path:
        """The micro-batches that travel between nodes."""
        return self.root / "arcs"

    @property
    def outputs(self) -> Path:
        """The answers, unless an output names another directory."""
        return self.root / "outputs"

    @property
    def messages(self) -> Path:
        """The messages between nodes and coordinator."""
        return self.root / "messages"

    @property
    def coordinator(self) -> Path:
        """What belongs to the coordinator."""
        return self.root / "coordinator"

    def node(self, name: str) -> Path:
        """Return what belongs to one node."""
        return self.root / "nodes" / name

    def cluster(self, name: str) -> Path:
        """Return what belongs to the coordinator of a cluster."""
        return self.root / "clusters" / name

    def claim(self, network: Network, *, reset: bool = False) -> str:
        """Check that the directory is this network's, or make it so; return the network's fingerprint."""
        path = self.root / "network.json"
        now = json.loads(json.dumps(describe_network(network)))
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            before = json.loads(path.read_text()) if path.exists() else None
        except OSError as error:
            raise PenstockError(f"the directory {self.root} can't be used: {error.strerror}") from error
        except ValueError as error:
            if not reset:
                raise PenstockError(f"{path} is damaged: {error}; start anew with --reset") from error
            before = None
        changed = describe_changes(before, now) if before is not None else []
        if changed and not reset:
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            raise PenstockError(
                f"the network has changed since {self.root} was made: {changed[0]}{more}; "
                "start anew with --reset, which forgets what is under way there"
            )
        if reset:
            self._forget()
        if before is None or reset:
            try:
                write_atomically(path, json.dumps(now, indent=1).encode())
            except OSError as error:
                raise PenstockError(f"the directory {self.root} can't be written: {error.strerror}") from error
        return fingerprint(network)

    def _forget(self) -> None:
        """Remove what is under way; answers are put aside."""
        parts = (*self.root.glob("nodes/*"), *self.root.glob("clusters/*"), self.coordinator)
        busy = [path for path in parts if is_locked(path)]
        if busy:
            whose = {"nodes": f"node {busy[0].name!r}", "clusters": f"the coordinator of cluster {busy[0].name!r}"}
            who = whose.get(busy[0].parent.name, "the coordinator") if busy[0] != self.coordinator else "the coordinator"
            raise PenstockError(f"{who} is running in {self.root}: stop it before --reset")
        if self.outputs.exists():
            number = 1 + len(list(self.root.glob("outputs-*")))
            self.outputs.rename(self.root / f"outputs-{number}")
        for directory in (self.arcs, self.messages, self.root / "nodes", self.root / "clusters", self.coordinator):
            shutil.rmtree(directory, ignore_errors=True)

    def lock(self, directory: Path, taken: str) -> DirectoryLock:
        """Hold a part of the run directory for this process; ``taken`` is what to say if another process has it."""
        lock = DirectoryLock(directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            is_free = lock.acquire()
        except OSError as error:
            raise PenstockError(f"the directory {directory} can't be written: {error.strerror}") from error
        if not is_free:
            raise PenstockError(taken)
        return lock
