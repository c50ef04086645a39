"""Plays an arrival process into a Kafka topic: the producer of the demo and of the Kafka benchmarks. Needs no Spark."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from penstock.errors import PenstockError
from penstock.simulation.keys import zipf_keys
from penstock.simulation.traffic import Traffic

__all__ = ["play", "start_feed"]

_PAUSE_S = 0.002
_PAYLOAD_BYTES, _KEYS, _EXPONENT = 32, 50, 1.0


def start_feed(address: str, topic: str, traffic: Traffic, begin_s: float, partitions: int = 2) -> BaseProcess:
    """Start a process that calls ``play``."""
    process = multiprocessing.get_context("spawn").Process(
        target=play, args=(address, topic, traffic, begin_s, partitions), daemon=True
    )
    process.start()
    return process


def play(address: str, topic: str, traffic: Traffic, begin_s: float, partitions: int = 2) -> int:
    """Write each row when it is due, or at once if it was due before; return how many rows there were.

    A row's timestamp is the moment at which it was due, so a producer that is late shows as delay.

    Parameters
    ----------
    address
        The bootstrap servers.
    topic
        Where to write, to each partition in turn.
    traffic
        The arrival process.
    begin_s
        When it begins, in seconds since the epoch.
    partitions
        How many partitions the topic has.

    Raises
    ------
    PenstockError
        If rows could not be delivered.

    """
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra

    times = traffic.arrivals()
    keys = zipf_keys(np.arange(times.size), _KEYS, _EXPONENT, seed=1).tolist()
    stamps = ((begin_s + times) * 1e3).astype(np.int64).tolist()
    failed: list[str] = []
    settings = {
        "bootstrap.servers": address,
        "linger.ms": 5,
        "acks": "1",
        "queue.buffering.max.messages": 2_000_000,
        "log_level": 0,
    }
    producer = Producer(settings | {"message.timeout.ms": 60_000})
    sent = 0
    while sent < times.size:
        due = int(np.searchsorted(times, time.time() - begin_s, side="right"))
        for number in range(sent, due):
            payload = number.to_bytes(_PAYLOAD_BYTES, "big")
            place = {"partition": number % partitions, "timestamp": stamps[number]}
            producer.produce(topic, value=payload, key=str(keys[number]), on_delivery=_note(failed), **place)
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(_PAUSE_S)
    if producer.flush(60) or failed:
        raise PenstockError(f"rows could not be written to topic {topic!r}: {failed[0] if failed else 'no answer'}")
    return sent


def _note(failed: list[str]) -> Callable[[Any, Any], None]:
    """Return a callback that notes what could not be delivered."""
    return lambda error, _: failed.append(str(error)) if error is not None else None
