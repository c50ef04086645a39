"""A Spark of its own for one experiment: started quietly, stopped and cleaned up at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["fresh_session"]


@contextlib.contextmanager
def fresh_session(name: str, cores: int, **conf: str) -> Iterator[tuple[SparkSession, Path]]:
    """Start Spark, give it and a scratch directory, and remove both.

    What the JVM and its Python workers write to stderr goes to a file in the scratch directory: Spark's warnings of every
    start, and what a worker says when its query is stopped, belong neither into a table nor over a live view.
    """
    with tempfile.TemporaryDirectory(prefix=f"penstock-{name}-", ignore_cleanup_errors=True) as directory:
        scratch = Path(directory)
        with _stderr_to(scratch / "spark.log"):
            spark = local_session(name, cores=cores, scratch=scratch, **conf)
        from py4j.protocol import Py4JNetworkError  # noqa: PLC0415 - comes with pyspark, which is an extra

        try:
            yield spark, scratch
        except (Py4JNetworkError, ConnectionError) as error:
            said = _tail(scratch / "spark.log")
            raise PenstockError(f"Spark's process ended in the middle of the run: {said or 'it left no message'}") from error
        finally:
            with contextlib.suppress(Py4JNetworkError, OSError):  # it may be gone already
                spark.stop()


def _tail(log: Path) -> str:
    """The last words of Spark's process."""
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return lines[-1].strip() if lines else ""


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Send the process's stderr to a file: processes started meanwhile keep it."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("wb") as log:
            os.dup2(log.fileno(), 2)
            yield
    except PenstockError:
        raise
    except BaseException:
        sys.stderr.flush()
        os.dup2(kept, 2)
        sys.stderr.write(path.read_text(errors="replace")[-2000:])  # why Spark did not start
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)
