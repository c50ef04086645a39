"""A small local Spark session for the demo, the benchmarks and the tests."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["local_session"]


def local_session(name: str, cores: int = 2, scratch: Path | None = None, **conf: str) -> SparkSession:
    """Start an embedded Spark on this machine: quiet, without UI, everything it writes below ``scratch``."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - pyspark is an extra
    except ImportError as error:
        raise PenstockError("PySpark is not installed: pip install 'penstock[spark]'") from error
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise PenstockError("Java is missing: install a JDK or JRE, version 17 or later (Debian: openjdk-17-jre-headless)")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }
    if scratch is not None:
        settings |= {
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.local.dir": str(scratch / "local"),
        }
    builder = SparkSession.builder.master(conf.pop("master", f"local[{cores}]")).appName(f"penstock-{name}")
    for key, value in (settings | conf).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
