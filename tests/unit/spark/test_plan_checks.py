"""What is refused before a gate is made."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

import pyspark

from penstock.errors import PenstockError
from penstock.spark.plan_checks import check_streaming


def test_a_client_of_spark_connect_that_is_too_old_is_refused_by_its_own_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's may be newer."""
    old = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})  # without scalar()
    monkeypatch.setattr(pyspark, "__version__", "3.5.6")
    message = r"^gates over Spark Connect need a client of Spark 4\.0 or later, and this one is 3\.5\.6: use a newer one, or a"
    with pytest.raises(PenstockError, match=message):
        check_streaming(old())
