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

settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.load_profile("penstock")

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from penstock.spark.session import local_session

    session = local_session("tests", cores=2, scratch=tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
