"""What holds for every arrival process, whatever its parameters."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.simulation.keys import costs_of_keys, splitmix64, uniform_keys, zipf_keys
from penstock.simulation.traffic import GENERATORS, Traffic, option_names

NEEDED = {
    "to_rate": st.floats(0, 2000),
    "at_s": st.floats(0, 100),
    "amplitude": st.floats(0, 1),
    "period_s": st.floats(0.1, 100),
    "shape": st.floats(1.05, 10),
    "interval_s": st.floats(0.05, 10),
    "bias": st.floats(0.5, 0.99),
    "sources": st.integers(1, 50),
    "on_s": st.floats(0.1, 10),
    "off_s": st.floats(0.1, 10),
    "seed": st.integers(0, 2**40),
}


@st.composite
def traffics(draw: st.DrawFn, generators: tuple[str, ...] = tuple(GENERATORS)) -> Traffic:
    generator = draw(st.sampled_from(generators))
    known = {name: law for name, law in NEEDED.items() if name.removesuffix("_s") in option_names(generator)}
    values = {name: draw(law) for name, law in known.items()}
    return Traffic.of(generator, rate=draw(st.floats(0.1, 1000)), duration_s=draw(st.floats(0.01, 50)), **values)


def mean_rate(traffic: Traffic) -> float:
    """Return the mean of the rate over the duration, by quadrature of its definition."""
    options = dict(traffic.options)
    rate, end_s = options["rate"], options["duration_s"]
    t = (np.arange(100_000) + 0.5) * end_s / 100_000
    match traffic.generator:
        case "step":
            return float(np.where(t < options["at_s"], rate, options["to_rate"]).mean())
        case "ramp":
            return float((rate + (options["to_rate"] - rate) * t / end_s).mean())
        case "sine":
            return float((rate * (1 + options["amplitude"] * np.sin(2 * np.pi * t / options["period_s"]))).mean())
        case _:
            return rate


@given(traffics())
@example(Traffic.of("step", rate=1.0, duration_s=1.0, to_rate=2e-311, at_s=1.0))  # a rate that next to nothing can be divided by
@settings(max_examples=200)
def test_sorted_inside_and_the_same_again(traffic: Traffic) -> None:
    times = traffic.arrivals()
    assert times.dtype == np.float64
    assert np.all(np.diff(times) >= 0)
    assert not times.size or (times[0] >= 0 and times[-1] < traffic.duration_s)
    assert np.array_equal(times, traffic.arrivals())


@given(traffics(("constant", "step", "ramp", "sine", "b-model")))
def test_the_number_of_arrivals_is_the_integral_of_the_rate(traffic: Traffic) -> None:
    # One arrival for rounding, and the quadrature's own error at a step.
    expected = mean_rate(traffic) * traffic.duration_s
    assert abs(traffic.arrivals().size - expected) <= 1 + 1e-4 * expected + 2e-5 * 2000 * traffic.duration_s


@given(st.floats(10, 1000), st.floats(1, 50), st.integers(0, 2**40))
def test_poisson_has_its_mean_within_six_deviations(rate: float, duration_s: float, seed: int) -> None:
    size = Traffic.of("exponential", rate=rate, duration_s=duration_s, seed=seed).arrivals().size
    assert abs(size - rate * duration_s) <= 6 * (rate * duration_s) ** 0.5 + 6


@given(st.integers(0, 2**40), st.integers(0, 2**62), st.integers(1, 200), st.integers(1, 5000), st.floats(0, 5))
def test_a_key_is_a_function_of_seed_and_number(seed: int, first: int, count: int, keys: int, exponent: float) -> None:
    n = np.arange(first, first + count, dtype=np.int64)
    backwards = n[::-1]
    for made in (
        lambda numbers: splitmix64(numbers, seed),
        lambda numbers: uniform_keys(numbers, keys, seed),
        lambda numbers: zipf_keys(numbers, keys, exponent, seed),
        lambda numbers: costs_of_keys(numbers, (0.1, 0.2, 0.3), seed),
    ):
        whole = made(n)
        assert np.array_equal(whole, made(backwards)[::-1])
        assert made(int(n[-1]))[0] == whole[-1]
    for law in (uniform_keys(n, keys, seed), zipf_keys(n, keys, exponent, seed)):
        assert law.dtype == np.int64
        assert law.min() >= 0
        assert law.max() < keys
