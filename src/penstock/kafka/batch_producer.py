"""Writes each batch of rows to a topic once, whatever crashes: its rows, and the note that they are written, in one transaction.

The note goes to a compacted topic, to a partition that belongs to this writer alone, so it outlives the rows. A writer that
starts ends what its predecessor left open (Kafka does that for writers of one name), then reads the note. A batch that is noted
is not written again. So readers of committed rows need no memory of their own: there is nothing to drop.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError
from penstock.kafka.client import client_settings, is_answering, load_client

__all__ = ["BatchNote", "BatchProducer", "NoteSlot"]

log = logging.getLogger("penstock")

_CALL_S, _RETRY_S, _NOTE_S = 5.0, 0.5, 30.0
_TIMED_OUT = -185
"""The client's own number for it."""
_GONE = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")


@dataclass(frozen=True, slots=True)
class BatchNote:
    """The last batch that was written: of which query, and its number. A query that starts from scratch has another name."""

    query: str
    batch: int

    def covers(self, query: str, batch: int) -> bool:
        """Return whether a batch was written, this one or an earlier one of the same query.

        >>> BatchNote("q", 4).covers("q", 4), BatchNote("q", 4).covers("q", 5), BatchNote("q", 4).covers("another", 0)
        (True, False, False)
        """
        return query == self.query and batch <= self.batch


@dataclass(frozen=True, slots=True)
class NoteSlot:
    """Where a writer keeps its note."""

    topic: str
    partition: int
    key: str


class BatchProducer:
    """The only writer of a topic.

    Parameters
    ----------
    servers
        The addresses of brokers.
    topic
        Where rows go.
    slot
        Where the note goes.
    partitions
        How many partitions the topic has; rows go to each in turn.
    options
        More settings of confluent-kafka.
    stop
        Set to stop waiting for a broker.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        slot: NoteSlot,
        *,
        partitions: int = 1,
        options: Mapping[str, object] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._kafka = load_client()
        self._servers, self._topic, self._partitions, self._slot = servers, topic, partitions, slot
        self._options = dict(options or {})
        self._stop = threading.Event() if stop is None else stop
        self._producer: Any = None
        self._note: BatchNote | None = None
        self._failure: Any = None

    def has_written(self, query: str, batch: int) -> bool:
        """Return whether a batch is in the topic. Waits for a broker."""
        self._persist(self._open)
        return self._note is not None and self._note.covers(query, batch)

    def write(self, query: str, batch: int, rows: Iterable[bytes]) -> bool:
        """Write a batch, unless it is there; return whether it was written now. ``rows`` is read again if Kafka fails meanwhile.

        Raises
        ------
        PenstockError
            If another process writes the topic, the topic is gone, a row is too large, or ``stop`` is set.
        """
        return bool(self._persist(lambda: self._write_once(query, batch, rows)))

    def close(self) -> None:
        """Let go of the broker."""
        self._producer = None

    def _persist(self, action: Callable[[], Any]) -> Any:
        """Do something until it succeeds. After a failure all begins again: who commits may fail, and yet it was committed."""
        has_said = False
        while True:
            try:
                return action()
            except self._kafka.KafkaException as error:
                self._producer, reason = None, error.args[0]
                self._check_reason(reason)
                if not has_said:
                    log.warning("topic %s: %s; trying until Kafka at %s takes it", self._topic, reason.str(), self._servers)
                    has_said = True
            while not self._stop.wait(_RETRY_S) and not is_answering(self._servers):
                pass
            if self._stop.is_set():
                raise PenstockError(f"topic {self._topic}: stopped while waiting for Kafka at {self._servers}")

    def _check_reason(self, reason: Any) -> None:
        """Raise if trying again can't help."""
        if reason.name() == "MSG_SIZE_TOO_LARGE":
            raise PenstockError(
                f"topic {self._topic}: a row is larger than Kafka takes; raise message.max.bytes in the transport's options, "
                "and max.message.bytes of the topic"
            )
        if "AUTH" in reason.name():
            raise PenstockError(f"topic {self._topic}: Kafka at {self._servers} refuses access: {reason.str()}")
        if reason.name() in _GONE:
            self._check_topic()

    def _check_topic(self) -> None:
        """Raise if the topic is gone."""
        admin = load_client("confluent_kafka.admin").AdminClient(client_settings(self._servers, self._options))
        try:
            is_gone = self._topic not in admin.list_topics(timeout=_CALL_S).topics
        except self._kafka.KafkaException:
            return
        if is_gone:
            raise PenstockError(f"topic {self._topic} is gone from Kafka at {self._servers}: it was deleted, with rows under way")

    def _open(self) -> None:
        """End what an earlier process left open, and read which batch was written last."""
        if self._producer is not None:
            return
        settings = {"transactional_id": self._topic, "linger_ms": 5, "queue_buffering_max_messages": 500_000}
        producer = self._kafka.Producer(client_settings(self._servers, self._options, **settings))
        producer.init_transactions(_CALL_S)
        note = self._read_note()
        if self._note is not None and note is not None and note.query != self._note.query:
            raise PenstockError(
                f"another process writes topic {self._topic}: a node is one process; if this is another run of the network, give "
                "it another name under transport"
            )
        self._producer, self._note = producer, note

    def _write_once(self, query: str, batch: int, rows: Iterable[bytes]) -> bool:
        self._open()
        if self._note is not None and self._note.covers(query, batch):
            return False
        producer, self._failure = self._producer, None
        producer.begin_transaction()
        for number, row in enumerate(rows):
            self._produce(producer, self._topic, row, partition=number % self._partitions)
        note = json.dumps({"query": query, "batch": batch}).encode()
        self._produce(producer, self._slot.topic, note, partition=self._slot.partition, key=self._slot.key.encode())
        self._commit(producer)
        self._note = BatchNote(query, batch)
        return True

    def _produce(self, producer: Any, topic: str, value: bytes, **where: Any) -> None:
        while True:
            try:
                producer.produce(topic, value=value, on_delivery=self._note_delivery, **where)
            except BufferError:
                producer.poll(0.1)
                if self._failure is not None or (self._stop.is_set() and not is_answering(self._servers)):
                    raise self._kafka.KafkaException(self._failure or self._kafka.KafkaError(_TIMED_OUT)) from None
            else:
                return

    def _commit(self, producer: Any) -> None:
        while True:
            try:
                producer.commit_transaction(_CALL_S)
            except self._kafka.KafkaException as error:
                if error.args[0].retriable() and is_answering(self._servers) and not self._stop.is_set():
                    self._check_topic()
                    continue
                raise self._kafka.KafkaException(self._failure or error.args[0]) from None
            return

    def _note_delivery(self, error: Any, _: Any) -> None:
        if error is not None and (self._failure is None or error.name() in _GONE):
            self._failure = error

    def _read_note(self) -> BatchNote | None:
        """Return the last note that was committed. Ours is the only writer of its partition, and it has nothing open."""
        kafka, slot = self._kafka, self._slot
        reading = {"group_id": "penstock", "enable_auto_commit": False, "enable_partition_eof": True}
        settings = client_settings(self._servers, self._options, isolation_level="read_committed", **reading)
        consumer = kafka.Consumer(settings)
        consumer.assign([kafka.TopicPartition(slot.topic, slot.partition, kafka.OFFSET_BEGINNING)])
        note, end_s = None, time.monotonic() + _NOTE_S
        try:
            while time.monotonic() < end_s:
                for message in consumer.consume(100, timeout=0.2):
                    if message.error() is None and message.key() == slot.key.encode():
                        content = json.loads(message.value())
                        note = BatchNote(str(content["query"]), int(content["batch"]))
                    elif message.error() is not None and message.error().name() == "_PARTITION_EOF":
                        return note
                    elif message.error() is not None:
                        raise kafka.KafkaException(message.error())
        finally:
            consumer.close()
        raise kafka.KafkaException(kafka.KafkaError(_TIMED_OUT))
