"""What carries rows and messages between the nodes of a network, as the YAML file says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.duration import parse_duration
from penstock.errors import PenstockError

__all__ = ["DIRECTORY", "KAFKA", "TransportSettings", "read_transport"]

DIRECTORY, KAFKA = "directory", "kafka"
_FIELDS = ("kind", "servers", "name", "partitions", "retention", "options", "spark_options", "client_options")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """A shared directory, or topics of Kafka.

    Examples
    --------
    >>> TransportSettings("kafka", "host:9092", "ads").topic_of("a1->b1")
    'penstock.ads.a1--b1'
    """

    kind: str = DIRECTORY
    servers: str = ""
    """The addresses of Kafka's brokers."""
    name: str = ""
    """What the network's topics are named after."""
    partitions: int = 1
    """Of each topic that carries an arc."""
    retention_s: float | None = None
    """After how long Kafka removes rows, read or not; ``None`` keeps them until they are read."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings of both clients: Spark's, which is Java's, and confluent-kafka."""
    spark_options: Mapping[str, str] = field(default_factory=dict)
    client_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """What the names of all topics of the network begin with."""
        return f"penstock.{self.name}."

    @property
    def messages(self) -> str:
        """The topic of the messages between nodes. No arc has a name like it."""
        return f"{self.prefix}messages"

    @property
    def batches(self) -> str:
        """The topic that says which batch was written last to each arc."""
        return f"{self.prefix}batches"

    def topic_of(self, arc: str) -> str:
        """Return the topic of an arc. Kafka takes few characters, so others are escaped."""
        return self.prefix + re.sub(r"[^A-Za-z0-9.-]", lambda match: f"_{ord(match[0]):x}_", arc.replace("->", "--"))


def read_transport(fields: Mapping[str, object], default_name: str) -> TransportSettings:
    """Check the fields of the YAML's section ``transport``, and return what they mean.

    >>> read_transport({"kind": "kafka", "servers": "host:9092", "retention": "1h"}, "ads").retention_s
    3600.0
    >>> read_transport({"kind": "pigeon"}, "ads")
    Traceback (most recent call last):
    penstock.errors.PenstockError: transport: its kind must be directory or kafka, got 'pigeon'
    """
    unknown = [name for name in fields if name not in _FIELDS]
    if unknown:
        raise PenstockError(f"transport has no field {unknown[0]!r}; known fields: {', '.join(_FIELDS)}")
    kind = str(fields.get("kind", KAFKA if "servers" in fields else DIRECTORY))
    if kind == DIRECTORY:
        if others := [name for name in fields if name != "kind"]:
            raise PenstockError(f"transport: {others[0]!r} is for kind kafka, and this is a directory")
        return TransportSettings()
    if kind != KAFKA:
        raise PenstockError(f"transport: its kind must be {DIRECTORY} or {KAFKA}, got {kind!r}")
    servers = str(fields.get("servers", ""))
    if not servers or not all(re.fullmatch(r"\S+:\d+", address.strip()) for address in servers.split(",")):
        raise PenstockError(
            f"transport: kafka needs the addresses of brokers, such as {{kind: kafka, servers: 'host:9092'}}, got {servers!r}"
        )
    name = str(fields["name"]) if "name" in fields else re.sub(r"[^A-Za-z0-9._-]", "-", default_name)[:100]
    if not _NAME.fullmatch(name):
        raise PenstockError(f"transport: its name must be letters, digits, dots, dashes and underscores, got {name!r}")
    retention = fields.get("retention")
    return TransportSettings(
        KAFKA,
        servers,
        name,
        _read_partitions(fields.get("partitions", "1")),
        None if retention is None else parse_duration(str(retention), "transport: retention"),
        *(_read_options(fields, option) for option in ("options", "spark_options", "client_options")),
    )


def _read_partitions(given: object) -> int:
    if not (str(given).isdigit() and 1 <= int(str(given)) <= 1_000):
        raise PenstockError(f"transport: partitions must be a whole number from 1 to 1000, got {given!r}")
    return int(str(given))


def _read_options(fields: Mapping[str, object], name: str) -> dict[str, str]:
    given = fields.get(name, {})
    if not isinstance(given, Mapping):
        raise PenstockError(f"transport: {name} must map names to values, got {given!r}")
    return {str(key): str(value) for key, value in given.items()}
