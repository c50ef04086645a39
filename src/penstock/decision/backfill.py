"""A run over what is there, and no more: everything is kept, and what the controller knows stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from penstock.control.base import Controller, Decision, Observation

__all__ = ["Backfill"]


class Backfill(Controller):
    """Keeps every row of a run that ends by itself: nobody waits for its rows, so it can't be overloaded.

    It stands in for the controller of the query's other runs, whose memory it carries through the journal unchanged. So the next
    run that goes on for ever starts with what was known before.

    Parameters
    ----------
    controller
        The controller of the other runs.

    Examples
    --------
    >>> from penstock.control import MicroBatch
    >>> Backfill(MicroBatch(2.0)).update(Observation(batch_id=0, start_s=0.0, end_s=900.0)).keep
    1.0
    """

    sheds: ClassVar[bool] = False

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller.delay_target_s)
        self._controller = controller

    def update(self, observation: Observation) -> Decision:  # noqa: ARG002 - it looks at nothing
        """Keep everything."""
        return Decision(keep=1.0)

    def start(self) -> Decision:
        """Keep everything from the first row on."""
        return Decision(keep=1.0)

    def change_target(self, delay_target_s: float) -> None:
        """Tell the controller that stands aside."""
        super().change_target(delay_target_s)
        self._controller.change_target(delay_target_s)

    def snapshot(self) -> dict[str, Any]:
        """Return what the controller knows that stands aside."""
        return self._controller.snapshot()

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Give it back what it knew."""
        self._controller.restore(state)
        return self
