"""The broker for tests: what it refuses before it needs jars."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

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
