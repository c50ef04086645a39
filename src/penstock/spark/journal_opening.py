"""Where the journal of a query lies, and how it is read back before the query starts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.decision.handover import find_first_uncounted
from penstock.journal import JournalState
from penstock.spark.checkpoint import Checkpoint, find_open_batch
from penstock.spark.hadoop_store import open_session_store
from penstock.spark.query_driver import QueryDriver
from penstock.spark.recount import recount
from penstock.storage import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["find_journal", "list_uncounted", "open_journal"]


def open_journal(
    driver: QueryDriver,
    root: str | None,
    checkpoint: str | None,
    df: DataFrame,
    output_mode: str,
    *,
    logs_all_batches: bool = True,
) -> None:
    """Read the journal back before the query starts; count what a crash left uncounted.

    ``root`` is the directory that the user named for journals, if any. With asynchronous progress tracking, Spark does not log
    all batches.
    """
    driver.look_at_sources(df)
    if checkpoint is None:
        if root is not None:
            driver.open_journal(find_journal(driver, root, ""), None, is_new=True)
        return
    store = open_session_store(df.sparkSession, checkpoint, "the checkpoint")
    known = Checkpoint(store)
    query_id = known.query_id()
    committed: list[int] = []

    def look() -> None:
        # Only once the journal is held: a job that had it, and has died since, may have run batches until then.
        committed.extend(known.list_committed())
        driver.open_batch, driver.last_committed = find_open_batch(store), max(committed, default=None)
        driver.first_batch = known.find_next()
        driver.last_planned_s = known.last_planned_s() if logs_all_batches else None

    driver.look_at_checkpoint = look
    driver.can_count_again = True
    driver.open_journal(find_journal(driver, root, checkpoint), query_id, is_new=query_id is None)
    driver.recount = partial(recount, df, output_mode, known, gates=list(driver.gates.values()))
    driver.count_again(list_uncounted(driver.journal.state, committed))


def find_journal(driver: QueryDriver, root: str | None, checkpoint: str) -> Store:
    """Return where the journal of a query lies: in its checkpoint, or below the directory that the user named."""
    spark = next(iter(driver.gates.values())).spark
    return open_session_store(spark, f"{checkpoint}/penstock" if root is None else f"{root}/{driver.label}", "the journal")


def list_uncounted(state: JournalState, committed: Sequence[int]) -> list[int]:
    """Return the batches that were committed and not counted, of those that the journal knows about.

    >>> from penstock.journal import DecisionRecord
    >>> list_uncounted(JournalState(), [0, 1, 2])        # the query ran without a gate so far
    []
    >>> list_uncounted(JournalState(decisions=[DecisionRecord({}, 1.0, batch_id=1)]), [0, 1, 2])
    [1, 2]
    """
    first = find_first_uncounted(state)
    return [] if first is None else [batch_id for batch_id in committed if batch_id >= first]
