"""A Kafka broker without docker: one node on this machine, from Maven's jars, until Ctrl-C. Its data is gone then."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

import pyspark

from penstock import PenstockError
from penstock.testing.kafka import KafkaBroker, fetch_connector


def main() -> None:
    """Start it, create the topic, and say what to run next."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--topic", default="clicks")
    parser.add_argument("--partitions", type=int, default=2)
    options = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        with KafkaBroker(port=options.port) as broker:
            broker.create_topic(options.topic, options.partitions)
            jars = ",".join(str(jar) for jar in fetch_connector(pyspark.__version__))
            print(f"Kafka answers at {broker.address}, with a topic {options.topic}. In two other terminals:", flush=True)
            where = f"--servers {broker.address} --topic {options.topic}"
            print(f"  python examples/kafka/producer.py {where}")
            print(f"  python examples/kafka/job.py {where} --jars {jars}", flush=True)
            ended.wait()
    except PenstockError as error:
        sys.exit(f"broker.py: {error}")


if __name__ == "__main__":
    main()
