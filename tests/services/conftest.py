"""One Kafka broker and one Spark session with its connector, for all tests against real services."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from penstock.testing.gcs import GcsServer, fetch_gcs_connector
from penstock.testing.hdfs import HdfsCluster
from penstock.testing.kafka import KafkaBroker, fetch_connector
from penstock.testing.maven import UnavailableError, fetch_jars
from penstock.testing.s3 import S3Server, fetch_s3a

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {
    # Retention and compaction act within a second instead of minutes.
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 300,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 2_097_152,
    "log.segment.delete.delay.ms": 100,
    "transaction.max.timeout.ms": 60_000,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "services" in item.path.parts:
            item.add_marker(pytest.mark.service)


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    """The broker; tests skip where its jars cannot be had."""
    try:
        started = KafkaBroker(settings=_SETTINGS).start()
    except UnavailableError as error:
        pytest.skip(str(error))
    try:
        yield started
    finally:
        started.__exit__(None, None, None)


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker of a module's own: it is restarted."""
    broker = KafkaBroker()
    try:
        yield broker.start()
    except UnavailableError as error:
        pytest.skip(str(error))
    finally:
        broker.__exit__(None, None, None)


@pytest.fixture(scope="session")
def connector() -> str:
    """The jars with which Spark reads and writes Kafka, as ``spark.jars`` wants them."""
    import pyspark

    try:
        driver = fetch_jars("postgresql", ["org.postgresql:postgresql:42.7.7"], transitive=False)
        return ",".join(str(jar) for jar in [*fetch_connector(pyspark.__version__), *driver.glob("*.jar")])
    except UnavailableError as error:
        pytest.skip(str(error))


Server = TypeVar("Server", S3Server, GcsServer)


def offer(server: Server, fetch: Callable[[], object]) -> Iterator[Server | str]:
    """Fetch what Spark needs to reach a server, and start it; or say why there is none."""
    try:
        fetch()
        server.start()
    except UnavailableError as error:
        yield str(error)
        return
    yield server
    server.stop()


@pytest.fixture(scope="session")
def s3_or_reason() -> Iterator[S3Server | str]:
    """An S3 server, or why there is none."""
    yield from offer(S3Server(), find_s3a)


def find_s3a() -> str:
    """The jars with which Spark reaches S3, as a class path."""
    import pyspark

    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return ":".join(fetch_s3a(jar.stem.rsplit("-", 1)[-1]))


@pytest.fixture
def s3(s3_or_reason: S3Server | str) -> Iterator[S3Server]:
    """The S3 server, answering at once; tests skip where it cannot be had."""
    if isinstance(s3_or_reason, str):
        pytest.skip(s3_or_reason)
    yield s3_or_reason
    s3_or_reason.set()


@pytest.fixture(scope="session")
def gcs_or_reason() -> Iterator[GcsServer | str]:
    """A server of Google's storage, or why there is none."""
    yield from offer(GcsServer(), fetch_gcs_connector)


@pytest.fixture
def gcs(gcs_or_reason: GcsServer | str) -> GcsServer:
    """Google's storage; tests skip where it cannot be had."""
    if isinstance(gcs_or_reason, str):
        pytest.skip(gcs_or_reason)
    return gcs_or_reason


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsCluster]:
    """An HDFS; tests skip where its jars cannot be had."""
    try:
        cluster = HdfsCluster().start()
    except UnavailableError as error:
        pytest.skip(str(error))
    yield cluster
    cluster.__exit__(None, None, None)


@pytest.fixture(scope="session")
def spark(
    connector: str, s3_or_reason: S3Server | str, gcs_or_reason: GcsServer | str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """The session that all tests share, with the connectors."""
    from penstock.spark.session import local_session

    settings, paths = {"spark.jars": connector}, []
    if isinstance(s3_or_reason, S3Server):
        settings |= s3_or_reason.settings()
        paths.append(find_s3a())
    if isinstance(gcs_or_reason, GcsServer):
        settings |= gcs_or_reason.settings()
        paths.append(fetch_gcs_connector())
    if paths:
        settings["spark.driver.extraClassPath"] = ":".join(paths)
    session = local_session("services", cores=2, scratch=tmp_path_factory.mktemp("spark"), **settings)
    yield session
    session.stop()


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The shared session; queries that a failed test left running are stopped."""
    yield spark
    for query in spark.streams.active:
        query.stop()


_NUMBERS = itertools.count(1)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"rows{next(_NUMBERS)}"


@pytest.fixture
def stream(session: SparkSession, broker: KafkaBroker) -> Callable[..., DataFrame]:
    """Reads topics as a stream, from the beginning: ``stream(subscribe="rows")``."""

    def read(**options: object) -> DataFrame:
        reader = session.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
        settings = options if any("starting" in name for name in options) else {"startingOffsets": "earliest"} | options
        return reader.options(**{key: str(value) for key, value in settings.items()}).load()

    return read
