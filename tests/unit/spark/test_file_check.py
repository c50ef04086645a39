"""Before a query over Spark Connect starts by batch: whether everybody sees the same files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from penstock.errors import PenstockError
from penstock.spark.connect import file_check
from penstock.spark.connect.file_check import check_files


def read_here(path: str) -> str:
    return Path(path).read_text()


def run(monkeypatch: pytest.MonkeyPatch, root: Path, worker: Callable[[str], str], spark: Callable[[str], str]) -> None:
    """Check with a worker and a Spark that read files in their own way."""
    monkeypatch.setattr(file_check, "_ask_worker", lambda _, path, writes: worker(str(path)))
    reader = SimpleNamespace(text=lambda path: SimpleNamespace(collect=lambda: [{"value": spark(path)}]))
    gate: Any = SimpleNamespace(spark=SimpleNamespace(read=reader))
    check_files(gate, root / "shared" / "tables", str(root / "checkpoint"))


def list_files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_all_is_well_where_all_see_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(monkeypatch, tmp_path, read_here, read_here)
    assert list_files(tmp_path) == []


@pytest.mark.parametrize(("hidden", "option"), [("shared", "journal="), ("checkpoint", "checkpointLocation")])
def test_workers_must_see_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hidden: str, option: str) -> None:
    def read(path: str) -> str:
        return "No such file" if hidden in path else read_here(path)

    with pytest.raises(
        PenstockError, match=f"they can't (write to|read) .*{hidden}.*No such file.*: mount the place of {option} there as well"
    ):
        run(monkeypatch, tmp_path, read, read_here)
    assert list_files(tmp_path) == []


def refuse(_: str) -> str:
    raise RuntimeError("PATH_NOT_FOUND")


@pytest.mark.parametrize("spark", [refuse, lambda _: "what lies at the same path in HDFS"])
def test_spark_must_mean_the_same_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: Callable[[str], str]
) -> None:
    with pytest.raises(PenstockError, match=r"Spark sees another .*checkpoint: give it as file://"):
        run(monkeypatch, tmp_path, read_here, spark)
    assert list_files(tmp_path) == []


def test_a_place_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("a file")
    with pytest.raises(PenstockError, match="checkpoint can't be written to, as by='batch' needs it"):
        run(monkeypatch, tmp_path, read_here, read_here)


def test_a_worker_says_what_it_reads_and_whether_it_can_write(tmp_path: Path) -> None:
    path = tmp_path / "mark.txt"
    path.write_text("here")
    for writes in (False, True):
        assert file_check._make_probe(str(path), writes=writes)(0) == "here"
    assert list_files(tmp_path) == [path]
    (tmp_path / "mark.txt.worker").mkdir()  # stands for a directory in which it may not write
    assert file_check._make_probe(str(path), writes=False)(0) == "here"
    assert "exists" in file_check._make_probe(str(path), writes=True)(0)
    assert "No such file" in file_check._make_probe(str(tmp_path / "nothing"), writes=True)(0)
