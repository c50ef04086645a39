"""A small local Spark session for the demo, the benchmarks and the tests."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["local_session"]


def local_session(name: str, cores: int = 2, scratch: Path | None = None, **conf: str) -> SparkSession:
    """Start Spark inside this process's JVM: quiet, without its UI, on the local machine.

    Parameters
    ----------
    name
        The application is called ``penstock-<name>``.
    cores
        How many tasks run at once; also the number of shuffle partitions.
    scratch
        The directory below which Spark writes; by default the temporary and the working directory.
    conf
        Further settings of Spark, and ``master``, by default ``local[cores]``.

    Raises
    ------
    PenstockError
        If PySpark or Java is missing; the message says what to install.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - pyspark is an extra
    except ImportError as error:
        raise PenstockError("PySpark is not installed: pip install 'penstock[spark]'") from error
    if not any(find_spec(f"pyspark.{name}") for name in ("core", "context")):  # the second before Spark 4.0
        raise PenstockError("only Spark's client is installed here, pyspark-client: pip install 'penstock[spark]' instead of it")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise PenstockError("Java is missing: install a JDK or JRE, version 17 or later (Debian: openjdk-17-jre-headless)")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers run the python3 on PATH, perhaps without penstock
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
