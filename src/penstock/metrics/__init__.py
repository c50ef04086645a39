"""Numbers for monitoring: the same tally from a running job and from its journal, for Prometheus and OpenTelemetry."""

from __future__ import annotations

from penstock.metrics.exporters import build_exporters
from penstock.metrics.observers import Exporter, Observers, QueryObserver
from penstock.metrics.tally import QueryTally, TallyBook

__all__ = ["Exporter", "Observers", "QueryObserver", "QueryTally", "TallyBook", "build_exporters"]
