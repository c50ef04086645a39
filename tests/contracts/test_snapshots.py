"""Whatever has a snapshot goes on exactly after a restore; a new class is found by itself and needs a driver here."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.control import Controller, GateCount, MicroBatch, Observation
from penstock.control.batch_clock import BatchClock
from penstock.control.load_model import LoadModel
from penstock.control.row_ramp import RowRamp
from penstock.control.source_lag import SourceLag
from penstock.coordination import Local
from penstock.coordination.agent import Agent
from penstock.coordination.node_statistics import NodeStatistics
from penstock.decision.backfill import Backfill
from penstock.drop.units import BEHIND, WholeWindows, WindowRing
from penstock.estimate import (
    BatchFilter,
    BatchRegression,
    BucketCosts,
    DiagonalFilter,
    LinearFilter,
    OperatorCosts,
    Selectivities,
    SelectivityEstimator,
)
from penstock.las import CostSketch
from penstock.las.bucket_keeps import BucketKeeps
from penstock.las.work_controller import WorkController
from penstock.network import Network, NetworkBuilder

ENGINES = ("penstock.spark", "penstock.cluster", "penstock.demo", "penstock.__main__")
"""Packages that need pyspark, and the program."""


@dataclass(frozen=True)
class Driver:
    """How to drive one class: how it is made, what a step takes, and what a step shows."""

    make: Callable[[], Any]
    inputs: st.SearchStrategy[Any]
    step: Callable[[Any, Any], Any]


# ---------------------------------------------------------------- what goes in

rows = st.integers(0, 10_000)
seconds = st.floats(0.0, 100.0)
vectors = st.lists(st.integers(0, 200), min_size=4, max_size=4).map(lambda counts: np.array(counts, dtype=np.float64))


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    offered = draw(rows)
    start_s = draw(st.floats(0.0, 1e4))
    return Observation(
        batch_id=draw(st.integers(0, 1000)),
        start_s=start_s,
        end_s=start_s + draw(seconds),
        gates={"in": GateCount(offered, draw(st.integers(0, offered)))},
        keep=draw(st.floats(0.0, 1.0)),
        busy_s=draw(seconds),
        mean_arrival_s=draw(st.none() | st.floats(0.0, 1e4)),
        backlog_rows=draw(st.just({}) | rows.map(lambda count: {"source": count})),
        upcoming_rows=draw(st.none() | rows),
        completed=draw(st.none() | rows),
        cold=draw(st.booleans()),
        waited_s=draw(st.none() | seconds),
        taken_s=draw(st.none() | st.floats(0.0, 1e4)),
        upcoming_cold=draw(st.booleans()),
        has_ages=draw(st.booleans()),
        expired=draw(st.integers(0, offered)),
        mean_expired_arrival_s=draw(st.none() | st.floats(0.0, 1e4)),
        left_rows=draw(st.none() | rows),
    )


def capped_observations() -> st.SearchStrategy[Observation]:
    """Batches of one size, of rows that get older or younger."""
    return st.tuples(observations(), st.floats(0.0, 1e3)).map(
        lambda pair: replace(pair[0], upcoming_rows=1_000, mean_arrival_s=pair[0].start_s - pair[1])
    )


# ---------------------------------------------------------------- how each is driven


def drive_batches(model: Any, batch: tuple[int, float]) -> Any:
    model.update(*batch)
    return model.cost_s, model.overhead_s


def drive_load(model: LoadModel, observation: Observation) -> Any:
    model.update(observation)
    known = model.cost_s, model.overhead_s, model.headroom, model.queue, model.measure_delay(observation)
    return *known, model.is_vague(observation), model.incoming(observation), model.expect_batch(observation)


def drive_ramp(ramp: RowRamp, step: tuple[int, float, bool]) -> Any:
    kept, period_s, is_cold = step
    ramp.update(kept, period_s, batch_s=1.0, work_s=period_s / 2.0, is_cold=is_cold)
    known, unknown = BatchFilter(), BatchFilter()
    known.update(400, 0.6)
    return ramp.limit(unknown, 1.0), ramp.limit(known, 1.0), ramp.limit(known, 0.1)


def drive_clock(clock: BatchClock, observation: Observation) -> Any:
    clock.update(replace(observation, waited_s=observation.period_s, taken_s=observation.end_s + 0.1), is_capped=False)
    return clock.lead_s, clock.latency_s, clock.begin_s(observation), clock.waited_s(3.0)


def drive_lag(lag: SourceLag, observation: Observation) -> Any:
    lag.update(observation)
    return lag.is_capped, lag.is_behind, lag.is_hopeless, lag.rate, lag.size, lag.pace_s, lag.oldest_age_s(observation)


def drive_linear(model: LinearFilter, step: tuple[np.ndarray, float]) -> Any:
    counts, total_s = step
    model.widen([0.01] * 4)
    model.correct(counts, total_s - model.predict(counts), noise=0.1, least=0.0)
    return model.values.tolist(), model.variance(counts)


def drive_diagonal(model: DiagonalFilter, step: tuple[np.ndarray, float]) -> Any:
    counts, total_s = step
    model.widen(np.full(4, 0.01), np.ones(4))
    model.correct(counts, total_s - model.predict(counts), noise=0.1)
    return model.values.tolist()


def drive_operators(model: OperatorCosts, step: tuple[np.ndarray, float]) -> Any:
    counts, busy_s = step
    model.update(dict(zip(model.operators, counts.tolist(), strict=False)), busy_s)
    return [model.cost(name) for name in model.operators], model.overhead_s, model.group_cost({"a": 2.0, "b": 1.0})


def drive_selectivity(model: SelectivityEstimator, step: tuple[int, int]) -> Any:
    model.update(*step)
    return model.estimate


def drive_selectivities(model: Selectivities, step: tuple[int, int]) -> Any:
    model.update(np.array([0, 1]), step, [step[0] // 2, step[1] // 3])
    return model.values.tolist(), model.errors.tolist()


def drive_bucket_costs(model: BucketCosts, step: tuple[np.ndarray, float, bool]) -> Any:
    counts, total_s, from_total = step
    if from_total:
        model.update_from_total(counts, total_s)
    else:
        model.update(counts, counts * total_s)
    return [repr(cost) for cost in model.costs_s.tolist()]  # nan is equal to nan


def drive_bucket_keeps(model: BucketKeeps, step: tuple[np.ndarray, float, bool]) -> Any:
    counts, total_s, from_total = step
    if from_total:
        model.update_from_total(counts, total_s)
        model.update_offered(counts)
    else:
        model.update(counts, counts * total_s, model.keeps)
    return model.share_out(0.3).tolist(), model.mean_s, model.rows.tolist()


def drive_sketch(model: CostSketch, step: tuple[list[int], float]) -> Any:
    keys, cost_s = step
    model.add(keys, [cost_s * (key + 1) for key in keys])
    if len(keys) > 5:
        model.decay(0.8)
    return model.estimate(range(10)).tolist(), model.estimate(range(10), weighted=True).tolist(), model.mean_s


def drive_ring(model: WindowRing, step: tuple[int, float]) -> Any:
    ahead, keep = step
    model.decide((model.last[0] if model.last is not None else 0) + ahead, keep)
    assert model.last is not None
    return model.last, model.keep(np.arange(model.last[0] - BEHIND, model.last[0] + BEHIND, 64)).tolist()


def two_queries() -> Network:
    builder = NetworkBuilder().node("A").input("i").input("j")
    builder.operator("a", "A", "i", cost=0.004).operator("b", "A", "j", cost=0.008, selectivity=0.5)
    return builder.output("q", "a").output("r", "b").build()


def make_agent() -> Agent:
    network = two_queries()
    return Agent(network, "A", Local(network, "A"), None, 2.0, queries={"a": ["a"], "b": ["b"]}, clock=lambda: 0.0)


def drive_agent(agent: Agent, step: tuple[str, int, float]) -> Any:
    """What an agent learns is stored. What it counts by the clock is not: that starts anew with the batches."""
    query, count, busy_s = step
    agent.learn(query, {query: count}, {query: count // 2}, busy_s)
    return agent.measurements


def drive_statistics(statistics: NodeStatistics, step: tuple[str, int, float]) -> Any:
    query, count, busy_s = step
    statistics.learn(query, {query: count}, {query: count // 2}, busy_s)
    return statistics.estimate_operators(), statistics.overheads_s


totals = st.tuples(vectors, seconds)
timed = st.tuples(vectors, seconds, st.booleans())
DRIVERS = {
    Agent: Driver(make_agent, st.tuples(st.sampled_from("ab"), rows, seconds), drive_agent),
    Backfill: Driver(
        lambda: Backfill(MicroBatch(2.0)), observations(), lambda controller, observation: controller.update(observation)
    ),
    BatchFilter: Driver(BatchFilter, st.tuples(rows, seconds), drive_batches),
    BatchRegression: Driver(BatchRegression, st.tuples(rows, seconds), drive_batches),
    BucketCosts: Driver(lambda: BucketCosts(4), timed, drive_bucket_costs),
    BucketKeeps: Driver(lambda: BucketKeeps(4), timed, drive_bucket_keeps),
    CostSketch: Driver(lambda: CostSketch(0.5, 0.2), st.tuples(st.lists(st.integers(0, 9), min_size=1), seconds), drive_sketch),
    DiagonalFilter: Driver(lambda: DiagonalFilter([0.1] * 4, [1.0] * 4), totals, drive_diagonal),
    LinearFilter: Driver(lambda: LinearFilter([0.1] * 4, [1.0] * 4), totals, drive_linear),
    LoadModel: Driver(lambda: LoadModel(2.0), observations(), drive_load),
    OperatorCosts: Driver(lambda: OperatorCosts({"a": 0.1, "b": 0.0}), totals, drive_operators),
    NodeStatistics: Driver(
        lambda: NodeStatistics(two_queries(), {"a": ["a"], "b": ["b"]}),
        st.tuples(st.sampled_from("ab"), rows, seconds),
        drive_statistics,
    ),
    RowRamp: Driver(lambda: RowRamp(500.0), st.tuples(rows, seconds, st.booleans()), drive_ramp),
    BatchClock: Driver(BatchClock, capped_observations(), drive_clock),
    SourceLag: Driver(SourceLag, capped_observations(), drive_lag),
    Selectivities: Driver(lambda: Selectivities([0.5, 0.2]), st.tuples(rows, rows), drive_selectivities),
    SelectivityEstimator: Driver(lambda: SelectivityEstimator(0.5), st.tuples(rows, rows), drive_selectivity),
    WindowRing: Driver(
        lambda: WindowRing(WholeWindows("t", "2s", "1s"), seed=1),
        st.tuples(st.integers(0, 3000), st.floats(0.0, 1.0)),
        drive_ring,
    ),
    WorkController: Driver(
        lambda: WorkController(MicroBatch(2.0), BucketKeeps(4), is_timed=False),
        observations(),
        lambda controller, observation: controller.update(observation),
    ),
}


def driver_of(kind: type) -> Driver:
    if kind not in DRIVERS and issubclass(kind, Controller):
        return Driver(lambda: kind(2.0), observations(), lambda controller, observation: controller.update(observation))
    if kind not in DRIVERS:
        pytest.fail(f"{kind.__module__}.{kind.__qualname__} has snapshot() and restore(): register a driver for it in {__name__}")
    return DRIVERS[kind]


def find_kinds() -> Iterator[type]:
    """Every class of the packages without an engine that has both methods, where it is defined."""
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if module.name.startswith(ENGINES):
            continue
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            is_here = kind.__module__ == module.name and not inspect.isabstract(kind)
            if is_here and hasattr(kind, "snapshot") and hasattr(kind, "restore"):
                yield kind


KINDS = list(find_kinds())


# ---------------------------------------------------------------- the contract


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_restored_in_the_middle_of_a_trace_it_goes_on_as_if_it_had_never_stopped(kind: type, data: st.DataObject) -> None:
    driver = driver_of(kind)
    trace = data.draw(st.lists(driver.inputs, min_size=1, max_size=20))
    cut = data.draw(st.integers(0, len(trace)))
    whole, stopped, restored = driver.make(), driver.make(), driver.make()
    for one in trace[:cut]:
        assert driver.step(whole, one) == driver.step(stopped, one)
    restored.restore(through_json(stopped.snapshot()))
    for one in trace[cut:]:
        expected = driver.step(whole, one)
        assert driver.step(restored, one) == expected
        assert driver.step(stopped, one) == expected, "taking a snapshot changed it"
    assert json.dumps(through_json(restored.snapshot())) == json.dumps(through_json(whole.snapshot()))


def test_every_driver_is_of_a_class_that_is_found() -> None:
    assert set(DRIVERS) <= set(KINDS)
    assert sum(issubclass(kind, Controller) for kind in KINDS) >= 5


def test_a_class_without_a_driver_is_named() -> None:
    class Newcomer:
        """Has a snapshot, and nobody knows how to drive it."""

    with pytest.raises(pytest.fail.Exception, match=r"Newcomer has snapshot\(\) and restore\(\): register a driver"):
        driver_of(Newcomer)
