"""Trace files, good and bad."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.errors import PenstockError
from penstock.simulation.trace import load_trace

GOOD = "t,src,bytes\n0,a,60\n0.5,b,1500\n0.5,,40\n"


def check_good(path: Path) -> None:
    trace = load_trace(path)
    assert trace.t.tolist() == [0.0, 0.5, 0.5]
    assert trace.columns.column_names == ["src", "bytes"]
    assert trace.columns.column("bytes").to_pylist() == [60, 1500, 40]
    assert not trace.t.flags.writeable


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(GOOD)
    check_good(tmp_path / "a.csv")


def test_gzip_csv_by_string_path(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(GOOD.encode()))
    check_good(tmp_path / "a.csv.gz")
    assert load_trace(str(tmp_path / "a.csv.gz")).t.size == 3


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.decimal128(5, 2)])
def test_parquet(tmp_path: Path, kind: pa.DataType) -> None:
    t = pa.array([0, 0.5, 0.5], pa.float64()).cast(kind)
    parquet.write_table(pa.table({"src": ["a", "b", None], "t": t, "bytes": [60, 1500, 40]}), tmp_path / "A.PARQUET")
    check_good(tmp_path / "A.PARQUET")


def test_whole_seconds_first_and_fractions_a_megabyte_later(tmp_path: Path) -> None:
    lines = [f"{i},{'x' * 40}" for i in range(40_000)] + ["40000.5,y"]
    (tmp_path / "a.csv").write_text("t,note\n" + "\n".join(lines))
    assert load_trace(tmp_path / "a.csv").t[-1] == 40_000.5


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "the file is empty"),
        ("a.csv", "t,x\n", "no rows"),
        ("a.csv", "time,x\n1,2\n", "no column t (seconds since the start); the columns are time, x"),
        ("a.csv", "t,t\n1,2\n", "more than one column t"),
        ("a.csv", "t\n0\n2\n1\n3\n", "row 3: t must be sorted, got 1 after 2"),
        ("a.csv", "t,x\n0,1\n,1\n", "row 2: t must be a finite number, got nothing"),
        ("a.csv", "t,x\n0,1\nnan,1\n", "row 2: t must be a finite number, got nothing"),
        ("a.csv", "t,x\n0,1\ninf,1\n", "row 2: t must be a finite number, got inf"),
        ("a.csv", "t\n-1\n0\n", "row 1: t must not be negative, got -1"),
        ("a.csv", "t,x\n0,1\nsoon,1\n", "can't be read: In CSV column #0"),
        ("a.csv", "t,x\n0,1\n1\n", "can't be read: "),
        ("a.csv.gz", "t\n0\n", "can't be read: "),
        ("a.parquet", "t\n0\n", "can't be read: "),
        ("a.json", "[]", "not a trace by its name; the suffix must be one of .csv, .csv.gz, .parquet"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(PenstockError) as caught:
        load_trace(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name in ("none.csv", "folder.csv"):
        with pytest.raises(PenstockError, match=r"\.csv: no such file"):
            load_trace(tmp_path / name)


def test_a_truncated_archive(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(10_000))
    (tmp_path / "a.csv.gz").write_bytes(whole[:5_000])
    with pytest.raises(PenstockError, match="can't be read"):
        load_trace(tmp_path / "a.csv.gz")


@pytest.mark.parametrize(
    ("t", "message"),
    [
        (pa.array([0.0, None]), "row 2: t must be a finite number, got nothing"),
        (pa.array([float("nan"), 1.0]), "row 1: t must be a finite number, got nan"),
        (pa.array(["0", "1"]), "column t must be a number of seconds, got the type string"),
        (pa.array([0, 1], pa.timestamp("us")), r"column t must be a number of seconds, got the type timestamp\[us\]"),
        (pa.array([], pa.float64()), "no rows"),
    ],
)
def test_bad_parquet(tmp_path: Path, t: pa.Array, message: str) -> None:
    parquet.write_table(pa.table({"t": t}), tmp_path / "a.parquet")
    with pytest.raises(PenstockError, match=message):
        load_trace(tmp_path / "a.parquet")
