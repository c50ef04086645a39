"""Kafka without Spark: reads ranges of offsets, and sends messages in transactions."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.errors import PenstockError
from penstock.shed.shed_log import OffsetRange

__all__ = ["Message", "TopicReader", "TopicWriter"]

_WAIT_S = 30.0
Message = Any
"""A message of confluent-kafka."""


class TopicReader:
    """Reads what is committed, by coordinates.

    Parameters
    ----------
    servers
        The address of a broker, such as ``"host:9092"``.
    """

    def __init__(self, servers: str) -> None:
        self._servers, self._client = servers, _load_client()
        self._errors: list[str] = []
        self._consumer = self._client.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"penstock-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
                "error_cb": lambda error: self._errors.append(str(error)),
            }
        )

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def list_ranges(self, topic: str) -> list[OffsetRange]:
        """Return all that a topic holds now, by partition."""
        try:
            known = self._consumer.list_topics(topic, timeout=_WAIT_S).topics[topic]
        except self._client.KafkaException as error:
            raise PenstockError(f"no answer from the broker at {self._servers}: {error.args[0].str()}") from None
        if known.error is not None:
            raise PenstockError(f"the broker at {self._servers} has no topic {topic!r}")
        ranges = []
        for number in sorted(known.partitions):
            start, end = self._watermarks(topic, number)
            ranges.append(OffsetRange(topic, number, start, end))
        return ranges

    def find_left(self, part: OffsetRange) -> OffsetRange:
        """Return what the broker still has of a range."""
        start, _ = self._watermarks(part.topic, part.partition)
        return OffsetRange(part.topic, part.partition, min(max(start, part.start), part.end), part.end)

    def read(self, part: OffsetRange) -> Iterator[Message]:
        """Yield the messages of a range; offsets that hold none are passed over.

        Raises
        ------
        PenstockError
            If the broker has removed some of them already, or does not answer.
        """
        if part.end <= part.start:
            return
        start, _ = self._watermarks(part.topic, part.partition)
        if start > part.start:
            raise PenstockError(
                f"{part.topic} {part.partition}: offsets {part.start} to {min(start, part.end) - 1} are gone from Kafka; "
                "raise the topic's retention, send rows again sooner, or leave these out with --skip-missing"
            )
        self._consumer.assign([self._client.TopicPartition(part.topic, part.partition, part.start)])
        while True:
            message = self._consumer.poll(_WAIT_S)
            if message is None:
                raise PenstockError(f"no answer from the broker at {self._servers} for {_WAIT_S:g} s{self._reason()}")
            if message.error() is not None:
                if message.error().code() == self._client.KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name for it
                    return
                raise PenstockError(f"{part.topic} {part.partition}: {message.error().str()}")
            if message.offset() >= part.end:
                return
            yield message
            if message.offset() == part.end - 1:
                return

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        try:
            low, high = self._consumer.get_watermark_offsets(self._client.TopicPartition(topic, partition), timeout=_WAIT_S)
        except self._client.KafkaException as error:
            raise PenstockError(
                f"{topic} {partition}: no answer from the broker at {self._servers}: {error.args[0].str()}"
            ) from None
        return int(low), int(high)

    def _reason(self) -> str:
        return f": {self._errors[-1]}" if self._errors else ""


class TopicWriter:
    """Sends messages to a topic, a batch at a time and each as a whole.

    Parameters
    ----------
    servers
        The address of a broker.
    topic
        Where to send.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self._client, self._topic = _load_client(), topic
        self._producer = self._client.Producer(
            {"bootstrap.servers": servers, "transactional.id": f"penstock-replay-{topic}", "linger.ms": 20, "log_level": 0}
        )
        try:
            self._producer.init_transactions(_WAIT_S)
        except self._client.KafkaException as error:
            raise PenstockError(f"no answer from the broker at {servers}: {error.args[0].str()}") from None

    def send(self, messages: Iterable[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]]) -> int:
        """Send (key, value, headers, timestamp in ms or 0 for now) in one transaction, and return how many there were."""
        self._producer.begin_transaction()
        count = 0
        try:
            for key, value, headers, millis in messages:
                while True:
                    try:
                        self._producer.produce(self._topic, value, key, headers=headers, timestamp=max(0, millis))
                        break
                    except BufferError:
                        self._producer.poll(0.1)
                count += 1
            self._producer.commit_transaction(_WAIT_S)
        except BaseException as error:
            self._producer.abort_transaction(_WAIT_S)
            if isinstance(error, self._client.KafkaException):
                raise PenstockError(f"topic {self._topic!r} can't be written: {error.args[0].str()}") from None
            raise
        return count


def _load_client() -> Any:
    try:
        import confluent_kafka  # noqa: PLC0415 - an extra
    except ImportError:
        raise PenstockError("Kafka needs confluent-kafka: pip install 'penstock[kafka]'") from None
    return confluent_kafka
