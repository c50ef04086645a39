"""Writes dead letters beside what a query writes: within the batch, after its own rows, before it is committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.spark.batch_driver import BatchFunction
from penstock.spark.dead_letters.shed_rows import find_offered
from penstock.spark.dead_letters.targets import ShedBatch
from penstock.spark.running_query import RunningQuery
from penstock.spark.sinks.batch_identity import BatchIdentity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.gates import Gate

__all__ = ["LetterWriter", "add_letters", "refuse_letters"]

_GROUP = "spark.jobGroup.id"


class LetterWriter:
    """The function given to the driver where a gate has ``shed_to``: calls the query's own, then writes what was shed.

    A batch whose table keeps every row is not read again. Spark commits it after both, so a crash in between replays both.
    """

    def __init__(self, function: BatchFunction, gates: Sequence[Gate]) -> None:
        self._function, self._gates = function, gates
        self._running: RunningQuery | None = None
        self.note: str | None = getattr(function, "note", None)
        """What the user should know about the sink, in one line."""

    def __call__(self, df: DataFrame, batch_id: int) -> Any:
        """Run one batch."""
        result = self._function(df, batch_id)
        is_first = self._running is None
        if self._running is None:
            self._running = RunningQuery(self._gates[0].spark, df, "query")
        identity = BatchIdentity.read(df, batch_id)
        for gate in self._gates:
            target = gate.specification.shed_to
            # The first batch may be a replay, whose table had other classes before: what it wrote is replaced.
            if target is None or (gate.keeps_everything and not is_first):
                continue
            offered = find_offered(self._running, gate)
            if offered is not None:
                with _other_jobs(df):
                    target.write(
                        ShedBatch(
                            identity,
                            gate,
                            offered,
                            df.sparkSession,
                            self._running.checkpoint.store,
                            self._running.topics,
                        )
                    )
        return result


@contextmanager
def _other_jobs(df: DataFrame) -> Iterator[None]:
    """Run Spark's jobs under another name: those of the query's function are counted, to see if it evaluates a batch twice."""
    context = df.sparkSession.sparkContext
    group = context.getLocalProperty(_GROUP)
    context.setLocalProperty(_GROUP, f"{group}-shed")
    try:
        yield
    finally:
        context.setLocalProperty(_GROUP, str(group))


def add_letters(function: BatchFunction, gates: Sequence[Gate]) -> BatchFunction:
    """Return the function for the driver: the one given, or with dead letters where a gate wants them."""
    lettered = [gate for gate in gates if gate.specification.shed_to is not None]
    return LetterWriter(function, lettered) if lettered else function


def refuse_letters(gates: Sequence[Gate]) -> None:
    """Refuse gates with ``shed_to`` in a query that runs by itself."""
    for gate in gates:
        if gate.specification.shed_to is not None:
            raise PenstockError(
                f"gate {gate.name!r} has shed_to, which is written batch by batch: start its query by batch, on a gate of its own"
            )
