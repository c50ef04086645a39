"""Serves the dashboard until it is stopped."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn

from penstock.dashboard.access import is_loopback
from penstock.dashboard.app import build_app
from penstock.dashboard.news_feed import Feed
from penstock.errors import PenstockError
from penstock.observe.observatory import Observatory

__all__ = ["bind", "serve"]

_NICE = 5
"""The job on this machine goes first."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens there.

    Raises
    ------
    PenstockError
        If the port is taken, or the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise PenstockError(
            f"the dashboard can't listen on {host} port {port}: {reason}; choose another with --host and --port"
        ) from None
    return listener


class _Server(uvicorn.Server):
    """A server that ends at once when it is asked to: pages that follow events would keep it."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self._feed = feed

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let all pages go, and end."""
        super().handle_exit(sig, frame)
        self._feed.close()


def serve(
    observatory: Observatory,
    listener: socket.socket,
    *,
    token: str | None = None,
    names: Sequence[str] = (),
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Serve until Ctrl-C or a polite kill. The process steps back for others: jobs matter more than a page."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    is_local = is_loopback(listener.getsockname()[0])
    feed = Feed(observatory)
    app = build_app(observatory, token=token, is_local=is_local, names=names, feed=feed)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1, lifespan="on", ws="none"
    )
    server = _Server(config, feed)
    if on_ready is not None:
        on_ready()
    server.run(sockets=[listener])
