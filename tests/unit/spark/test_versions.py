"""Which version of Spark is treated as which."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from penstock import PenstockError
from penstock.spark.versions import TESTED, find_internals, minor_version


def test_a_tested_version_is_taken_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        kinds = [type(find_internals(f"{version}.1")).__name__ for version in TESTED]
    assert kinds == ["Spark35", "Spark40", "Spark41", "Internals", "Internals"]
    assert not caplog.records


@pytest.mark.parametrize("version", ["4.4.0", "4.9.0-SNAPSHOT", "5.0.0.dev1"])
def test_a_version_that_was_never_tested_gets_a_warning_once(version: str, caplog: pytest.LogCaptureFixture) -> None:
    find_internals.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert type(find_internals(version)).__name__ == "Internals"
        find_internals(version)
    assert [record.getMessage() for record in caplog.records] == [
        f"Spark {version} was never tested with Penstock (tested: {', '.join(TESTED)}); it is treated as Spark 4.3"
    ]


def test_a_version_that_is_too_old_is_refused_by_name() -> None:
    with pytest.raises(PenstockError, match=r"^Penstock needs Spark 3\.5 or later, and this is Spark 3\.4\.4$"):
        find_internals("3.4.4")


def test_the_package_asks_for_what_was_tested() -> None:
    """The range in pyproject.toml is that of the table."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    (wanted,) = [one for one in project["project"]["optional-dependencies"]["spark"] if one.startswith("pyspark")]
    major, minor = minor_version(TESTED[-1])
    assert wanted == f"pyspark>={TESTED[0]},<{major}.{minor + 1}"
