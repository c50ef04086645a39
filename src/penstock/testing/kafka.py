"""A real Kafka broker for tests and demos: one KRaft node on the loopback, from Maven's jars."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.errors import PenstockError
from penstock.testing.maven import UnavailableError, cached_jars, fetch_jars
from penstock.testing.processes import end_process, find_free_ports

__all__ = ["KafkaBroker", "fetch_connector"]

_BROKER = ["org.apache.kafka:kafka_2.13:4.3.1"]
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}"
_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13:{version}"
_CLIENT = ["org.apache.kafka:kafka-clients:3.9.2", "org.apache.commons:commons-pool2:2.13.0"]
_NEAREST = ("4.2.0", "4.1.0-preview1")
"""Connector and token provider that work with Spark 4.3, where its own can't be had."""
_NEAR = ("4.2.", "4.3.")
_START_S = 60.0


class KafkaBroker:
    """One Kafka node that is broker and controller in one. It answers on the loopback only.

    Parameters
    ----------
    directory
        Where it keeps its data; a temporary directory if not given, removed at the end. Another broker may go on with it later.
    settings
        More settings of the broker, such as ``{"log.retention.check.interval.ms": 500}``.
    port
        Where it answers; any port that is free if not given.

    Raises
    ------
    UnavailableError
        When it starts: if Java, Maven or the jars are missing, or the port is taken, in one line.

    Examples
    --------
    ::

        with KafkaBroker() as broker:
            broker.create_topic("rows", partitions=2)
            rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)...
    """

    def __init__(
        self, directory: str | Path | None = None, settings: Mapping[str, object] | None = None, port: int | None = None
    ) -> None:
        self._is_own = directory is None
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-kafka-") if directory is None else directory).resolve()
        self._settings = dict(settings or {})
        self._ports = find_free_ports(2) if port is None else [port, *find_free_ports()]
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: Any = None

    @property
    def address(self) -> str:
        """What clients call bootstrap servers."""
        return f"127.0.0.1:{self._ports[0]}"

    def start(self) -> Self:
        """Start it, with the data that it had before; return when it answers."""
        if self._process is not None:
            raise PenstockError(f"the broker at {self.address} runs already")
        _check_ports(self._ports)
        jars = fetch_jars("kafka", _BROKER)
        if shutil.which("java") is None:
            raise UnavailableError("Kafka needs Java 17 or later (Debian: apt-get install openjdk-17-jre-headless)")
        properties = self._directory / "server.properties"
        self._write(properties)
        if not (self._directory / "data" / "meta.properties").exists():
            self._format(jars, properties)
        with (self._directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                _java(jars, "kafka.Kafka", str(properties)), stdout=log, stderr=log, cwd=self._directory
            )
        self._wait()
        return self

    def stop(self) -> None:
        """Ask it to end, and wait until it has; nothing happens if it doesn't run."""
        self._end(kill=False)

    def kill(self) -> None:
        """End it without a chance to clean up, as a crash would."""
        self._end(kill=True)

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, object] | None = None) -> None:
        """Create a topic, and wait until it is there. ``settings`` are the topic's, such as ``{"cleanup.policy": "compact"}``."""
        topics = _admin_module().NewTopic(
            name, partitions, 1, config={key: str(value) for key, value in (settings or {}).items()}
        )
        self.admin().create_topics([topics])[name].result(30)
        self._until(lambda: self.count_partitions(name) == partitions, f"topic {name} is there")

    def add_partitions(self, name: str, partitions: int) -> None:
        """Raise the number of a topic's partitions."""
        self.admin().create_partitions([_admin_module().NewPartitions(name, partitions)])[name].result(30)
        self._until(lambda: self.count_partitions(name) == partitions, f"topic {name} has {partitions} partitions")

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin().delete_topics([name])[name].result(30)
        self._until(lambda: self.count_partitions(name) == 0, f"topic {name} is gone")

    def count_partitions(self, name: str) -> int:
        """Return how many partitions a topic has; 0 if there is no such topic."""
        topics = self.admin().list_topics(timeout=10).topics
        return len(topics[name].partitions) if name in topics else 0

    def admin(self) -> Any:
        """Return a client of confluent-kafka that administrates this broker."""
        if self._admin is None:
            self._admin = _admin_module().AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        return self._admin

    def _write(self, properties: Path) -> None:
        """Write the settings: a directory that was used before may have other ports."""
        self._directory.mkdir(parents=True, exist_ok=True)
        listener, controller = (f"127.0.0.1:{port}" for port in self._ports)
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{listener},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self._directory / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # After a crash, the node waits as long for itself.
            "broker.session.timeout.ms": 1_500,
            "broker.heartbeat.interval.ms": 500,
        } | self._settings
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")

    def _format(self, jars: Path, properties: Path) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # In one word: one identifier in 64 begins with a dash, and would be taken for an option.
        command = _java(jars, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(properties))
        done = subprocess.run(command, capture_output=True, text=True, timeout=_START_S, check=False)  # noqa: S603
        if done.returncode:
            raise UnavailableError(f"Kafka can't prepare its directory: {(done.stderr or done.stdout).strip()[-300:]}")

    def _wait(self) -> None:
        end_s = time.monotonic() + _START_S
        while time.monotonic() < end_s:
            if self._process is not None and self._process.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self._ports[0]), timeout=1.0):
                    pass
                self.admin().list_topics(timeout=2)
            except Exception:  # refused, or no answer yet
                time.sleep(0.1)
            else:
                return
        log = (self._directory / "broker.log").read_text(encoding="utf-8", errors="replace").strip()
        self.kill()
        raise UnavailableError(f"Kafka did not start: {log.splitlines()[-1] if log else 'it said nothing'}")

    def _until(self, is_so: Any, what: str) -> None:
        end_s = time.monotonic() + _START_S
        while not is_so():
            if time.monotonic() > end_s:
                raise PenstockError(f"Kafka: waited for {_START_S:g} s until {what}")
            time.sleep(0.05)

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            end_process(process, kill=kill)

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop it, and remove a directory of its own."""
        if self._is_own:
            self.kill()
            shutil.rmtree(self._directory, ignore_errors=True)
        else:
            self.stop()


def fetch_connector(spark_version: str) -> list[Path]:
    """Return the jars with which a Spark of this version reads and writes Kafka, for ``spark.jars``.

    Those of the version itself if they can be had; otherwise, for Spark 4.2 and 4.3, the nearest that work.

    Raises
    ------
    UnavailableError
        If they can't be fetched, in one line.
    """
    connector, tokens = _NEAREST
    nearest = [_CONNECTOR.format(version=connector, scala="2.13"), _TOKENS.format(version=tokens), *_CLIENT]
    own = [_CONNECTOR.format(version=spark_version, scala="2.12" if spark_version.startswith("3.") else "2.13")]
    may_differ = spark_version.startswith(_NEAR)
    found = cached_jars("spark-kafka", nearest) if may_differ and cached_jars("spark-kafka", own) is None else None
    if found is not None:  # then its own could not be had before
        return sorted(found.glob("*.jar"))
    try:
        jars = fetch_jars("spark-kafka", own)
    except UnavailableError:
        if not may_differ:
            raise
        return sorted(fetch_jars("spark-kafka", nearest, transitive=False).glob("*.jar"))
    # The rest of what Maven brings is in Spark itself.
    needed = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
    return sorted(jar for jar in jars.glob("*.jar") if jar.name.startswith(needed))


def _java(jars: Path, main: str, *arguments: str) -> list[str]:
    return ["java", "-Xmx384m", "-cp", f"{jars}/*", main, *arguments]


def _check_ports(ports: Iterable[int]) -> None:
    """Refuse a port that another process has: it may well be another broker, which would answer instead."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as error:
                reason = getattr(error, "strerror", None) or error
                raise UnavailableError(f"Kafka can't answer at 127.0.0.1:{port}: {reason}; take another port") from None


def _admin_module() -> Any:
    try:
        from confluent_kafka import admin  # noqa: PLC0415 - an extra
    except ImportError:
        raise UnavailableError("Kafka needs confluent-kafka: pip install 'penstock[kafka]'") from None
    return admin
