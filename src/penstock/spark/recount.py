"""Count a committed batch again.

By arrival, Spark commits a batch some milliseconds before its counts reach the journal. After a crash in between, Spark does not
run the batch again, or its sink does not accept it again, and the ledger lacks it. But its offsets are still in Spark's log and
the gates are deterministic. So the batch is run once more, without a sink, from a copy of the checkpoint as it was before it.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.control.base import GateCount
from penstock.errors import PenstockError
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.gates import Gate
from penstock.spark.plan_counts import PlanCounter
from penstock.storage import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["recount"]


def recount(
    df: DataFrame, output_mode: str, checkpoint: Checkpoint, batch_id: int, *, gates: Sequence[Gate], wait_s: float = 120.0
) -> dict[str, GateCount]:
    """Return the counts of a committed batch at each gate.

    Parameters
    ----------
    df
        The result of the query, behind the gates.
    output_mode
        That of the query.
    checkpoint
        The query's checkpoint; it is copied, not changed.
    batch_id
        The batch.
    gates
        The gates to count at. The tables that the batch had must be in force.
    wait_s
        How long to wait for the batch.

    Raises
    ------
    PenstockError
        If the batch fails or takes too long.
    """
    scratch = f"penstock/.recount-{uuid.uuid4().hex}"
    counts: dict[str, GateCount] = {}
    is_done = threading.Event()

    def count(batch: DataFrame, number: int) -> None:
        if number == batch_id and not is_done.is_set():
            batch.write.format("noop").mode("overwrite").save()
            query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            running = next(query for query in df.sparkSession.streams.active if query.id == query_id)
            counts.update(PlanCounter(gates).read(running._jsq.streamingQuery().lastExecution().executedPlan()))
        is_done.set()

    try:
        _copy_checkpoint(checkpoint.store, scratch, batch_id)
        writer = df.writeStream.foreachBatch(count).outputMode(output_mode)
        query = writer.option("checkpointLocation", f"{checkpoint.path}/{scratch}").start()
        try:
            while not is_done.wait(0.05):
                if (failure := query.exception()) is not None:
                    raise PenstockError(f"batch {batch_id} can't be counted again: {str(failure).splitlines()[0]}")
                if (wait_s := wait_s - 0.05) < 0:
                    raise PenstockError(f"batch {batch_id} can't be counted again: Spark did not run it in time")
        finally:
            query.stop()
    finally:
        checkpoint.store.delete(scratch)
    for gate in gates:
        gate.take_reading()  # the meters must not count these rows twice
    return counts


def _copy_checkpoint(store: Store, target: str, batch_id: int) -> None:
    """Copy a checkpoint as it was when the batch had been planned and had not run yet."""
    store.below(target).make()
    # A new id, because the query itself may be running.
    store.create(f"{target}/metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
    names = [f"offsets/{batch_id}"]
    if batch_id > 0:
        names += [f"offsets/{batch_id - 1}", f"commits/{batch_id - 1}"]
    for name in [*names, "sources", "state"]:
        store.copy(name, f"{target}/{name}")
