"""Ports and processes of the services that tests start."""

from __future__ import annotations

import contextlib
import socket
import subprocess

__all__ = ["end_process", "find_free_ports"]

_STOP_S = 20.0


def find_free_ports(count: int = 1) -> list[int]:
    """Return ports of the loopback that nobody listens on now, all of them different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def end_process(process: subprocess.Popen[bytes], *, kill: bool = False) -> None:
    """End a process, by force if it does not end within 20 seconds or if ``kill`` says so."""
    process.kill() if kill else process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_S)
