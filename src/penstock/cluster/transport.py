"""What carries rows from one query to the next: an interface, and directories of Parquet micro-batches.

A micro-batch of an arc is a directory ``<arc>/batch_id=N``, written under a name that readers don't see and then renamed: it is
there whole or not at all. A batch that its query replays after a crash is there already, with the same rows, and is left alone.
Spark's own file source reads it, once, and removes the files when it is done with them.
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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DirectoryTransport", "Transport"]

_THROUGH_DRIVER = 50_000
_KEPT_BATCHES = 50
_ROWS = re.compile(r"rows-(\d+)-")


class Transport(Protocol):
    """Carries the micro-batches of arcs. Kafka, or whatever comes later, needs these."""

    def write(self, arc: str, df: DataFrame, batch_id: int, expected_rows: int | None) -> pa.Table | None:
        """Write one micro-batch, once; the rows, where they passed through here."""

    def read(self, spark: SparkSession, arc: str, schema: StructType, max_batches: int | None = None) -> DataFrame:
        """Return the arc as a stream, at most so many of its micro-batches at a time."""


class DirectoryTransport:
    """Arcs as directories below one root that all nodes see."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.root, prefix=".probe-"):
                pass
        except OSError as error:
            raise PenstockError(f"the transport directory {self.root} can't be written: {error.strerror}") from error

    def directory(self, arc: str) -> Path:
        """The directory of an arc. Spark reads some signs in a path as patterns, so they are spelt out."""
        return self.root / re.sub(r"[^A-Za-z0-9_.-]", lambda sign: f"%{ord(sign[0]):x}", arc.replace("->", "--"))

    def write(self, arc: str, df: DataFrame, batch_id: int, expected_rows: int | None) -> pa.Table | None:
        """Write one micro-batch. A small one goes through the driver, which spares Spark's commit and a quarter of a second."""
        directory = self.directory(arc)
        final, temporary = directory / f"batch_id={batch_id:09d}", directory / f".batch_id={batch_id:09d}"
        if final.exists():
            # Replayed: it is there. Its rows are not needed again, but the work upstream is counted, so it is done.
            df.write.format("noop").mode("overwrite").save()
            return None
        shutil.rmtree(temporary, ignore_errors=True)
        table = None
        if expected_rows is not None and expected_rows <= _THROUGH_DRIVER:
            table = df.toArrow()
            if table.num_rows:
                temporary.mkdir(parents=True)
                pq.write_table(table, temporary / f"rows-{table.num_rows}-0.parquet", coerce_timestamps="us")
        else:
            df.write.mode("overwrite").parquet(str(temporary))
        if temporary.exists():
            temporary.rename(final)
        self._tidy(directory, batch_id)
        return table

    def _tidy(self, directory: Path, batch_id: int) -> None:
        """Remove directories that the reader has emptied, long after the batch could be replayed."""
        if batch_id % _KEPT_BATCHES:
            return
        for old in directory.glob("batch_id=*"):
            number = int(old.name.partition("=")[2])
            if number <= batch_id - _KEPT_BATCHES and not any(old.glob("*.parquet")):
                shutil.rmtree(old, ignore_errors=True)

    def read(self, spark: SparkSession, arc: str, schema: StructType, max_batches: int | None = None) -> DataFrame:
        """Return the arc as a stream, at most so many of its micro-batches at a time."""
        directory = self.directory(arc)
        directory.mkdir(parents=True, exist_ok=True)
        reader = spark.readStream.schema(schema).option("recursiveFileLookup", "true").option("cleanSource", "delete")
        if max_batches is not None:
            reader = reader.option("maxFilesPerTrigger", str(max_batches))
        return reader.parquet(str(directory))

    @staticmethod
    def rows_of(path: str) -> int | None:
        """How many rows a file has: from its name, where that says so, or from its footer."""
        match = _ROWS.search(path.rsplit("/", 1)[-1])
        if match:
            return int(match[1])
        try:
            return int(pq.read_metadata(resolve(path, "a micro-batch")[1]).num_rows)
        except (OSError, pa.ArrowInvalid):
            return None
