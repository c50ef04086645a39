"""CostAware: drop expensive tuples instead of unlucky ones."""

from __future__ import annotations

import math
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.las.constraint import Constraint
from penstock.las.countmin import CostSketch
from penstock.las.operator_sketches import Matrices, Operator, Sync
from penstock.las.tuple_shedder import ClockShedder

__all__ = ["CostAware", "DecayingOperator"]

GAIN, POWER = 0.005, 0.25
"""How fast the limit follows the queue, and how strongly it bends with it."""
AIM, REACH = 0.77, 100.0
"""The share of tau that the queue is held at, and how far from the mean cost the limit may go, as a factor."""
SYNC_EVERY = 16
"""Tuples between two requests for the operator's clock."""
DECAY = 0.8
"""The share of its sketches that the operator keeps when it has sent them."""


class CostAware(ClockShedder):
    """Which tuples should go so that the most stay? Those that cost more than a limit, and the limit follows the queue.

    LAS drops whichever tuple arrives while the queue is long. Its theorem 4.1 calls that optimal, which holds only for algorithms
    that drop nothing before they must. Dropping few expensive tuples early loses far fewer than dropping many random ones late.
    A tuple passes if ``w <= theta * (q / tau')^-1/4``, where theta grows while the queue is below its aim tau' and falls while
    it is above: ``theta *= exp(0.005 (tau' - q) / tau')`` per arrival. The constraint is checked as well, so it holds as far as
    the estimates are right.

    Expensive keys lose most, so answers over them are biased unless each tuple that stays counts ``weight`` times.

    Where it fails: with uniform keys and few columns all cells cost the same, and it is no better than LAS.

    Parameters
    ----------
    constraint
        The promise about queuing latency.
    sketch
        What is known of costs.
    floor
        The least probability with which a tuple stays while the constraint allows it. It keeps expensive keys in the answers, and
        their costs known.
    uniform
        Source of random numbers in [0, 1); needed with a floor.
    aim
        The share of tau that the queue is held at.

    Examples
    --------
    >>> from penstock.las import ABS
    >>> sketch = CostSketch(epsilon=0.05, delta=0.1)
    >>> sketch.add([1, 2, 2, 2], [1.0, 0.1, 0.1, 0.1])
    >>> shedder = CostAware(ABS(1.0), sketch)
    >>> [shedder.shed(2, 0.0) for _ in range(5)], shedder.shed(1, 0.0), shedder.shed(2, 0.0)    # only the expensive one goes
    ([False, False, False, False, False], True, False)

    References
    ----------
    Compare Rivetti, Anceaume, Busnel, Querzoni and Sericola, *Load-Aware Shedding in Stream Processing Systems* (LAS), 2016,
    theorem 4.1.
    """

    def __init__(
        self,
        constraint: Constraint,
        sketch: CostSketch,
        *,
        floor: float = 0.0,
        uniform: Callable[[], float] | None = None,
        aim: float = AIM,
    ) -> None:
        if not 0.0 <= floor < 1.0:
            raise PenstockError(f"the floor must lie in [0, 1), got {floor!r}")
        if floor > 0 and uniform is None:
            raise PenstockError("a floor needs a source of uniform random numbers")
        super().__init__(constraint)
        self.sketch = sketch
        self.theta_s = sketch.mean_s or 0.0
        self.weight = 1.0
        """How many tuples the last one that stayed stands for."""
        self._aim_s = max(aim * constraint.tau_s, 1e-12)
        self._floor, self._uniform = floor, uniform
        self._since_sync = SYNC_EVERY

    def shed(self, key: int, elapsed_s: float) -> bool:
        """Compare the cost with the limit, and the wait with the constraint."""
        self._request_s = None
        q_s = self.advance(elapsed_s)
        self.theta_s *= math.exp(GAIN * max(-4.0, (self._aim_s - q_s) / self._aim_s))
        mean_s = self.sketch.mean_s or 0.0
        # Without bounds a long queue would be felt long after it is gone.
        self.theta_s = min(max(self.theta_s, mean_s / REACH), mean_s * REACH)
        if self.constraint.is_violated(q_s):
            return True
        cost_s = self.cost_s(key)
        limit_s = self.theta_s * (max(q_s, 1e-3 * self._aim_s) / self._aim_s) ** -POWER
        self.weight = 1.0
        if cost_s > limit_s:
            if self._uniform is None or self._uniform() >= self._floor:
                return True
            self.weight = 1.0 / self._floor
        self.constraint.add(q_s)
        self.clock_s += cost_s
        self._since_sync += 1
        if self._since_sync >= SYNC_EVERY:
            self._since_sync = 0
            self._request_s = self.clock_s
        return False

    def learn(self, sketch: CostSketch) -> None:
        """Use new matrices."""
        if self.theta_s <= 0.0:
            self.theta_s = sketch.mean_s or 0.0
        self.sketch = sketch

    def cost_s(self, key: int) -> float:
        """Return the mean over the rows of the sketches, weighted by 1/F."""
        return float(self.sketch.estimate([key], weighted=True)[0])


class DecayingOperator(Operator):
    """The operator's side of `CostAware`: sends its sketches after every N tuples and forgets a fifth of them, stable or not.

    What was learned of rare keys stays, and a changed cost shows within a few N.
    """

    def end_window(self) -> list[Matrices | Sync]:
        """Send, and forget a little."""
        message = Matrices(self.sketch.copy())
        self.sketch.decay(DECAY)
        return [message]
