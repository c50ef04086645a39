"""LAS: costs from the operator's sketches, and a clock that each new pair of sketches corrects."""

from __future__ import annotations

from typing import Literal

from penstock.errors import PenstockError
from penstock.las.constraint import Constraint
from penstock.las.countmin import CostSketch
from penstock.las.tuple_shedder import ClockShedder

__all__ = ["Las"]


class Las(ClockShedder):
    """Which tuples must go so that the rest meets a bound on queuing latency? Load-Aware Shedding, the shedder's side.

    The shedder adds up the costs of all tuples it lets through, ``W / F`` from the operator's sketches, and so knows when the
    operator would begin with a new one. A tuple is dropped if its wait would violate the constraint. The cost is increased by
    ``1 + epsilon`` against underestimates.

    There are three states (LAS, figure 3): NOP lets everything through until the first matrices arrive; SEND has new ones and
    asks the operator for its clock with the next tuple; RUN sheds.

    Where it fails: it drops whichever tuple arrives while the queue is long, cheap ones as well; see `CostAware`.

    Parameters
    ----------
    constraint
        The promise about queuing latency.
    sketch
        What is known of costs in advance.
    margin
        What is added to a cost, as a share of it; the sketch's epsilon by default.

    Examples
    --------
    >>> from penstock.las import ABS
    >>> sketch = CostSketch(epsilon=0.05, delta=0.1)
    >>> sketch.add([1, 2], [1.0, 0.1])
    >>> las = Las(ABS(0.5), sketch)
    >>> [las.shed(key, 0.0) for key in (2, 1, 2)]           # after the second one the wait would be 1.155 s
    [False, False, True]

    References
    ----------
    Rivetti, Anceaume, Busnel, Querzoni and Sericola, *Load-Aware Shedding in Stream Processing Systems* (LAS), 2016,
    listing III.2 and figure 3.
    """

    def __init__(self, constraint: Constraint, sketch: CostSketch | None = None, *, margin: float | None = None) -> None:
        super().__init__(constraint)
        self.sketch = sketch
        self.state: Literal["NOP", "SEND", "RUN"] = "NOP" if sketch is None else "SEND"
        self._margin = margin

    def shed(self, key: int, elapsed_s: float) -> bool:
        """Decide on a tuple that arrives now (LAS, listing III.2)."""
        self._request_s = None
        if self.state == "NOP":
            return False
        if super().shed(key, elapsed_s):
            return True
        if self.state == "SEND":
            self._request_s = self.clock_s
            self.state = "RUN"
        return False

    def learn(self, sketch: CostSketch) -> None:
        """Use new matrices, and ask for the clock with the next tuple."""
        self.sketch = sketch
        self.state = "SEND"

    def cost_s(self, key: int) -> float:
        """Return ``W / F`` from the row with the least F, plus the margin."""
        if self.sketch is None:
            raise PenstockError("LAS has no matrices yet")
        margin = self.sketch.epsilon if self._margin is None else self._margin
        return float(self.sketch.estimate([key])[0]) * (1.0 + margin)
