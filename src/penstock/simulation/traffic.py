"""Arrival processes: when rows come.

Every process inverts a cumulated rate ``L(t)``: the deterministic ones (constant, step, ramp, sine) at the midpoints 0.5, 1.5,
2.5 ..., the random ones (exponential, Pareto, b-model, on-off) at uniform targets that are drawn in order, so nothing is sorted.
All are pure functions of their arguments: the same seed gives the same array, on one version of numpy.

How well do they imitate a real trace? BC-pAug89 has a million packets in 3,143 s. This is its index of dispersion, and that of
the generators at the same rate and length, as means over 20 seeds (a test measures it again where the trace is available):

==============================================  =====  =====  =====  =====
bin                                             0.1 s  1 s    10 s   60 s
==============================================  =====  =====  =====  =====
BC-pAug89                                       10.2   41.2   201    656
b-model, bias 0.565 (the default)               9.5    64.5   431    1652
b-model, bias 0.5525                            6.3    41.2   276    1064
b-model, bias 0.545                             4.9    30.1   201    776
b-model, bias 0.541                             4.2    25.0   166    642
on-off, 10 sources, 0.1 s on, 0.4 s off, 1.35   9.1    42.9   201    569
(the default); deviation from seed to seed      0.3    3.2    38     225
==============================================  =====  =====  =====  =====

No single bias fits all scales: 0.565 is right at 0.1 s and too bursty above, by a factor of 1.6 at 1 s and of 2.5 at 60 s. Choose
it for the time scale that matters (for shedding, the delay target), or use on-off sources. They fit the trace at all four
scales, but their number of arrivals varies by 7 % from seed to seed, while that of the b-model is exact.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.simulation.traffic_parameters import MAX_ARRIVALS, check_arrivals, check_parameters
from penstock.simulation.validation import positive

__all__ = [
    "GENERATORS",
    "MAX_ARRIVALS",
    "Traffic",
    "b_model",
    "constant",
    "exponential",
    "index_of_dispersion",
    "on_off",
    "option_names",
    "pareto",
    "ramp",
    "sine",
    "step",
    "traffic_from_options",
]

Times: TypeAlias = NDArray[np.float64]

_LEAF_S = 0.01
_MAX_LEVELS = 22  # 4 million leaves: a day still gets leaves of 20 ms
_SINE_CELLS = 65_536


# ---------------------------------------------------------------- inversion of the cumulated rate


def _inside(times: Times, duration_s: float) -> Times:
    """Clip times to [0, duration_s): rounding may put the last arrival on the end."""
    return np.clip(times, 0.0, np.nextafter(duration_s, 0.0), out=times)


def _midpoints(total: float) -> Times:
    """Return the targets of a deterministic process: one arrival in the middle of each unit of cumulated rate."""
    check_arrivals(total, "the cumulated rate")
    return np.arange(math.floor(total + 0.5), dtype=np.float64) + 0.5 if total > 0 else np.empty(0)


def _ordered(rng: np.random.Generator, count: int) -> Times:
    """Return ``count`` uniform numbers in order: exponential gaps divided by their sum, so nothing is sorted."""
    gaps = rng.standard_exponential(count + 1)
    np.cumsum(gaps, out=gaps)
    gaps /= gaps[-1]
    return gaps[:-1]


def _poisson(rng: np.random.Generator, edges: Times, cumulated: Times) -> Times:
    """Return Poisson arrivals of a rate that is constant between edges."""
    total = float(cumulated[-1])
    check_arrivals(total, "the cumulated rate (a burst of this seed)")
    return np.interp(_ordered(rng, int(rng.poisson(total))) * total, cumulated, edges)


def _pareto_draws(rng: np.random.Generator, shape: float, size: int | tuple[int, int]) -> Times:
    """Return Pareto draws with mean 1; the exponent is capped, because a draw beyond 1e260 is as useless as an overflow."""
    tail = np.exp(np.minimum(rng.standard_exponential(size) / shape, 600.0))
    return np.asarray(tail * ((shape - 1.0) / shape))


# ---------------------------------------------------------------- deterministic rates


def constant(rate: float, duration_s: float) -> Times:
    """Return evenly spaced arrivals.

    >>> constant(4, 1).tolist()
    [0.125, 0.375, 0.625, 0.875]
    """
    check_parameters(rate=rate, duration_s=duration_s)
    return _inside(_midpoints(rate * duration_s) / rate, duration_s)


def step(rate: float, duration_s: float, to_rate: float, at_s: float) -> Times:
    """Return arrivals of ``rate`` until ``at_s`` and of ``to_rate`` from then on.

    >>> step(2, 2, to_rate=4, at_s=1).tolist()
    [0.25, 0.75, 1.125, 1.375, 1.625, 1.875]
    """
    check_parameters(rate=rate, duration_s=duration_s, to_rate=to_rate, at_s=at_s)
    at_s = min(at_s, duration_s)
    before, total = rate * at_s, rate * at_s + to_rate * (duration_s - at_s)
    targets = _midpoints(total)
    # If to_rate is 0, no target lies beyond the step.
    late = at_s + np.maximum(targets - before, 0.0) / (to_rate or 1.0)
    return _inside(np.where(targets <= before, targets / rate, late), duration_s)


def ramp(rate: float, duration_s: float, to_rate: float) -> Times:
    """Return arrivals of a rate that changes linearly from ``rate`` to ``to_rate``.

    >>> ramp(2, 2, to_rate=6).round(2).tolist()
    [0.22, 0.58, 0.87, 1.12, 1.35, 1.55, 1.74, 1.92]
    """
    check_parameters(rate=rate, duration_s=duration_s, to_rate=to_rate)
    slope = (to_rate - rate) / duration_s
    targets = _midpoints(0.5 * (rate + to_rate) * duration_s)
    # L = rate t + slope t^2 / 2; this form of the root is stable for a slope of 0.
    root = np.sqrt(np.maximum(rate * rate + 2.0 * slope * targets, 0.0))
    return _inside(2.0 * targets / (rate + root), duration_s)


def sine(rate: float, duration_s: float, amplitude: float = 0.5, period_s: float = 60.0) -> Times:
    """Return arrivals of ``rate * (1 + amplitude * sin(2 pi t / period_s))``.

    One period of the cumulated rate is tabulated in 65,536 cells and repeated; no arrival is off by more than a cell.

    >>> sine(100, 2, amplitude=1, period_s=2).size, int((sine(100, 2, amplitude=1, period_s=2) < 1).sum())
    (200, 164)
    """
    check_parameters(rate=rate, duration_s=duration_s, amplitude=amplitude, period_s=period_s)
    phase = np.linspace(0.0, 1.0, _SINE_CELLS + 1)
    cumulated = phase + amplitude * (1.0 - np.cos(2.0 * np.pi * phase)) / (2.0 * np.pi)
    whole, rest = divmod(duration_s / period_s, 1.0)
    periods, within = np.divmod(_midpoints(rate * period_s * (whole + np.interp(rest, phase, cumulated))), rate * period_s)
    return _inside((periods + np.interp(within / (rate * period_s), cumulated, phase)) * period_s, duration_s)


# ---------------------------------------------------------------- random rates


def exponential(rate: float, duration_s: float, seed: int = 0) -> Times:
    """Return Poisson arrivals: exponential gaps, index of dispersion 1 at every scale.

    >>> times = exponential(1000, 10, seed=1)
    >>> abs(times.size - 10_000) < 500
    True
    """
    check_parameters(rate=rate, duration_s=duration_s, seed=seed)
    rng = np.random.default_rng(seed)
    return _inside(_poisson(rng, np.array([0.0, duration_s]), np.array([0.0, rate * duration_s])), duration_s)


def pareto(rate: float, duration_s: float, shape: float = 1.5, interval_s: float = 1.0, seed: int = 0) -> Times:
    """Return arrivals with a Pareto-distributed rate, one draw per interval, as in the experiments of CTRL.

    With mean ``rate`` and shape a, the index of dispersion at the interval is ``1 + interval_s * rate / (a (a - 2))`` for
    a > 2; below 2 it is infinite, what a run shows grows with its length, and the mean over a run converges slowly.

    >>> 500 < pareto(100, 10, shape=3, seed=1).size < 2000
    True
    """
    check_parameters(rate=rate, duration_s=duration_s, shape=shape, interval_s=interval_s, seed=seed)
    rng = np.random.default_rng(seed)
    count = math.ceil(duration_s / interval_s)
    check_arrivals(count, "duration_s / interval_s")
    edges = np.minimum(np.arange(count + 1, dtype=np.float64) * interval_s, duration_s)
    rates = rate * _pareto_draws(rng, shape, count)
    return _inside(_poisson(rng, edges, np.concatenate(([0.0], np.cumsum(rates * np.diff(edges))))), duration_s)


def b_model(rate: float, duration_s: float, bias: float = 0.565, seed: int = 0) -> Times:
    """Return exactly ``round(rate * duration_s)`` arrivals of a multiplicative cascade (b-model of Wang et al., ICDE 2002).

    Each half of an interval gets the share ``bias`` or ``1 - bias`` of its arrivals, the side chosen by a coin, down to leaves of
    about 10 ms (at most 2^22 of them); inside a leaf arrivals are uniform. Bursty at every scale: with n arrivals and bins
    of ``duration_s / 2^j`` the index of dispersion is ``1 - 2^j q + n 2^j (q - 4^-j)``, where
    ``q = ((bias^2 + (1 - bias)^2) / 2)^j`` is the mean square of a bin's share; the first two terms are the sampling.

    >>> b_model(100, 10, bias=0.7, seed=1).size
    1000
    """
    check_parameters(rate=rate, duration_s=duration_s, bias=bias, seed=seed)
    rng = np.random.default_rng(seed)
    levels = min(max(round(math.log2(duration_s / _LEAF_S)), 0), _MAX_LEVELS)
    share = np.ones(1)
    for _ in range(levels):
        left = np.where(rng.random(share.size) < 0.5, bias, 1.0 - bias)
        share = np.stack((share * left, share * (1.0 - left)), axis=1).ravel()
    cumulated = np.concatenate(([0.0], np.cumsum(share)))
    targets = _ordered(rng, round(rate * duration_s)) * cumulated[-1]
    return _inside(np.interp(targets, cumulated, np.linspace(0.0, duration_s, share.size + 1)), duration_s)


def on_off(
    rate: float,
    duration_s: float,
    *,
    sources: int = 10,
    on_s: float = 0.1,
    off_s: float = 0.4,
    shape: float = 1.35,
    seed: int = 0,
) -> Times:
    """Return arrivals of superposed sources that are on and off in turn, for Pareto times with means ``on_s`` and ``off_s``.

    A source that is on sends Poisson arrivals of ``rate * (on_s + off_s) / (on_s * sources)``, so the mean is ``rate``. The
    sources start in equilibrium (first time from the residual life), so there is no warm-up. A shape below 2 gives
    long-range dependence (Willinger et al., 1997), Hurst ``(3 - shape) / 2``; fewer sources are burstier.

    >>> 500 < on_off(100, 10, seed=1).size < 2000
    True
    """
    check_parameters(rate=rate, duration_s=duration_s, sources=sources, on_s=on_s, off_s=off_s, shape=shape, seed=seed)
    rng = np.random.default_rng(seed)
    block = math.ceil(duration_s / (on_s + off_s)) + 8
    check_arrivals(2.0 * block * sources, "sources * duration_s / (on_s + off_s)")
    first_on = rng.random(sources) < on_s / (on_s + off_s)
    mean_s = np.where(first_on[:, None], (on_s, off_s), (off_s, on_s))  # column: even and odd turns
    # Residual life of a Pareto time: uniform below its least value with probability (a - 1)/a, else a Pareto of shape a - 1.
    least = mean_s[:, 0] * (shape - 1.0) / shape
    tail = np.exp(np.minimum(rng.standard_exponential(sources) / (shape - 1.0), 600.0))
    begin = least * np.where(rng.random(sources) * shape < shape - 1.0, rng.random(sources), tail)
    turns = [begin[:, None]]
    while begin.min() < duration_s:
        lengths = _pareto_draws(rng, shape, (sources, 2 * block)) * np.tile(mean_s[:, ::-1], block)
        turns.append(begin[:, None] + np.cumsum(lengths, axis=1))
        begin = turns[-1][:, -1]
    ends = np.minimum(np.concatenate(turns, axis=1), duration_s)
    starts = np.concatenate((np.zeros((sources, 1)), ends[:, :-1]), axis=1)
    is_on = first_on[:, None] == (np.arange(ends.shape[1]) % 2 == 0)
    switch = np.concatenate((starts[is_on], ends[is_on]))
    order = np.argsort(switch, kind="stable")
    running = np.cumsum(np.where(order < switch.size // 2, 1, -1))  # sources on after each switch
    edges = np.concatenate(([0.0], switch[order], [duration_s]))
    per_source = rate * (on_s + off_s) / (on_s * sources)
    cumulated = np.concatenate(([0.0, 0.0], np.cumsum(running * np.diff(edges)[1:]) * per_source))
    return _inside(_poisson(rng, edges, cumulated), duration_s)


# ---------------------------------------------------------------- by name

GENERATORS: dict[str, Callable[..., Times]] = {
    "b-model": b_model,
    "constant": constant,
    "exponential": exponential,
    "on-off": on_off,
    "pareto": pareto,
    "ramp": ramp,
    "sine": sine,
    "step": step,
}


@dataclass(frozen=True, slots=True)
class Traffic:
    """An arrival process by name and options, which can be compared and hashed.

    >>> Traffic.of("b-model", rate=100, duration_s=10, bias=0.7, seed=1).arrivals().size
    1000
    >>> Traffic.of("burst", rate=100, duration_s=10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    penstock.errors.PenstockError: generator must be one of b-model, constant, ..., got 'burst'
    """

    generator: str
    options: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        known = _parameters(self.generator)
        given = dict(self.options)
        for name in given:
            if name not in known:
                raise PenstockError(f"{self.generator} has no {name}: its parameters are {', '.join(known)}")
        for name, parameter in known.items():
            if parameter.default is parameter.empty and name not in given:
                raise PenstockError(f"{self.generator} needs {name}")
        check_parameters(**given)

    @classmethod
    def of(cls, generator: str, **options: float) -> Traffic:
        """Return the traffic of a generator (``b_model`` and ``b-model`` are the same) with its keyword arguments."""
        return cls(generator.strip().lower().replace("_", "-"), tuple(sorted(options.items())))

    @property
    def duration_s(self) -> float:
        """Return the length in seconds."""
        return float(dict(self.options)["duration_s"])

    def arrivals(self) -> Times:
        """Return the sorted arrival times in [0, duration_s)."""
        return GENERATORS[self.generator](**dict(self.options))


def traffic_from_options(options: Mapping[str, str]) -> Traffic:
    """Return the traffic that Spark options describe: all strings, durations with units and without the ``_s``.

    >>> traffic_from_options({"generator": "constant", "rate": "2", "duration": "1 min"}).arrivals().size
    120
    """
    if "generator" not in options:
        raise PenstockError(f"generator is missing: choose one of {', '.join(GENERATORS)}")
    generator = options["generator"].strip().lower().replace("_", "-")
    known = {name.removesuffix("_s"): name for name in _parameters(generator)}
    values: dict[str, float] = {}
    for option, text in options.items():
        if option == "generator":
            continue
        if option not in known:
            raise PenstockError(f"{generator} has no option {option}: its options are {', '.join(known)}")
        values[known[option]] = _parse(known[option], option, text)
    return Traffic.of(generator, **values)


def option_names(generator: str) -> tuple[str, ...]:
    """Return the names of a generator's Spark options.

    >>> option_names("pareto")
    ('rate', 'duration', 'shape', 'interval', 'seed')
    """
    return tuple(name.removesuffix("_s") for name in _parameters(generator.strip().lower().replace("_", "-")))


def _parameters(generator: str) -> Mapping[str, inspect.Parameter]:
    if generator not in GENERATORS:
        raise PenstockError(f"generator must be one of {', '.join(GENERATORS)}, got {generator!r}")
    return inspect.signature(GENERATORS[generator]).parameters


def _parse(parameter: str, option: str, text: str) -> float:
    if parameter.endswith("_s"):
        return parse_duration(text, option)
    kind: type[int | float] = int if parameter in {"sources", "seed"} else float
    try:
        return kind(text)
    except ValueError:
        right = "a whole number" if kind is int else "a number"
        raise PenstockError(f"{option} must be {right}, got {text!r}") from None


# ---------------------------------------------------------------- how bursty?


def index_of_dispersion(times: ArrayLike, bin_s: float, duration_s: float | None = None) -> float:
    """Return the variance of the counts per bin divided by their mean: 0 is a clock, 1 is Poisson, more is bursty.

    Only whole bins count; without ``duration_s`` the last arrival is the end.

    >>> index_of_dispersion(constant(100, 10), 0.1)
    0.0
    """
    positive("bin_s", bin_s)
    times = np.asarray(times, dtype=np.float64)
    end_s = duration_s if duration_s is not None else float(times[-1]) if times.size else 0.0
    bins = math.floor(end_s / bin_s + 1e-9)  # 0.3 / 0.1 is 2.9999999999999996
    if bins < 2:
        raise PenstockError(f"bin_s must fit at least twice into {end_s:g} s, got {bin_s!r}")
    counts = np.bincount((times / bin_s).astype(np.int64), minlength=bins)[:bins]
    if not counts.any():
        raise PenstockError(f"the index of dispersion needs arrivals, got none in {bins} bins of {bin_s:g} s")
    return float(counts.var() / counts.mean())
