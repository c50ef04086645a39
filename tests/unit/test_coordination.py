"""Agents, coordinator and D-FIT, on figure 1's network with a simulated engine; peers on random trees against exact plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.network_dfit import TreeMailbox, binary_tree
from penstock.coordination import (
    COORDINATOR,
    Coordinator,
    DFit,
    DirectoryMailbox,
    Fixed,
    Follower,
    Local,
    Manager,
    Measurements,
    Message,
    NoShedding,
    OperatorMeasurements,
    manager_named,
)
from penstock.coordination.agent import Agent
from penstock.coordination.batch_times import BatchTimes
from penstock.coordination.fingerprint import describe_changes, describe_network, fingerprint
from penstock.coordination.measurements import (
    apply_measurements,
    compute_flows,
    entries_of,
    remove_rate_bounds,
)
from penstock.coordination.token_bucket import TokenBucket
from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder, parse_network
from penstock.planning import Exact
from penstock.planning.flows import Flows
from tests.networks import overloading_rates, random_network, random_tree

UNIT = 0.004
PACE = 2.0


def figure1(unit: float = UNIT) -> Network:
    return (
        NetworkBuilder()
        .node("A")
        .node("B")
        .input("i1", max_rate=8 / unit)
        .input("i2", max_rate=8 / unit)
        .operator("a1", "A", "i1", cost=unit)
        .operator("a2", "A", "i2", cost=2 * unit)
        .operator("b1", "B", "a1", cost=3 * unit)
        .operator("b2", "B", "a2", cost=unit)
        .output("q1", "b1")
        .output("q2", "b2")
        .build()
    )


class Engine:
    """Figure 1 in micro-batches: each query takes what has come, the agent decides, the time follows from the true costs."""

    def __init__(self, root: Path, make: Callable[[Network, str], Manager], method: str | None = None) -> None:
        self.root, self.make, self.method = root, make, method
        self.network = figure1()
        self.now = 1_000.0
        self.costs = {"a1": UNIT, "a2": 2 * UNIT, "b1": 3 * UNIT, "b2": UNIT}
        self.rates = {"i1": 1 / UNIT, "i2": 1 / UNIT}
        self.flow: dict[str, float] = {}
        self.agents = {node: self.agent(node) for node in ("A", "B")}
        self.coordinator = self.coordinate() if method is not None else None

    def agent(self, node: str) -> Agent:
        manager = self.make(self.network, node)
        mailbox = DirectoryMailbox(self.root, node, manager.peers, "x") if manager.peers else None
        queries = {"A": {"a1": ["a1"], "a2": ["a2"]}, "B": {"b1": ["b1"], "b2": ["b2"]}}[node]
        return Agent(self.network, node, manager, mailbox, PACE, queries=queries, clock=lambda: self.now)

    def coordinate(self) -> Coordinator:
        assert self.method is not None
        mailbox = DirectoryMailbox(self.root, COORDINATOR, ["A", "B"], "x")
        options = {} if self.method == "exact" else {"epsilon": 0.05}
        state = self.root / "state.json"
        return Coordinator(self.network, mailbox, self.method, state=state, clock=lambda: self.now, **options)

    def step(self) -> None:
        self.now += PACE
        for node, query, entry, source in (
            ("A", "a1", "i1", None),
            ("A", "a2", "i2", None),
            ("B", "b1", "a1->b1", "a1"),
            ("B", "b2", "a2->b2", "a2"),
        ):
            if node not in self.agents:
                self.flow[query] = 0.0
                continue
            offered = int(self.rates[entry] * PACE if source is None else self.flow[source])
            kept = int(offered * self.agents[node].decide_batch(query, {entry: offered})[entry])
            self.agents[node].learn(query, {query: kept}, {query: kept}, 0.1 + self.costs[query] * kept)
            self.flow[query] = float(kept)
            if self.coordinator is not None:
                self.coordinator.step()
        for agent in self.agents.values():
            agent.exchange_messages()
        if self.coordinator is not None:
            self.coordinator.step()

    def settle(self, steps: int = 14) -> dict[str, float]:
        """Tuples a second at each operator, over the last six batches."""
        sums: dict[str, float] = {}
        for number in range(steps):
            self.step()
            if number >= steps - 6:
                for name, rows in self.flow.items():
                    sums[name] = sums.get(name, 0.0) + rows / 6 / PACE
        return sums

    def optimum(self, capacity: float = 0.9) -> float:
        """The best score; of each node a tenth goes to its two batches."""
        operators = {name: replace(self.network.operators[name], cost=cost) for name, cost in self.costs.items()}
        nodes = {name: replace(node, capacity=capacity) for name, node in self.network.nodes.items()}
        network = Network(nodes, self.network.inputs, operators, self.network.outputs)
        return Exact(remove_rate_bounds(network)).plan(self.rates).score


MANAGERS: dict[str, tuple[Callable[[Network, str], Manager], str | None]] = {
    "exact": (Follower, "exact"),
    "solver": (Follower, "solver"),
    "fit": (Follower, "fit"),
    "d-fit": (DFit, None),
}


@pytest.mark.parametrize("name", MANAGERS)
def test_coordination_comes_near_the_optimum(name: str, tmp_path: Path) -> None:
    engine = Engine(tmp_path, *MANAGERS[name])
    flow = engine.settle()
    assert flow["b1"] + flow["b2"] == pytest.approx(engine.optimum(), rel=0.08)
    assert flow["b1"] + flow["b2"] == pytest.approx(flow["a1"] + flow["a2"], rel=0.03), "nothing is done in vain"


@pytest.mark.parametrize("name", MANAGERS)
def test_a_changed_cost_is_found_and_planned_for(name: str, tmp_path: Path) -> None:
    engine = Engine(tmp_path, *MANAGERS[name])
    engine.settle()
    engine.costs["b1"] *= 2.0
    flow = engine.settle()
    assert flow["b1"] + flow["b2"] == pytest.approx(engine.optimum(), rel=0.1)


@pytest.mark.parametrize("name", [*MANAGERS, "local"])
def test_not_overloaded_nothing_is_shed(name: str, tmp_path: Path) -> None:
    engine = Engine(tmp_path, *({"local": (Local, None)} | MANAGERS)[name])
    engine.rates = {"i1": 50.0, "i2": 60.0}
    flow = engine.settle()
    assert flow == pytest.approx({"a1": 50.0, "b1": 50.0, "a2": 60.0, "b2": 60.0})


def test_each_for_itself_does_work_in_vain(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Local)
    flow = engine.settle()
    assert flow["a1"] > 0.75 / UNIT, "A's own optimum is all of i1"
    together = Engine(tmp_path / "together", Follower, "exact").settle()
    assert together["b1"] + together["b2"] > 1.3 * (flow["b1"] + flow["b2"])


def test_a_step_in_the_rates_is_answered_by_the_next_batch_but_one(tmp_path: Path) -> None:
    for name in ("exact", "d-fit"):
        engine = Engine(tmp_path / name, *MANAGERS[name])
        engine.rates = {"i1": 40.0, "i2": 50.0}
        engine.settle()
        engine.rates = {"i1": 250.0, "i2": 250.0}
        engine.step()
        engine.step()
        settled = engine.settle()
        engine.rates = {"i1": 40.0, "i2": 50.0}
        engine.settle(6)
        engine.rates = {"i1": 250.0, "i2": 250.0}
        engine.step()
        engine.step()
        now = {query: rows / PACE for query, rows in engine.flow.items()}
        assert now["a1"] == pytest.approx(settled["a1"], rel=0.3)
        assert now["a2"] == pytest.approx(settled["a2"], rel=0.3)


def test_a_restarted_coordinator_takes_up_where_it_was(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Follower, "exact")
    before = engine.settle()
    number = engine.coordinator.number  # type: ignore[union-attr]
    engine.coordinator = None
    alone = engine.settle(8)
    assert alone["b1"] + alone["b2"] == pytest.approx(before["b1"] + before["b2"], rel=0.05), "the last plan stays in force"
    engine.now += 60.0
    assert engine.agents["A"].status()["silent_s"] == {COORDINATOR: pytest.approx(60.0 + 8 * PACE, abs=3 * PACE)}
    engine.now -= 60.0
    engine.coordinator = engine.coordinate()
    assert engine.coordinator.number == number
    assert engine.settle(8) == pytest.approx(before, rel=0.2)


@pytest.mark.parametrize("name", ["exact", "d-fit"])
def test_a_restarted_node_takes_up_where_it_was(name: str, tmp_path: Path) -> None:
    engine = Engine(tmp_path, *MANAGERS[name])
    before = engine.settle()
    for node in ("B", "A"):
        learnt = json.loads(json.dumps(engine.agents[node].snapshot()))
        del engine.agents[node]
        engine.step()
        engine.agents[node] = engine.agent(node)
        engine.agents[node].restore(learnt)
        after = engine.settle(12)
        assert after["b1"] + after["b2"] == pytest.approx(before["b1"] + before["b2"], rel=0.1)


def test_a_coordinator_without_its_state_starts_anew(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Follower, "exact")
    engine.settle(6)
    (tmp_path / "state.json").write_text("{torn")
    engine.coordinator = engine.coordinate()
    assert engine.coordinator.number is None
    flow = engine.settle()
    assert flow["b1"] + flow["b2"] == pytest.approx(engine.optimum(), rel=0.08)


def test_messages_that_make_no_sense_are_counted(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Follower, "exact")
    coordinator = engine.coordinator
    assert coordinator is not None
    mailbox = DirectoryMailbox(tmp_path, "A", [COORDINATOR], "x")
    wrong = {"node": "B", "capacity": 1, "operators": {}, "rates": {}}
    for kind, body in (("measurements", wrong), ("measurements", {}), ("song", {}), ("request", {"number": "x"})):
        mailbox.send(COORDINATOR, kind, body, replaces=False)
    coordinator.step()
    assert coordinator.rejected == {"A": 4}
    mail = DirectoryMailbox(tmp_path, COORDINATOR, ["A", "B"], "x")
    mail.send("A", "plan", {"number": "x"})
    mail.send("A", "song", {})
    engine.agents["A"].exchange_messages()
    assert engine.agents["A"].status()["rejected"] == 2
    assert "a message of kind 'plan' makes no sense" in engine.agents["A"].status()["notes"][0]
    engine.settle(4)


def test_numbers_say_which_plan(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Follower, "exact")
    engine.settle()
    status = engine.agents["A"].manager.status()
    assert engine.coordinator is not None
    assert status["plan"] == engine.coordinator.number
    assert engine.agents["A"].status()["reason"] == f"plan {engine.coordinator.number}"
    engine.rates = {"i1": 10.0, "i2": 10.0}
    engine.settle(6)
    assert engine.coordinator.number == 0


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


def test_a_plan_needs_no_scaling_when_rates_change() -> None:
    """Plans name flows, so the share of a batch follows from its size: twice the rows, half the share."""
    follower = Follower(figure1(), "A")
    plan = {"number": 1, "flows": {"i1": 50.0, "i2": 100.0}, "keep": {}}
    for number, (kind, body) in enumerate((("plan", plan), ("announce", {"number": 1}))):
        follower.receive(Message(COORDINATOR, "A", 1, number, kind, body, 0.0))
    agent = Agent(figure1(), "A", follower, None, PACE, queries={"a1": ["a1"], "a2": ["a2"]}, clock=lambda: 0.0)
    kept = [rows * agent.decide_batch("a1", {"i1": rows}, PACE * turn)["i1"] for turn, rows in enumerate([200] * 8 + [400] * 8)]
    assert sum(kept[2:8]) / 6 == pytest.approx(50.0 * PACE, rel=0.02)
    assert sum(kept[10:]) / 6 == pytest.approx(50.0 * PACE, rel=0.02)


def test_an_input_that_goes_quiet_is_not_planned_for(tmp_path: Path) -> None:
    for name in ("exact", "d-fit"):
        engine = Engine(tmp_path / name, *MANAGERS[name])
        engine.settle()
        agent = engine.agents["A"]
        for _ in range(12):  # i1 has nothing more, so its query runs no batch
            engine.now += PACE
            agent.exchange_messages()
            kept = 500 * agent.decide_batch("a2", {"i2": 500})["i2"]
            agent.learn("a2", {"a2": int(kept)}, {"a2": int(kept)}, 0.1 + 2 * UNIT * kept)
            if engine.coordinator is not None:
                engine.coordinator.step()
            agent.exchange_messages()
        assert agent.measurements.rates["i1"] == 0.0
        assert kept / PACE == pytest.approx(0.45 / UNIT, rel=0.2), "all of A is i2's now"


def test_all_inputs_of_a_query_swing(tmp_path: Path) -> None:
    network = NetworkBuilder().node("A").input("i").input("j").union("u", "A", "i", "j", cost=UNIT).output("q", "u").build()
    agent = Agent(network, "A", Local(network, "A"), None, PACE, queries={"u": ["u"]}, clock=lambda: 0.0)
    sizes = []
    for turn in range(12):
        keep = agent.decide_batch("u", {"i": 500, "j": 500}, 2.0 * turn)
        sizes.append(500 * (keep["i"] + keep["j"]))
    assert max(sizes[6:]) > 1.1 * min(sizes[6:])


def test_a_plan_that_comes_again_is_not_forgotten() -> None:
    follower = Follower(figure1(), "A")
    for number in range(1, 300):
        body = {"number": number, "flows": {"i1": float(number)}, "keep": {}}
        follower.receive(Message(COORDINATOR, "A", 1, number, "plan", body, 0.0))
    for kind in ("announce", "plan"):
        follower.receive(Message(COORDINATOR, "A", 1, 500, kind, {"number": 3, "flows": {"i1": 3.0}, "keep": {}}, 0.0))
    assert follower.decide({}).flows == {"i1": 3.0}
    assert not [kind for _, kind, _ in follower.take_messages() if kind == "request"]


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


# -- D-FIT ---------------------------------------------------------------------------------------------------------------


def connected(network: Network, epsilon: float) -> dict[str, DFit]:
    used = {operator.node for operator in network.operators.values()}
    peers = {node: DFit(network, node, epsilon) for node in network.nodes if node in used}
    TreeMailbox(peers).deliver(set(peers))
    return peers


def shed_by(peers: Mapping[str, DFit], network: Network, rates: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """What comes out if every node sheds by its own table what its parent lets through: score and loads."""
    keep: dict[str, float] = {}
    order = [node for node in peers if peers[node].parent is None]
    for node in order:
        order += peers[node].children
    for node in reversed(order):  # children tell what comes in below
        flows = compute_flows(network, rates, {})
        own = {e: rates[e.partition("->")[0]] for e in entries_of(network, node) if e.partition("->")[0] in network.inputs}
        arriving = {**{entry: flows[entry] for entry in entries_of(network, node)}, **own}
        peers[node].learn(replace(Measurements.from_declaration(network, node), rates=arriving))
        TreeMailbox(peers).deliver({node})
    for node in order:
        flows = compute_flows(network, rates, keep)
        entries = entries_of(network, node)
        arriving = {e: rates[e.partition("->")[0]] if e.partition("->")[0] in network.inputs else flows[e] for e in entries}
        limits = peers[node].decide(arriving)
        for entry in entries:
            if entry in limits.flows:
                keep[entry] = min(1.0, limits.flows[entry] / arriving[entry]) if arriving[entry] > 0 else 1.0
        keep |= limits.keep
    flows = compute_flows(network, rates, keep)
    loads = dict.fromkeys(network.nodes, 0.0)
    for name, operator in network.operators.items():
        loads[operator.node] += operator.cost * sum(flows[f"{source}->{name}"] for source in operator.sources)
    return sum(output.weight * flows[f"{output.source}->{name}"] for name, output in network.outputs.items()), loads


@pytest.mark.parametrize("seed", range(25))
def test_peers_come_within_epsilon_of_the_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_tree(rng)
    peers = connected(network, 0.1)
    for _ in range(4):
        rates = overloading_rates(rng, network)
        score, loads = shed_by(peers, network, rates)
        best = Exact(network).plan(rates)
        assert score >= (1 - 0.1) * best.score * (1 - 1e-6)
        slack = 1.1  # a node that is fed by others sheds only what is more than a tenth too much
        assert all(load <= slack * network.nodes[node].capacity * (1 + 1e-6) for node, load in loads.items())


@pytest.mark.parametrize("seed", range(25))
def test_peers_know_exactly_when_nothing_is_overloaded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_tree(rng)
    peers = connected(network, 0.2)
    flows = Flows(network)
    used = {operator.node for operator in network.operators.values()}
    for _ in range(4):
        rates = overloading_rates(rng, network, near=True)
        for scale in (0.9999, 0.97, 1.0001):
            vector = np.array([rates[name] * scale for name in network.inputs])
            used_share = float(np.max(flows.full_loads @ vector / flows.capacity))
            vector *= scale / used_share
            now = dict(zip(network.inputs, vector.tolist(), strict=True))
            for root in (node for node in used if peers[node].parent is None):
                below = [root]
                for node in below:
                    below += peers[node].children
                full = flows.full_loads @ vector
                over = any(full[flows.nodes.index(node)] > network.nodes[node].capacity for node in below)
                columns = peers[root].table.columns  # type: ignore[union-attr]
                point = np.array([now[name.partition("->")[0]] for name in columns])
                assert bool(np.any(peers[root].bounds @ point > 1 + 1e-9)) == over


def test_a_change_travels_only_up(tmp_path: Path) -> None:
    network = binary_tree(4)
    peers = connected(network, 0.2)
    before = {node: peer.tables_built for node, peer in peers.items()}
    leaf = "n14"
    measurements = Measurements.from_declaration(network, leaf)
    dear = {name: replace(value, cost=3 * value.cost) for name, value in measurements.operators.items()}
    peers[leaf].learn(replace(measurements, operators=dear))
    mailbox = TreeMailbox(peers)
    mailbox.deliver({leaf})
    assert mailbox.senders <= {"n14", "n6", "n2", "n0"}
    assert {node for node, peer in peers.items() if peer.tables_built > before[node]} <= {"n14", "n6", "n2", "n0"}
    assert mailbox.messages["change"] >= 1
    peers[leaf].learn(replace(measurements, operators=dear))
    nothing = TreeMailbox(peers)
    nothing.deliver({leaf})
    assert not nothing.messages


def test_a_parent_that_missed_a_change_asks_for_the_whole() -> None:
    network = figure1(1.0)
    peers = connected(network, 0.1)
    child, parent = peers["B"], peers["A"]
    measurements = Measurements.from_declaration(network, "B")
    for times in (1.5, 2.0):
        child.learn(
            replace(measurements, operators={n: replace(v, cost=times * v.cost) for n, v in measurements.operators.items()})
        )
        (message,) = (body for to, kind, body in child.take_messages() if kind == "table")
    assert "base" in message, "only what changed"
    parent.receive(Message("B", "A", 1, 1, "table", message, 0.0))  # the first of two got lost
    assert ("B", "resend", {}) in parent.take_messages()
    child.receive(Message("A", "B", 1, 1, "resend", {}, 0.0))
    (whole,) = (body for to, kind, body in child.take_messages() if kind == "table")
    assert "base" not in whole
    parent.receive(Message("B", "A", 1, 2, "table", whole, 0.0))
    parent.refresh()
    assert parent.table is not None
    assert len(parent._child_tables._tables["B"]) == len(child.table or ())


def test_a_restarted_child_learns_what_is_above_it(tmp_path: Path) -> None:
    """A is much cheaper than declared, so far more can come to B than B was told."""
    engine = Engine(tmp_path, DFit)
    engine.costs |= {"a1": UNIT / 4, "a2": UNIT / 2}
    before = engine.settle(20)
    learnt = engine.agents["B"].snapshot()
    engine.agents["B"] = engine.agent("B")
    engine.agents["B"].restore(learnt)
    after = engine.settle(14)
    assert after["b1"] + after["b2"] == pytest.approx(before["b1"] + before["b2"], rel=0.1)


def test_d_fit_refuses_what_is_no_tree() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .node("B")
        .node("C")
        .input("i")
        .input("j")
        .operator("a", "A", "i", cost=1.0)
        .operator("b", "B", "j", cost=1.0)
        .union("c", "C", "a", "b", cost=1.0)
        .output("q", "c")
        .build()
    )
    with pytest.raises(PenstockError, match=r"D-FIT needs a tree of nodes, and node 'C' has 2 parents: A, B: run a coordinator"):
        manager_named("d-fit", network, "A")
    assert isinstance(manager_named("exact", network, "A"), Follower)


def test_a_strangers_table_is_refused() -> None:
    network = figure1(1.0)
    peers = connected(network, 0.1)
    for sender, kind, body in (
        ("B", "table", {}),
        ("B", "table", {"version": 1, "table": {"schema": 9}, "bounds": []}),
        ("C", "table", {}),
        ("B", "song", {}),
    ):
        with pytest.raises(PenstockError):
            peers["A"].receive(Message(sender, "A", 1, 1, kind, body, 0.0))


# -- measurements ---------------------------------------------------------------------------------------------------------------


def test_measurements_travel_unchanged() -> None:
    measurements = Measurements("A", 0.9, {"a1": OperatorMeasurements(0.1, 0.01, 0.5, 0.02)}, {"i1": 10.0})
    assert Measurements.from_body(json.loads(json.dumps(measurements.to_body()))) == measurements


@pytest.mark.parametrize(
    "wrong",
    [
        {"capacity": 0.0},
        {"capacity": float("nan")},
        {"operators": {"a1": [1, 2, 3]}},
        {"operators": {"a1": [-1, 0, 1, 0]}},
        {"rates": {"i1": "many"}},
        {"rates": None},
    ],
)
def test_bad_measurements_are_refused(wrong: dict[str, object]) -> None:
    body = Measurements("A", 0.9, {"a1": OperatorMeasurements(0.1, 0.01, 0.5, 0.02)}, {"i1": 10.0}).to_body()
    with pytest.raises(PenstockError, match="measurements"):
        Measurements.from_body(body | wrong)


def test_measured_values_take_the_place_of_declared_ones() -> None:
    network = figure1()
    measurements = {
        "A": Measurements("A", 0.8, {"a1": OperatorMeasurements(0.1, 0, 0.5, 0), "b1": OperatorMeasurements(9.0, 0, 9.0, 0)})
    }
    found = apply_measurements(network, measurements)
    assert (found.operators["a1"].cost, found.operators["a1"].selectivity, found.nodes["A"].capacity) == (0.1, 0.5, 0.8)
    assert found.operators["b1"] == network.operators["b1"], "a node speaks for itself only"
    assert apply_measurements(network, {"A": Measurements("A", 7.0)}).nodes["A"].capacity == 1.0


@pytest.mark.parametrize("seed", range(30))
def test_flows_on_arcs_are_those_of_the_plan(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng)
    rates = overloading_rates(rng, network)
    plan = Exact(network).plan(rates)
    flows = compute_flows(network, rates, plan.keep)
    for name, output in network.outputs.items():
        assert flows[f"{output.source}->{name}"] == pytest.approx(plan.throughput[name], rel=1e-9, abs=1e-12)


def test_what_changed_in_a_network_is_said() -> None:
    one = parse_network(
        "nodes: {A: }\ninputs: {i: {format: rate}}\noperators: {a: {node: A, kind: filter, from: i, cost: 1, where: 'x > 1'}}\n"
        "outputs: {q: {from: a}}"
    )
    two = parse_network(
        "nodes: {A: }\ninputs: {i: {format: rate}}\noperators: {a: {node: A, kind: filter, from: i, cost: 3, where: 'x > 2'}}\n"
        "outputs: {q: {from: a}, r: {from: a}}"
    )
    assert describe_changes(describe_network(one), describe_network(two)) == [
        "operator a: where was 'x > 1' and is 'x > 2'",
        "output r is new",
    ]
    assert fingerprint(one) != fingerprint(two)
    dearer = Network(one.nodes, one.inputs, {"a": replace(one.operators["a"], cost=9.0)}, one.outputs, work=one.work)
    assert fingerprint(one) == fingerprint(dearer), "costs are only the start"


# -- token buckets -------------------------------------------------------------------------------------------------------


def test_a_batch_keeps_what_may_pass() -> None:
    bucket = TokenBucket(2.0, is_steady=True)
    bucket.add_batch(1000, 10.0)
    assert bucket.admit(1000, 100.0) == pytest.approx(0.25)  # the first: what a quarter more than a pace lets pass
    bucket.add_batch(1000, 12.0)
    assert bucket.rate == pytest.approx(500.0)
    assert bucket.admit(1000, 100.0) == pytest.approx(0.2)
    assert bucket.admit(1000, None) == 1.0
    assert bucket.admit(0, 100.0) == 1.0


def test_an_arc_that_brings_two_batches_and_then_none_has_a_steady_rate() -> None:
    bucket = TokenBucket(2.0, is_steady=False)
    now, kept = 0.0, 0.0
    for turn in range(40):
        now += 2.0
        rows = 400 if turn % 2 else 0
        if rows:
            bucket.add_batch(rows, now)
            kept += rows * bucket.admit(rows, 100.0)
    assert bucket.rate == pytest.approx(100.0, rel=0.3)
    assert kept == pytest.approx(8000, rel=0.03)


def test_batches_swing_by_a_tenth_and_no_more(tmp_path: Path) -> None:
    network = NetworkBuilder().node("A").input("i").operator("m", "A", "i", cost=UNIT).output("q", "m").build()
    agent = Agent(network, "A", Local(network, "A"), None, PACE, queries={"m": ["m"]}, clock=lambda: 0.0)
    sizes = [2000 * agent.decide_batch("m", {"i": 2000}, 2.0 * turn)["i"] for turn in range(12)]
    assert max(sizes[6:]) / min(sizes[6:]) == pytest.approx(1.1 / 0.9, rel=0.02)


def test_swings_make_up_for_each_other() -> None:
    bucket = TokenBucket(2.0, is_steady=True)
    sizes = []
    for turn in range(40):
        bucket.add_batch(1000, 2.0 * turn)
        sizes.append(1000 * bucket.admit(1000, 100.0, 0.1 if turn % 2 else 0.0))
    assert sum(sizes[1:]) / 39 == pytest.approx(200.0, rel=0.02)
    assert max(sizes[20:]) > 1.15 * min(sizes[20:])


def test_a_rate_expires_when_nothing_arrives() -> None:
    bucket = TokenBucket(2.0, is_steady=True)
    bucket.add_batch(1000, 10.0)
    bucket.expire(12.0)
    assert bucket.rate > 0
    bucket.expire(30.0)
    assert bucket.rate == 0


def test_headroom_falls_with_long_batches_and_recovers() -> None:
    times = BatchTimes(PACE)
    now = 0.0

    def run_batches(length_s: float, count: int) -> None:
        nonlocal now
        for _ in range(count):
            times.begin("a", now)
            times.end("a", now + length_s)
            now += max(PACE, length_s)

    run_batches(PACE, 5)
    assert times.headroom == 1.0
    run_batches(2 * PACE, 3)
    assert 0.9 < times.headroom < 1.0
    run_batches(2 * PACE, 50)
    assert times.headroom == 0.9
    assert times.cycle_s("a") == pytest.approx(2 * PACE, rel=0.01)
    run_batches(0.5 * PACE, 50)
    assert times.headroom == 1.0
    assert times.cycle_s("a") == pytest.approx(PACE, rel=0.01)
    assert times.cycle_s("another") == PACE


def test_no_batch_takes_much_longer_than_it_may(tmp_path: Path) -> None:
    engine = Engine(tmp_path, *MANAGERS["d-fit"])
    engine.settle()
    kept = 100_000 * engine.agents["B"].decide_batch("b2", {"a2->b2": 100_000})["a2->b2"]
    assert kept * UNIT <= 2.5 * PACE
    unguarded = Engine(tmp_path / "open", NoShedding)
    unguarded.settle(3)
    assert unguarded.agents["B"].decide_batch("b2", {"a2->b2": 100_000})["a2->b2"] == 1.0


def test_a_fixed_share_is_kept_whatever_comes(tmp_path: Path) -> None:
    engine = Engine(tmp_path, lambda network, node: Fixed(network, node, {"i1": 0.25}))
    flow = engine.settle(6)
    assert flow["a1"] == pytest.approx(0.25 / UNIT, rel=0.01)
    assert flow["a2"] == pytest.approx(1 / UNIT, rel=0.01)


def test_what_is_never_let_in_is_still_measured(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Local)
    flow = engine.settle()
    assert 0 < flow["a2"] < 0.02 / UNIT, "A alone would drop all of i2"
