"""A compacted topic of one partition as a log: records by key, in one order for all who read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.kafka.client import NoAnswerError, client_settings, load_client

__all__ = ["COMPACTED", "KafkaTopicLog"]

COMPACTED: Mapping[str, object] = {"cleanup.policy": "compact", "segment.ms": 600_000, "min.cleanable.dirty.ratio": 0.3}
"""Settings of a topic that keeps the last record of each key."""
_FLUSH_S, _CATCH_UP_S = 5.0, 30.0
_AT_ONCE = 500


class KafkaTopicLog:
    """Appends to a topic and reads all that anyone appends.

    What is appended while no broker answers is sent when one does. It is lost only with the process.
    """

    def __init__(self, servers: str, topic: str, options: Mapping[str, object] | None = None) -> None:
        kafka = load_client()
        self._servers, self._topic = servers, topic
        settings = {"enable_idempotence": True, "message_timeout_ms": 0, "linger_ms": 0}
        self._producer: Any = kafka.Producer(client_settings(servers, options, **settings))
        reading = {"group_id": "penstock", "enable_auto_commit": False, "enable_partition_eof": True}
        self._consumer: Any = kafka.Consumer(client_settings(servers, options, **reading))
        self._consumer.assign([kafka.TopicPartition(topic, 0, kafka.OFFSET_BEGINNING)])

    def append(self, key: str, value: bytes | None) -> None:
        """Append a record; it is sent in the background, in order. ``None`` removes the key.

        Raises
        ------
        NoAnswerError
            If too many records wait for a broker.
        """
        try:
            self._producer.produce(self._topic, key=key.encode(), value=value, partition=0)
        except BufferError:
            raise NoAnswerError(f"Kafka at {self._servers} has not answered for so long that nothing more can wait") from None
        finally:
            self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all that was appended is stored.

        Raises
        ------
        NoAnswerError
            If it was not, in time. It is still under way.
        """
        if self._producer.flush(_FLUSH_S):
            raise NoAnswerError(f"Kafka at {self._servers} does not answer")

    def read(self) -> list[tuple[str, bytes | None]]:
        """Return what was appended since the last call, by anyone, without waiting."""
        records: list[tuple[str, bytes | None]] = []
        while messages := self._consumer.consume(_AT_ONCE, timeout=0):
            records += [record for record in map(self._open, messages) if record is not None]
        return records

    def catch_up(self) -> list[tuple[str, bytes | None]]:
        """Return all from the beginning of the topic to its end of this moment.

        Raises
        ------
        NoAnswerError
            If that takes too long.
        """
        import time  # noqa: PLC0415 - only here

        records: list[tuple[str, bytes | None]] = []
        end_s = time.monotonic() + _CATCH_UP_S
        while time.monotonic() < end_s:
            for message in self._consumer.consume(_AT_ONCE, timeout=0.1):
                if message.error() is not None and message.error().name() == "_PARTITION_EOF":
                    return records
                record = self._open(message)
                if record is not None:
                    records.append(record)
        raise NoAnswerError(f"topic {self._topic} of Kafka at {self._servers} can't be read")

    def close(self) -> None:
        """Send what is under way if that goes quickly, and let go of the broker."""
        self._producer.flush(1.0)
        self._consumer.close()

    def _open(self, message: Any) -> tuple[str, bytes | None] | None:
        error = message.error()
        if error is None:
            key = message.key()
            return None if key is None else (key.decode(errors="replace"), message.value())
        if error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
            raise PenstockError(f"topic {self._topic} is gone from Kafka at {self._servers}: it was deleted")
        return None
