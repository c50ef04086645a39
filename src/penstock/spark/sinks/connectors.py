"""Which jar a format needs, and whether the one that Spark has loaded was built for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_connector", "find_driver"]

_BY_VERSION = {
    "delta": {
        "4.0": "io.delta:delta-spark_2.13:4.0.0",
        "4.1": "io.delta:delta-spark_4.1_2.13:4.1.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {
        "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
        "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    },
}
_KAFKA = "org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}"
_DRIVERS = {
    "mariadb": ("org.mariadb.jdbc:mariadb-java-client:3.5.1", "org.mariadb.jdbc.Driver"),
    "mysql": ("com.mysql:mysql-connector-j:9.1.0", "com.mysql.cj.jdbc.Driver"),
    "postgresql": ("org.postgresql:postgresql:42.7.7", "org.postgresql.Driver"),
    "sqlserver": ("com.microsoft.sqlserver:mssql-jdbc:12.8.1.jre11", "com.microsoft.sqlserver.jdbc.SQLServerDriver"),
}
"""Coordinates and class of each."""


def check_connector(spark: SparkSession, kind: str) -> None:
    """Refuse a format whose connector is not there, or was built for another Spark.

    Raises
    ------
    PenstockError
        In one line, with the coordinates to add where a release is known.
    """
    jar = _find_jar(spark, kind)
    if jar is None:
        raise PenstockError(describe_missing(kind, spark.version, _find_scala(spark)))
    built_for = read_spark_version(jar)
    if built_for is not None and not spark.version.startswith(f"{built_for}."):
        raise PenstockError(
            f"format {kind!r}: {jar} is built for Spark {built_for}, and this is Spark {spark.version}, where it fails inside "
            f"itself; {_advise(kind, spark.version)}"
        )


def describe_missing(kind: str, version: str, scala: str = "2.13") -> str:
    """Return the line for a format whose connector is not loaded, in Spark's version and that of its Scala.

    >>> describe_missing("kafka", "4.3.0")
    "format 'kafka' needs its connector: add org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 to spark.jars.packages"
    """
    if kind == "kafka":
        return f"format 'kafka' needs its connector: add {_KAFKA.format(version=version, scala=scala)} to spark.jars.packages"
    return f"format {kind!r} needs its connector, which is not loaded: {_advise(kind, version)}"


def read_spark_version(jar: str) -> str | None:
    """Return the Spark version in the name of a jar; ``None`` if its name has none.

    >>> read_spark_version("iceberg-spark-runtime-4.1_2.13-1.12.0.jar"), read_spark_version("delta-spark_2.13-4.0.0.jar")
    ('4.1', None)
    """
    match = re.search(r"[-_](\d+\.\d+)_2\.1\d-", jar)
    return None if match is None else match.group(1)


def find_driver(spark: SparkSession, url: str, driver: str | None) -> str:
    """Return the class of the JDBC driver for a database.

    Raises
    ------
    PenstockError
        If none is loaded, in one line with the coordinates to add.
    """
    jvm: Any = spark._jvm
    database = _database(url)
    known = _DRIVERS[database][1] if driver is None and database in _DRIVERS else driver
    try:
        if known is None:
            return str(jvm.java.sql.DriverManager.getDriver(url).getClass().getName())
        jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(known)
    except Exception:  # Java's, of several kinds
        raise PenstockError(describe_driver(url, driver)) from None
    return known


def describe_driver(url: str, driver: str | None = None) -> str:
    """Return the line for a database whose driver is not loaded.

    >>> describe_driver("jdbc:postgresql://host/db")
    "format 'jdbc' has no driver for jdbc:postgresql: add org.postgresql:postgresql:42.7.7 to spark.jars.packages"
    """
    database = _database(url)
    if driver is None and database not in _DRIVERS:
        return f"format 'jdbc' has no driver for jdbc:{database}: add its jar to spark.jars, and driver= with the class's name"
    if database not in _DRIVERS:
        return f"format 'jdbc' has no driver {driver} for jdbc:{database}: add its jar to spark.jars"
    return f"format 'jdbc' has no driver for jdbc:{database}: add {_DRIVERS[database][0]} to spark.jars.packages"


def _database(url: str) -> str:
    return url.split(":")[1] if url.count(":") > 1 else "?"


def _advise(kind: str, version: str) -> str:
    minor = ".".join(version.split(".")[:2])
    known = _BY_VERSION[kind]
    if minor in known:
        return f"add {known[minor]} to spark.jars.packages"
    newest = max(known, key=lambda name: tuple(map(int, name.split("."))))
    return f"no release for Spark {minor} is known; the newest is for Spark {newest} ({known[newest]})"


def _find_scala(spark: SparkSession) -> str:
    """Return the version of Scala that Spark was built with, as artifacts have it: Spark 3.5 comes with 2.12 as well."""
    jvm: Any = spark._jvm
    return ".".join(str(jvm.scala.util.Properties.versionNumberString()).split(".")[:2])


def _find_jar(spark: SparkSession, kind: str) -> str | None:
    """Return the name of the jar that has a format; ``None`` if Spark does not know the format."""
    jvm: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().conf()
    try:
        found = jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(kind, conf)
    except Exception:  # PySpark's or py4j's, by version
        return None
    source = found.getProtectionDomain().getCodeSource()
    return "" if source is None else str(source.getLocation().getPath()).rsplit("/", 1)[-1]
