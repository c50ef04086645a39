"""Kafka's own client: how it is loaded, set up, and asked whether a broker answers."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from penstock.errors import PenstockError

__all__ = ["NoAnswerError", "client_settings", "is_answering", "load_client"]

_CONNECT_S = 2.0


class NoAnswerError(OSError):
    """Kafka does not answer; that passes, as a full disk does.

    >>> str(NoAnswerError("Kafka at host:9092 does not answer"))
    'Kafka at host:9092 does not answer'
    """

    def __init__(self, message: str) -> None:
        super().__init__(None, message)

    def __str__(self) -> str:
        """Return the message alone: there is no number to it."""
        return str(self.strerror)


def load_client(module: str = "confluent_kafka") -> Any:
    """Return confluent-kafka, or one of its modules.

    Raises
    ------
    PenstockError
        If it is not installed.
    """
    import importlib  # noqa: PLC0415 - only here

    try:
        return importlib.import_module(module)
    except ImportError:
        raise PenstockError("Kafka needs confluent-kafka: pip install 'penstock[kafka]'") from None


def client_settings(servers: str, options: Mapping[str, object] | None = None, **more: object) -> dict[str, object]:
    """Return settings of a client; underscores in the names of ``more`` stand for dots.

    >>> client_settings("host:9092", {"security.protocol": "SSL"}, linger_ms=5)["linger.ms"]
    5
    """
    defaults: dict[str, object] = {"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 1_000}
    return defaults | {name.replace("_", "."): value for name, value in more.items()} | dict(options or {})


def is_answering(servers: str) -> bool:
    """Return whether one of the brokers takes connections.

    >>> is_answering("127.0.0.1:1")
    False
    """
    return any(_takes_connections(address.strip()) for address in servers.split(",") if address.strip())


def _takes_connections(address: str) -> bool:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S):
            return True
    except (OSError, ValueError, OverflowError):
        return False
