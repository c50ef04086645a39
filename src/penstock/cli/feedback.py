"""``penstock feedback``: tells producers how much of their rows a job admits, from the job's journal."""

from __future__ import annotations

import signal
import threading

import typer

from penstock.errors import PenstockError

__all__ = ["feedback"]


def feedback(  # noqa: PLR0917 - options of a command
    checkpoint: str = typer.Argument(..., metavar="CHECKPOINT", help="The checkpoint of a job with a shedder, or its journal."),
    topics: list[str] = typer.Option(
        [], "--topic", metavar="GATE=TOPIC", help="The topic that a gate reads, if it is not the gate's name; repeat it."
    ),
    http: str = typer.Option("127.0.0.1:8077", "--http", help="Where the endpoint listens; '-' for none."),
    servers: str | None = typer.Option(None, "--servers", help="Kafka's brokers, to publish in a compacted topic as well."),
    rates_topic: str = typer.Option("penstock-rates", "--rates-topic", help="That topic; created if there is none."),
    expires: str = typer.Option("30s", "--expires", help="How long what is said holds if nothing newer comes."),
    seconds: str | None = typer.Option(None, "--for", help="Stop after this time, such as 60s."),
) -> None:
    """Publish the share of their rows that producers should send, until Ctrl-C. It reads the job's journal and nothing else."""
    from penstock.duration import parse_duration  # noqa: PLC0415 - commands load what they need
    from penstock.feedback import Feedback  # noqa: PLC0415

    if http == "-" and servers is None:
        raise PenstockError("give --http HOST:PORT or --servers, or both: where to publish")
    run_s = None if seconds is None else parse_duration(seconds, "--for")
    published = Feedback(
        checkpoint,
        _parse_topics(topics),
        http=None if http == "-" else http,
        servers=servers,
        rates_topic=rates_topic,
        expires_s=parse_duration(expires, "--expires"),
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with published:
        typer.echo(f"rates at {published.url}/rates" if published.url else f"rates in topic {rates_topic}", err=True)
        stop.wait(run_s)


def _parse_topics(given: list[str]) -> dict[str, str]:
    topics: dict[str, str] = {}
    for item in given:
        gate, equals, topic = item.partition("=")
        if not equals or not gate or not topic:
            raise PenstockError(f"--topic {item!r}: write it as gate=topic")
        topics[gate] = topic
    return topics
