"""Count a committed batch again.

A native sink commits a batch some milliseconds before its counts reach the journal. A crash in between leaves a batch that Spark
will not run again, or that its sink will not take again, and that the ledger does not know. Its offsets are still in Spark's log
and the gates are deterministic, so the batch is run once more, into nothing, from a copy of the checkpoint as it was before.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyarrow import fs

from penstock.control.base import GateCount
from penstock.errors import PenstockError
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.gates import Gate
from penstock.spark.plan_counts import PlanCounter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["recount"]


def recount(
    df: DataFrame, output_mode: str, checkpoint: Checkpoint, batch_id: int, *, gates: Sequence[Gate], wait_s: float = 120.0
) -> dict[str, GateCount]:
    """Return the counts of a committed batch; the gates must have the tables in force that the batch had."""
    scratch = f"{checkpoint.path}/penstock/.recount-{uuid.uuid4().hex}"
    filesystem = checkpoint.filesystem
    found: dict[str, GateCount] = {}
    ended = threading.Event()

    def count(batch: DataFrame, number: int) -> None:
        if number == batch_id and not ended.is_set():
            batch.write.format("noop").mode("overwrite").save()
            query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            running = next(query for query in df.sparkSession.streams.active if query.id == query_id)
            found.update(PlanCounter(gates).read(running._jsq.streamingQuery().lastExecution().executedPlan()))
        ended.set()

    try:
        _copy(filesystem, checkpoint.path, scratch, batch_id)
        writer = df.writeStream.foreachBatch(count).outputMode(output_mode)
        query = writer.option("checkpointLocation", scratch).start()
        try:
            while not ended.wait(0.05):
                if (failure := query.exception()) is not None:
                    raise PenstockError(f"batch {batch_id} can't be counted again: {str(failure).splitlines()[0]}")
                if (wait_s := wait_s - 0.05) < 0:
                    raise PenstockError(f"batch {batch_id} can't be counted again: it did not come up")
        finally:
            query.stop()
    finally:
        if filesystem.get_file_info(scratch).type == fs.FileType.Directory:
            filesystem.delete_dir(scratch)
    for gate in gates:
        gate.take_reading()  # these rows were counted before
    return found


def _copy(filesystem: fs.FileSystem, source: str, target: str, batch_id: int) -> None:
    """Copy a checkpoint as it was when the batch was planned and not yet run."""
    filesystem.create_dir(target, recursive=True)
    with filesystem.open_output_stream(f"{target}/metadata") as stream:
        # An id of its own: the query itself may be running.
        stream.write(json.dumps({"id": str(uuid.uuid4())}).encode())
    names = [f"offsets/{batch_id}"]
    if batch_id > 0:
        names += [f"offsets/{batch_id - 1}", f"commits/{batch_id - 1}"]
    for name in names:
        filesystem.create_dir(f"{target}/{name}".rsplit("/", 1)[0], recursive=True)
        filesystem.copy_file(f"{source}/{name}", f"{target}/{name}")
    for folder in ("sources", "state"):
        if filesystem.get_file_info(f"{source}/{folder}").type == fs.FileType.Directory:
            fs.copy_files(
                f"{source}/{folder}", f"{target}/{folder}", source_filesystem=filesystem, destination_filesystem=filesystem
            )
