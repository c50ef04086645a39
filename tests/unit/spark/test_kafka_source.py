"""What can be said of Kafka without a broker."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("pyspark")

from penstock.spark.batch_sizes import OffsetSizes
from penstock.spark.kafka_source import _is_open, explain_failure
from penstock.spark.progress import Progress


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost", "gone from the topic"),
        ("Caused by: org.apache.kafka.clients.consumer.OffsetOutOfRangeException: x", "failOnDataLoss=false"),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server", "a topic does not exist"),
        ("org.apache.kafka.common.errors.TimeoutException: Timed out", "did not answer in time"),
        ("org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient", "did not answer in time"),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: no", "refuses access"),
    ],
)
def test_failures_in_one_line(text: str, meaning: str) -> None:
    line = explain_failure(f"Query [id = 1] terminated with exception\n{text}\n\tat here")
    assert line is not None
    assert meaning in line
    assert "\n" not in line
    assert explain_failure("java.lang.ArithmeticException") is None


def test_whether_a_server_takes_a_connection() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert _is_open(f" 127.0.0.1:{server.getsockname()[1]}")
    assert not _is_open(f"127.0.0.1:{_closed_port()}")
    for address in ("", "host", "host:port", "127.0.0.1:99999999", ":"):
        assert not _is_open(address)


def _closed_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


class Stub:
    """Stands for a running query and for its checkpoint: every batch spans 100 offsets."""

    def __init__(self, densities: list[float], earliest: int = 0) -> None:
        self._densities, self._earliest = densities, earliest
        self.rows_per_s = [None]

    def earliest_offsets(self) -> dict[str, str]:
        return {"source0": f'{{"t": {{"0": {self._earliest}}}}}'}

    def progress(self, batch_id: int) -> Progress | None:
        if not 0 <= batch_id < len(self._densities):
            return None
        return Progress(batch_id, "r", None, {}, {}, densities={"source0": self._densities[batch_id]})  # type: ignore[arg-type]

    def offsets(self, batch_id: int) -> list[str | None]:
        return [f'{{"t": {{"0": {100 * (batch_id + 1)}}}}}']

    def starts(self, batch_id: int) -> list[str | None]:
        return [f'{{"t": {{"0": {100 * batch_id}}}}}']


def test_sizes_of_a_topic_with_gaps() -> None:
    """The densest of the last batches counts: a size stays an upper bound."""
    stub = Stub([0.3, 0.1, 0.2, 1.0, 0.2, 0.2, 0.2, 0.2, 0.2])
    sizes = OffsetSizes(stub)  # type: ignore[arg-type]
    read = [sizes.read(stub, batch_id) for batch_id in range(10)]  # type: ignore[arg-type]
    assert [rows["source0"] for rows in read if rows] == [100, 30, 30, 30, 100, 100, 100, 100, 100, 20]


def test_what_retention_has_removed_has_no_size() -> None:
    """Asked at the first batch of a run only: later, what was removed shows in how dense batches are."""
    stub = Stub([], earliest=380)
    sizes = OffsetSizes(stub)  # type: ignore[arg-type]
    assert [sizes.read(stub, batch_id) for batch_id in (3, 4)] == [{"source0": 20}, {"source0": 100}]  # type: ignore[arg-type]
