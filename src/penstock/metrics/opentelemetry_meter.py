"""Tallies for OpenTelemetry: counters and gauges are read by its SDK when it exports, histograms get each value once."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.journal.records import BatchRecord, Record
from penstock.journal.state import JournalState
from penstock.metrics.instruments import BOUNDS_S, COUNTERS, GAUGES, HISTOGRAMS, Instrument
from penstock.metrics.tally import QueryTally, TallyBook

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

__all__ = ["MeterExporter", "export_to", "global_provider"]

log = logging.getLogger("penstock")

_LOCK = threading.Lock()
_EXPORTERS: weakref.WeakKeyDictionary[Any, MeterExporter] = weakref.WeakKeyDictionary()


def global_provider() -> MeterProvider:
    """Return the meter provider of the process; say so if there is none yet."""
    try:
        from opentelemetry import metrics  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.metrics import MeterProvider as SdkProvider  # noqa: PLC0415
    except ModuleNotFoundError:
        raise PenstockError("metrics='opentelemetry' needs the OpenTelemetry SDK: pip install 'penstock[metrics]'") from None
    provider = metrics.get_meter_provider()
    if not isinstance(provider, SdkProvider):
        log.warning(
            "OpenTelemetry has no meter provider yet, so nothing is exported: call opentelemetry.metrics.set_meter_provider, "
            "or give one as metrics="
        )
    return provider


class MeterExporter:
    """The instruments of one meter provider. Counters begin with the process, as OpenTelemetry expects."""

    def __init__(self, provider: MeterProvider) -> None:
        self._book = TallyBook()
        meter = provider.get_meter("penstock", _find_version())
        for key, instrument in COUNTERS.items():
            callback = partial(self._observe, key, instrument)
            meter.create_observable_counter(instrument.name, [callback], instrument.unit, instrument.help)
        for key, instrument in GAUGES.items():
            callback = partial(self._observe, key, instrument)
            meter.create_observable_gauge(instrument.name, [callback], instrument.unit, instrument.help)
        self._histograms = {
            key: meter.create_histogram(
                instrument.name, instrument.unit, instrument.help, explicit_bucket_boundaries_advisory=BOUNDS_S
            )
            for key, instrument in HISTOGRAMS.items()
        }

    def watch(self, query: str, state: JournalState) -> _MeteredQuery | None:
        """Return an observer of a query; ``None`` if there are too many."""
        tally = self._book.watch(query, state)
        return None if tally is None else _MeteredQuery(tally, self._histograms)

    def remove(self, label: str) -> None:
        """Show a query no more."""
        self._book.remove(label)

    def _observe(self, key: str, instrument: Instrument, options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG002
        from opentelemetry.metrics import Observation  # noqa: PLC0415 - an extra

        for tally in self._book.tallies:
            for sample in tally.samples():
                if sample.key == key:
                    value = tally.since_start(sample) if instrument.kind == "counter" else sample.value
                    yield Observation(value, dict(zip(instrument.labels, sample.labels, strict=True)))


class _MeteredQuery:
    """A tally that also tells the histograms of a meter."""

    def __init__(self, tally: QueryTally, histograms: dict[str, Any]) -> None:
        self.tally, self.label = tally, tally.label
        self._histograms = histograms

    def record(self, records: Sequence[Record], now_s: float) -> None:
        self.tally.record(records, now_s)
        self._pass_values_on()

    def miss(self, batches: Sequence[BatchRecord], now_s: float) -> None:
        self.tally.miss(batches, now_s)
        self._pass_values_on()

    def fail(self) -> None:
        self.tally.fail()

    def close(self) -> None:
        self.tally.close()

    def sync(self, state: JournalState) -> None:
        self.tally.sync(state)

    def set_gauge(self, key: str, value: float | None) -> None:
        self.tally.set_gauge(key, value)

    def _pass_values_on(self) -> None:
        for key, value in self.tally.take_values():
            self._histograms[key].record(value, {"query": self.tally.label})


def export_to(provider: MeterProvider) -> MeterExporter:
    """Return the exporter of a meter provider; the first call makes its instruments."""
    with _LOCK:
        exporter = _EXPORTERS.get(provider)
        if exporter is None:
            exporter = _EXPORTERS[provider] = MeterExporter(provider)
        return exporter


def _find_version() -> str | None:
    try:
        return version("penstock")
    except PackageNotFoundError:  # run from a tree that is not installed
        return None
