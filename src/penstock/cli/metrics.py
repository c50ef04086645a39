"""``penstock metrics``: what journals say, for Prometheus and OpenTelemetry. It reads journals and nothing else."""

from __future__ import annotations

import logging
import threading
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import typer

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.metrics.journal_poll import JournalPoll

__all__ = ["metrics"]

_PERIOD_S, _REMOTE_PERIOD_S = 1.0, 10.0


def metrics(  # noqa: PLR0917 - typer makes options of them
    directories: list[str] = typer.Argument(
        None, metavar="DIR...", help="Journals, checkpoints, directories of these, or the --dir of a network."
    ),
    port: int = typer.Option(9464, min=1, max=65_535, help="Where Prometheus scrapes."),
    host: str = typer.Option("127.0.0.1", help="The address to listen on; 0.0.0.0 for all."),
    otlp: str = typer.Option(None, metavar="URL", help="Also send them to an OpenTelemetry collector: http://host:4318."),
    once: bool = typer.Option(False, "--once", help="Print the metrics and exit."),
    rules: bool = typer.Option(False, "--rules", help="Print alert rules for Prometheus and exit."),
    board: bool = typer.Option(False, "--board", help="Print a dashboard for Grafana and exit."),
) -> None:
    """Serve what jobs write to their journals as metrics, until Ctrl-C."""
    if rules or board:
        name = "alerts.yml" if rules else "grafana.json"
        typer.echo(files("penstock.metrics").joinpath(name).read_text(encoding="utf-8"), nl=False)
        return
    if not directories:
        raise PenstockError("metrics needs a directory: a checkpoint of a job with a shedder, or the --dir of a network")
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    if once:
        typer.echo(_print_once(directories), nl=False)
        return
    _serve(directories, host, port, otlp)


def _print_once(directories: list[str]) -> str:
    from penstock.metrics.journal_poll import JournalPoll  # noqa: PLC0415 - commands load what they need
    from penstock.metrics.prometheus_collector import collect_in, import_prometheus  # noqa: PLC0415

    client = import_prometheus("penstock metrics")
    registry = client.CollectorRegistry()
    _check(JournalPoll(directories, [collect_in(registry)]), directories)
    text: str = client.generate_latest(registry).decode()
    return text


def _serve(directories: list[str], host: str, port: int, otlp: str | None) -> None:
    from penstock.metrics.journal_poll import JournalPoll  # noqa: PLC0415 - commands load what they need
    from penstock.metrics.prometheus_collector import serve  # noqa: PLC0415

    provider = None if otlp is None else _connect(otlp)
    exporters: list[Any] = [] if provider is None else [_meter(provider)]
    poll = JournalPoll(directories, [serve(host, port), *exporters])
    _check(poll, directories)
    typer.echo(f"metrics at http://{host}:{port}/metrics (Ctrl-C ends it)")
    waiting = threading.Event()
    try:
        period_s = _REMOTE_PERIOD_S if any("://" in directory for directory in directories) else _PERIOD_S
        while not waiting.wait(period_s):
            try:
                poll.refresh()
            except PenstockError as error:  # a directory that is gone may come back
                logging.getLogger("penstock").debug("%s", error)
    except KeyboardInterrupt:
        return
    finally:
        if provider is not None:
            provider.shutdown()


def _check(poll: JournalPoll, directories: list[str]) -> None:
    if not poll.refresh():
        raise PenstockError(
            f"there is no journal in {', '.join(map(str, directories))}: give a journal, the checkpoint of a job with a shedder, "
            "or the --dir of a network"
        )


def _connect(url: str) -> Any:
    """Return a meter provider that sends to a collector over HTTP."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    except ModuleNotFoundError:
        raise PenstockError("--otlp needs the OpenTelemetry SDK: pip install 'penstock[metrics]'") from None
    if not url.startswith(("http://", "https://")):
        raise PenstockError(f"--otlp must be a URL such as http://localhost:4318, got {url!r}")
    endpoint = url if url.rstrip("/").endswith("/v1/metrics") else f"{url.rstrip('/')}/v1/metrics"
    return MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint), export_interval_millis=10_000)])


def _meter(provider: Any) -> Any:
    from penstock.metrics.opentelemetry_meter import export_to  # noqa: PLC0415 - commands load what they need

    return export_to(provider)
