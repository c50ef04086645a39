"""Creates and removes the topics of a network."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.kafka.client import NoAnswerError, client_settings, load_client

__all__ = ["TopicAdmin"]

_WAIT_S = 30.0
_ASK_S = 10.0


class TopicAdmin:
    """Administrates the topics of one broker.

    Parameters
    ----------
    servers
        The addresses of brokers, such as ``"host:9092"``.
    options
        More settings of confluent-kafka.
    """

    def __init__(self, servers: str, options: Mapping[str, object] | None = None) -> None:
        self._servers = servers
        self._module = load_client("confluent_kafka.admin")
        self._error = load_client().KafkaException
        self._client: Any = self._module.AdminClient(client_settings(servers, options))

    def list_topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic.

        Raises
        ------
        NoAnswerError
            If no broker answers.
        """
        try:
            topics = self._client.list_topics(timeout=_ASK_S).topics
        except self._error as error:
            raise NoAnswerError(f"Kafka at {self._servers} does not answer: {error.args[0].str()}") from None
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def create(self, topic: str, partitions: int, settings: Mapping[str, object]) -> None:
        """Create a topic, and wait until it is there; one that is there already is left as it is.

        Raises
        ------
        PenstockError
            If the broker refuses.
        """
        new = self._module.NewTopic(topic, partitions, config={name: str(value) for name, value in settings.items()})
        try:
            self._client.create_topics([new])[topic].result(_WAIT_S)
        except self._error as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise PenstockError(f"Kafka at {self._servers} can't create topic {topic!r}: {error.args[0].str()}") from None
        self._wait_until(topic, is_there=True)

    def delete(self, topics: Collection[str]) -> None:
        """Delete topics, and wait until they are gone."""
        for topic, deleted in (self._client.delete_topics(list(topics)) if topics else {}).items():
            try:
                deleted.result(_WAIT_S)
            except self._error as error:
                if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                    raise PenstockError(f"Kafka at {self._servers} can't delete {topic!r}: {error.args[0].str()}") from None
            self._wait_until(topic, is_there=False)

    def delete_rows(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the rows of a topic before an offset of each partition. Where that fails they stay until the next time."""
        partitions = [load_client().TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for deleted in (self._client.delete_records(partitions) if partitions else {}).values():
            try:
                deleted.result(_ASK_S)
            except self._error as error:
                raise NoAnswerError(f"read rows of {topic} could not be deleted: {error.args[0].str()}") from None

    def _wait_until(self, topic: str, *, is_there: bool) -> None:
        import time  # noqa: PLC0415 - only here

        end_s = time.monotonic() + _WAIT_S
        while (topic in self.list_topics()) != is_there:
            if time.monotonic() > end_s:
                raise PenstockError(f"Kafka at {self._servers}: topic {topic!r} is {'not ' * is_there}there after {_WAIT_S:g} s")
            time.sleep(0.05)
