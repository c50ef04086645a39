"""How to design a control law: parameters from a convergence time, stability, a model from a recording, a period from a trace.

The plant is that of CTRL (Tu and Prabhakar), equation 2, ``G(z) = cT / (z - 1)``: what is admitted above capacity in one period
stands in the queue in the next, and every queued tuple adds its cost to the delay. The controller is equation 3 in its general
form, ``C(z) = (b0 z + b1) / (cT (z + a))``. Together they have the characteristic polynomial ``z^2 + (a - 1 + b0) z + (b1 - a)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import PenstockError

__all__ = ["ControlLaw", "PUBLISHED", "PeriodAdvice", "PlantModel", "advise_period", "identify"]


@dataclass(frozen=True, slots=True)
class ControlLaw:
    """The parameters of the feedback law ``u(k) = (b0 e(k) + b1 e(k-1)) / (cT) - a u(k-1)``, with ``e = target - delay``.

    Raises
    ------
    PenstockError
        If the loop would be unstable.

    Examples
    --------
    >>> ControlLaw.converging_in(3)                       # CTRL, equation 3
    ControlLaw(b0=0.4, b1=-0.31, a=-0.8)
    >>> [round(pole, 3) for pole in ControlLaw(0.4, -0.31, -0.8).poles]
    [0.7, 0.7]
    >>> low, high = ControlLaw(0.4, -0.31, -0.8).cost_margin
    >>> low, round(high, 2)                               # stable while the true cost is below 5 times the assumed one
    (0.0, 5.07)
    >>> ControlLaw(2.5, 0.5, -0.8)
    Traceback (most recent call last):
    penstock.errors.PenstockError: b0=2.5, b1=0.5, a=-0.8 is unstable: a pole at |z| = 1.14, it must lie below 1; \
it would be stable if the true cost were 0 to 0.4 times the assumed one
    """

    b0: float
    b1: float
    a: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in (self.b0, self.b1, self.a)):
            raise PenstockError(f"b0, b1 and a must be finite numbers, got {self.b0}, {self.b1}, {self.a}")
        largest = max(abs(pole) for pole in _poles(self.b0, self.b1, self.a))
        if largest >= 1.0:
            low, high = self.cost_margin
            remedy = (
                f"it would be stable if the true cost were {low:.3g} to {high:.3g} times the assumed one"
                if high > low
                else "no cost makes it stable"
            )
            raise PenstockError(
                f"b0={self.b0:g}, b1={self.b1:g}, a={self.a:g} is unstable: a pole at |z| = {largest:.3g}, "
                f"it must lie below 1; {remedy}"
            )

    @classmethod
    def converging_in(cls, periods: float, a: float = -0.8, *, exact: bool = False) -> ControlLaw:
        """Return the law with both poles at ``e^(-1/periods)``, so that an error falls to 1/e in that many periods.

        CTRL gives the pole one digit, on the fast side: 0.7 where 3 periods need 0.717. ``exact`` does not round. ``a`` is free:
        -1 is a PI controller, and a leaky integrator such as CTRL's -0.8 needs no protection from windup.
        """
        if not (math.isfinite(periods) and periods > 0):
            raise PenstockError(f"the convergence time must be positive, got {periods} periods")
        gap = -math.expm1(-1.0 / periods)
        if not exact:
            digit = 10.0 ** math.floor(math.log10(gap))
            gap = min(0.9, math.ceil(round(gap / digit, 9)) * digit)
        pole = 1.0 - gap
        # z^2 + (a - 1 + b0) z + (b1 - a) = (z - p)^2
        return cls(b0=round(1.0 - a - 2.0 * pole, 12), b1=round(a + pole * pole, 12), a=a)

    @property
    def poles(self) -> tuple[complex, ...]:
        """The roots of the characteristic polynomial."""
        # A double root has a rounding error in its imaginary part.
        return tuple(float(pole.real) if abs(pole.imag) < 1e-6 else complex(pole) for pole in _poles(self.b0, self.b1, self.a))

    @property
    def cost_margin(self) -> tuple[float, float]:
        """The range of true cost over assumed cost in which the loop is stable.

        It follows from Jury's conditions for ``z^2 + (a - 1 + r b0) z + (r b1 - a)``, where r is that ratio.
        """
        low, high = 0.0, math.inf
        # Each condition reads constant + slope * r > 0.
        for constant, slope in (
            (0.0, self.b0 + self.b1),  # 1 + p1 + p0 > 0
            (2.0 - 2.0 * self.a, self.b1 - self.b0),  # 1 - p1 + p0 > 0
            (1.0 + self.a, -self.b1),  # p0 < 1
            (1.0 - self.a, self.b1),  # p0 > -1
        ):
            if slope > 0:
                low = max(low, -constant / slope)
            elif slope < 0:
                high = min(high, -constant / slope)
            elif constant <= 0:
                return 0.0, 0.0
        return (low, high) if high > low else (0.0, 0.0)

    def step(self, error: float, last_error: float, last_u: float, gain: float) -> float:
        """Return u(k); ``gain`` is the plant's, the change of the delay in one period per unit of u.

        It is bounded so that sums of it stay finite, whatever errors a clock that jumps has caused.
        """
        u = (self.b0 * error + self.b1 * last_error) / gain - self.a * last_u
        return min(max(u, -_LARGEST_U), _LARGEST_U)


_LARGEST_U = 1e12


def _poles(b0: float, b1: float, a: float) -> NDArray[np.complex128]:
    roots: NDArray[np.complex128] = np.roots([1.0, a - 1.0 + b0, b1 - a]).astype(np.complex128)
    return roots


PUBLISHED = ControlLaw(b0=0.4, b1=-0.31, a=-0.8)
"""CTRL, equation 3: convergence in three control periods."""


@dataclass(frozen=True, slots=True)
class PlantModel:
    """A difference equation ``y(k) = a[0] y(k-1) + ... + b[0] u(k-1) + ...`` fitted to a recording."""

    a: tuple[float, ...]
    b: tuple[float, ...]
    fit: float
    """Share of the variance of the output's changes that the model explains, one period ahead."""

    @property
    def order(self) -> int:
        """How many periods the model looks back."""
        return len(self.a)

    @property
    def gain(self) -> float:
        """The change of the output per unit of input and period: for the plant of CTRL, ``c * T``."""
        return sum(self.b)

    @property
    def integrates(self) -> bool:
        """Whether the output keeps what the input adds, as a queue does: a pole close to 1."""
        return bool(min(abs(np.roots([1.0, *(-value for value in self.a)]) - 1.0)) < 0.1)


def identify(inputs: ArrayLike, outputs: ArrayLike, max_order: int = 3) -> PlantModel:
    """Fit a model to recorded input and output, and choose its order (system identification as in CTRL, section 2.2).

    The order is the smallest one that explains nearly as much as any other. A model of higher order explains a little more
    because of noise, and that means nothing.

    Parameters
    ----------
    inputs, outputs
        One number per period; ``inputs[k]`` acts during period k and shows in ``outputs[k + 1]``.
    max_order
        The largest order to try.

    Raises
    ------
    PenstockError
        If the recording is too short, not finite, or its input never changes.

    Examples
    --------
    >>> u = np.sin(np.arange(200.0)) + np.cos(0.3 * np.arange(200.0) ** 1.1)
    >>> y = np.concatenate([[0.0], 0.002 * np.cumsum(u)[:-1]])       # a queue: c T = 0.002
    >>> model = identify(u, y)
    >>> model.order, round(model.gain, 6), model.integrates, round(model.fit, 3)
    (1, 0.002, True, 1.0)
    """
    u, y = np.asarray(inputs, dtype=np.float64), np.asarray(outputs, dtype=np.float64)
    if u.ndim != 1 or u.shape != y.shape:
        raise PenstockError(f"inputs and outputs must be two lists of one length, got {u.shape} and {y.shape}")
    if not (np.isfinite(u).all() and np.isfinite(y).all()):
        raise PenstockError("inputs and outputs must be finite numbers")
    if u.size < 10 * max_order:
        raise PenstockError(f"a model up to order {max_order} needs at least {10 * max_order} periods, got {u.size}")
    if np.ptp(u) == 0.0:
        raise PenstockError(f"the input never changes (it is {u[0]:g} throughout), so nothing can be learned from it")
    target = y[max_order:]
    changes = target - y[max_order - 1 : -1]
    spread = max(float(np.var(changes)), 1e-300)
    models = []
    for order in range(1, max_order + 1):
        past = [y[max_order - lag : y.size - lag] for lag in range(1, order + 1)]
        past += [u[max_order - lag : u.size - lag] for lag in range(1, order + 1)]
        columns = np.column_stack(past)
        solution = np.linalg.lstsq(columns, target, rcond=None)[0]
        residual = float(np.mean((target - columns @ solution) ** 2))
        models.append(PlantModel(tuple(solution[:order].tolist()), tuple(solution[order:].tolist()), 1.0 - residual / spread))
    best = max(model.fit for model in models)
    return next(model for model in models if model.fit >= best - _SPARE_FIT)


_SPARE_FIT = 0.03


@dataclass(frozen=True, slots=True)
class PeriodAdvice:
    """The delay error that each control period would cause, and the period with the least."""

    best_s: float
    periods_s: tuple[float, ...]
    surprise_s: tuple[float, ...]
    """Delay error from arrivals that change between two periods: it grows with the period."""
    blur_s: tuple[float, ...]
    """Delay error from means over too few tuples: it falls with the period."""

    @property
    def error_s(self) -> tuple[float, ...]:
        """Both together."""
        return tuple(math.hypot(surprise, blur) for surprise, blur in zip(self.surprise_s, self.blur_s, strict=True))


def advise_period(
    arrivals: ArrayLike,
    cost_s: float,
    delay_target_s: float,
    cost_variation: float = 1.0,
    periods_s: Sequence[float] = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0),
) -> PeriodAdvice:
    """Weigh the two rules of CTRL for the control period against each other, on a recorded trace of arrival times.

    The first rule is to sample often: what arrivals do between two periods is a surprise, and a count that differs by m from the
    last one adds ``m * cost_s`` to the delay. The second is to average enough: a mean over n tuples is off by ``cost_variation /
    sqrt(n)`` of itself, and so is the delay that is held at the target with it.

    Parameters
    ----------
    arrivals
        Arrival times in seconds.
    cost_s
        Mean seconds of work per tuple.
    delay_target_s
        The delay to hold.
    cost_variation
        Standard deviation of the cost, as a share of its mean.
    periods_s
        The periods to compare.

    Raises
    ------
    PenstockError
        If the trace is too short.

    Examples
    --------
    >>> advise_period(np.arange(0.0, 100.0, 0.005), cost_s=0.005, delay_target_s=2.0).best_s    # even arrivals: no surprise
    4.0
    """
    times = np.sort(np.asarray(arrivals, dtype=np.float64))
    if times.size < 2 or times[-1] <= times[0]:
        raise PenstockError(f"advice on the period needs a trace with arrivals at different times, got {times.size} rows")
    if not cost_s > 0 or not delay_target_s > 0:
        raise PenstockError(f"cost_s and delay_target_s must be positive, got {cost_s} and {delay_target_s}")
    span_s = float(times[-1] - times[0])
    usable = tuple(period for period in periods_s if span_s / period >= _LEAST_PERIODS)
    if not usable:
        raise PenstockError(f"the trace is {span_s:.3g} s long, which is too short to judge a period of {min(periods_s):g} s by")
    surprise, blur = [], []
    for period in usable:
        counts = np.bincount(((times - times[0]) / period).astype(np.int64))[:-1]  # the last period is cut off
        surprise.append(float(np.sqrt(np.mean(np.diff(counts) ** 2.0))) * cost_s)
        per_period = min(times.size / span_s, 1.0 / cost_s) * period  # no more can be measured than are processed
        blur.append(delay_target_s * cost_variation / math.sqrt(per_period))
    errors = np.hypot(surprise, blur)
    return PeriodAdvice(usable[int(np.argmin(errors))], usable, tuple(surprise), tuple(blur))


_LEAST_PERIODS = 10
