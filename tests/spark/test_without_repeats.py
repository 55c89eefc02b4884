"""Messages carry the number and place of a row in its batch, so that a reader can drop repeats."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.errors import PlanError
from spillway.spark.sinks import SinkSpec
from spillway.spark.sinks.kafka import KafkaSink
from spillway.testing import without_repeats

#: Equal rows within a slot, in both slots, and NULL.
SLOTS = ([("a", "1"), ("b", "2"), ("a", "1"), (None, "3")], [("a", "1"), ("c", None)])


def batch(spark: SparkSession, *, turned: bool = False) -> DataFrame:
    """The rows of a batch in two slots; another attempt has those of a slot in another order."""
    parts = [list(reversed(rows)) if turned else rows for rows in SLOTS]
    frames = [spark.createDataFrame(rows, "key string, value string").coalesce(1) for rows in parts]
    return frames[0].unionAll(frames[1])


def topic(marked: list[DataFrame]) -> DataFrame:
    """Batches that the sink has marked, as messages that a reader gets."""
    frames = [frame.select("key", "value", "headers") for frame in marked]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionAll(frame)
    return whole.select(
        *(F.col(name).cast("binary").alias(name) for name in ("key", "value")),
        F.lit("t").alias("topic"),
        F.lit(0).alias("partition"),
        F.monotonically_increasing_id().alias("offset"),
        "headers",
    )


def rows(messages: DataFrame) -> Counter[tuple[Any, ...]]:
    texts = messages.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    return Counter(tuple(row) for row in texts.collect())


def test_reader_drops_repeated_messages_and_no_equal_ones(spark: SparkSession) -> None:
    sink = KafkaSink(SinkSpec("kafka", {}, writer="ab"), spark)
    once = Counter(row for slot in SLOTS for row in slot)
    # Batch 0 came once, batch 1 in part and then again, in another order.
    part = sink._marked(batch(spark), 1).where("key = 'a' AND spark_partition_id() = 0")
    messages = topic(
        [
            sink._marked(batch(spark), 0),
            part,
            sink._marked(batch(spark, turned=True), 1),
            sink._marked(batch(spark), 1),
        ]
    )
    assert messages.count() > 3 * once.total()
    assert rows(without_repeats(messages)) == once + once
    # Another query wrote the same rows under the same number.
    other = KafkaSink(SinkSpec("kafka", {}, writer="cd"), spark)
    both = topic([sink._marked(batch(spark), 0), other._marked(batch(spark), 0)])
    assert rows(without_repeats(both)) == once + once


@pytest.mark.full
def test_messages_of_others_and_their_headers_stay(spark: SparkSession) -> None:
    sink = KafkaSink(SinkSpec("kafka", {}, writer="ab"), spark)
    own = batch(spark).withColumn(
        "headers",
        F.when(
            F.col("key") == "a",
            F.array(F.struct(F.lit("mine").alias("key"), F.lit(b"x").alias("value"))),
        ),
    )
    kept = topic([sink._marked(own, 0), sink._marked(own, 0)])
    names = without_repeats(kept).selectExpr("transform(headers, h -> h.key) AS names").collect()
    assert Counter(len(row.names) for row in names) == Counter({4: 3, 3: 3})
    plain = topic(
        [
            own.select(
                "key",
                "value",
                F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
            )
        ]
        * 2
    )
    assert rows(without_repeats(plain)).total() == 2 * own.count()


def test_headers_are_asked_for(spark: SparkSession) -> None:
    with pytest.raises(PlanError, match="without_repeats needs the headers"):
        without_repeats(spark.range(1))
