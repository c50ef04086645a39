"""The queries of one shedder: started, told of Spark's reports, stopped."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.errors import PenstockError
from penstock.metrics import Exporter
from penstock.spark.connect.detection import is_connect
from penstock.spark.connect.listener import ConnectListener, add_listener
from penstock.spark.gates import Gate
from penstock.spark.query_driver import QueryDriver
from penstock.spark.report_listener import ReportListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["DriverRegistry"]

log = logging.getLogger("penstock")

_LAST_WORD_S = 5.0


class DriverRegistry:
    """All drivers of a shedder, those of ended queries too: the report shows them."""

    def __init__(self, exporters: Sequence[Exporter] = ()) -> None:
        self.drivers: list[QueryDriver] = []
        self._exporters = exporters
        self.by_label: dict[str, QueryDriver] = {}
        """The newest driver of each label."""
        self.on_stranger: Callable[[str, str], None] | None = None
        """Called with the reports of queries that have no driver."""
        self._listener: StreamingQueryListener | None = None
        self._spark: SparkSession | None = None

    def label(self, name: str | None) -> str:
        """Return what a query is called, by its name or by its number; an error if a running one has that name."""
        label = name or f"query{len(self.drivers) + 1}"
        if any(driver.label == label and _is_active(driver) for driver in self.drivers):
            raise PenstockError(f"a query named {label!r} runs under this shedder already: give each a name of its own")
        return label

    def refuse_taken_gates(self, new: QueryDriver) -> None:
        """A gate that is set by batch serves one query; set by arrival it may serve several."""
        for driver in filter(_is_active, self.drivers):
            for name in new.gates.keys() & driver.gates.keys():
                if not (new.shares_gates and driver.shares_gates):
                    raise PenstockError(
                        f"gate {name!r} serves query {driver.label!r} already, and a gate that is set by batch serves "
                        f"one: call gate() again for query {new.label!r}, or start both queries with by='arrival'"
                    )

    def are_shared(self, gates: Sequence[Gate]) -> bool:
        """Whether a running query by arrival reads one of the gates."""
        names = {gate.name for gate in gates}
        return any(driver.shares_gates and names & driver.gates.keys() for driver in filter(_is_active, self.drivers))

    @contextlib.contextmanager
    def enlist(self, driver: QueryDriver) -> Iterator[None]:
        """Know a driver from before its journal is opened; a start that fails leaves nothing behind."""
        driver.exporters = self._exporters
        self.drivers.append(driver)
        self.by_label[driver.label] = driver
        for old in self.drivers[:-1]:
            if not _is_active(old) and old.gates.keys() & driver.gates.keys():
                old.finish()  # its last reports must not change gates that serve another query
        for gate in driver.gates.values():
            gate.set_how(by_arrival=driver.shares_gates)
        try:
            yield
        except BaseException:
            self.drivers.remove(driver)
            del self.by_label[driver.label]
            if driver.query is not None:
                driver.query.stop()
            driver.finish()
            raise

    def launch(self, driver: QueryDriver, spark: SparkSession, start: Callable[[], StreamingQuery]) -> StreamingQuery:
        """Start a query and tie it to its driver."""
        self.listen(spark)
        query = start()
        driver.query = query
        driver.attach(query)
        return query

    def stop(self) -> None:
        """Stop all queries, each after the batch it is in, and close their journals."""
        for driver in self.drivers:
            driver.stop()
        for driver in self.drivers:
            if driver.query is not None:
                driver.ended.wait(_LAST_WORD_S)  # its last reports are still on their way
            driver.finish()
        if self._listener is not None and self._spark is not None:
            try:
                self._spark.streams.removeListener(self._listener)
            except Exception:  # the session may be gone, and its listeners with it
                log.debug("the listener could not be removed", exc_info=True)
            self._listener = None

    def finish(self) -> None:
        """Close the journals of all queries, after the reports that have come."""
        for driver in self.drivers:
            driver.finish()

    def listen(self, spark: SparkSession) -> None:
        """Ask Spark for reports."""
        if self._listener is None:
            self._spark = spark
            if is_connect(spark):
                reports = ConnectListener(self._on_report, self._on_end)
                add_listener(spark, reports)
                self._listener = reports
            else:
                self._listener = ReportListener(self._on_report, self._on_end, self._has_listeners)
                spark.streams.addListener(self._listener)

    def _has_listeners(self) -> bool:
        return any(driver.wants_reports for driver in self.drivers)

    def _on_report(self, run_id: str, text: str) -> None:
        drivers = self._of_run(run_id)
        if not drivers and self.on_stranger is not None:
            self.on_stranger(run_id, text)
        for driver in drivers:
            driver.report(text)

    def _on_end(self, run_id: str) -> None:
        """Close the journal of a query that has ended, whoever ended it."""
        for driver in self._of_run(run_id):
            driver.explain_end()
            driver.finish()
            driver.ended.set()

    def _of_run(self, run_id: str) -> list[QueryDriver]:
        return [driver for driver in self.drivers if driver.run_id == run_id]


def _is_active(driver: QueryDriver) -> bool:
    return driver.query is not None and bool(driver.query.isActive)
