"""What carries rows from one query to the next: an interface, and directories of Parquet micro-batches. Kafka is beside it.

A micro-batch of an arc is a directory ``<arc>/batch_id=N``. It is written under a hidden name and then renamed, so readers get
all of it or nothing. A batch that is replayed after a crash exists already, with the same rows, and is not written again. Spark's
file source reads each file once and deletes it afterwards.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import PenstockError
from penstock.filesystem import resolve
from penstock.spark.versions import internals_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DirectoryTransport", "Transport"]

_MAX_DRIVER_ROWS = 50_000
_RETAINED_BATCHES = 50
_ROWS = re.compile(r"rows-(\d+)-")


class Transport(Protocol):
    """Carries the micro-batches of arcs."""

    def write(self, arc: str, df: DataFrame, batch_id: int, expected_rows: int | None) -> pa.Table | None:
        """Write one micro-batch, once. Return its rows if they passed through the driver, otherwise ``None``."""

    def read(
        self,
        spark: SparkSession,
        arc: str,
        schema: StructType,
        max_batches: int | None = None,
        max_rows: int | None = None,
    ) -> DataFrame:
        """Return an arc as a stream that reads at most ``max_batches`` micro-batches, or ``max_rows`` rows, at a time.

        Which of the two can be limited depends on the transport; the other is refused.
        """


class DirectoryTransport:
    """Carries arcs as directories below one root that all nodes can reach.

    Parameters
    ----------
    root
        The directory; created if it does not exist.

    Raises
    ------
    PenstockError
        If the directory can't be written.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.root, prefix=".probe-"):
                pass
        except OSError as error:
            raise PenstockError(f"the transport directory {self.root} can't be written: {error.strerror}") from error

    def directory(self, arc: str) -> Path:
        """Return the directory of an arc. Spark takes some characters in a path as patterns, so they are escaped."""
        return self.root / re.sub(r"[^A-Za-z0-9_.-]", lambda match: f"%{ord(match[0]):x}", arc.replace("->", "--"))

    def write(self, arc: str, df: DataFrame, batch_id: int, expected_rows: int | None) -> pa.Table | None:
        """Write one micro-batch. A small one goes through the driver, which saves Spark's commit: a quarter of a second."""
        directory = self.directory(arc)
        final, temporary = directory / f"batch_id={batch_id:09d}", directory / f".batch_id={batch_id:09d}"
        if final.exists():
            # A replay. Its rows are not needed again, but the operators upstream must run: their rows are counted.
            df.write.format("noop").mode("overwrite").save()
            return None
        shutil.rmtree(temporary, ignore_errors=True)
        table = None
        if expected_rows is not None and expected_rows <= _MAX_DRIVER_ROWS:
            table = internals_of(df.sparkSession).to_arrow(df)
            if table.num_rows:
                temporary.mkdir(parents=True)
                pq.write_table(table, temporary / f"rows-{table.num_rows}-0.parquet", coerce_timestamps="us")
        else:
            df.write.mode("overwrite").parquet(str(temporary))
        if temporary.exists():
            temporary.rename(final)
        self._remove_old(directory, batch_id)
        return table

    def _remove_old(self, directory: Path, batch_id: int) -> None:
        """Remove directories that the reader has emptied, of batches too old to be replayed."""
        if batch_id % _RETAINED_BATCHES:
            return
        for old in directory.glob("batch_id=*"):
            number = int(old.name.partition("=")[2])
            if number <= batch_id - _RETAINED_BATCHES and not any(old.glob("*.parquet")):
                shutil.rmtree(old, ignore_errors=True)

    def read(
        self,
        spark: SparkSession,
        arc: str,
        schema: StructType,
        max_batches: int | None = None,
        max_rows: int | None = None,
    ) -> DataFrame:
        """Return an arc as a stream that reads at most ``max_batches`` micro-batches at a time."""
        if max_rows is not None:
            raise PenstockError(f"link {arc!r}: max_rows is for Kafka; through a directory, say max_batches")
        directory = self.directory(arc)
        directory.mkdir(parents=True, exist_ok=True)
        reader = spark.readStream.schema(schema).option("recursiveFileLookup", "true").option("cleanSource", "delete")
        if max_batches is not None:
            reader = reader.option("maxFilesPerTrigger", str(max_batches))
        return reader.parquet(str(directory))

    @staticmethod
    def count_rows(path: str) -> int | None:
        """Return how many rows a file has, from its name or else from its footer; ``None`` if it can't be read."""
        match = _ROWS.search(path.rsplit("/", 1)[-1])
        if match:
            return int(match[1])
        try:
            return int(pq.read_metadata(resolve(path, "a micro-batch")[1]).num_rows)
        except (OSError, pa.ArrowInvalid):
            return None
