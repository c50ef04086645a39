"""A network whose nodes have reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.coordination import COORDINATOR, Coordinator, DirectoryMailbox, Follower
from penstock.coordination.agent import Agent
from penstock.network import NetworkBuilder


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a network with one node and its coordinator, after a batch of which most was shed."""
    pytest.importorskip("pyspark")
    network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=0.01).output("q", "a").build()
    now = [100.0]
    mailboxes = [DirectoryMailbox(tmp_path / "m", me, [peer], "x") for me, peer in (("A", COORDINATOR), (COORDINATOR, "A"))]
    agent = Agent(network, "A", Follower(network, "A"), mailboxes[0], 2.0, queries={"a": ["a"]}, clock=lambda: now[0])
    coordinator = Coordinator(network, mailboxes[1], clock=lambda: now[0])
    for _ in range(3):
        now[0] += 2.0
        agent.decide_batch("a", {"i": 2000})
        coordinator.step()
    mailboxes[1].send("A", "song", {})
    now[0] += 30.0
    agent.exchange_messages()
    now[0] += 30.0
    outputs = {"q": {"rows": 400, "delay_rows": 400, "delay_sum_s": 600.0, "worst_delay_s": 2.0}}
    status = {**agent.status(), "batches": {"a": 3}, "gates": {"i": [6000, 600]}, "outputs": outputs}
    for name, content in (("nodes/A", status), ("coordinator", coordinator.status())):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "status.json").write_text(json.dumps(content))
    return tmp_path
