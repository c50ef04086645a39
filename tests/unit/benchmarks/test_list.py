"""The list of benchmarks is the modules of the package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks import benchmark_named, list_benchmarks
from penstock.errors import PenstockError

ROOT = Path(benchmarks.__file__).parents[1]


@pytest.mark.parametrize("name", list_benchmarks())
def test_every_benchmark_runs_and_says_what_it_measures(name: str) -> None:
    module = benchmark_named(name)
    assert callable(module.run)
    assert len(module.__doc__ or "") > 200, "say what is measured and how"


@pytest.mark.parametrize(("name", "what"), list_benchmarks().items())
def test_the_list_names_papers_and_not_their_numbers(name: str, what: str) -> None:
    assert what
    assert not re.search(r"paper 00\d", what, re.IGNORECASE), name


def test_the_list_is_in_natural_order_and_without_support() -> None:
    names = list(list_benchmarks())
    assert names.index("las-4") < names.index("las-9") < names.index("las-10") < names.index("las-bias")
    assert not {"support", "results", "timing", "--main--", "--init--"} & set(names)


@pytest.mark.parametrize("name", ["gait", "fit_table1", "support", "__main__", "support.timing", ""])
def test_what_is_not_a_benchmark_is_refused(name: str) -> None:
    with pytest.raises(PenstockError, match=re.escape(f"there is no benchmark {name!r}; choose one of answers, ")):
        benchmark_named(name)


def test_listing_loads_no_spark() -> None:
    code = "import sys, benchmarks; benchmarks.list_benchmarks(); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
