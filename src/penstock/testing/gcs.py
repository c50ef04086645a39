"""A real interface of Google's storage for tests: fsouza's fake-gcs-server, built from the Go module proxy, on the loopback."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.errors import PenstockError
from penstock.testing.maven import UnavailableError, fetch_jars
from penstock.testing.processes import end_process, find_free_ports

__all__ = ["GcsServer", "fetch_gcs_connector"]

_MODULE, _VERSION = "github.com/fsouza/fake-gcs-server", "v1.56.1"
_CONNECTOR = "com.google.cloud.bigdataoss:gcs-connector:4.0.4:shaded"
_BUILD_S, _START_S = 600.0, 30.0


class GcsServer:
    """An endpoint of Google's storage with one bucket, in memory. It checks generations, so files are created if absent.

    Parameters
    ----------
    bucket
        Made when it starts.

    Raises
    ------
    UnavailableError
        When it starts: if the server can't be built, in one line.

    Examples
    --------
    ::

        with GcsServer() as gcs:
            session = builder.config(map=gcs.settings()).config("spark.driver.extraClassPath", fetch_gcs_connector())...
            checkpoint = f"{gcs.url}/checkpoint"
    """

    def __init__(self, bucket: str = "rows") -> None:
        self.bucket = bucket
        self._port = find_free_ports()[0]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The bucket, as Hadoop names it."""
        return f"gs://{self.bucket}"

    def settings(self) -> dict[str, str]:
        """Return the settings with which a Spark session reaches it."""
        settings = {
            "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
            "fs.gs.storage.root.url": f"{self.endpoint}/",
            "fs.gs.auth.type": "UNAUTHENTICATED",
            "fs.gs.project.id": "penstock",
            "fs.gs.client.type": "HTTP_API_CLIENT",
            "fs.gs.block.size": "67108864",  # Hadoop 3.5 says 64m, for a connector of its own, which Google's can't read
        }
        return {f"spark.hadoop.{name}": value for name, value in settings.items()}

    def start(self) -> Self:
        """Start it; return when it answers."""
        if self._process is not None:
            raise PenstockError(f"the server at {self.endpoint} runs already")
        program = _build()
        address = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self._port), "-public-host", f"127.0.0.1:{self._port}"]
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [str(program), "-backend", "memory", "-external-url", self.endpoint, *address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end_s = time.monotonic() + _START_S
        while not self._make_bucket():
            if time.monotonic() > end_s or self._process.poll() is not None:
                self.stop()
                raise UnavailableError(f"fake-gcs-server at {self.endpoint} does not answer")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """End it; what it holds is lost."""
        process, self._process = self._process, None
        if process is not None:
            end_process(process)

    def _make_bucket(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            body = json.dumps({"name": self.bucket})
            connection.request("POST", "/storage/v1/b?project=penstock", body, {"Content-Type": "application/json"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop it."""
        self.stop()


def fetch_gcs_connector() -> str:
    """Return the jar with which Spark reads and writes ``gs://``: Google's, with what it needs inside."""
    (jar,) = fetch_jars("gcs-connector", [_CONNECTOR], transitive=False).glob("*.jar")
    return str(jar)


def _build() -> Path:
    """Return the server, built the first time and kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "go" / f"fake-gcs-server-{_VERSION}"
    program = cache / "fake-gcs-server"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise UnavailableError("fake-gcs-server needs Go to build it (Debian: apt-get install golang)")
    environment = {**os.environ, "GOBIN": str(cache), "GOFLAGS": "-p=1"}  # other tests run beside it
    try:
        command = [go, "install", f"{_MODULE}@{_VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_BUILD_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"fake-gcs-server was not built within {_BUILD_S:g} s") from None
    if done.returncode or not program.exists():
        lines = done.stderr.strip().splitlines() or ["go said nothing"]
        raise UnavailableError(f"fake-gcs-server can't be built: {lines[-1]}")
    return program
