"""What the section ``transport`` of a network may say, and one line for what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.coordination.fingerprint import describe_network, fingerprint
from penstock.errors import PenstockError
from penstock.network import load_network, parse_network
from penstock.network.transport_settings import TransportSettings

NETWORK = """
nodes: {A: , B: }
inputs: {i: {max_rate: 10}}
operators:
  a: {node: A, from: i, cost: 0.5}
  b: {node: B, from: a, cost: 0.5}
outputs: {q: {from: b}}
"""


def test_a_directory_unless_it_is_said() -> None:
    assert parse_network(NETWORK).transport == parse_network(NETWORK + "transport: directory").transport == TransportSettings()
    assert "transport" not in describe_network(parse_network(NETWORK)), "directories of older runs still fit"


def test_kafka_with_all_its_fields() -> None:
    fields = "partitions: 3, retention: 2h, name: ads, options: {security.protocol: SSL}, client_options: {ssl.ca.location: x}"
    transport = parse_network(NETWORK + f"transport: {{kind: kafka, servers: 'a:1,b:2', {fields}}}").transport
    assert (transport.servers, transport.partitions, transport.retention_s, transport.name) == ("a:1,b:2", 3, 7200.0, "ads")
    assert transport.options == {"security.protocol": "SSL"}
    assert transport.client_options == {"ssl.ca.location": "x"}
    assert transport.topic_of("a->b") == "penstock.ads.a--b"
    assert transport.topic_of("a b->ü") == "penstock.ads.a_20_b--_fc_"


def test_topics_are_named_after_the_file(tmp_path: Path) -> None:
    path = tmp_path / "my ads.yaml"
    path.write_text(NETWORK + "transport: {servers: 'host:9092'}")
    assert load_network(path).transport.messages == "penstock.my-ads.messages"


def test_another_name_is_another_network_and_another_address_is_not() -> None:
    prints = {
        fingerprint(parse_network(NETWORK + f"transport: {{kind: kafka, servers: '{servers}', name: {name}}}"))
        for servers, name in (("a:1", "x"), ("b:2", "x"), ("a:1", "y"))
    }
    assert len(prints) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kafka", r"line 8: transport: kafka needs the addresses of brokers, such as .* got ''"),
        ("{kind: kafka, servers: host}", "needs the addresses of brokers.* got 'host'"),
        ("pigeon", "its kind must be directory or kafka, got 'pigeon'"),
        ("[kafka]", "line 8: transport must be a kind, or a mapping"),
        ("{servers: 'h:1', partitions: 0}", "partitions must be a whole number from 1 to 1000, got '0'"),
        ("{servers: 'h:1', partitions: many}", "partitions must be a whole number from 1 to 1000, got 'many'"),
        ("{servers: 'h:1', retention: soon}", "transport: retention"),
        ("{servers: 'h:1', topics: x}", "transport has no field 'topics'; known fields: kind, servers"),
        ("{servers: 'h:1', name: 'a b'}", "its name must be letters, digits, dots, dashes and underscores, got 'a b'"),
        ("{servers: 'h:1', options: 3}", "options must map names to values, got '3'"),
        ("{kind: directory, name: x}", "'name' is for kind kafka, and this is a directory"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        parse_network(f"{NETWORK}transport: {text}")


def test_two_sections_are_refused() -> None:
    with pytest.raises(PenstockError, match="section 'transport' appears twice"):
        parse_network(f"{NETWORK}transport: directory\ntransport: directory")
