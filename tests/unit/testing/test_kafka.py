"""The broker for tests: what it refuses before it needs jars."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.testing import kafka
from penstock.testing.kafka import KafkaBroker
from penstock.testing.maven import UnavailableError


def test_a_port_that_is_taken_or_none_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError, match=rf"^Kafka can't answer at 127\.0\.0\.1:{port}: .*; take another port$"):
            KafkaBroker(tmp_path / "data", port=port).start()
    with pytest.raises(UnavailableError, match=r"^Kafka can't answer at 127\.0\.0\.1:70000: .*; take another port$"):
        KafkaBroker(tmp_path / "data", port=70_000).start()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("version", "cached", "fetched"),
    [
        ("4.3.0", [], ["spark-sql-kafka-0-10_2.13:4.3.0", "spark-sql-kafka-0-10_2.13:4.2.0"]),
        ("4.3.0", ["4.2.0"], []),
        ("4.1.3", ["4.2.0"], ["spark-sql-kafka-0-10_2.13:4.1.3"]),
        ("3.5.7", ["4.2.0"], ["spark-sql-kafka-0-10_2.12:3.5.7"]),
    ],
)
def test_the_connector_is_that_of_the_version_where_it_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, cached: list[str], fetched: list[str]
) -> None:
    """Jars of another version that are there already don't stand in for it; for Spark 4.3 alone there may be no others."""
    asked: list[str] = []

    def fetch(name: str, coordinates: list[str], *, transitive: bool = True) -> Path:
        asked.append(coordinates[0].split(":", 1)[1])
        if coordinates[0].endswith(":4.3.0"):
            raise UnavailableError("not there")
        return tmp_path

    monkeypatch.setattr(kafka, "fetch_jars", fetch)
    monkeypatch.setattr(
        kafka, "cached_jars", lambda _, coordinates: tmp_path if coordinates[0].rsplit(":", 1)[1] in cached else None
    )
    (tmp_path / "spark-sql-kafka.jar").touch()
    assert kafka.fetch_connector(version) == [tmp_path / "spark-sql-kafka.jar"]
    assert asked == fetched
