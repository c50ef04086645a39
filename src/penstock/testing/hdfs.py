"""A real HDFS for tests: a name node and a data node on the loopback, from Maven's jars."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.errors import PenstockError
from penstock.testing.maven import UnavailableError, fetch_jars
from penstock.testing.processes import find_free_ports
from penstock.testing.slow_link import SlowLink

__all__ = ["HdfsCluster"]

_VERSION = "3.5.0"
_START_S, _STOP_S = 90.0, 20.0
_KINDS = {"namenode": "NameNode", "datanode": "DataNode"}


class HdfsCluster:
    """One name node and one data node. They answer on the loopback only.

    Parameters
    ----------
    directory
        Where they keep their data; a temporary directory if not given, removed at the end.

    Raises
    ------
    UnavailableError
        When it starts: if Java, Maven or the jars are missing, in one line.

    Examples
    --------
    ::

        with HdfsCluster() as hdfs:
            checkpoint = f"{hdfs.url}/checkpoint"
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        self._is_own = directory is None
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-hdfs-") if directory is None else directory)
        self._port, self._web_port = find_free_ports(2)
        self._link = SlowLink(self._port)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """The root of the filesystem."""
        return f"hdfs://127.0.0.1:{self._link.port or self._port}"

    def start(self) -> Self:
        """Start it, with the data that it had before; return when files can be written."""
        if self._processes:
            raise PenstockError(f"HDFS at {self.url} runs already")
        jars = fetch_jars("hadoop-minicluster", [f"org.apache.hadoop:hadoop-client-minicluster:{_VERSION}"])
        if shutil.which("java") is None:
            raise UnavailableError("HDFS needs Java 17 (Debian: apt-get install openjdk-17-jre-headless)")
        self._configure()
        if not (self._directory / "name" / "current").exists():
            done = subprocess.run(  # noqa: S603 - our own command
                self._java(jars, "org.apache.hadoop.hdfs.server.namenode.NameNode", "-format", "-nonInteractive"),
                capture_output=True,
                text=True,
                timeout=_START_S,
                check=False,
            )
            if done.returncode:
                raise UnavailableError(f"HDFS can't prepare its directory: {done.stderr.strip()[-300:]}")
        for kind, name in _KINDS.items():
            with (self._directory / f"{kind}.log").open("ab") as log:
                command = self._java(jars, f"org.apache.hadoop.hdfs.server.{kind}.{name}")
                self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))  # noqa: S603 - our own command
        self._wait()
        self._link.start()
        return self

    def pause(self) -> None:
        """Let nothing answer, as a network that is cut off would; ``resume`` ends it."""
        for process in self._processes:
            process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again."""
        for process in self._processes:
            process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def slowed(self, latency_s: float) -> Iterator[None]:
        """Make each request to the name node wait, as a network far away would."""
        self._link.latency_s = latency_s
        try:
            yield
        finally:
            self._link.latency_s = 0.0

    def stop(self) -> None:
        """End it; nothing happens if it doesn't run."""
        self._link.stop()
        processes, self._processes = self._processes, []
        for process in processes:
            process.kill()
            process.wait(_STOP_S)

    def _configure(self) -> None:
        folders = {name: (self._directory / name).as_uri() for name in ("name", "data")}
        settings = {
            "fs.defaultFS": f"hdfs://127.0.0.1:{self._port}",
            "hadoop.tmp.dir": str(self._directory / "tmp"),
            "dfs.namenode.name.dir": folders["name"],
            "dfs.datanode.data.dir": folders["data"],
            "dfs.namenode.http-address": f"127.0.0.1:{self._web_port}",
            "dfs.datanode.address": "127.0.0.1:0",
            "dfs.datanode.http.address": "127.0.0.1:0",
            "dfs.datanode.ipc.address": "127.0.0.1:0",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.replication": "1",
            "dfs.permissions.superusergroup": "penstock",
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.datanode.data.dir.perm": "755",
        }
        properties = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items())
        (self._directory / "conf").mkdir(parents=True, exist_ok=True)
        for name in ("core-site.xml", "hdfs-site.xml"):
            (self._directory / "conf" / name).write_text(f"<configuration>{properties}</configuration>", encoding="utf-8")

    def _wait(self) -> None:
        """Wait until the name node has left its safe mode and knows its data node."""
        end_s = time.monotonic() + _START_S
        while time.monotonic() < end_s and all(process.poll() is None for process in self._processes):
            if self._is_up():
                return
            time.sleep(0.1)
        logs = [(self._directory / f"{kind}.log").read_text(encoding="utf-8", errors="replace") for kind in _KINDS]
        lines = "\n".join(logs).strip().splitlines()
        self.stop()
        raise UnavailableError(f"HDFS did not start: {lines[-1] if lines else 'it said nothing'}")

    def _is_up(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._web_port, timeout=5)
        try:
            connection.request("GET", "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState")
            beans = json.loads(connection.getresponse().read())["beans"]
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return False
        finally:
            connection.close()
        return bool(beans) and beans[0]["FSState"] == "Operational" and beans[0]["NumLiveDataNodes"] > 0

    def _java(self, jars: Path, main: str, *arguments: str) -> list[str]:
        return ["java", "-Xmx256m", "-cp", f"{self._directory / 'conf'}:{jars}/*", main, *arguments]

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop it, and remove a directory of its own."""
        self.stop()
        if self._is_own:
            shutil.rmtree(self._directory, ignore_errors=True)
