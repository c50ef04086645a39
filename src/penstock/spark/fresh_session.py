"""A separate Spark session for one experiment: started quietly, stopped and cleaned up at the end."""

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
    """Start Spark with a scratch directory; stop it and remove the directory at the end.

    What the JVM and its Python workers write to stderr goes to a file in the scratch directory. The warnings that Spark prints
    at every start, and what a worker prints when its query is stopped, would otherwise disturb tables and live views.

    Raises
    ------
    PenstockError
        If Spark's process ends before the block does; the message has the last line that it wrote.
    """
    with tempfile.TemporaryDirectory(prefix=f"penstock-{name}-", ignore_cleanup_errors=True) as directory:
        scratch = Path(directory)
        with _redirect_stderr(scratch / "spark.log"):
            spark = local_session(name, cores=cores, scratch=scratch, **conf)
        from py4j.protocol import Py4JNetworkError  # noqa: PLC0415 - comes with pyspark, which is an extra

        try:
            yield spark, scratch
        except (Py4JNetworkError, ConnectionError) as error:
            last_line = _read_last_line(scratch / "spark.log")
            raise PenstockError(f"Spark's process ended in the middle of the run: {last_line or 'it left no message'}") from error
        finally:
            with contextlib.suppress(Py4JNetworkError, OSError):  # it may be gone already
                spark.stop()


def _read_last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return lines[-1].strip() if lines else ""


@contextlib.contextmanager
def _redirect_stderr(path: Path) -> Iterator[None]:
    """Send stderr to a file for a while; processes started in that time keep writing to the file."""
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with path.open("wb") as log:
            os.dup2(log.fileno(), 2)
            yield
    except PenstockError:
        raise
    except BaseException:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        sys.stderr.write(path.read_text(errors="replace")[-2000:])  # why Spark did not start
        raise
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
