"""What ``Shedder(metrics=...)`` may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.metrics.observers import Exporter

__all__ = ["build_exporters", "parse_address"]

_LOOPBACK = "127.0.0.1"
_FORMS = (
    "a port such as 9464, 'host:port', 'prometheus', 'opentelemetry', 'spark', a CollectorRegistry of prometheus_client, "
    "an OpenTelemetry MeterProvider, or a list of these"
)


def build_exporters(metrics: Any, named: Mapping[str, Callable[[], Exporter]] | None = None) -> list[Exporter]:
    """Return the exporters that a user asked for.

    Parameters
    ----------
    metrics
        ``None``, one of the forms that the error message lists, or a list of them.
    named
        Exporters that this layer does not know, by name.

    Raises
    ------
    PenstockError
        If it is none of the forms, a package is missing, or a port can't be had.
    """
    if metrics is None:
        return []
    if isinstance(metrics, list | tuple):
        return [exporter for one in metrics for exporter in build_exporters(one, named)]
    if isinstance(metrics, str) and named is not None and metrics in named:
        return [named[metrics]()]
    return [_build(metrics)]


def _build(metrics: Any) -> Exporter:
    from penstock.metrics import opentelemetry_meter, prometheus_collector  # noqa: PLC0415 - only where metrics are on

    if metrics == "opentelemetry":
        return opentelemetry_meter.export_to(opentelemetry_meter.global_provider())
    if metrics == "prometheus":
        return prometheus_collector.collect_in(prometheus_collector.import_prometheus("metrics='prometheus'").REGISTRY)
    if isinstance(metrics, str | int) and not isinstance(metrics, bool):
        return prometheus_collector.serve(*parse_address(metrics))
    if hasattr(metrics, "get_meter"):
        return opentelemetry_meter.export_to(metrics)
    if hasattr(metrics, "register") and hasattr(metrics, "collect"):
        return prometheus_collector.collect_in(metrics)
    raise PenstockError(f"metrics must be {_FORMS}; got {metrics!r}")


def parse_address(address: str | int) -> tuple[str, int]:
    """Return host and port; the loopback where no host is named.

    >>> parse_address(9464), parse_address("0.0.0.0:9464"), parse_address(":9464"), parse_address("[::1]:9464")
    (('127.0.0.1', 9464), ('0.0.0.0', 9464), ('127.0.0.1', 9464), ('::1', 9464))
    """
    host, _, port = str(address).rpartition(":")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise PenstockError(f"metrics must be {_FORMS}; got {address!r}")
    return host.strip("[]") or _LOOPBACK, int(port)
