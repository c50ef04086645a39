"""The broker that tests, demos and examples start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from penstock.testing.kafka import KafkaBroker
from penstock.testing.maven import UnavailableError


def test_a_directory_is_used_again_and_a_port_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        with KafkaBroker("data") as broker:  # a relative path
            broker.create_topic("rows", 3)
            port = int(broker.address.rsplit(":", 1)[1])
            with pytest.raises(UnavailableError, match=rf"^Kafka can't answer at 127\.0\.0\.1:{port}: .*; take another port$"):
                KafkaBroker(tmp_path / "other", port=port).start()
    except UnavailableError as error:
        pytest.skip(str(error))
    with KafkaBroker(tmp_path / "data") as again:  # at other ports
        assert again.count_partitions("rows") == 3
        assert re.fullmatch(r"127\.0\.0\.1:\d+", again.address)
