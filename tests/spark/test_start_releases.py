"""A start that fails, and a query that ends, leave nothing behind: Spark is as it was before."""

from __future__ import annotations

import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.accumulators import _accumulatorRegistry
from pyspark.sql import DataFrame, SparkSession
from scenario import Scenario

import spillway as sw
from spillway import PlanError, QueryError, SpillwayError, StateError
from spillway.checkpoint.checkpoint import Checkpoint
from tier import LONGEST_S

SECRET = "hUnter2hUnter2"


@pytest.fixture
def scenario(spark: SparkSession, tmp_path: Path) -> Scenario:
    found = Scenario(spark, tmp_path, a="k bigint, ts timestamp", b="k bigint, ts timestamp")
    found.add(a=[(1, None)], b=[(1, None)])
    return found


def left(spark: SparkSession) -> dict[str, Any]:
    """What a query takes, as it is now."""
    context = spark.sparkContext
    names = [one.name for one in threading.enumerate() if one.name.startswith("spillway")]
    scratch = Path(tempfile.gettempdir()).glob("spillway-checkpoint-*")
    return {
        "threads": sorted(names),
        "cached": sorted(map(int, context._jsc.getPersistentRDDs().keySet())),
        "tables": bool(spark._jsparkSession.sharedState().cacheManager().isEmpty()),
        "accumulators": sorted(_accumulatorRegistry),
        "queries": [one.name for one in spark.streams.active],
        "views": sorted(
            one.tableName for one in spark.sql("SHOW TABLES").where("isTemporary").collect()
        ),
        "settings": spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", None),
        "scratch": sorted(map(str, scratch)),
    }


def assert_fails_without_traces(
    spark: SparkSession, kind: type[Exception], start: Callable[[], object]
) -> Exception:
    before = left(spark)
    with pytest.raises(kind) as raised:
        start()
    assert settled(spark, before) == before
    return raised.value


def settled(spark: SparkSession, before: dict[str, Any]) -> dict[str, Any]:
    """What is left when threads that were told to end have ended."""
    until = time.monotonic() + LONGEST_S
    while (found := left(spark)) != before and time.monotonic() < until:
        time.sleep(0.05)
    return found


def writer(scenario: Scenario, result: Any, **adapt: object) -> Any:
    made = result.writeStream.option("checkpointLocation", str(scenario.checkpoint))
    return made.adapt(slots=2, groups=16, anchor="always", **adapt).trigger(availableNow=True)


def test_start_that_spark_rejects_at_last_leaves_nothing(scenario: Scenario) -> None:
    joined = scenario.join().on("k")
    wrong = writer(scenario, joined).format("memory").queryName("late")
    wrong.trigger(processingTime="no time")
    assert_fails_without_traces(scenario.spark, Exception, wrong.start)
    # The lock is free, and the same checkpoint runs.
    assert scenario.run(joined, anchor="always").lastProgress is not None


def test_start_with_a_damaged_later_stage_leaves_nothing(scenario: Scenario) -> None:
    def result() -> Any:
        return scenario.join().on("k").group_by("a.k").agg(n=sw.count())

    done = writer(scenario, result()).format("noop").start()
    assert done.awaitTermination(LONGEST_S)
    durable = Checkpoint(str(scenario.checkpoint / "spillway-2")).durable
    for name in durable.names("manifests"):
        durable.replace(f"manifests/{name}", b"damaged")
    again = writer(scenario, result()).format("noop")
    assert_fails_without_traces(scenario.spark, StateError, again.start)


def test_start_on_the_checkpoint_of_another_query_leaves_nothing(scenario: Scenario) -> None:
    scenario.run(scenario.join().on("k"))
    other = writer(scenario, scenario.join().on("k", "ts")).format("noop")
    assert_fails_without_traces(scenario.spark, QueryError, other.start)


def test_start_whose_sample_fails_leaves_nothing(scenario: Scenario) -> None:
    a, b = (one.stream() for one in scenario.streams.values())
    wrong = a.selectExpr("k", "coalesce(ts, timestamp(raise_error('no sample'))) AS ts")
    joined = sw.join(a=wrong, b=b).within("1 minute", time="ts").match("a.k < b.k")
    sampled = writer(scenario, joined, distribute="auto").format("noop")
    error = assert_fails_without_traces(scenario.spark, Exception, sampled.start)
    assert "no sample" in str(error)


def test_start_with_a_bad_option_of_the_sink_leaves_nothing_and_shows_no_secret(
    scenario: Scenario,
) -> None:
    made = writer(scenario, scenario.join().on("k")).format("jdbc")
    made.option("url", f"jdbc:nosuch://me:{SECRET}@host/db?password={SECRET}")
    made.option("dbtable", "t").option("password", SECRET)
    error = assert_fails_without_traces(scenario.spark, PlanError, made.start)
    assert SECRET not in "".join(traceback.format_exception(error))


def test_name_of_a_running_query_is_rejected_and_its_table_stays(scenario: Scenario) -> None:
    spark, joined = scenario.spark, scenario.join().on("k")
    made = writer(scenario, joined).format("memory").queryName("taken")
    running = made.trigger(processingTime="1 second").start()
    try:
        running.processAllAvailable()
        scenario.checkpoint = scenario.root / "other"
        again = writer(scenario, joined.select("a.k AS other")).format("memory").queryName("taken")
        error = assert_fails_without_traces(spark, QueryError, again.start)
        assert error.message == "a query named 'taken' is already running in this session"
        assert spark.table("taken").columns == joined.schema.names
    finally:
        running.stop()
        spark.catalog.dropTempView("taken")


def test_view_of_the_user_survives_a_start_that_fails(scenario: Scenario) -> None:
    spark = scenario.spark
    spark.range(3).createOrReplaceTempView("mine")
    try:
        wrong = writer(scenario, scenario.join().on("k")).format("memory").queryName("mine")
        wrong.trigger(processingTime="no time")
        assert_fails_without_traces(spark, Exception, wrong.start)
        assert spark.table("mine").count() == 3
    finally:
        spark.catalog.dropTempView("mine")


def test_query_that_fails_in_a_batch_leaves_nothing_and_shows_no_secret(
    scenario: Scenario,
) -> None:
    def fail(rows: DataFrame, batch: int) -> None:
        rows.collect()
        raise ValueError(f"cannot reach s3://key:{SECRET}@bucket")

    def run() -> None:
        query = scenario.start(scenario.join().on("k"), sink=fail, anchor="always")
        try:
            query.awaitTermination(LONGEST_S)
        finally:
            failure = query.exception()
            assert failure is not None
            assert SECRET not in "".join(traceback.format_exception(failure))
            assert SECRET not in query.describe()

    error = assert_fails_without_traces(scenario.spark, Exception, run)
    assert SECRET not in "".join(traceback.format_exception(error))
    assert "cannot reach s3://***@bucket" in "".join(traceback.format_exception(error))


def test_stopped_query_leaves_nothing(scenario: Scenario) -> None:
    before = left(scenario.spark)
    endless = {"processingTime": "100 milliseconds"}
    query = scenario.start(scenario.join().on("k"), trigger=endless, anchor="always")
    query.processAllAvailable()
    assert left(scenario.spark) != before
    query.stop()
    assert settled(scenario.spark, before) == before
    with pytest.raises(SpillwayError):
        query.cleanup()
