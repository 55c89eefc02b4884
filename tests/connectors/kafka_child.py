"""A driver of a query from three topics to one: dies after a write if told so, or ends and reports."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from spillway.spark.api.session import local_session
from spillway.spark.sinks.append import AppendSink
from spillway.testing import multiset_difference, without_repeats

TOPICS = ("orders", "payments", "shipments")
ROWS, KEYS, PER_BATCH = 300, 200, 100


def made(spark: SparkSession, topic: str) -> DataFrame:
    """The rows of a topic; some keys are NULL, some rows are there twice."""
    salt = len(topic)
    rows = spark.range(0, ROWS, numPartitions=2).withColumn("n", F.col("id") - F.col("id") % 2)
    return rows.selectExpr(
        f"CASE WHEN n % 50 = 0 THEN NULL ELSE n * {salt} % {KEYS} END AS k",
        f"concat('{topic}-', n) AS v",
    )


def read(spark: SparkSession, given: dict[str, Any], topic: str) -> DataFrame:
    """A topic as a stream of keys and values, a few rows a batch."""
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given["broker"])
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(PER_BATCH))
    )
    return source.load().selectExpr(
        "CAST(CAST(key AS STRING) AS BIGINT) AS k", "CAST(value AS STRING) AS v"
    )


def fill(spark: SparkSession, given: dict[str, Any]) -> None:
    """Writes the input topics."""
    for topic in TOPICS:
        messages = made(spark, topic).selectExpr("CAST(k AS STRING) AS key", "v AS value")
        messages.write.format("kafka").option("kafka.bootstrap.servers", given["broker"]).option(
            "topic", topic
        ).save()


def dying(given: dict[str, Any]) -> None:
    """Dies after the write of a batch, before it is committed."""
    if "dies" not in given:
        return
    append, seen = AppendSink._append, [0]

    def appended(self: AppendSink, df: DataFrame, number: int | None = None) -> None:
        append(self, df, number)
        if number is not None:
            seen[0] += 1
            if seen[0] > given["dies"]:
                Path(given["root"], f"dead-{given['number']}").touch()
                os.killpg(os.getpgid(0), signal.SIGKILL)

    AppendSink._append = appended  # type: ignore[method-assign]


def report(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """What the topic has, compared with the batch join."""
    topic = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", given["broker"])
        .option("subscribe", "joined")
        .option("includeHeaders", "true")
        .load()
    )
    once = without_repeats(topic).selectExpr("CAST(value AS STRING) AS value")
    frames = {name: made(spark, name).withColumnRenamed("v", name) for name in TOPICS}
    first, *others = frames.values()
    for other in others:
        first = first.join(other, "k")
    wanted = first.select(F.to_json(F.struct("k", *TOPICS)).alias("value"))
    numbers = topic.select(
        F.element_at(F.filter("headers", lambda h: h["key"] == "spillway-number"), 1)["value"]
        .cast("string").cast("int").alias("n")
    )  # fmt: skip
    return {
        "messages": topic.count(),
        "expected": wanted.count(),
        "missing": wanted.exceptAll(once).count(),
        "extra": multiset_difference(once, wanted),
        "numbers": sorted(row.n for row in numbers.distinct().collect()),
        "streamed": streamed(spark, given),
    }


def streamed(spark: SparkSession, given: dict[str, Any]) -> int:
    """The rows that a stream of the topic has, each once."""
    topic = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given["broker"])
        .option("subscribe", "joined")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    once = without_repeats(topic, within="1 hour").selectExpr("CAST(value AS STRING) AS value")
    place = f"{given['root']}/streamed"
    query = (
        once.writeStream.option("checkpointLocation", f"{place}-ck")
        .trigger(availableNow=True)
        .format("parquet")
        .start(place)
    )
    query.awaitTermination()
    return spark.read.parquet(place).count()


def main(text: str) -> None:
    """Runs one life."""
    given: dict[str, Any] = json.loads(text)
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir=."
    conf = {
        "spark.jars": given["jars"],
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": java,
    }
    spark = local_session("kafka", "local[2]", conf)
    if given["number"] == 0:
        fill(spark, given)
    dying(given)
    joined = sw.join(**{name: read(spark, given, name) for name in TOPICS}).on("k")
    values = joined.select(
        "to_json(named_struct('k', orders.k, "
        + ", ".join(f"'{name}', {name}.v" for name in TOPICS)
        + ")) AS value"
    )
    query = (
        values.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", given["broker"])
        .option("topic", "joined")
        .option("checkpointLocation", f"{given['root']}/checkpoint")
        .adapt(slots=2, groups=16)
        .trigger(availableNow=True)
        .start()
    )
    Path(given["root"], f"began-{given['number']}").touch()
    query.awaitTermination()
    root = Path(given["root"])
    (root / "report.json").write_text(json.dumps(report(spark, given)))
    (root / f"done-{given['number']}").touch()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
