"""Writes rows to a Kafka topic, in bursts: ``python examples/kafka/producer.py --rate 2000``."""

from __future__ import annotations

import argparse
import json
import random
import time
from contextlib import suppress
from typing import Any

from confluent_kafka import Producer

from penstock.feedback import AdmittedRate


def send(producer: Producer, topic: str, **message: Any) -> None:
    """Write a row; wait while as many are under way as the client holds."""
    while True:
        try:
            producer.produce(topic, **message)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def main() -> None:
    """Write until the time is up, or until Ctrl-C: for half of every ten seconds at four times the rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", default="127.0.0.1:9092", help="bootstrap servers")
    parser.add_argument("--topic", default="clicks")
    parser.add_argument("--rate", type=float, default=2000.0, help="rows per second between bursts")
    parser.add_argument("--rates", metavar="URL", help="ask the job there what share of the rows to send")
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    producer = Producer({"bootstrap.servers": options.servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 3})
    told = AdmittedRate.from_http(options.rates, options.topic).start() if options.rates else None
    dice, begin_s, last_s, sent, made = random.Random(1), time.time(), 0.0, 0, 0  # noqa: S311 - a demo
    with suppress(KeyboardInterrupt):
        while (now_s := time.time() - begin_s) < options.seconds:
            rate = options.rate * (4.0 if now_s % 10.0 > 5.0 else 1.0)
            for _ in range(round(rate * (now_s - last_s))):
                row = {"user": dice.randrange(10_000), "page": f"/p/{dice.randrange(100)}", "ms": dice.expovariate(0.01)}
                made += 1
                weight = 1.0 if told is None else told.sample(made)
                if weight is not None:
                    headers = AdmittedRate.headers(weight)
                    send(producer, options.topic, value=json.dumps(row), key=str(row["user"]), headers=headers)
                    sent += 1
            last_s = now_s
            producer.poll(0.01)
    left = producer.flush(30)
    print(f"{sent - left:,} rows of {made:,}" + (f"; {left:,} were not taken by {options.servers}" if left else ""))


if __name__ == "__main__":
    main()
