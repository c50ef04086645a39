"""LAS between micro-batches: what comes back from the tasks of one batch, and what the shedders of the next one know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.las.countmin import CostSketch, check_epsilon, rows_for
from penstock.las.operator_sketches import Matrices, Operator
from penstock.las.shedder_state import Bound, Instance, Phase, ShedderState, TuplePolicy, has_matrices, is_state_of, version_of

__all__ = ["ClockReading", "Executed", "MicroBatchLas"]

_JOURNAL_EVERY = 1_000
"""Batches after which the matrices are journaled again although they have not changed; fewer than a journal keeps decisions."""
_VERSIONS_KEPT = 16
_MOST_CELLS = 20_000
"""Of each matrix. Both travel with every batch's plan; below 400 kB that costs little, and so do their copies in the journal."""
_FOLLOW = 0.25
"""How much of Delta counts where it was not asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Executed:
    """Some executed tuples."""

    frequency: NDArray[np.float64]
    """F."""
    duration: NDArray[np.float64]
    """W."""
    rows: int
    total_s: float


@dataclass(slots=True)
class ClockReading:
    """What the tasks of a batch measured. Of a task that ran twice all tuples count twice: only estimates suffer."""

    parts: list[Executed] = field(default_factory=list)
    """The tuples executed, in pieces of at most N."""
    begins_s: dict[int, float] = field(default_factory=dict)
    """By partition: by how much later than expected the operator began, that is Delta."""
    instances: dict[int, Instance] = field(default_factory=dict)
    """By partition: the waits after the batch."""
    looks_s: dict[int, float] = field(default_factory=dict)
    """By partition: by how much later than expected the shedder looked at its first tuple."""
    bad_costs: dict[int, int] = field(default_factory=dict)
    """By partition: tuples whose given cost was no cost."""

    @property
    def total_s(self) -> float:
        """The seconds that all tuples took."""
        return sum(part.total_s for part in self.parts)

    def add(self, other: ClockReading) -> None:
        """Add what another task measured."""
        self.parts += other.parts
        self.begins_s |= other.begins_s
        self.instances |= other.instances
        self.looks_s |= other.looks_s
        self.bad_costs |= other.bad_costs


class MicroBatchLas:
    """Both sides of LAS where tuples come in micro-batches: each partition is an operator with its shedder in front.

    - The operator's F and W are filled in the tasks, in pieces of at most N tuples, and added up here. START and STABILIZING are
      as in the paper. Since nothing is known of a task before it ends, what they send takes effect with the next batch.
    - The shedder's NOP, SEND and RUN are as in the paper too. Each partition compares when the operator really begins with its
      first tuple. The difference Delta corrects the next batch, in SEND wholly, in RUN a quarter of the way.
    - AVG is about the mean over all partitions: each gets an even share of the waits so far.
    - When a batch begins the operator is idle, so the estimate of its clock starts from the real one: an error of the costs is
      felt for one batch and not added up.

    Parameters
    ----------
    policy
        ``las``, ``straw-man`` (the mean cost for every tuple) or ``full-knowledge`` (the costs come with the tuples).
    bound
        ``abs`` or ``avg``: whether tau holds for each tuple or for the mean of all.
    tau_s
        The bound on queuing latency.
    epsilon, delta, seed
        Size and hash functions of the matrices.
    window, mu
        N, and the relative error up to which matrices are stable.
    mean_s
        The mean cost, if Straw-Man is told; otherwise it is learnt.

    Examples
    --------
    >>> las = MicroBatchLas("straw-man", "abs", 1.0, mean_s=0.4)
    >>> las.state(now_s=100.0).phase
    'SEND'
    """

    def __init__(
        self,
        policy: TuplePolicy,
        bound: Bound,
        tau_s: float,
        *,
        epsilon: float = 0.05,
        delta: float = 0.1,
        seed: int = 0,
        window: int = 1024,
        mu: float = 0.05,
        mean_s: float | None = None,
    ) -> None:
        if not (math.isfinite(tau_s) and tau_s >= 0):
            raise PenstockError(f"tau must be finite and not negative, got {tau_s!r}")
        if mean_s is not None and not (math.isfinite(mean_s) and mean_s >= 0):
            raise PenstockError(f"the mean cost must be finite and not negative, got {mean_s!r}")
        self.policy, self.bound, self.tau_s = policy, bound, tau_s
        self._given_mean_s = mean_s
        _check_cells(epsilon, delta)
        self._operator = Operator(CostSketch(epsilon, delta, seed), window, mu)
        self.window = window
        self._executed = 0
        self._sketch = CostSketch(epsilon, delta, seed)
        self._known: dict[int, CostSketch] = {0: self._sketch}
        self._mean_s = mean_s
        self._version, self._journaled_version, self._since_journaled = 0, 0, 0
        self._instances: dict[int, Instance] = {}
        self._in_force: ShedderState | None = None
        self._is_cold = True
        # What needs no matrices can shed at once.
        self.phase: Phase = "SEND" if policy == "full-knowledge" or mean_s is not None else "NOP"

    @property
    def sketch(self) -> CostSketch:
        """The matrices that the shedders use."""
        return self._sketch

    @property
    def operator_state(self) -> str:
        """START or STABILIZING."""
        return self._operator.state

    def new_sketch(self) -> CostSketch:
        """Return empty matrices with the same functions, for a task to fill."""
        return CostSketch(self._sketch.epsilon, self._sketch.delta, self._sketch.seed)

    # -- the shedder's side --------------------------------------------------------------------------------------------

    def state(self, now_s: float) -> ShedderState:
        """Return what the shedders know of a batch that begins now."""
        margin = self._sketch.epsilon if self.policy == "las" else 0.0
        return ShedderState(
            self.policy,
            self.bound,
            self.tau_s,
            margin,
            self.phase,
            round(now_s * 1e6),
            self._mean_s,
            self._version,
            self._sketch,
            dict(self._instances),
        )

    def entries(self, now_s: float) -> tuple[float, ...]:
        """Return the same as numbers to journal, with the matrices if they matter and have changed or were journaled long ago."""
        is_due = self.policy == "las" and (self._version != self._journaled_version or self._since_journaled >= _JOURNAL_EVERY)
        return self.state(now_s).to_entries(with_matrices=is_due)

    def fits(self, entries: Sequence[float]) -> bool:
        """Whether journaled numbers are a state that this shedder can put in force."""
        if not is_state_of(entries, self._sketch) or self._read(entries).policy != self.policy:
            return False
        return self.policy != "las" or has_matrices(entries) or version_of(entries) in self._known

    def recall(self, entries: Sequence[float]) -> None:
        """Take the matrices of a journaled state back; a later one may only name them."""
        if not (is_state_of(entries, self._sketch) and has_matrices(entries)):
            return
        state = self._read(entries)
        self._known[state.version] = state.sketch
        for version in sorted(self._known)[1:-_VERSIONS_KEPT]:  # 0 stands for none
            del self._known[version]

    def put_in_force(self, entries: Sequence[float]) -> ShedderState:
        """Continue from a journaled state, and return it with its matrices: the last one, or that of a batch run again."""
        self.recall(entries)
        state = self._read(entries)
        self._journaled_version = state.version
        self._since_journaled = 0 if has_matrices(entries) else self._since_journaled + 1
        self._sketch, self._version, self._mean_s = state.sketch, state.version, state.mean_s
        self._instances, self.phase = dict(state.instances), state.phase
        self._in_force = state
        return state

    def _read(self, entries: Sequence[float]) -> ShedderState:
        return ShedderState.from_entries(entries, self._known.get(version_of(entries), self._known[0]))

    # -- the operator's side -------------------------------------------------------------------------------------------

    def learn(self, reading: ClockReading) -> str | None:
        """Learn from a batch that has run; return what the user should know, in one line."""
        in_force = self._in_force
        if reading.instances:
            self._pool(reading.instances)
        if in_force is not None:
            self._correct(in_force, reading)
        for part in reading.parts:
            self._execute(part)
        bad = sum(reading.bad_costs.values())
        if not bad:
            return None
        return "some rows have a cost that is negative or no number; they count as costing nothing"

    def _correct(self, in_force: ShedderState, reading: ClockReading) -> None:
        """Correct the clocks by Delta: wholly where it was asked for, in SEND, and a part of the way in every other batch.

        The paper asks in SEND only. But when a batch begins with its first row varies, and one slow moment would count until the
        next matrices. Where nothing was kept, nothing could ask: there the operator is idle, so its clock is the real one.
        Otherwise an offset that was once too large would drop all rows for ever. The first batch of a run says nothing: it
        starts the workers.
        """
        is_cold, self._is_cold = self._is_cold, self._is_cold and not reading.begins_s
        if is_cold:
            return
        is_asked = in_force.phase == "SEND" and bool(reading.begins_s)
        gain = 1.0 if is_asked else _FOLLOW
        deltas_s = {partition: gain * delta_s for partition, delta_s in reading.begins_s.items()}
        deltas_s |= {partition: delta_s for partition, delta_s in reading.looks_s.items() if partition not in deltas_s}
        if is_asked:
            self.phase = "RUN"
        for partition, delta_s in deltas_s.items():
            old = in_force.instance(partition)
            now = self._instances.get(partition, old)
            self._instances[partition] = Instance(max(0.0, old.offset_s + delta_s), now.total_s, now.count)

    def _pool(self, after: Mapping[int, Instance]) -> None:
        """Share the waits of all partitions out evenly, since AVG is about the mean of all tuples.

        A source may cut a batch into older and newer rows. With a mean of its own, the partition of the older rows would drop
        nearly all of them, and the slack of the other one would never be used.
        """
        state = self.state(0.0)
        ended = dict(state.instances) | dict(after)
        total_s, count = sum(one.total_s for one in ended.values()), sum(one.count for one in ended.values())
        for partition in ended:
            share = 1.0 / len(after) if partition in after else 0.0
            self._instances[partition] = Instance(state.instance(partition).offset_s, share * total_s, share * count)

    def _execute(self, part: Executed) -> None:
        """Add executed tuples to the operator's matrices, and use what it sends."""
        self._operator.sketch.add_matrices(part.frequency, part.duration, part.rows, part.total_s)
        windows, self._executed = self._executed // self.window, self._executed + part.rows
        if self._executed // self.window == windows:
            return
        for message in self._operator.end_window():
            if isinstance(message, Matrices):
                self._sketch = message.sketch
                self._version += 1
                if self._given_mean_s is None:
                    self._mean_s = message.sketch.mean_s
                self.phase = "SEND"


def _check_cells(epsilon: float, delta: float) -> None:
    """Refuse matrices that a plan and a journal can't hold."""
    rows, columns = rows_for(delta), math.e / check_epsilon(epsilon)
    if rows * columns > _MOST_CELLS:
        least = math.ceil(1e5 * math.e * rows / _MOST_CELLS) / 1e5
        raise PenstockError(
            f"epsilon={epsilon:g} and delta={delta:g} make matrices of {rows * columns:,.0f} cells, at most {_MOST_CELLS:,} are "
            f"possible, since batches carry them and the journal keeps them: use an epsilon of at least {least:g}"
        )
