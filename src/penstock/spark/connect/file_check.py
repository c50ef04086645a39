"""Asks Spark, before a query starts by batch, whether it and its Python workers see the files that this process sees."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.errors import PenstockError
from penstock.filesystem import resolve, write_atomically

if TYPE_CHECKING:
    from penstock.spark.connect.connect_gate import ConnectGate

__all__ = ["check_files"]


def check_files(gate: ConnectGate, tables: Path, checkpoint: str) -> None:
    """Raise, in one line that says what would be right, if one of them can't see the tables of batches or the checkpoint.

    ``tables`` is where the tables of batches lie, which workers write where no client does. A file in the checkpoint tells
    whether Spark means the same directory by its path. Spark reads it by the path as the user gave it, which may be one on its
    default filesystem.
    """
    token = uuid.uuid4().hex
    _, local = resolve(checkpoint, "the checkpoint")
    mark = f"penstock-{token}.txt"
    with _written(tables / mark, token) as beside, _written(Path(local) / mark, token) as inside:
        for path, option, writes in ((beside, "journal=", True), (inside, "checkpointLocation", False)):
            answer = _ask_worker(gate, path, writes=writes)
            if token not in answer:
                raise PenstockError(
                    f"by='batch' over Spark Connect needs directories that Spark's Python workers see too, and they can't "
                    f"{'write to' if writes else 'read'} {path.parent} ({answer}): mount the place of {option} there as "
                    "well, or leave by= out"
                )
        try:
            read = gate.spark.read.text(f"{checkpoint}/{mark}").collect()
        except Exception:  # Spark has many names for what is not there
            read = []
        if [row["value"] for row in read] != [token]:
            raise PenstockError(
                f"by='batch' over Spark Connect needs a checkpoint that this process sees as Spark does, and Spark sees another "
                f"{checkpoint}: give it as file:// and mount it at the server, or leave by= out"
            )


@contextlib.contextmanager
def _written(path: Path, content: str) -> Iterator[Path]:
    """Write a file that is gone in the end."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content.encode(), durable=False)
    except OSError as error:
        raise PenstockError(f"{path.parent} can't be written to, as by='batch' needs it: {error.strerror}") from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _ask_worker(gate: ConnectGate, path: Path, *, writes: bool) -> str:
    """Return what a worker reads in a file, or why it can't, or why it can't make another one beside it."""
    probe = F.udf(_make_probe(str(path), writes=writes), "string", useArrow=False)
    try:
        rows = gate.spark.range(0, 1, numPartitions=1).select(probe("id").alias("answer")).collect()
    except Exception as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise PenstockError(
            f"by='batch' over Spark Connect needs Spark's Python workers, of Python {version} as here, "
            f"and they don't answer: {str(error).strip().splitlines()[0]}"
        ) from error
    return str(rows[0]["answer"])


def _make_probe(path: str, *, writes: bool) -> Callable[[int], str]:
    def probe(_: int) -> str:
        import os  # noqa: PLC0415 - this runs in a worker

        try:
            with open(path, encoding="utf-8") as stream:  # noqa: PTH123 - as above
                content = stream.read()
            if writes:
                with open(f"{path}.worker", "x", encoding="utf-8"):  # noqa: PTH123
                    pass
                os.unlink(f"{path}.worker")  # noqa: PTH108
        except OSError as error:
            return str(error)
        return content

    probe.__module__ = "__main__"  # so that its code travels, and not the name of a module that may not be there
    return probe
