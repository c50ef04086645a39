"""A real Spark cluster on the loopback, for tests: a standalone master and its workers, from the pip package."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.errors import PenstockError
from penstock.testing.maven import UnavailableError
from penstock.testing.processes import end_process, find_free_ports

__all__ = ["StandaloneCluster"]

_START_S = 60.0


class StandaloneCluster:
    """A master and workers, each in a JVM of its own; their executors can be killed.

    To Spark, each worker is a machine of its own where the loopback has an address for each, as on Linux. Else Spark starts no
    task a second time (speculation), which it does only on another machine.

    Parameters
    ----------
    workers
        How many workers.
    cores
        The cores of each, which is how many tasks it runs at once.
    memory
        The memory that each may give to executors, as Spark writes it.
    environment
        More environment variables of master and workers.

    Raises
    ------
    UnavailableError
        When it starts: if PySpark or Java is missing, in one line.

    Examples
    --------
    ::

        with StandaloneCluster(workers=2) as cluster:
            spark = SparkSession.builder.master(cluster.master).getOrCreate()
            ...
            cluster.kill_executor()
    """

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g", environment: dict[str, str] | None = None) -> None:
        self._count, self._cores, self._memory = workers, cores, memory
        self._environment = dict(environment or {})
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-cluster-"))
        self._port = find_free_ports()[0]
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """What a session calls its master."""
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start master and workers; return when all workers are registered."""
        if self._processes:
            raise PenstockError(f"the cluster at {self.master} runs already")
        package = find_spec("pyspark")
        if package is None or not package.submodule_search_locations:
            raise UnavailableError("a standalone cluster needs PySpark: pip install 'penstock[spark]'")
        if shutil.which("java") is None:
            raise UnavailableError("Spark needs Java 17 or later (Debian: apt-get install openjdk-17-jre-headless)")
        home = Path(package.submodule_search_locations[0])
        options = ["--webui-port", "0", "--host"]
        master = "org.apache.spark.deploy.master.Master"
        self._launch(home, "master", master, *options, "127.0.0.1", "--port", str(self._port))
        self._wait_for("master", "I have been elected leader")
        for number in range(self._count):
            size = ["--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(self._directory / f"work{number}")]
            address = [*options, _find_address(number)]
            self._launch(home, f"worker{number}", "org.apache.spark.deploy.worker.Worker", *address, *size, self.master)
        for number in range(self._count):
            self._wait_for(f"worker{number}", "Successfully registered with master")
        return self

    def executors(self) -> list[int]:
        """Return the process ids of the executors that run now, oldest first."""
        workers = {process.pid for process in self._processes[1:]}
        return sorted(
            pid for pid, parent, command in _list_processes() if parent in workers and "CoarseGrainedExecutor" in command
        )

    def kill_executor(self, position: int = 0, *, is_polite: bool = False) -> int | None:
        """Kill one executor as a crash would, the oldest by default; return its process id, ``None`` if there is none.

        A polite kill tells it to decommission itself, as a cloud does before it takes a machine away.
        """
        running = self.executors()
        if not running:
            return None
        pid = running[position % len(running)]
        try:
            os.kill(pid, signal.SIGPWR if is_polite else signal.SIGKILL)
        except ProcessLookupError:  # it has just ended by itself
            return None
        return pid

    def freeze_executor(self, seconds: float, position: int = 0) -> int | None:
        """Hold one executor still for a while, as a machine that hangs would; return its process id, ``None`` if there is none.

        It goes on afterwards. Until then it looks slow to Spark, which may start its tasks elsewhere (speculation).
        """
        running = self.executors()
        if not running:
            return None
        pid = running[position % len(running)]
        try:
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(seconds)
            finally:
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:  # it has just ended by itself
            return None
        return pid

    def stop(self) -> None:
        """End all processes, and remove what they wrote."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            end_process(process)
        self._processes = []
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _launch(self, home: Path, name: str, main: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            # Executors are killed on purpose: the master goes on giving new ones.
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            "SPARK_LOCAL_DIRS": str(self._directory / "local"),
            **self._environment,
        }
        environment.pop("PYTHONPATH", None)  # what the driver has there, executors elsewhere have not
        with (self._directory / f"{name}.log").open("wb") as log:
            # spark-class becomes the JVM (exec), so its process id is the worker's.
            process = subprocess.Popen(  # noqa: S603 - our own command
                [str(home / "bin" / "spark-class"), main, *arguments], stdout=log, stderr=log, env=environment
            )
        self._processes.append(process)

    def _wait_for(self, name: str, line: str) -> None:
        place = self._directory / f"{name}.log"
        deadline = time.monotonic() + _START_S
        while line not in place.read_text(errors="replace"):
            if any(process.poll() is not None for process in self._processes) or time.monotonic() > deadline:
                last = place.read_text(errors="replace").strip().splitlines()[-1:]
                self.stop()
                raise UnavailableError(f"Spark's {name} did not start: {last[0] if last else 'it said nothing'}")
            time.sleep(0.05)


def _find_address(number: int) -> str:
    """Return a loopback address of its own for a worker; the usual one where there is no other."""
    address = f"127.0.0.{number + 1}"
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return "127.0.0.1"
    return address


def _list_processes() -> list[tuple[int, int, str]]:
    """Return process id, parent and command of every process, from /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status, command = (entry / "stat").read_text(), (entry / "cmdline").read_text()
            except OSError:  # it has just ended
                continue
            found.append((int(entry.name), int(status.rpartition(")")[2].split()[1]), command))
    return found
