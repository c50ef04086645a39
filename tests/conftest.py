"""One Spark session for the whole run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A landing depends on the change alone, so the examples are the same in every run. HYPOTHESIS_PROFILE=search draws new ones.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.register_profile("penstock", settings.get_profile("search"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "penstock"))

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from penstock.spark.session import local_session

    session = local_session("tests", cores=2, scratch=tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
