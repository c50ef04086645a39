"""Makes the replay source known to Spark, where Spark can have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.spark.versions import internals_of
from penstock.spark.worker_python import check_worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["REPLAY", "register_replay"]

REPLAY = "penstock-replay"
"""The name of the format."""


def register_replay(spark: SparkSession) -> None:
    """Register the format ``penstock-replay`` with a session; calling it again does no harm.

    Parameters
    ----------
    spark
        The session whose ``readStream`` is to know the format.

    Raises
    ------
    PenstockError
        If Spark's Python workers cannot run Penstock; the message says what to set. If this Spark is older than 4.2, where
        sources in Python had no limits.

    Examples
    --------
    With a session ``spark``::

        register_replay(spark)
        reader = spark.readStream.format("penstock-replay")
        stream = reader.option("generator", "b-model").option("rate", 5000).option("duration", "60s").load()
    """
    if not internals_of(spark).has_replay:
        raise PenstockError(
            f"the replay source needs Spark 4.2 or later, where sources in Python know limits, and this is Spark "
            f"{spark.version}: read Kafka, files or rate-micro-batch"
        )
    check_worker_python(spark, "the replay source", "penstock.spark.replay.source")
    from penstock.spark.replay.source import ReplaySource  # noqa: PLC0415 - older versions can't load it

    spark.dataSource.register(ReplaySource)
