"""What carries rows and messages between the processes of a network: a directory that all of them see, or Kafka."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Protocol

from penstock.cluster.run_directory import RunDirectory
from penstock.coordination.fingerprint import describe_changes, describe_network, fingerprint
from penstock.coordination.mailbox import DirectoryMailbox, Mailbox
from penstock.coordination.topic_mailbox import TopicMailbox
from penstock.errors import PenstockError
from penstock.kafka.client import is_answering
from penstock.kafka.topic_admin import TopicAdmin
from penstock.kafka.topic_log import COMPACTED, KafkaTopicLog
from penstock.network.model import Network
from penstock.network.queries import queries_of
from penstock.network.transport_settings import KAFKA

if TYPE_CHECKING:
    from penstock.cluster.transport import Transport

__all__ = ["Channels", "ChannelsLostError", "DirectoryChannels", "KafkaChannels", "list_arcs", "open_channels"]

log = logging.getLogger("penstock")

_WAIT_S = 0.5
_NETWORK = '["network"]'
_SILENT = (
    r"org\.apache\.kafka\.common\.errors\.(TimeoutException|DisconnectException|NetworkException)|Cannot fetch record for offset"
    r"|No resolvable bootstrap urls|Failed to create new KafkaAdminClient|Failed to construct kafka consumer"
)
_LOST = (
    r"KAFKA_DATA_LOSS|OffsetOutOfRangeException|Some data may have been lost|UnknownTopic|UNKNOWN_TOPIC|not present in metadata"
    r"|is gone from Kafka"
)


class ChannelsLostError(PenstockError):
    """What carries rows and messages is away; all can begin again when it is back."""


class Channels(Protocol):
    """The ways between the processes of a network."""

    def open(self, arcs: Iterable[str], *, is_new: bool, is_over: Callable[[], bool]) -> bool:
        """Get ready for these arcs; return whether they are, or ``False`` if it was over before."""

    def build_transport(self, stop: threading.Event) -> Transport:
        """Return what carries the arcs."""

    def build_mailbox(self, me: str, peers: Collection[str]) -> Mailbox:
        """Return what carries the messages of a party."""

    def watch(self) -> None:
        """Look whether all is well; say once if not."""

    def judge(self, error: str) -> tuple[str | None, bool]:
        """Return what the error of a query means, if it is the channels', and whether the query may start again."""

    def release(self, arc: str, offsets: str) -> None:
        """Forget the rows of an arc before these offsets, which were read and are not needed again."""

    def close(self) -> None:
        """Let go."""

    def reset(self) -> None:
        """Forget all that is under way."""


class DirectoryChannels:
    """Arcs and messages in the run directory, which all processes see."""

    def __init__(self, network: Network, run_directory: RunDirectory) -> None:
        self._directory, self._fingerprint = run_directory, fingerprint(network)

    def open(self, arcs: Iterable[str], *, is_new: bool, is_over: Callable[[], bool]) -> bool:  # noqa: ARG002 - no need to wait
        """Return that all is ready."""
        return True

    def build_transport(self, stop: threading.Event) -> Transport:  # noqa: ARG002 - a directory does not keep one waiting
        """Return what carries the arcs."""
        from penstock.cluster.transport import DirectoryTransport  # noqa: PLC0415 - a coordinator needs no pyarrow

        return DirectoryTransport(self._directory.arcs)

    def build_mailbox(self, me: str, peers: Collection[str]) -> Mailbox:
        """Return what carries the messages of a party."""
        return DirectoryMailbox(self._directory.messages, me, peers, self._fingerprint)

    def watch(self) -> None:
        """Do nothing: a directory is there."""

    def judge(self, error: str) -> tuple[str | None, bool]:  # noqa: ARG002 - it is not the directory's
        """Return that the error is not the channels'."""
        return None, False

    def release(self, arc: str, offsets: str) -> None:
        """Do nothing: Spark deletes the files that it has read."""

    def close(self) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Do nothing: the run directory has forgotten all."""


class KafkaChannels:
    """Arcs as topics, and messages in a compacted topic. The processes need share no directory.

    Parameters
    ----------
    network
        The network, with its transport.

    Raises
    ------
    PenstockError
        If confluent-kafka is missing.
    """

    def __init__(self, network: Network) -> None:
        self._network, self.settings = network, network.transport
        self._options = {**self.settings.options, **self.settings.client_options}
        self._admin = TopicAdmin(self.settings.servers, self._options)
        self._arcs = list_arcs(network)
        self._partitions: dict[str, int] = {}
        self._log: KafkaTopicLog | None = None
        self._is_silent = False

    def open(self, arcs: Iterable[str], *, is_new: bool, is_over: Callable[[], bool]) -> bool:
        """Wait for a broker, and make sure that the topics are there and this network's.

        Raises
        ------
        PenstockError
            If topics are gone that were there before, or belong to another network.
        """
        while not is_over():
            self.watch()
            try:
                if not self._is_silent:
                    self._prepare(tuple(arcs), is_new=is_new)
                    return True
            except OSError:
                self._is_silent = self._is_silent or self._say_silent()
            threading.Event().wait(_WAIT_S)
        return False

    def _prepare(self, arcs: tuple[str, ...], *, is_new: bool) -> None:
        settings, topics = self.settings, self._admin.list_topics()
        retention = -1 if settings.retention_s is None else int(1e3 * settings.retention_s)
        wanted: dict[str, tuple[int, dict[str, object]]] = {
            settings.messages: (1, dict(COMPACTED)),
            settings.batches: (max(1, len(self._arcs)), dict(COMPACTED)),
            **{settings.topic_of(arc): (settings.partitions, {"retention.ms": retention}) for arc in arcs},
        }
        for topic, (partitions, options) in wanted.items():
            if topic in topics:
                continue
            if not is_new:
                raise PenstockError(f"{self._describe_loss(topic)}; start anew with --reset, which forgets what is under way")
            self._admin.create(topic, partitions, options)
        topics = self._admin.list_topics()
        self._partitions = {arc: topics[settings.topic_of(arc)] for arc in arcs}
        if topics[settings.batches] < len(self._arcs):
            raise PenstockError(
                f"topic {settings.batches} has {topics[settings.batches]} partitions, and the network's {len(self._arcs)} arcs "
                "need one each: delete it, or give the network another name under transport"
            )
        self._claim()

    def _claim(self) -> None:
        """Check that the topics are this network's, or make them so."""
        topic_log = self._open_log()
        now = json.loads(json.dumps(describe_network(self._network)))
        try:
            content = dict(topic_log.catch_up()).get(_NETWORK)
            if content is None:
                topic_log.append(_NETWORK, json.dumps(now).encode())
                topic_log.flush()
            elif changed := describe_changes(json.loads(content), now):
                raise PenstockError(
                    f"the topics {self.settings.prefix}* belong to another network: {changed[0]}; start anew with --reset, or "
                    "give the network another name under transport"
                )
        finally:
            topic_log.close()

    def _open_log(self) -> KafkaTopicLog:
        return KafkaTopicLog(self.settings.servers, self.settings.messages, self._options)

    def build_transport(self, stop: threading.Event) -> Transport:
        """Return what carries the arcs."""
        from penstock.cluster.kafka_transport import KafkaTransport  # noqa: PLC0415 - a coordinator needs no Spark

        return KafkaTransport(self.settings, self._arcs, self._partitions, stop)

    def build_mailbox(self, me: str, peers: Collection[str]) -> Mailbox:
        """Return what carries the messages of a party.

        Raises
        ------
        ChannelsLostError
            If Kafka has gone meanwhile.
        """
        self._log = self._open_log()
        try:
            return TopicMailbox(self._log, me, peers, fingerprint(self._network))
        except OSError as error:
            self.close()
            raise ChannelsLostError(str(error.strerror)) from error

    def watch(self) -> None:
        """Say once when no broker answers, and once when one does again."""
        if is_answering(self.settings.servers):
            if self._is_silent:
                log.warning("Kafka at %s answers", self.settings.servers)
            self._is_silent = False
        elif not self._is_silent:
            self._is_silent = self._say_silent()

    def _say_silent(self) -> bool:
        log.warning("Kafka at %s does not answer: waiting for it", self.settings.servers)
        return True

    def judge(self, error: str) -> tuple[str | None, bool]:
        """Return what the error of a query means, if Kafka is the reason, and whether the query may start again."""
        if "stopped while waiting for Kafka" in error:
            return "stopped while waiting for Kafka", True
        if re.search(_LOST, error):
            topics = [topic for arc in self._arcs if (topic := self.settings.topic_of(arc)) in error]
            topic = topics[0] if topics else f"{self.settings.prefix}*"
            return f"{self._describe_loss(topic)}; start anew with --reset, which forgets what is under way", False
        if re.search(_SILENT, error):
            return f"Kafka at {self.settings.servers} did not answer in time: the queries start again when it does", True
        return None, False

    def _describe_loss(self, topic: str) -> str:
        return f"topic {topic} of Kafka at {self.settings.servers} is gone, or rows of it that were not read: deleted or expired"

    def release(self, arc: str, offsets: str) -> None:
        """Delete the rows of an arc before these offsets."""
        topic = self.settings.topic_of(arc)
        before = {int(partition): int(offset) for partition, offset in json.loads(offsets).get(topic, {}).items()}
        if not self._is_silent:
            self._admin.delete_rows(topic, before)

    def close(self) -> None:
        """Send what is under way, and let go of the broker."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def reset(self) -> None:
        """Delete the topics of the network.

        Raises
        ------
        PenstockError
            If no broker answers.
        """
        try:
            self._admin.delete([name for name in self._admin.list_topics() if name.startswith(self.settings.prefix)])
        except OSError as error:
            raise PenstockError(f"the topics {self.settings.prefix}* can't be deleted: {error.strerror}") from error


def list_arcs(network: Network) -> list[str]:
    """Return the arcs between queries, on one node or on two, in an order that all nodes agree on.

    >>> from penstock.network import NetworkBuilder
    >>> builder = NetworkBuilder().node("A").node("B").input("i").operator("a", "A", "i", cost=1.0)
    >>> list_arcs(builder.operator("b", "B", "a", cost=1.0).output("q", "b").build())
    ['a->b']
    """
    ends = (end for node in network.nodes for plan in queries_of(network, node)[0] for _, end in plan.ends)
    return sorted({end for end in ends if end not in network.outputs})


def open_channels(network: Network, run_directory: RunDirectory) -> Channels:
    """Return the channels that a network's YAML asks for."""
    return KafkaChannels(network) if network.transport.kind == KAFKA else DirectoryChannels(network, run_directory)
