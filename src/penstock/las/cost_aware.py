"""CostAware: drop expensive tuples instead of unlucky ones."""

from __future__ import annotations

import math
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.las.arrival_costs import ArrivalCosts
from penstock.las.constraint import Constraint
from penstock.las.countmin import CostSketch
from penstock.las.operator_sketches import Matrices, Operator, Sync
from penstock.las.tuple_shedder import TupleShedder
from penstock.las.work_under_way import WorkUnderWay

__all__ = ["CostAware", "DecayingOperator"]

AIM, GUARD = 0.75, 0.98
"""The shares of tau that the queue is steered to, and that no tuple may break."""
LOWEST = 0.5
"""The share of tau that a tuple may always wait: it brings any mean down to that, and an operator never idles for past debts."""
WIDTH_TAU, WIDTH_COST = 0.5, 1.5
"""How far around its aim the queue may swing until the choice is at an end: shares of tau and of the mean cost."""
STORE, BLIND_STORE = 0.005, 0.02
"""How fast a queue above tau is brought back, in mean costs per tuple that stays; what is added where costs do not differ."""
BLIND, BLIND_AIM = 0.1, 0.8
"""The spread of costs below which choosing is worth less and less, and what is then added to the aim without a memory."""
RATE_GAIN = 1.0 / 64.0
"""How much a single gap changes the mean gap between arrivals."""
DECAY = 0.8
"""The share of its sketches that the operator keeps when it has sent them."""


class CostAware(TupleShedder):
    """Which tuples should go so that the most stay? The most expensive ones, once all that arrive no longer fit.

    LAS drops whichever tuple arrives while the queue is long. Its theorem 4.1 calls that optimal, which holds only for algorithms
    that drop nothing before they must. With more work than time, the most tuples stay if the cheapest do: those up to the cost at
    which the work that arrives per second, cheapest first, adds up to one second. The queue corrects what estimates get wrong: a
    tuple stays if the work of all cheaper arrivals fits into ``1 + (level - q) / width`` seconds per second, where q is the wait
    that it would see.

    - The level is 0.75 tau. With a mean to keep (`AVG`, `Sliding`) a queue that was short has left credit, c seconds of waiting.
      A queue that falls by d with every tuple uses up ``x^2 / 2 d`` while it comes back from x above, so the level is higher by
      ``sqrt(2 d c)``. Bursts are stored as long as there is credit, and no integral can wind up.
    - q is what the operator has not acknowledged yet, see `WorkUnderWay`; waits that turn out longer are charged to the mean.
    - The constraint itself is checked first, with 98% of tau, as LAS does it. An idle operator takes every tuple.
    - Where all keys seem to cost the same there is nothing to choose, and the level rises towards what LAS would allow.

    Expensive keys lose most, so answers over them are biased unless each tuple that stays counts ``weight`` times.

    Where it fails: with uniform keys and few columns all cells cost the same, and it is no better than LAS with true costs (at
    most 5% worse). With an `ABS` constraint of a few mean costs, single tuples wait longer, because their predecessors did.

    Parameters
    ----------
    constraint
        The promise about queuing latency.
    sketch
        What is known of costs; it may be empty.
    floor
        The least probability with which a tuple stays while the constraint allows it. It keeps expensive keys in the answers, and
        their costs known.
    uniform
        Source of random numbers in [0, 1); needed with a floor.
    aim
        The share of tau that the queue is steered to.

    Examples
    --------
    >>> from penstock.las import ABS
    >>> sketch = CostSketch(epsilon=0.05, delta=0.1)
    >>> sketch.add([1, 2], [1.0, 0.1])
    >>> shedder = CostAware(ABS(20.0), sketch)
    >>> dropped = [key for number in range(400) if shedder.shed(key := 1 + number % 2, 0.4 * number)]   # 0.55 s every 0.4 s
    >>> len(dropped) > 20, set(dropped)                                                 # only expensive ones go
    (True, {1})

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
        if not 0.0 <= aim <= 1.0:
            raise PenstockError(f"the aim must lie in [0, 1], got {aim!r}")
        self.constraint, self.sketch = constraint, sketch
        self.weight = 1.0
        """How many tuples the last one that stayed stands for."""
        self._floor, self._uniform, self._aim = floor, uniform, aim
        self._arrivals = ArrivalCosts()
        self._under_way = WorkUnderWay(constraint.tau_s, sketch.mean_s or 0.0)
        self._request_s: float | None = None
        self._gap_s, self._last_s, self._arrived = 0.0, 0.0, 0

    def shed(self, key: int, elapsed_s: float) -> bool:
        """Compare the wait with the constraint, and the cost with what fits."""
        self._request_s = None
        self._count_arrival(elapsed_s)
        cost_s = self.cost_s(key)
        self._arrivals.add(cost_s)
        q_s = self._under_way.wait_s(elapsed_s)
        credit_s, tau_s = self.constraint.credit_s(GUARD), self.constraint.tau_s
        if q_s > max(GUARD * tau_s + credit_s, LOWEST * tau_s):
            return True
        self.weight = 1.0
        if len(self._under_way) and self.is_too_expensive(cost_s, q_s, credit_s):
            if self._uniform is None or self._uniform() >= self._floor:
                return True
            self.weight = 1.0 / self._floor
        self.constraint.add(q_s)
        self._request_s = self._under_way.enqueue(elapsed_s, cost_s, q_s)
        return False

    def is_too_expensive(self, cost_s: float, q_s: float, credit_s: float) -> bool:
        """Return whether the work of cheaper arrivals leaves no room for a tuple of this cost."""
        if not self._arrivals.is_ready or self._gap_s <= 0.0:
            return False
        scale, tau_s = self._under_way.scale, self.constraint.tau_s
        mean_s = scale * self._arrivals.mean_s
        blind = max(1.0 - self._arrivals.spread / BLIND, 0.0)
        level_s = self._aim * tau_s
        if not self.constraint.remembers:
            level_s += BLIND_AIM * blind * tau_s
        elif credit_s > 0.0:
            level_s += min(credit_s, math.sqrt(2.0 * (STORE + BLIND_STORE * blind) * mean_s * credit_s))
        else:
            level_s = max(level_s + credit_s, 0.8 * LOWEST * tau_s)
        width_s = WIDTH_TAU * tau_s + WIDTH_COST * mean_s
        return scale * self._arrivals.work_up_to(cost_s) / self._gap_s > 1.0 + (level_s - q_s) / width_s

    def request(self) -> float | None:
        """Return when the tuple that was just let through should be done: every tuple asks for an answer."""
        return self._request_s

    def receive(self, message: Matrices | Sync) -> None:
        """Use new matrices, or learn when a tuple was done."""
        if isinstance(message, Matrices):
            self.sketch = message.sketch
        elif message.request_s is not None:
            error_s = self._under_way.acknowledge(message.request_s, message.delta_s)
            self.constraint.correct(len(self._under_way), error_s)

    def cost_s(self, key: int) -> float:
        """Return the mean over the rows of the sketches, weighted by 1/F; without sketches the mean of the last tuples."""
        if self.sketch.mean_s is None:
            return self._under_way.mean_s
        return float(self.sketch.estimate([key], weighted=True)[0])

    def _count_arrival(self, elapsed_s: float) -> None:
        if self._arrived > 0:
            gain = max(RATE_GAIN, 1.0 / self._arrived)
            self._gap_s += (elapsed_s - self._last_s - self._gap_s) * gain
        self._last_s = elapsed_s
        self._arrived += 1


class DecayingOperator(Operator):
    """The operator's side of `CostAware`: sends its sketches after every N tuples and forgets a fifth of them, stable or not.

    What was learned of rare keys stays, and a changed cost shows within a few N.
    """

    def end_window(self) -> list[Matrices | Sync]:
        """Send, and forget a little."""
        message = Matrices(self.sketch.copy())
        self.sketch.decay(DECAY)
        return [message]
