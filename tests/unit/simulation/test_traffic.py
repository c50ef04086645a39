"""Arrival processes, keys and costs: closed forms, bad values, burstiness."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.simulation import traffic
from penstock.simulation.keys import costs_of_keys, splitmix64, uniform_keys, zipf_keys
from penstock.simulation.trace import load_trace
from penstock.simulation.traffic import (
    Traffic,
    b_model,
    constant,
    exponential,
    index_of_dispersion,
    on_off,
    option_names,
    pareto,
    ramp,
    sine,
    step,
    traffic_from_options,
)

BINS_S = (0.1, 1.0, 10.0, 60.0)
# Packets per second and seconds of BC-pAug89, and its index of dispersion per bin.
BC_RATE, BC_DURATION_S = 1e6 / 3142.82, 3142.82
BC_DISPERSION = (10.2, 41.2, 200.6, 656.1)


def data_file(name: str) -> Path:
    folder = Path(os.environ.get("PENSTOCK_DATA", Path(__file__).parents[3] / ".." / "shared" / "data"))
    if not (folder / name).is_file():
        pytest.skip(f"{name} is not at hand; PENSTOCK_DATA names its folder")
    return folder / name


def mean_dispersion(arrays: list[np.ndarray], bin_s: float, duration_s: float) -> float:
    return float(np.mean([index_of_dispersion(times, bin_s, duration_s) for times in arrays]))


class TestRates:
    def test_step_changes_the_rate_at_its_time(self) -> None:
        times = step(100, 10, to_rate=300, at_s=4)
        assert np.count_nonzero(times < 4) == 400
        assert np.count_nonzero(times >= 4) == 1800

    def test_step_down_to_nothing_is_silent_afterwards(self) -> None:
        times = step(100, 10, to_rate=0, at_s=4)
        assert times.size == 400
        assert times[-1] < 4

    def test_step_beyond_the_end_is_a_constant(self) -> None:
        assert np.allclose(step(100, 10, to_rate=300, at_s=99), constant(100, 10))

    def test_ramp_cumulates_the_integral_of_its_rate(self) -> None:
        times = ramp(100, 10, to_rate=300)
        for t in (1.0, 5.0, 9.0):
            assert abs(np.count_nonzero(times < t) - (100 * t + 10 * t * t)) <= 1

    @pytest.mark.parametrize("to_rate", [0.0, 100.0, 100.0 + 1e-12])
    def test_ramp_is_stable_when_flat_and_down_to_nothing(self, to_rate: float) -> None:
        assert ramp(100, 10, to_rate=to_rate).size == round((100 + to_rate) * 5)

    def test_sine_cumulates_the_integral_of_its_rate(self) -> None:
        times = sine(1000, 25, amplitude=0.8, period_s=10)
        for t in (2.5, 5.0, 13.0, 24.9):
            expected = 1000 * (t + 0.8 * 10 / (2 * math.pi) * (1 - math.cos(2 * math.pi * t / 10)))
            assert abs(np.count_nonzero(times < t) - expected) <= 1

    def test_too_short_for_an_arrival_is_empty_not_an_error(self) -> None:
        assert constant(1, 0.1).size == 0
        assert exponential(1e-9, 1).size == 0
        assert b_model(1, 0.1).size == 0

    def test_on_off_has_its_mean_rate_from_the_first_second(self) -> None:
        # Started in equilibrium: without the residual life, the first second would hold more or less than its share.
        counts = np.array([np.count_nonzero(on_off(500, 2, shape=1.6, seed=seed) < 1.0) for seed in range(400)])
        assert abs(counts.mean() - 500) < 4 * counts.std() / 20

    def test_pareto_rates_have_the_mean_that_was_asked_for(self) -> None:
        counts = np.array([pareto(1000, 100, shape=3, seed=seed).size for seed in range(50)])
        assert abs(counts.mean() / 100_000 - 1) < 0.02

    def test_the_last_interval_may_be_short(self) -> None:
        assert pareto(1000, 2.5, shape=5, interval_s=1.0, seed=1)[-1] < 2.5


class TestDispersion:
    """Golden numbers are the closed forms in the docstrings."""

    def test_constant_is_zero_and_exponential_is_one(self) -> None:
        assert index_of_dispersion(constant(1000, 60), 0.1, 60) < 0.01
        arrays = [exponential(1000, 60, seed) for seed in range(20)]
        for bin_s in (0.01, 0.1, 1.0):
            assert mean_dispersion(arrays, bin_s, 60) == pytest.approx(1, abs=0.1)

    @pytest.mark.parametrize(("shape", "interval_s"), [(5.0, 1.0), (6.0, 0.5), (10.0, 2.0)])
    def test_pareto_at_its_interval(self, shape: float, interval_s: float) -> None:
        arrays = [pareto(200, 1000 * interval_s, shape, interval_s, seed) for seed in range(60)]
        expected = 1 + interval_s * 200 / (shape * (shape - 2))
        assert mean_dispersion(arrays, interval_s, 1000 * interval_s) == pytest.approx(expected, rel=0.1)

    @pytest.mark.parametrize("bias", [0.5, 0.565, 0.7, 0.8])
    @pytest.mark.parametrize("level", [3, 6, 9])
    def test_b_model_at_dyadic_bins(self, bias: float, level: int) -> None:
        duration_s, count = 40.96, 50_000  # 2^12 leaves of 10 ms
        arrays = [b_model(count / duration_s, duration_s, bias, seed) for seed in range(60)]
        square = ((bias**2 + (1 - bias) ** 2) / 2) ** level
        expected = 1 - 2**level * square + count * 2**level * (square - 4.0**-level)
        assert mean_dispersion(arrays, duration_s / 2**level, duration_s) == pytest.approx(expected, rel=0.15, abs=0.1)

    def test_only_whole_bins_count(self) -> None:
        assert index_of_dispersion([0.5, 1.5, 2.5, 3.1], 1.0) == 0.0
        assert index_of_dispersion([0.5, 0.6, 1.5], 1.0, 3.0) == pytest.approx((2 / 3) / 1.0)

    @pytest.mark.parametrize(
        ("times", "bin_s", "message"),
        [
            ([0.0, 1.0], 0.0, "bin_s must be a positive number, got 0.0"),
            ([0.0, 1.0], 0.7, "bin_s must fit at least twice into 1 s, got 0.7"),
            ([], 1.0, "bin_s must fit at least twice into 0 s"),
        ],
    )
    def test_too_little_to_tell(self, times: list[float], bin_s: float, message: str) -> None:
        with pytest.raises(PenstockError, match=re.escape(message)):
            index_of_dispersion(times, bin_s)


class TestCalibration:
    """The table in the docstring of traffic.py; single seeds vary, so these are means."""

    def test_bc_has_the_dispersion_that_the_table_says(self) -> None:
        times = load_trace(data_file("bc_paug89_full.csv.gz")).t
        measured = [index_of_dispersion(times, bin_s) for bin_s in BINS_S]
        assert measured == pytest.approx(BC_DISPERSION, rel=0.01)

    @pytest.mark.parametrize(("bias", "expected"), [(0.565, (9.5, 64.5, 431, 1652)), (0.5525, (6.3, 41.2, 276, 1064))])
    def test_b_model_fits_bc_at_one_scale_only(self, bias: float, expected: tuple[float, ...]) -> None:
        arrays = [b_model(BC_RATE, BC_DURATION_S, bias, seed) for seed in range(5)]
        measured = [mean_dispersion(arrays, bin_s, BC_DURATION_S) for bin_s in BINS_S]
        assert measured == pytest.approx(expected, rel=0.1)

    def test_on_off_fits_bc_at_all_scales(self) -> None:
        arrays = [on_off(BC_RATE, BC_DURATION_S, seed=seed) for seed in range(10)]
        measured = [mean_dispersion(arrays, bin_s, BC_DURATION_S) for bin_s in BINS_S]
        assert measured == pytest.approx(BC_DISPERSION, rel=0.35)


class TestKeysAndCosts:
    def test_splitmix64_is_the_published_sequence(self) -> None:
        # Seed 0: the first outputs that the generator's reference implementation prints.
        assert splitmix64([0, 1, 2]).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]

    def test_seeds_are_not_shifts_of_each_other(self) -> None:
        words = [set(splitmix64(np.arange(1000), seed).tolist()) for seed in range(20)]
        assert len(set.union(*words)) == 20_000

    def test_uniform_keys_are_even(self) -> None:
        counts = np.bincount(uniform_keys(np.arange(100_000), 10, seed=3), minlength=10)
        assert counts.size == 10
        assert np.abs(counts - 10_000).max() < 500

    def test_zipf_keys_follow_the_law(self) -> None:
        counts = np.bincount(zipf_keys(np.arange(200_000), 100, exponent=1.0, seed=3), minlength=100) / 200_000
        expected = 1 / np.arange(1, 101) / (1 / np.arange(1, 101)).sum()
        assert counts.size == 100
        assert np.abs(counts - expected).max() < 0.005

    def test_an_exponent_of_zero_is_uniform(self) -> None:
        n = np.arange(1000)
        assert np.array_equal(zipf_keys(n, 64, exponent=0.0, seed=3), uniform_keys(n, 64, seed=3))

    def test_a_key_has_one_cost(self) -> None:
        keys = zipf_keys(np.arange(10_000), 50, seed=3)
        costs = costs_of_keys(keys, (0.001, 0.01, 0.1), seed=3)
        assert all(len(set(costs[keys == key])) == 1 for key in np.unique(keys))
        assert len(set(costs)) == 3

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: uniform_keys([0], 0), "keys must be a whole number of at least 1, got 0"),
            (lambda: zipf_keys([0], 0), "keys must be a whole number from 1 to 10,000,000 for zipf, got 0"),
            (lambda: zipf_keys([0], 10, exponent=-1.0), "exponent must be a number of at least 0, got -1.0"),
            (lambda: costs_of_keys([0], ()), "costs_s must have at least one cost class, got none"),
            (lambda: costs_of_keys([0], (0.1, math.nan)), "costs_s must be numbers of at least 0, got nan"),
        ],
    )
    def test_bad_values(self, call: object, message: str) -> None:
        assert callable(call)
        with pytest.raises(PenstockError, match=re.escape(message)):
            call()


class TestByName:
    def test_options_as_spark_has_them(self) -> None:
        text = {"generator": "B_Model", "rate": "500", "duration": "2 min", "bias": "0.7", "seed": "3"}
        assert traffic_from_options(text) == Traffic.of("b-model", rate=500.0, duration_s=120.0, bias=0.7, seed=3)
        assert np.array_equal(traffic_from_options(text).arrivals(), b_model(500, 120, 0.7, 3))

    @pytest.mark.parametrize("generator", traffic.GENERATORS)
    def test_every_generator_can_be_had_by_its_option_names(self, generator: str) -> None:
        extra = {"to_rate": "20", "at": "1s"}
        options = {"rate": "10", "duration": "5s"} | {k: v for k, v in extra.items() if k in option_names(generator)}
        times = traffic_from_options({"generator": generator, **options}).arrivals()
        assert times.dtype == np.float64
        assert times.size > 0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "generator is missing: choose one of b-model, constant,"),
            ({"generator": "x"}, "generator must be one of b-model, constant, exponential, on-off, pareto,"),
            ({"generator": "constant", "rate": "5"}, "constant needs duration_s"),
            ({"generator": "constant", "rate": "5", "duration": "1s", "bias": "1"}, "constant has no option bias"),
            ({"generator": "constant", "rate": "five", "duration": "1s"}, "rate must be a number, got 'five'"),
            ({"generator": "constant", "rate": "5", "duration": "soon"}, "duration must be a duration such as"),
            ({"generator": "constant", "rate": "-5", "duration": "1s"}, "rate must be a positive number, got -5.0"),
            ({"generator": "exponential", "rate": "5", "duration": "1s", "seed": "x"}, "seed must be a whole number"),
        ],
    )
    def test_bad_options(self, options: dict[str, str], message: str) -> None:
        with pytest.raises(PenstockError, match=re.escape(message)) as caught:
            traffic_from_options(options)
        assert "\n" not in str(caught.value)

    def test_traffic_is_checked_before_it_is_played(self) -> None:
        with pytest.raises(PenstockError, match=re.escape("constant has no speed")):
            Traffic.of("constant", rate=1, duration_s=1, speed=2)
        with pytest.raises(PenstockError, match=re.escape("bias must be at least 0.5")):
            Traffic.of("b-model", rate=1, duration_s=1, bias=0.4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: constant(0, 1), "rate must be a positive number, got 0"),
        (lambda: constant(math.nan, 1), "rate must be a positive number, got nan"),
        (lambda: constant(math.inf, 1), "rate must be a positive number, got inf"),
        (lambda: constant(True, 1), "rate must be a positive number, got True"),
        (lambda: constant("5", 1), "rate must be a positive number, got '5'"),  # type: ignore[arg-type]
        (lambda: constant(1, -1), "duration_s must be a positive number, got -1"),
        (lambda: constant(1e9, 1e9), "rate * duration_s must be at most 200,000,000 arrivals"),
        (lambda: step(1, 1, to_rate=-1, at_s=0), "to_rate must be a number of at least 0, got -1"),
        (lambda: ramp(1, 10, to_rate=1e9), "the cumulated rate must be at most 200,000,000 arrivals"),
        (lambda: sine(1, 1, amplitude=1.1), "amplitude must be between 0 and 1, got 1.1"),
        (lambda: sine(1, 1, period_s=0), "period_s must be a positive number, got 0"),
        (lambda: pareto(1, 1, shape=1.0), "shape must be greater than 1 (the mean is infinite at 1 and below), got 1.0"),
        (lambda: pareto(1, 1, interval_s=0), "interval_s must be a positive number, got 0"),
        (lambda: b_model(1, 1, bias=0.49), "bias must be at least 0.5 (even) and less than 1"),
        (lambda: b_model(1, 1, bias=1.0), "bias must be at least 0.5 (even) and less than 1 (all on one side), got 1.0"),
        (lambda: exponential(1, 1, seed=-1), "seed must be a whole number of at least 0, got -1"),
        (lambda: exponential(1, 1, seed=1.5), "seed must be a whole number"),  # type: ignore[arg-type]
        (lambda: on_off(1, 1, sources=0), "sources must be a whole number from 1 to 1,000,000, got 0"),
    ],
)
def test_bad_values_are_named_in_one_line(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(PenstockError, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)
