"""Helpers of the Kafka tests: produce rows, run a query over what a topic holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock import Controller, Decision, Observation

if TYPE_CHECKING:
    from penstock.testing.kafka import KafkaBroker


class Notebook(Controller):
    """Keeps the same share always, and remembers what it saw."""

    def __init__(self, keep: float = 0.5, delay_target_s: float = 2.0) -> None:
        super().__init__(delay_target_s)
        self.keep = keep
        self.seen: list[Observation] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Notebook:
        return self  # so that the test reads what the query's copy saw

    def update(self, observation: Observation) -> Decision:
        self.seen.append(observation)
        return Decision(self.keep)

    @property
    def sizes(self) -> list[int | None]:
        """The size of each batch, as it was known before it ran."""
        return [observation.upcoming_rows for observation in self.seen]


def produce(
    broker: KafkaBroker,
    topic: str,
    values: Iterable[Any],
    *,
    partitions: int | None = None,
    settings: dict[str, Any] | None = None,
    **each: Any,
) -> None:
    """Write rows, in turn to each of the partitions if their number is given."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5} | (settings or {}))
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    for number, value in enumerate(values):
        chosen = {"partition": number % partitions} if partitions else {}
        data = None if value is None else str(value).encode()
        while True:
            try:
                producer.produce(topic, value=data, on_delivery=delivered, **chosen, **each)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(30) == 0
    assert not failures, failures[0]


def wait_until(is_so: Callable[[], Any], query: Any = None, seconds: float = 60.0) -> None:
    """Wait for something to come true; fail with the query's error if it ends."""
    end_s = time.monotonic() + seconds
    while not is_so():
        assert query is None or query.exception() is None, query.exception()
        assert time.monotonic() < end_s, "it did not come true in time"
        time.sleep(0.05)


def process_all(query: Any) -> None:
    """Wait until all rows are processed that are in the topics now.

    Spark's own call returns when a trigger finds no rows. That may be one that has asked Kafka before the last rows came, which
    on a busy machine takes its time; after a second call it is a trigger that began later.
    """
    query.processAllAvailable()
    query.processAllAvailable()
