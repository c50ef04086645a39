"""Where the journal of a query lies, and how it is read back before the query starts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.spark.checkpoint import Checkpoint, find_open_batch
from penstock.spark.query_driver import QueryDriver
from penstock.spark.recount import recount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["journal_location", "open_journal"]


def open_journal(driver: QueryDriver, root: str | None, checkpoint: str | None, df: DataFrame, output_mode: str) -> None:
    """Read the journal back before the query starts; count what a crash left uncounted.

    ``root`` is the directory that the user named for journals, if any.
    """
    driver.look_at_sources(df)
    if checkpoint is None:
        if root is not None:
            driver.open_journal(journal_location(driver, root, ""), None, is_new=True)
        return
    known = Checkpoint(checkpoint)
    query_id, committed = known.query_id(), known.list_committed()
    driver.open_batch, driver.last_committed = find_open_batch(checkpoint), max(committed, default=None)
    driver.open_journal(journal_location(driver, root, checkpoint), query_id, is_new=query_id is None)
    driver.recount = partial(recount, df, output_mode, known, gates=list(driver.gates.values()))
    counted = driver.journal.state.batches
    driver.count_again([batch_id for batch_id in committed if counted and batch_id > max(counted)])


def journal_location(driver: QueryDriver, root: str | None, checkpoint: str) -> str:
    """Return where the journal of a query lies: in its checkpoint, or below the directory that the user named."""
    return f"{checkpoint}/penstock" if root is None else f"{root}/{driver.label}"
