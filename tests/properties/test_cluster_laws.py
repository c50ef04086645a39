"""Properties of D-FIT between clusters that hold for every graph of nodes, whatever was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.support.cluster_graphs import measure_facts
from penstock.coordination.dfit_planner import DFitPlanner
from penstock.coordination.measurements import remove_rate_bounds
from penstock.network import Network
from penstock.network.clusters import merge_clusters
from penstock.network.coefficients import Coefficients
from penstock.network.drops import Ties
from penstock.planning import Exact
from penstock.planning.flows import Flows
from tests.networks import random_network

EPSILON = 0.1


def put_into_clusters(rng: np.random.Generator, network: Network) -> Network:
    """Put nodes that do not form a tree into clusters that do: at random, or else all into one."""
    for _ in range(20):
        names = [f"c{number}" for number in rng.integers(0, len(network.nodes), len(network.nodes))]
        clusters: dict[str, tuple[str, ...]] = {}
        for name, node in zip(names, network.nodes, strict=True):
            clusters[name] = (*clusters.get(name, ()), node)
        some = {name: members for name, members in clusters.items() if len(members) > 1 or rng.random() < 0.2}
        clustered = replace(network, clusters=some)
        if Coefficients(merge_clusters(clustered)).not_a_tree is None:
            return clustered
    return replace(network, clusters={"all": tuple(network.nodes)})


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.sampled_from([1.02, 3.0, 10.0]))
def test_clusters_plan_within_epsilon_of_exact(seed: int, nodes: int, most: float) -> None:
    """Any graph of nodes, splits, unions and joins; one stream loaded or all; never above a capacity, never a plan of zero."""
    rng = np.random.default_rng(seed)
    network = put_into_clusters(rng, random_network(rng, nodes=nodes, inputs=int(rng.integers(1, 4)), operators=9))
    planner, exact = DFitPlanner(network, EPSILON), Exact(remove_rate_bounds(network), ties=Ties())
    for _ in range(2):
        facts = measure_facts(rng, network, most)
        planner.update(facts)
        exact.update(facts)
        flows = Flows(network)
        flows.update(facts)
        for is_near in (False, True):
            direction = rng.random(len(network.inputs)) * (rng.random(len(network.inputs)) < 0.7) + 1e-3
            load = float(np.max(flows.full_loads @ direction / flows.capacity))
            if load <= 0:
                continue
            rates = direction / load * (1.02 if is_near else 4.0)
            plan, best = planner.plan(dict(zip(network.inputs, rates.tolist(), strict=True))), exact.score(rates)
            assert max(load / plan.capacities[node] for node, load in plan.loads.items()) <= 1 + 1e-9
            assert plan.score >= (1 - EPSILON - 1e-6) * best, (network.clusters, plan.score, best)
            assert plan.score > 0 or best <= 0
