"""Any controller, in units of work instead of rows: what counts of a row is what it costs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from penstock.control.base import Controller, Decision, GateCount, Observation
from penstock.control.micro_batch import MicroBatch
from penstock.las.bucket_keeps import BucketKeeps

__all__ = ["WorkController"]

_UNKNOWN_COST_S = 1e-3
_GAIN, _LEAST, _MOST = 0.2, 0.5, 2.0
"""How fast the correction of a batch's work follows, and how far it goes."""
_FEW_ROWS = 20.0
"""So many rows say half of what many do: a single one may have been slow."""
_FEW = 0.02


class WorkController(Controller):
    """Shows another controller microseconds of work where it expects rows, so its keep is a share of the work.

    A knapsack keeps the buckets that look cheapest, and those are on average dearer than they look: with costs that are learnt,
    batches kept up to a fifth more work than asked for. So what was kept is compared with what was asked for, and the work of
    the next batch is corrected by the ratio, a fifth of the way per batch. Where all is kept nobody chose, and it falls back.

    Parameters
    ----------
    inner
        The controller that decides.
    model
        What rows cost by bucket; the gate shares the keep out by it.
    is_timed
        Whether rows are timed where they run. If not, the cost of each bucket is learnt here from the time of whole batches.
    cores
        How many rows are worked on at once.

    """

    def __init__(self, inner: Controller, model: BucketKeeps, *, is_timed: bool, cores: int = 1) -> None:
        super().__init__(inner.delay_target_s)
        self._inner, self._model, self._is_timed = inner, model, is_timed
        self.cores = cores
        self._bias = 1.0
        self._row_us: float | None = None  # the mean cost that the last decision was made with
        if isinstance(inner, MicroBatch):
            inner.suppose_cost(1e-6 / cores)  # a microsecond of work
            inner.unit = "microseconds of work"

    def __deepcopy__(self, memo: dict[int, Any]) -> WorkController:
        """Return a query's own controller, on the one model that its gate reads."""
        return WorkController(copy.deepcopy(self._inner, memo), self._model, is_timed=self._is_timed, cores=self.cores)

    def update(self, observation: Observation) -> Decision:
        """Ask for a share of the next batch's work."""
        if not self._is_timed:
            self._learn(observation)
        mean_s = self._model.mean_s
        self._correct(observation)
        self._row_us = None if mean_s is None else mean_s * 1e6
        row_us = self._bias * (mean_s if mean_s is not None and mean_s > 0 else _UNKNOWN_COST_S) * 1e6
        kept_us = observation.kept * row_us if observation.work_s is None else observation.work_s * 1e6
        offered_us = max(kept_us, observation.offered * row_us)
        upcoming_us = None if observation.upcoming_rows is None else round(observation.upcoming_rows * row_us)
        decision = self._inner.update(
            replace(
                observation,
                gates={"work": GateCount(round(offered_us), round(kept_us))},
                upcoming_rows=upcoming_us,
                expired=round(observation.expired * row_us),
                left_rows=None if observation.left_rows is None else round(observation.left_rows * row_us),
                row_units=row_us,
                backlog_rows={name: round(rows * row_us) for name, rows in observation.backlog_rows.items()},
            )
        )
        if decision.keep is None and mean_s is not None and upcoming_us:
            # Nothing is known of whole batches yet, but of rows: half of the target on all cores is safe to begin with.
            return replace(decision, keep=min(1.0, 0.5e6 * self.delay_target_s * self.cores / upcoming_us))
        return decision

    def _correct(self, observation: Observation) -> None:
        """Learn by which factor the work of a batch is more than the costs of the batch before said."""
        asked_us = observation.keep * observation.offered * (self._row_us or 0.0)
        is_cut = observation.expired > _FEW * observation.offered  # then less was kept than asked for, whatever rows cost
        if observation.work_s is None or observation.cold or is_cut or asked_us <= 0.0:
            return
        ratio = observation.work_s * 1e6 / asked_us if observation.keep < 1.0 else 1.0
        gain = _GAIN * observation.kept / (observation.kept + _FEW_ROWS)
        self._bias = min(max(self._bias + gain * (ratio - self._bias), _LEAST), _MOST)

    def start(self) -> Decision:
        """Return what the inner controller says, which has seen no rows either."""
        return self._inner.start()

    def change_target(self, delay_target_s: float) -> None:
        """Hold another delay from the next decision on."""
        super().change_target(delay_target_s)
        self._inner.change_target(delay_target_s)

    def _learn(self, observation: Observation) -> None:
        """Learn from the time of a whole batch."""
        kept = self._model.keeps * self._model.rows
        if observation.kept and kept.sum() > 0 and not observation.cold:
            total_s = observation.busy_s or observation.period_s
            self._model.update_from_total(kept * observation.kept / kept.sum(), total_s)

    def learnt(self) -> dict[str, float]:
        """Return the mean cost of a row, with all cores at work, and what the inner controller knows of batches."""
        learnt, mean_s = dict(self._inner.learnt()), self._model.mean_s
        return learnt | {"cost_s": mean_s / self.cores} if mean_s is not None else learnt

    def snapshot(self) -> dict[str, Any]:
        """Return the controller's state and what was learnt."""
        learnt = {"bias": self._bias, "row_us": self._row_us}
        return {"inner": self._inner.snapshot(), "model": self._model.snapshot(), **learnt}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Continue from a snapshot, and return the controller."""
        self._inner.restore(state["inner"])
        self._model.restore(state["model"])
        self._bias, self._row_us = float(state.get("bias", 1.0)), state.get("row_us")
        return self
