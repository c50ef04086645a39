"""Recorded arrivals: files with a column ``t`` in seconds, and any other columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, parquet

from penstock.errors import PenstockError

__all__ = ["Trace", "load_trace"]

_SUFFIXES = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """When events arrived, and what they carried.

    ``t`` is sorted, finite, not negative and read-only; ``columns`` has the other columns of the file, in the same order of rows.
    """

    t: NDArray[np.float64]
    columns: pa.Table


def load_trace(path: str | Path) -> Trace:
    r"""Read a trace from ``.csv``, ``.csv.gz`` (with a header) or ``.parquet``.

    The whole file is held in memory. Error messages count rows from 1, without the header.

    Raises
    ------
    PenstockError
        If the file can't be read, or its column ``t`` is missing, empty, unsorted, negative or not finite.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.csv").write_text("t,bytes\n0.0,60\n0.25,1500\n")
    ...     trace = load_trace(Path(folder) / "a.csv")
    >>> trace.t.tolist(), trace.columns.column_names
    ([0.0, 0.25], ['bytes'])
    """
    path = Path(path)
    table = _read(path)
    if "t" not in table.column_names:
        columns = ", ".join(table.column_names) or "none"
        raise PenstockError(f"{path}: no column t (seconds since the start); the columns are {columns}")
    if table.column_names.count("t") > 1:
        raise PenstockError(f"{path}: more than one column t")
    if table.num_rows == 0:
        raise PenstockError(f"{path}: no rows")
    t = _seconds(path, table.column("t"))
    return Trace(t, table.drop_columns("t").combine_chunks())


def _read(path: Path) -> pa.Table:
    name = path.name.lower()
    if not name.endswith(_SUFFIXES):
        raise PenstockError(f"{path}: not a trace by its name; the suffix must be one of {', '.join(_SUFFIXES)}")
    if not path.is_file():
        raise PenstockError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise PenstockError(f"{path}: the file is empty")
    try:
        if name.endswith(".parquet"):
            return parquet.read_table(path)
        # The type is given instead of inferred: a file that starts with whole seconds may continue with fractions.
        return csv.read_csv(path, convert_options=csv.ConvertOptions(column_types={"t": pa.float64()}))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise PenstockError(f"{path}: can't be read: {' '.join(str(error).split())}") from error


def _seconds(path: Path, column: pa.ChunkedArray) -> NDArray[np.float64]:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise PenstockError(f"{path}: column t must be a number of seconds, got the type {kind}")
    # Missing values become NaN, so one check covers both.
    t = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(t))
    if bad.size:
        value = column[int(bad[0])].as_py()
        raise PenstockError(f"{path}: row {bad[0] + 1}: t must be a finite number, got {'nothing' if value is None else value}")
    bad = np.flatnonzero(np.diff(t) < 0)
    if bad.size:
        row = int(bad[0]) + 1
        raise PenstockError(f"{path}: row {row + 1}: t must be sorted, got {t[row]:.12g} after {t[row - 1]:.12g}")
    if t[0] < 0:
        raise PenstockError(f"{path}: row 1: t must not be negative, got {t[0]:.12g}")
    t.setflags(write=False)
    return t
