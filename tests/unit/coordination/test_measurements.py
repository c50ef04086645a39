"""What a node measures and tells."""

from __future__ import annotations

import json

import numpy as np
import pytest

from penstock.coordination import (
    Measurements,
    OperatorMeasurements,
)
from penstock.coordination.measurements import (
    apply_measurements,
    compute_flows,
)
from penstock.errors import PenstockError
from penstock.planning import Exact
from tests.networks import overloading_rates, random_network
from tests.unit.coordination.engine import figure1


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
