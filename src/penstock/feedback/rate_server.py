"""A small HTTP endpoint with the rates that are admitted: to read, and on the loopback unless another address is given."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock.errors import PenstockError
from penstock.feedback.rate_record import RateRecord

__all__ = ["RateServer"]

_PATH = "/rates"


class RateServer:
    """Serves ``/rates`` and ``/rates/<topic>`` as JSON lists of records.

    Parameters
    ----------
    address
        Where to listen, such as ``"127.0.0.1:8077"``; port 0 takes any that is free.
    records
        Returns the records of the moment.

    Raises
    ------
    PenstockError
        If the address is none, or is taken.
    """

    def __init__(self, address: str, records: Callable[[], Iterable[RateRecord]]) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise PenstockError(f"the address of the endpoint must be host:port, such as 127.0.0.1:8077, got {address!r}")
        try:
            self._server = ThreadingHTTPServer((host, int(port)), _build_handler(records))
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise PenstockError(f"the endpoint can't listen at {address}: {reason}") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="penstock-rates", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address, as ``AdmittedRate.from_http`` takes it."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


def _build_handler(records: Callable[[], Iterable[RateRecord]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET; for all else the base class says that it is not supported."""

        server_version = "penstock"
        sys_version = ""
        timeout = 5.0

        def do_GET(self) -> None:
            """Answer with the records of all topics or of one."""
            path = urllib.parse.urlsplit(self.path).path
            topic = urllib.parse.unquote(path.removeprefix(f"{_PATH}/"))
            if path != _PATH and not (path.startswith(f"{_PATH}/") and topic):
                self.send_error(404, f"there is {_PATH} and {_PATH}/<topic>")
                return
            chosen = [asdict(record) for record in records() if path == _PATH or record.topic == topic]
            content = json.dumps(chosen).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    return Handler
