"""A Spark Connect server on the loopback, for tests: a process of its own, from the pip package."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.maven import UnavailableError
from penstock.testing.processes import end_process, find_free_ports

__all__ = ["ConnectServer"]

_START_S = 90.0
_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """A server to which clients connect; it runs their queries, and functions of theirs in a Python like this one.

    Parameters
    ----------
    cores
        How many tasks run at once.
    settings
        More settings of Spark.
    paths
        Directories that its Python workers import from.

    Raises
    ------
    UnavailableError
        When it starts: if PySpark or Java is missing, in one line.

    Examples
    --------
    ::

        with ConnectServer() as server:
            spark = SparkSession.builder.remote(server.address).getOrCreate()
    """

    def __init__(self, cores: int = 2, settings: Mapping[str, str] | None = None, paths: tuple[Path, ...] = ()) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-connect-"))
        (self._port,) = find_free_ports()
        self._paths = paths
        self._settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": str(self.directory / "local"),
            "spark.master": f"local[{cores}]",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(cores),
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            "spark.ui.enabled": "false",
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What a session calls its remote."""
        return f"sc://127.0.0.1:{self._port}"

    @property
    def log(self) -> str:
        """What the server has written so far."""
        return (self.directory / "server.log").read_text(errors="replace")

    def start(self) -> Self:
        """Start the server; return when it answers."""
        package = find_spec("pyspark")
        home = Path(package.submodule_search_locations[0]) if package and package.submodule_search_locations else Path()
        if not (home / "jars").is_dir():  # the pure Python client has none
            raise UnavailableError("a Spark Connect server needs PySpark: pip install 'penstock[spark]'")
        if shutil.which("java") is None:
            raise UnavailableError("Spark needs Java 17 or later (Debian: apt-get install openjdk-17-jre-headless)")
        paths = os.pathsep.join([*map(str, self._paths), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": paths}
        options = [word for key, value in self._settings.items() for word in ("--conf", f"{key}={value}")]
        command = [str(home / "bin" / "spark-submit"), "--class", _MAIN, *options, "spark-internal"]
        with (self.directory / "server.log").open("wb") as log:
            # spark-submit becomes the JVM (exec), so its process id is the server's.
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdout=log, stderr=log, env=environment, cwd=self.directory
            )
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = self.log.strip().splitlines()[-1:]
                self.stop()
                raise UnavailableError(f"the Spark Connect server did not start: {last[0] if last else 'it said nothing'}")
            time.sleep(0.1)
        return self

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def kill(self) -> None:
        """End the server as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End the server, and remove what it wrote."""
        if self._process is not None:
            end_process(self._process)
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
