"""Messages between agents and coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.coordination import (
    DirectoryMailbox,
    Follower,
    Message,
)
from tests.unit.coordination.engine import Engine


class RecordingBody(dict[str, object]):
    """The body of a message that remembers which of its fields were read."""

    def __init__(self, body: Mapping[str, object], read: set[str]) -> None:
        super().__init__(body)
        self._read = read

    def __getitem__(self, key: str) -> object:
        self._read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: object = None) -> object:
        self._read.add(key)
        return super().get(key, default)


def test_every_field_of_a_message_is_read_by_its_receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, set[str]] = {}
    read: dict[str, set[str]] = {}
    receive = DirectoryMailbox.receive

    def receive_recording(mailbox: DirectoryMailbox) -> list[Message]:
        messages = []
        for message in receive(mailbox):
            sent.setdefault(message.kind, set()).update(message.body)
            body = RecordingBody(message.body, read.setdefault(message.kind, set()))
            messages.append(replace(message, body=body))
        return messages

    monkeypatch.setattr(DirectoryMailbox, "receive", receive_recording)
    engine = Engine(tmp_path, Follower, "exact")
    engine.settle()
    assert set(sent) >= {"hello", "measurements", "plan", "announce"}
    assert sent == {kind: read[kind] & fields for kind, fields in sent.items()}


def test_a_full_disk_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(tmp_path, Follower, "exact")
    engine.settle(4)
    assert engine.coordinator is not None
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr("penstock.coordination.mailbox.write_atomically", full)
        engine.step()
    flow = engine.settle()
    assert flow["b1"] + flow["b2"] == pytest.approx(engine.optimum(), rel=0.08)
    assert any("No space left" in note for note in engine.agents["A"].status()["notes"])
