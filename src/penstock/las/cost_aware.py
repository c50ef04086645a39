"""Ours: drop dear tuples instead of unlucky ones."""

from __future__ import annotations

import math
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.las.constraint import Constraint
from penstock.las.countmin import CostSketch
from penstock.las.operator_sketches import Matrices, Operator, Sync
from penstock.las.shedder import ClockShedder

__all__ = ["CostAware", "DecayingOperator"]

GAIN, POWER, AIM, SYNC_EVERY, DECAY, REACH = 0.005, 0.25, 0.77, 16, 0.8, 100.0
"""How fast the limit follows the queue, how it bends with it, the share of tau that is aimed at, tuples between two requests for
the operator's clock, what the operator keeps of its sketches when it has sent them, and how
far from the mean cost the limit may go."""


class CostAware(ClockShedder):
    """Lets a tuple through if it costs no more than a limit that follows the queue.

    Paper 004 drops whichever tuple comes when the queue is long; its theorem 4.1 calls that optimal, which holds only for
    algorithms that drop nothing before they must. Of random tuples it is far better to drop few dear ones:
    ``w <= theta * (q / tau')^-1/4``, where theta grows while the queue is below its aim tau' and falls while it is above,
    ``theta *= exp(0.005 (tau' - q) / tau')`` an arrival. The constraint itself is checked as well, so it is kept as far as
    the estimates are right.

    Dear keys lose most, so answers over them are biased unless each tuple that stays counts ``weight`` times. ``floor`` is the
    least probability with which any tuple stays while the constraint allows it: it keeps dear keys alive and their costs known.

    Where it fails: with uniform keys and few columns all cells cost the same, and it is no better than LAS.
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
        """How often the last tuple that stayed must count."""
        self._aim_s = max(aim * constraint.tau_s, 1e-12)
        self._floor, self._uniform = floor, uniform
        self._since_sync = SYNC_EVERY

    def shed(self, key: int, elapsed_s: float) -> bool:
        """Compare the cost with the limit, and the wait with the constraint."""
        self._request_s = None
        q_s = self.wait_s(elapsed_s)
        self.theta_s *= math.exp(GAIN * max(-4.0, (self._aim_s - q_s) / self._aim_s))
        mean_s = self.sketch.mean_s or 0.0
        self.theta_s = min(max(self.theta_s, mean_s / REACH), mean_s * REACH)  # or a long queue would be paid for long after
        if self.constraint.violated(q_s):
            return True
        cost_s = self.cost_s(key)
        limit_s = self.theta_s * (max(q_s, 1e-3 * self._aim_s) / self._aim_s) ** -POWER
        self.weight = 1.0
        if cost_s > limit_s:
            if self._uniform is None or self._uniform() >= self._floor:
                return True
            self.weight = 1.0 / self._floor
        self.constraint.enqueued(q_s)
        self.clock_s += cost_s
        self._since_sync += 1
        if self._since_sync >= SYNC_EVERY:
            self._since_sync = 0
            self._request_s = self.clock_s
        return False

    def learn(self, sketch: CostSketch) -> None:
        """Take new matrices."""
        if self.theta_s <= 0.0:
            self.theta_s = sketch.mean_s or 0.0
        self.sketch = sketch

    def cost_s(self, key: int) -> float:
        """The mean over the rows of the sketches, weighted by 1/F."""
        return float(self.sketch.estimate([key], weighted=True)[0])


class DecayingOperator(Operator):
    """The operator for it: sends its sketches after every N tuples and forgets a fifth of them, stable or not.

    What was learnt of rare keys stays, and a changed cost shows within a few N.
    """

    def window_done(self) -> list[Matrices | Sync]:
        """Send, and forget a little."""
        sent = Matrices(self.sketch.copy())
        self.sketch.decay(DECAY)
        return [sent]
