"""What the errors of a query mean where Kafka carries its rows, and which arcs pass through it."""

from __future__ import annotations

import re

import pytest

from penstock.cluster.channels import DirectoryChannels, KafkaChannels, list_arcs, open_channels
from penstock.cluster.run_directory import RunDirectory
from penstock.network import parse_network

NETWORK = """
nodes: {A: , B: }
inputs: {i: {max_rate: 10}}
operators:
  a: {node: A, from: i, cost: 0.5}
  count: {node: A, kind: aggregate, from: a, cost: 0.5}
  b: {node: B, from: a, cost: 0.5}
outputs: {q: {from: b}, r: {from: count}}
"""
OVER_KAFKA = NETWORK + "transport: {kind: kafka, servers: '127.0.0.1:1'}"


def test_arcs_between_queries_pass_through_on_one_node_or_on_two() -> None:
    assert list_arcs(parse_network(NETWORK)) == ["a->b", "a->count"]


@pytest.fixture
def channels() -> KafkaChannels:
    pytest.importorskip("confluent_kafka")
    channels = open_channels(parse_network(OVER_KAFKA, "ads"), RunDirectory("unused"))
    assert isinstance(channels, KafkaChannels)
    return channels


@pytest.mark.parametrize(
    ("error", "said", "is_passing"),
    [
        ("x: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node", "did not answer in time", True),
        (
            "java.util.concurrent.TimeoutException: Cannot fetch record for offset 12 in 120000 milliseconds",
            "did not answer",
            True,
        ),
        ("PenstockError: topic x: stopped while waiting for Kafka at h:1", "stopped while waiting", True),
        ("UnknownTopicOrPartitionException: penstock.ads.a--b", "topic penstock.ads.a--b of .* is gone.* --reset", False),
        ("[KAFKA_DATA_LOSS.START_OFFSET_RESET]", r"topic penstock\.ads\.\* of .* deleted or expired; start anew", False),
        ("PenstockError: topic penstock.ads.a--b is gone from Kafka at h:1: it was deleted", r"penstock\.ads\.a--b", False),
    ],
)
def test_what_an_error_means(channels: KafkaChannels, error: str, said: str, is_passing: bool) -> None:
    reason, passing = channels.judge(error)
    assert reason is not None
    assert re.search(said, reason)
    assert passing == is_passing


def test_errors_of_others_are_left_alone(channels: KafkaChannels) -> None:
    assert channels.judge("ZeroDivisionError: division by zero") == (None, False)
    assert channels.judge("org.postgresql.util.PSQLException: TimeoutException") == (None, False)


def test_without_a_broker_it_waits_until_it_is_over(channels: KafkaChannels, caplog: pytest.LogCaptureFixture) -> None:
    looks = iter([False, False, False, True])
    assert not channels.open(["a->b"], is_new=True, is_over=lambda: next(looks))
    assert [record.message for record in caplog.records] == ["Kafka at 127.0.0.1:1 does not answer: waiting for it"]


def test_a_directory_is_the_default() -> None:
    assert isinstance(open_channels(parse_network(NETWORK), RunDirectory("unused")), DirectoryChannels)
