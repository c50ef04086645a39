"""A network with latency for tests: a port whose bytes arrive later at another one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from types import TracebackType
from typing import Self

__all__ = ["SlowLink"]

_CHUNK = 1 << 16
_STOP_S = 10.0


class SlowLink:
    """Forwards each connection on the loopback; what the client says arrives ``latency_s`` later, in order.

    Written by hand, as ``tc netem`` needs the rights of an administrator, and toxiproxy a server of its own.

    Examples
    --------
    >>> import socket
    >>> with socket.create_server(("127.0.0.1", 0)) as server, SlowLink(server.getsockname()[1]) as link:
    ...     link.latency_s = 0.05
    ...     begun_s = time.monotonic()
    ...     with socket.create_connection(("127.0.0.1", link.port)) as client:
    ...         client.sendall(b"hello")
    ...         accepted, _ = server.accept()
    ...         with accepted:
    ...             accepted.recv(5), time.monotonic() - begun_s >= 0.05
    (b'hello', True)
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self.latency_s = 0.0
        """May be changed at any time; what is under way arrives when it would have."""
        self.port = 0
        """Where clients connect, once it runs."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Begin to forward; return when clients can connect."""
        is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(is_ready)), name="penstock slow link", daemon=True)
        self._thread.start()
        is_ready.wait(_STOP_S)
        return self

    def stop(self) -> None:
        """Cut all connections; nothing happens if it doesn't run."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_STOP_S)

    async def _serve(self, is_ready: threading.Event) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        is_ready.set()
        await self._ended.wait()
        server.close()  # and the loop ends with all that runs in it

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        try:
            await asyncio.gather(self._take(reader, under_way), _deliver(under_way, far_writer), _answer(far_reader, writer))
        except asyncio.CancelledError:  # the end
            writer.transport.abort()
            far_writer.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]]) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                under_way.put_nowait((time.monotonic() + self.latency_s, chunk))
        under_way.put_nowait((time.monotonic() + self.latency_s, b""))

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop it."""
        self.stop()


async def _deliver(under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
    while True:
        due_s, chunk = await under_way.get()
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        if not chunk:
            break
        with contextlib.suppress(OSError):
            writer.write(chunk)
            await writer.drain()
    writer.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()
