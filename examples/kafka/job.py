"""A job on a Kafka topic that holds two seconds through bursts, and says what it shed.

Start a broker (``docker compose up -d`` in this directory, or ``python examples/kafka/broker.py``), then
``python examples/kafka/producer.py`` in one terminal and ``python examples/kafka/job.py`` in another. README.md has the steps.
The gate stands before anything is parsed, so a row that is shed costs only its scan.
With ``--rates 127.0.0.1:8077`` for the job and ``--rates http://127.0.0.1:8077`` for the producer, the producer leaves rows out
before they cross the network; the counts stay right, because each row carries its weight.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import nullcontext, suppress

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import Shedder
from penstock import functions as pf
from penstock.feedback import Feedback

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def main() -> None:
    """Count clicks by windows of ten seconds until the time is up, or until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="127.0.0.1:9092", help="bootstrap servers")
    parser.add_argument("--topic", default="clicks")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rates", metavar="HOST:PORT", help="where to tell producers what share of their rows to send")
    parser.add_argument("--jars", help="jars of the connector, where spark.jars.packages can't be had")
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers run the python3 on PATH, without penstock
    builder = SparkSession.builder.master("local[2]").appName("clicks").config("spark.sql.shuffle.partitions", 2)
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.jars", options.jars) if options.jars else builder.config("spark.jars.packages", CONNECTOR)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.servers)
    clicks = reader.option("subscribe", options.topic).option("startingOffsets", "latest").option("includeHeaders", "true").load()
    # No weight makes up for rows that are shed for their age alone, and here the counts are to be right: expired="keep".
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint, Shedder("2s", expired="keep") as shedder:
        kept = shedder.gate(clicks, name="clicks", arrival="timestamp", weight_column="w")
        kept = kept.withColumn("w", F.col("w") * pf.source_weight())  # a row that a producer sampled stands for more
        click = F.from_json(F.col("value").cast("string"), "user bigint, page string, ms double")
        parsed = kept.withWatermark("timestamp", "30 seconds").select("timestamp", "w", click.alias("click"))
        windows = parsed.groupBy(F.window("timestamp", "10 seconds")).agg(
            pf.estimated_count(weight="w").alias("clicks"), pf.estimated_avg("click.ms", weight="w").alias("ms")
        )
        query = shedder.foreach_batch(windows, show, checkpoint=checkpoint, output_mode="update")
        end_s = time.time() + options.seconds
        told = Feedback(checkpoint, {"clicks": options.topic}, http=options.rates) if options.rates else nullcontext()
        with told, suppress(KeyboardInterrupt):
            while query.isActive and time.time() < end_s:
                time.sleep(0.5)
        print(shedder.report())


def show(windows: DataFrame, batch_id: int) -> None:
    """Print the windows that have changed: how many clicks, and how far off that may be."""
    for row in windows.orderBy("window").collect():
        count, ms = row["clicks"], row["ms"]
        print(
            f"batch {batch_id}: {row['window']['start']:%H:%M:%S}: {count['estimate']:,.0f} clicks, "
            f"{count['lower']:,.0f} to {count['upper']:,.0f}; {ms['estimate']:.0f} ms on average"
        )


if __name__ == "__main__":
    main()
