"""KeepAll: the baseline that never sheds."""

from __future__ import annotations

from typing import ClassVar

from penstock.control.base import Controller, Decision, Observation

__all__ = ["KeepAll"]


class KeepAll(Controller):
    """Keep every row. The job runs as it would without shedding, but is observed and counted.

    Examples
    --------
    >>> KeepAll(delay_target_s=2.0).update(Observation(batch_id=0, start_s=0.0, end_s=9.0)).keep
    1.0
    """

    sheds: ClassVar[bool] = False

    def update(self, observation: Observation) -> Decision:  # noqa: ARG002 - it looks at nothing
        """Keep everything."""
        return Decision(keep=1.0)
