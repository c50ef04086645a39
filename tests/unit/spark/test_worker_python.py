"""What Spark's Python workers are asked before they must run something of Penstock."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle

from penstock.spark.worker_python import _find_problem, _make_probe

NEEDED = ("penstock.spark.load_aware_worker", "pandas")


@pytest.mark.parametrize("missing", [None, "penstock", "numpy", "pyarrow", "pandas"])
def test_an_executor_says_which_package_it_lacks(missing: str | None, tmp_path: Path) -> None:
    """The probe runs where nothing of Penstock may be."""
    task = tmp_path / "probe"
    task.write_bytes(cloudpickle.dumps(_make_probe(NEEDED)))
    code = f"import sys; sys.modules[{missing!r}] = None; import pickle; print(pickle.load(open({str(task)!r}, 'rb'))(0))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    answer = None if missing is None else (socket.gethostname(), f"can't import {missing}")
    assert done.stdout.strip() == str(answer), done.stderr


def test_an_executor_says_what_is_broken_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_package.py").write_text("raise ImportError('libm.so.7: no such file\\nat all')")
    monkeypatch.syspath_prepend(tmp_path)
    assert _make_probe(("broken_package",))(0) == (
        socket.gethostname(),
        "can't import broken_package (ImportError: libm.so.7: no such file at all)",
    )


def link_python(directory: Path) -> str:
    """The Python of this environment under another path, with its packages only where PYTHONPATH says so."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    return str(directory / "bin" / "python")


def test_a_local_worker_says_which_package_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Python on the path that has Penstock, but not all that it needs."""
    import penstock

    python, packages = link_python(tmp_path / "bare"), tmp_path / "packages"
    packages.mkdir()
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert _find_problem(python, NEEDED, "") == f"which is {python} and can't import penstock"
    (packages / "penstock").symlink_to(Path(penstock.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    _find_problem.cache_clear()
    problem = _find_problem(python, NEEDED, "")
    assert problem is not None
    assert problem.startswith(f"which is {python} and can't import ")
    assert not problem.endswith("penstock")
    _find_problem.cache_clear()
    everything = os.pathsep.join(path for path in sys.path if path)
    assert _find_problem(python, NEEDED, everything) is None, "Spark's own path counts too"
