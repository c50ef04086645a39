"""The simulators against theory: what queues and micro-batches must do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.control import Controller, Ctrl, Decision, KeepAll, MicroBatch, Observation
from penstock.errors import PenstockError
from penstock.simulation.micro_batch_engine import simulate_micro_batches
from penstock.simulation.operator_network import OperatorNetwork, simulate_network
from penstock.simulation.outcome import Outcome
from penstock.simulation.profile import Profile
from penstock.simulation.queue import simulate_queue
from penstock.simulation.traffic import constant, exponential, on_off


class Always(Controller):
    """One keep for ever, and a memory of what it saw."""

    def __init__(self, keep: float) -> None:
        super().__init__(2.0)
        self.keep = keep
        self.observations: list[Observation] = []

    def update(self, observation: Observation) -> Decision:
        self.observations.append(observation)
        return Decision(self.keep)


def lindley(arrivals: np.ndarray, services: np.ndarray) -> np.ndarray:
    """Delays of a first-come-first-served queue, one row after the other: the oracle."""
    free, delays = 0.0, []
    for arrived, service in zip(arrivals, services, strict=True):
        free = max(arrived, free) + service
        delays.append(free - arrived)
    return np.array(delays)


class TestQueue:
    @pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
    def test_md1(self, rho: float) -> None:
        """Pollaczek and Khinchine, constant service: W = s (1 + rho / (2 (1 - rho)))."""
        run = simulate_queue(exponential(1000, 2000, seed=1), KeepAll(2.0), cost_s=rho / 1000)
        assert run.mean_delay_s == pytest.approx(rho / 1000 * (1 + rho / (2 * (1 - rho))), rel=0.02)

    @pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
    def test_mm1(self, rho: float) -> None:
        """Exponential service: W = s / (1 - rho), and the 99th percentile ln(100) times that."""
        arrivals = exponential(1000, 2000, seed=2)
        work = np.random.default_rng(3).exponential(1.0, arrivals.size)
        run = simulate_queue(arrivals, KeepAll(2.0), cost_s=rho / 1000, work=work)
        assert run.mean_delay_s == pytest.approx(rho / 1000 / (1 - rho), rel=0.04)

    def test_agrees_with_one_row_after_the_other(self) -> None:
        arrivals = on_off(300, 60, seed=4)
        work = np.random.default_rng(5).uniform(0.5, 1.5, arrivals.size)
        want = lindley(arrivals, 0.004 * work)
        run = simulate_queue(arrivals, KeepAll(2.0), cost_s=0.004, work=work)
        assert run.mean_delay_s == pytest.approx(want.mean(), rel=1e-9)
        assert run.max_delay_s == pytest.approx(want.max(), rel=1e-9)
        assert run.mean_violation_s == pytest.approx(np.maximum(0, want - 2).mean(), abs=1e-12)

    def test_a_headroom_that_changes_stretches_the_work(self) -> None:
        """Half a second of work that starts as the share of the CPU falls from 1 to a quarter takes two seconds."""
        run = simulate_queue([9.75, 10.5], KeepAll(2.0), cost_s=0.5, headroom=Profile.step(1.0, 0.25, 10.0))
        # 0.25 s of the first at full speed, the rest at a quarter: 1.25 s; the second waits for it until 11.0.
        assert run.max_delay_s == pytest.approx(0.5 + 2.0)
        assert run.mean_delay_s == pytest.approx((1.25 + 2.5) / 2)

    def test_rows_are_counted_to_the_row(self) -> None:
        controller = Always(0.3)
        arrivals = on_off(500, 60, seed=1)
        run = simulate_queue(arrivals, controller, cost_s=0.001)
        assert sum(o.offered for o in controller.observations) == arrivals.size == run.offered
        assert sum(o.kept for o in controller.observations) == run.kept == run.completed
        inside = 0
        for o in controller.observations:
            inside += o.kept - (o.completed or 0)
            assert o.backlog_rows["queue"] == inside
        # The first period had the keep of 1 that holds before the first answer.
        later = [o for o in controller.observations if o.batch_id > 0]
        assert sum(o.kept for o in later) / sum(o.offered for o in later) == pytest.approx(0.3, abs=0.01)

    def test_the_same_seed_is_the_same_run(self) -> None:
        arrivals = on_off(500, 60, seed=1)
        one, two, other = (
            simulate_queue(arrivals, Ctrl(2.0, headroom=1.0), cost_s=0.004, seed=seed).to_dict() for seed in (1, 1, 2)
        )
        assert one == two != other

    @pytest.mark.parametrize(
        ("arrivals", "options", "message"),
        [
            ([], {}, "no rows"),
            ([2.0, 1.0], {}, "sorted"),
            ([math.nan], {}, "finite"),
            ([-1.0], {}, "not negative"),
            ([1.0], {"period_s": 0.0}, "control period must be positive, got 0"),
            ([1.0], {"cost_s": -1.0}, "must be positive, got -1"),
            ([1.0], {"work": [1.0, 2.0]}, "one entry per row, got 2 for 1"),
        ],
    )
    def test_bad_input(self, arrivals: list[float], options: dict[str, float], message: str) -> None:
        with pytest.raises(PenstockError, match=message):
            simulate_queue(arrivals, KeepAll(2.0), **({"cost_s": 0.001} | options))  # type: ignore[arg-type]


class TestNetwork:
    def test_a_single_operator_is_the_queue(self) -> None:
        arrivals = exponential(200, 100, seed=1)
        one = simulate_network(arrivals, OperatorNetwork.flat(1, 0.004), KeepAll(2.0))
        other = simulate_queue(arrivals, KeepAll(2.0), cost_s=0.004)
        assert one.mean_delay_s == pytest.approx(other.mean_delay_s, rel=1e-6)
        assert one.completed == other.completed

    def test_work_is_conserved_whatever_the_scheduler(self) -> None:
        """The CPU never idles while a row waits: it is done with everything at the same time."""
        arrivals = np.zeros(100)
        ends = [
            simulate_network(arrivals, OperatorNetwork.flat(5, 0.01), KeepAll(2.0), train=train).max_delay_s
            for train in (1, 7, 1000)
        ]
        assert ends == pytest.approx([1.0, 1.0, 1.0])

    def test_shared_operators_put_out_more_than_came(self) -> None:
        network = OperatorNetwork((0.001,) * 4, (1.0,) * 4, ((1, 2, 3), (), (), ()), (0,))
        controller = Always(1.0)
        run = simulate_network(constant(100, 10), network, controller)
        assert run.completed == 3 * run.kept
        assert sum(o.completed or 0 for o in controller.observations) == run.completed
        assert sum(o.busy_s for o in controller.observations) == pytest.approx(run.kept * network.input_coefficient)

    def test_a_cost_that_doubles_is_worked_and_seen(self) -> None:
        controller = Always(1.0)
        network, factor = OperatorNetwork.flat(3, 0.03), Profile.step(1.0, 2.0, 10.0)
        run = simulate_network(constant(10, 20), network, controller, cost_factor=factor)
        before, after = (
            np.mean([o.delay_s for o in controller.observations if low <= o.end_s <= high and o.delay_s])
            for low, high in ((2, 9), (12, 19))
        )
        assert before == pytest.approx(0.03, rel=0.02)
        assert after == pytest.approx(0.06, rel=0.02)
        assert sum(o.busy_s for o in controller.observations) == pytest.approx(100 * 0.03 + 100 * 0.06)
        assert run.completed == 200

    def test_selectivity_discards(self) -> None:
        network = OperatorNetwork((0.001, 0.001), (0.3, 1.0), ((1,), ()), (0,))
        run = simulate_network(constant(500, 40), network, KeepAll(2.0), seed=3)
        assert run.completed / run.kept == pytest.approx(0.3, abs=0.015)

    @pytest.mark.parametrize(
        ("network", "message"),
        [
            (((0.0,), (1.0,), ((),), (0,)), "operator 0: its cost must be positive, got 0.0"),
            (((0.1,), (1.5,), ((),), (0,)), "operator 0: its selectivity"),
            (((0.1, 0.1), (1.0, 1.0), ((), (0,)), (0,)), "operator 1: it must feed later operators only"),
            (((0.1,), (1.0,), ((),), (3,)), "sources must name operators"),
        ],
    )
    def test_bad_networks(self, network: tuple[tuple[float, ...], ...], message: str) -> None:
        with pytest.raises(PenstockError, match=message):
            OperatorNetwork(*network)  # type: ignore[arg-type]


class TestMicroBatches:
    @pytest.mark.parametrize("rho", [0.2, 0.5, 0.8])
    def test_steady_state(self, rho: float) -> None:
        """Batches settle at o / (1 - rho); a row waits for half a batch on average, and then for its own."""
        run = simulate_micro_batches(constant(1000, 120), KeepAll(2.0), cost_s=rho / 1000, overhead_s=0.2)
        settled = run.series["t_s"] > 60
        assert np.median(run.series["batch_s"][settled]) == pytest.approx(0.2 / (1 - rho), rel=0.02)
        assert np.median(run.series["delay_s"][settled]) == pytest.approx(1.5 * 0.2 / (1 - rho), rel=0.02)

    def test_above_capacity_batches_grow_without_bound(self) -> None:
        run = simulate_micro_batches(constant(1000, 60), KeepAll(2.0), cost_s=0.0015, overhead_s=0.2)
        assert (np.diff(run.series["batch_s"][:-1]) > 0).all()

    def test_kept_load_decides(self) -> None:
        """With a share x of the rows the batch time is o / (1 - x rho)."""
        run = simulate_micro_batches(constant(1000, 120), Always(0.4), cost_s=0.0015, overhead_s=0.2)
        assert np.median(run.series["batch_s"][20:]) == pytest.approx(0.2 / (1 - 0.6), rel=0.05)
        assert run.loss == pytest.approx(0.6, abs=0.01)

    @pytest.mark.parametrize("how", ["by batch", "by arrival"])
    def test_rows_are_counted_to_the_row(self, how: str) -> None:
        controller = Always(0.5)
        arrivals = on_off(1000, 60, seed=1)
        run = simulate_micro_batches(arrivals, controller, cost_s=0.0005, how=how)  # type: ignore[arg-type]
        assert run.offered == arrivals.size
        assert run.kept == run.completed
        assert run.kept / run.offered == pytest.approx(0.5, abs=0.02)

    def test_a_bounded_gate_holds_what_a_plain_one_can_not(self) -> None:
        """By arrival the size of a batch is not known. Bursts and a cost that doubles half way."""
        worst = {}
        for bounded in (False, True):
            runs = [
                simulate_micro_batches(
                    on_off(1500, 60, seed=seed),
                    MicroBatch(2.0),
                    cost_s=Profile.step(0.002, 0.004, 30.0),
                    how="by arrival",
                    bounded=bounded,
                    seed=seed,
                )
                for seed in range(5)
            ]
            worst[bounded] = (max(run.mean_violation_s for run in runs), max(run.max_violation_s for run in runs))
        assert worst[True][0] < 0.05
        assert worst[True][0] < 0.2 * worst[False][0]
        assert worst[True][1] < worst[False][1]

    def test_a_limit_only_delays(self) -> None:
        run = simulate_micro_batches(constant(1000, 30), KeepAll(2.0), cost_s=0.002, overhead_s=0.1, limit=lambda _: 300)
        assert run.loss == 0.0
        assert run.completed == run.offered
        assert np.max(run.series["batch_s"]) == pytest.approx(0.7)
        assert run.max_delay_s > 20

    def test_unknown_way(self) -> None:
        with pytest.raises(PenstockError, match="how must be"):
            simulate_micro_batches([1.0], KeepAll(2.0), cost_s=0.1, how="by hand")  # type: ignore[arg-type]


def test_profiles() -> None:
    assert Profile.sine(1.0, 0.5, 100.0).at(25.0) == pytest.approx(1.5)
    assert Profile.step(1.0, 2.0, 5.0, until_s=6.0).at(6.5) == 1.0
    for wrong, message in ((0.0, "positive, got 0"), (math.nan, "positive")):
        with pytest.raises(PenstockError, match=message):
            Profile.of(wrong)
    with pytest.raises(PenstockError, match="amplitude"):
        Profile.sine(1.0, 1.5, 1.0)
    with pytest.raises(PenstockError, match="at all times"):
        Profile(lambda t: 1.0 - t).grid(10.0)


def test_an_outcome_of_nothing() -> None:
    run = Outcome.of(np.array([]), 2.0, 0, 0, {})
    assert run.to_dict()["mean_delay_s"] == run.loss == run.max_violation_s == 0.0


def test_micro_batch_holds_the_target_in_the_simulator() -> None:
    runs = [
        simulate_micro_batches(on_off(1500, 60, seed=seed), MicroBatch(2.0), cost_s=0.002, overhead_s=0.2, noise=0.05, seed=seed)
        for seed in range(5)
    ]
    assert max(run.mean_violation_s for run in runs) < 0.01
    assert max(run.max_violation_s for run in runs) < 0.7
