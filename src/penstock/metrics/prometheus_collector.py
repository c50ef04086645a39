"""Tallies for Prometheus, through prometheus_client: a scrape reads them, and the job does nothing for it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.metrics.instruments import COUNTERS, GAUGES, HISTOGRAMS, Instrument
from penstock.metrics.tally import Sample, TallyBook

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["TallyCollector", "collect_in", "import_prometheus", "serve"]

_LOCK = threading.Lock()
_BOOKS: weakref.WeakKeyDictionary[Any, TallyBook] = weakref.WeakKeyDictionary()
_SERVED: dict[tuple[str, int], TallyBook] = {}


def import_prometheus(asked: str) -> Any:
    """Return prometheus_client, or say how to get it."""
    try:
        import prometheus_client  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise PenstockError(f"{asked} needs prometheus_client: pip install 'penstock[metrics]'") from None
    return prometheus_client


class TallyCollector:
    """What prometheus_client calls for every scrape."""

    def __init__(self, book: TallyBook) -> None:
        self._book = book

    def describe(self) -> list[Metric]:
        """Return the names, so that a registry refuses others of the same name."""
        return [_new_family(instrument) for group in (COUNTERS, GAUGES, HISTOGRAMS) for instrument in group.values()]

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics as they are now."""
        tallies = self._book.tallies
        samples: dict[str, list[Sample]] = {}
        for tally in tallies:
            for sample in tally.samples():
                samples.setdefault(sample.key, []).append(sample)
        for key, instrument in (*COUNTERS.items(), *GAUGES.items()):
            family = _new_family(instrument)
            for sample in samples.get(key, ()):
                family.add_metric(list(sample.labels), sample.value)
            yield family
        for key, instrument in HISTOGRAMS.items():
            family = _new_family(instrument)
            for tally in tallies:
                buckets, total = tally.read_histogram(key)
                family.add_metric([tally.label], buckets, total)
            yield family


def _new_family(instrument: Instrument) -> Any:
    from prometheus_client import core  # noqa: PLC0415 - an extra

    kinds: Mapping[str, Any] = {
        "counter": core.CounterMetricFamily,
        "gauge": core.GaugeMetricFamily,
        "histogram": core.HistogramMetricFamily,
    }
    return kinds[instrument.kind](instrument.prometheus_name, f"{instrument.help}.", labels=list(instrument.labels))


def collect_in(registry: CollectorRegistry) -> TallyBook:
    """Return the book whose queries a registry shows; the first call registers it."""
    with _LOCK:
        book = _BOOKS.get(registry)
        if book is None:
            book = TallyBook()
            try:
                registry.register(TallyCollector(book))
            except ValueError as error:
                raise PenstockError(f"the registry has metrics of these names already: {str(error).splitlines()[0]}") from None
            _BOOKS[registry] = book
        return book


def serve(host: str, port: int) -> TallyBook:
    """Serve metrics over HTTP until the process ends, and return the book of their queries. A second call shares the server.

    Raises
    ------
    PenstockError
        If prometheus_client is missing, or the port can't be had.
    """
    client = import_prometheus(f"metrics at {host}:{port}")
    with _LOCK:
        if (host, port) not in _SERVED:
            book, registry = TallyBook(), client.CollectorRegistry()
            registry.register(TallyCollector(book))
            try:
                client.start_http_server(port, addr=host, registry=registry)
            except OSError as error:
                reason = error.strerror or str(error)
                raise PenstockError(f"metrics can't be served at {host}:{port}: {reason}; give another port or address") from None
            _SERVED[host, port] = book
        return _SERVED[host, port]
