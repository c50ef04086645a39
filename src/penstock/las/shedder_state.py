"""What a shedder in front of an operator knows when a micro-batch begins, as one tuple of numbers for the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from penstock.errors import PenstockError
from penstock.las.countmin import CostSketch

__all__ = ["Bound", "Instance", "Phase", "ShedderState", "TuplePolicy", "has_matrices", "is_state_of", "version_of"]

TuplePolicy = Literal["las", "straw-man", "full-knowledge"]
Bound = Literal["abs", "avg"]
Phase = Literal["NOP", "SEND", "RUN"]

_POLICIES: tuple[TuplePolicy, ...] = get_args(TuplePolicy)
_BOUNDS: tuple[Bound, ...] = get_args(Bound)
_PHASES: tuple[Phase, ...] = get_args(Phase)
_HEADER, _PER_INSTANCE = 12, 4
_UNKNOWN = -1.0


@dataclass(frozen=True, slots=True)
class Instance:
    """The shedder in front of one instance of the operator, that is of one partition of a batch."""

    offset_s: float = 0.0
    """How long after the batch began the operator begins with its first tuple: the sum of all corrections Delta."""
    total_s: float = 0.0
    """Its share of the waits of all tuples enqueued so far, for AVG."""
    count: float = 0.0
    """Its share of how many those are."""


@dataclass(frozen=True, slots=True)
class ShedderState:
    """All that the fate of a tuple depends on, beside the tuple itself and those before it in its partition."""

    policy: TuplePolicy
    bound: Bound
    tau_s: float
    margin: float
    """What is added to a cost, as a share of it."""
    phase: Phase
    begin_us: int
    """When the batch begins, in microseconds since the epoch: the operator is idle then, so its clock is the real one."""
    mean_s: float | None
    """The mean cost of a tuple; ``None`` while it is not known."""
    version: int
    """The number of the matrices."""
    sketch: CostSketch
    """The matrices in force; empty in NOP."""
    instances: Mapping[int, Instance] = field(default_factory=dict)
    """By partition."""

    @property
    def usual_offset_s(self) -> float:
        """The offset of a partition that none is known of: the mean of the others."""
        known = [instance.offset_s for instance in self.instances.values()]
        return sum(known) / len(known) if known else 0.0

    def instance(self, partition: int) -> Instance:
        """Return what is known of a partition."""
        return self.instances.get(partition) or Instance(self.usual_offset_s)

    def to_entries(self, *, with_matrices: bool = True) -> tuple[float, ...]:
        """Return the state as numbers; the matrices may be left out where an earlier state had those of this version."""
        header = (
            float(_POLICIES.index(self.policy)),
            float(_BOUNDS.index(self.bound)),
            self.tau_s,
            self.margin,
            float(_PHASES.index(self.phase)),
            float(self.begin_us),
            _UNKNOWN if self.mean_s is None else self.mean_s,
            float(self.version),
            float(self.sketch.seed),
            float(self.sketch.frequency.shape[0]),
            float(self.sketch.frequency.shape[1]),
            float(len(self.instances)),
        )
        instances = [
            number
            for partition, one in sorted(self.instances.items())
            for number in (float(partition), one.offset_s, one.total_s, one.count)
        ]
        matrices = [*self.sketch.frequency.ravel().tolist(), *self.sketch.duration.ravel().tolist()] if with_matrices else []
        return (*header, *instances, *matrices)

    @classmethod
    def from_entries(cls, entries: Sequence[float], sketch: CostSketch) -> ShedderState:
        """Return the state that ``to_entries`` made; ``sketch`` has its matrices if the numbers have not."""
        if not is_state_of(entries, sketch):
            raise PenstockError("these numbers are no state of this shedder: its policy or its matrices have changed")
        count = int(entries[11])
        body = np.asarray(entries[_HEADER:], dtype=np.float64)
        parts = body[: count * _PER_INSTANCE].reshape(count, _PER_INSTANCE).tolist()
        matrices = body[count * _PER_INSTANCE :]
        if matrices.size:
            sketch = sketch.with_matrices(*matrices.reshape(2, *sketch.frequency.shape))
        return cls(
            _POLICIES[int(entries[0])],
            _BOUNDS[int(entries[1])],
            entries[2],
            entries[3],
            _PHASES[int(entries[4])],
            int(entries[5]),
            None if entries[6] < 0 else entries[6],
            version_of(entries),
            sketch,
            {int(partition): Instance(offset_s, total_s, tuples) for partition, offset_s, total_s, tuples in parts},
        )


def is_state_of(entries: Sequence[float], sketch: CostSketch) -> bool:
    """Whether numbers, perhaps from an older journal, are a state with matrices of this shape and these hash functions."""
    if len(entries) < _HEADER or tuple(entries[8:11]) != (sketch.seed, *sketch.frequency.shape):
        return False
    return _count_cells(entries) in (0, 2 * sketch.frequency.size)


def has_matrices(entries: Sequence[float]) -> bool:
    """Whether a state has its matrices with it, or only their number."""
    return _count_cells(entries) > 0


def version_of(entries: Sequence[float]) -> int:
    """Return the number of the matrices that a state has, or names."""
    return int(entries[7])


def _count_cells(entries: Sequence[float]) -> int:
    return len(entries) - _HEADER - int(entries[11]) * _PER_INSTANCE
