"""A real S3 interface for tests: moto's server in a process of its own, slow or failing where a test wants it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

from penstock.errors import PenstockError
from penstock.testing.maven import UnavailableError, fetch_jars
from penstock.testing.processes import end_process, find_free_ports

__all__ = ["S3Server", "fetch_s3a"]

_START_S = 60.0
_CONTROL = "/-penstock-"


class S3Server:
    """An S3 endpoint on the loopback, with one bucket. Each request can be delayed or refused.

    Parameters
    ----------
    bucket
        Made when it starts.
    port
        Where it listens; a free port if not given.

    Raises
    ------
    UnavailableError
        When it starts: if moto is missing.

    Examples
    --------
    ::

        with S3Server() as s3:
            session = builder.config(map=s3.settings()).config("spark.driver.extraClassPath", ":".join(fetch_s3a("3.5.0")))...
            s3.set(latency_s=0.05)
            checkpoint = f"{s3.url}/checkpoint"
    """

    def __init__(self, bucket: str = "rows", port: int | None = None) -> None:
        self.bucket = bucket
        self._port = find_free_ports()[0] if port is None else port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The bucket, as Hadoop names it."""
        return f"s3a://{self.bucket}"

    def settings(self) -> dict[str, str]:
        """Return the settings with which a Spark session reaches it; it gives up on a request within seconds, not minutes."""
        settings = {
            "endpoint": self.endpoint,
            "endpoint.region": "us-east-1",
            "access.key": "test",
            "secret.key": "test",
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "change.detection.mode": "none",
            "attempts.maximum": "1",
            "retry.limit": "1",
            "retry.interval": "100ms",
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}

    def environment(self) -> dict[str, str]:
        """Return the variables with which pyarrow, and so a command of Penstock, reaches it."""
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def start(self) -> Self:
        """Start it; return when it answers."""
        if find_spec("moto") is None or find_spec("werkzeug") is None:
            raise UnavailableError("an S3 server needs moto: pip install 'moto[server]'")
        environment = os.environ | {"MOTO_S3_CUSTOM_ENDPOINTS": "", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", __name__, str(self._port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        end_s = time.monotonic() + _START_S
        while True:
            try:
                self._ask("PUT", f"/{self.bucket}")
            except OSError:
                if time.monotonic() > end_s or self._process.poll() is not None:
                    self.stop()
                    raise UnavailableError(f"the S3 server at {self.endpoint} does not answer") from None
                time.sleep(0.1)
            else:
                return self

    def stop(self) -> None:
        """End it; what it holds is lost."""
        process, self._process = self._process, None
        if process is not None:
            end_process(process)

    def set(self, *, latency_s: float = 0.0, status: int | None = None, only: str = "", drops: bool = False) -> None:
        """Change how it answers from now on.

        Parameters
        ----------
        latency_s
            Added to each request.
        status
            What requests fail with, such as 503 or 403; by default they don't.
        only
            A part of the path: other requests are neither slow nor refused.
        drops
            Whether a request that fails is carried out all the same, so that only its answer is lost.
        """
        self._ask("POST", f"{_CONTROL}/set", json.dumps([latency_s, status, only, drops]).encode())

    def requests(self) -> list[tuple[str, str]]:
        """Return the requests since the last call: verb and path."""
        return [(verb, path) for verb, path in json.loads(self._ask("POST", f"{_CONTROL}/requests"))]

    def _ask(self, verb: str, path: str, body: bytes = b"") -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request(verb, path, body, {"Authorization": _SIGNATURE})
            answer = connection.getresponse()
            content = answer.read()
        except (http.client.HTTPException, OSError) as error:
            raise OSError(str(error)) from None
        finally:
            connection.close()
        if answer.status >= 400:
            raise PenstockError(f"the S3 server answers {answer.status} to {verb} {path}: {content[:200]!r}")
        return content

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop it."""
        self.stop()


_SIGNATURE = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


def fetch_s3a(hadoop_version: str) -> list[str]:
    """Return the jars with which a Spark that has this version of Hadoop reads and writes S3, for its driver's class path.

    Amazon's part has 650 MB, so ``spark.jars``, which copies them, takes long.
    """
    jars = fetch_jars("hadoop-aws", [f"org.apache.hadoop:hadoop-aws:{hadoop_version}"])
    return sorted(str(jar) for jar in jars.glob("*.jar"))


class _Unreliable:
    """A web application in front of another: delays and refuses its requests, as it is told at a path of its own."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._latency_s, self._only, self._drops = 0.0, "", False
        self._status: int | None = None
        self._requests: list[tuple[str, str]] = []
        self._changing = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path, verb = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith(_CONTROL):
            return self._control(path, environ, start_response)
        query = environ.get("QUERY_STRING", "")
        with self._changing:
            self._requests.append((verb, f"{path}?{query}" if query else path))
        if self._only in path or self._only in query:
            time.sleep(self._latency_s)
            if self._status is not None:
                return self._refuse(environ, start_response)
        answer: Iterable[bytes] = self._application(environ, start_response)
        return answer

    def _control(self, path: str, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        content = b""
        if path.endswith("/set"):
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            self._latency_s, self._status, self._only, self._drops = json.loads(body)
        else:
            with self._changing:
                content, self._requests = json.dumps(self._requests).encode(), []
        start_response("200 OK", [("Content-Length", str(len(content)))])
        return [content]

    def _refuse(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if self._drops:
            list(self._application(environ, lambda *_: None))
        code = "AccessDenied" if self._status == 403 else "SlowDown"
        content = f"<Error><Code>{code}</Code><Message>told to answer so</Message></Error>".encode()
        start_response(f"{self._status} {code}", [("Content-Length", str(len(content))), ("Content-Type", "application/xml")])
        return [content]


def _serve(port: int) -> None:
    """Serve until the process ends, or whoever started it has."""
    import moto.server  # noqa: PLC0415 - an extra
    from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: PLC0415

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open, as S3's do

        def log(self, *_: Any, **__: Any) -> None:  # nobody reads it
            return

    backends: Any = moto.server
    application = _Unreliable(backends.DomainDispatcherApplication(backends.create_backend_app))
    server = make_server("127.0.0.1", port, application, threaded=True, request_handler=Handler)
    parent = os.getppid()

    def follow() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
