"""What would give a wrong answer, or fail in the first batch, is refused before the stream starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQueryException

import spillway as sw
from spillway import GroupBy, Join, PlanError, Query, QueryError, SpillwayError
from spillway.settings import Adapt
from spillway.spark.api.result import Result
from spillway.testing import FileStream
from tier import LONGEST_S

SCHEMA = (
    "k bigint, v bigint, name string, folded string collate UTF8_LCASE, tags array<string>, "
    "pair struct<x:int>, bag map<string,int>, ts timestamp"
)


class Offers:
    """Two streams of equal columns, a checkpoint, and what the sink was given."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.sources = {name: FileStream(spark, root / name, SCHEMA) for name in ("a", "b")}
        self.given: dict[int, list[Any]] = {}

    def add(self, *keys: int) -> None:
        rest = (None,) * 6
        for source in self.sources.values():
            source.add([(key, 10 * key, *rest) for key in keys])

    def join(self, a: str = "a", b: str = "b") -> Join:
        frames = {"a": self.sources[a].stream(), "b": self.sources[b].stream()}
        return sw.join(**frames).on("k")

    def totals(self, joined: Join) -> GroupBy:
        return joined.group_by("a.name").agg(n=sw.count(), total=sw.sum("a.v + b.v"))

    def start(self, query: Result) -> Query:
        def keep(rows: DataFrame, batch: int) -> None:
            self.given[batch] = rows.collect()

        return (
            query.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.root / "checkpoint"))
            .adapt(slots=2, groups=8)
            .trigger(availableNow=True)
            .start()
        )

    def run(self, query: Result) -> Query:
        running = self.start(query)
        assert running.awaitTermination(LONGEST_S), "the query hangs"
        return running

    def stream(self) -> sw.Stream:
        return sw.stream(self.sources["a"].stream(), "offers")


@pytest.fixture
def offers(spark: SparkSession, tmp_path: Path) -> Offers:
    return Offers(spark, tmp_path)


def refusal(kind: type[SpillwayError], attempt: Callable[[], Any]) -> SpillwayError:
    with pytest.raises(kind) as refused:
        attempt()
    assert refused.value.hint
    return refused.value


# --- checkpoints ---------------------------------------------------------------------------------


def test_checkpoint_of_another_chain_is_refused(offers: Offers) -> None:
    offers.add(1, 2, 3)
    offers.run(offers.totals(offers.join().where("a.v < 30")))
    place = offers.root / "checkpoint" / "spillway"
    others: Mapping[str, Result] = {
        "its stages are (n-way join, group-by), this query's are (n-way join)": offers.join(),
        "in stage 2 (group-by), its rows passed where(a.v < 30), now where(a.v < 20)": (
            offers.totals(offers.join().where("a.v < 20"))
        ),
        "in stage 2 (group-by), its rows passed where(a.v < 30), now unchanged": (
            offers.totals(offers.join())
        ),
        "in stage 2 (group-by), its aggregates were (n=count(*), total=sum(a.v + b.v)), "
        "now (n=count(*))": (offers.join().where("a.v < 30").group_by("a.name").agg(n=sw.count())),
        f"stream a was read from parquet {offers.root / 'a'}, now from parquet {offers.root / 'b'}": (
            offers.totals(offers.join("b", "a").where("a.v < 30"))
        ),
    }
    for said, query in others.items():
        error = refusal(QueryError, lambda query=query: offers.start(query))
        assert error.message == f"the checkpoint at {place} belongs to another query: {said}"
    offers.add(1)
    # The same filter in other words.
    offers.run(offers.totals(offers.join().where(F.col("a.v") < 30)))
    # Keys 1 and 2 met once; then the two new rows of key 1 met each other and the old ones.
    newest = offers.given[max(offers.given)]
    assert [(row.n, row.total) for row in newest] == [(5, 20 + 40 + 3 * 20)]


def test_stage_that_is_behind_is_refused(offers: Offers) -> None:
    offers.add(1)
    offers.add(2)
    offers.run(offers.totals(offers.join()))
    later = offers.root / "checkpoint" / "spillway-2"
    max((later / "log").glob("*.json")).unlink()
    error = refusal(QueryError, lambda: offers.start(offers.totals(offers.join())))
    assert error.message == f"the checkpoint at {later} does not fit the stage before it"
    assert error.detail == "it is behind: it has taken 1 steps, the stage before it 2"


def test_meaning_of_steps_and_arguments_is_the_same_in_every_session(offers: Offers) -> None:
    @F.udf("bigint", useArrow=False)
    def twice(value: int) -> int:
        return 2 * value

    def told(spark: SparkSession) -> tuple[Any, Any]:
        there = Offers(spark, offers.root)
        grouped = there.stream().group_by("k").agg(n=sw.sum(twice("v") + 1))
        longer = F.transform("tags", lambda one: F.concat(one, F.lit("#7")))
        steps = grouped.where(twice("n") > 3).select("n + 1 AS m", "explode(array(n, 2)) AS e")
        dedup = there.stream().dedup("k").select(longer.alias("long"), twice("v"))
        plan = grouped.planned(Adapt()).plan
        meanings = [one.described_verbs["meaning"] for one in (steps, dedup)]
        return plan.fingerprint()["aggregates"], meanings

    assert told(offers.spark) == told(offers.spark.newSession())
    [[_, _, text]], [_, [project, *_]] = told(offers.spark)
    assert "lambda x#" in project
    assert text == "sum((twice(v) + CAST(1 AS BIGINT)))"


# --- where and select ----------------------------------------------------------------------------

ROW_BY_ROW = "which cannot be computed row by row"
OTHERS = "has a function whose value does not follow from the row"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (lambda q: q.select("count(*)"), f"select(count(*)) has an aggregate, {ROW_BY_ROW}"),
        (lambda q: q.select("k", "max(v) OVER (PARTITION BY k)"), "has a window function"),
        (lambda q: q.select(F.sum("v")), f"has an aggregate, {ROW_BY_ROW}"),
        (lambda q: q.where("count(*) > 1"), "where(count(*) > 1) cannot be resolved"),
        (lambda q: q.where("rand() < 0.5"), f"where(rand() < 0.5) {OTHERS}"),
        (lambda q: q.select("uuid() AS id"), f"select(uuid() AS id) {OTHERS}"),
        (lambda q: q.select(F.monotonically_increasing_id()), OTHERS),
        (lambda q: q.select("input_file_name()"), OTHERS),
    ],
)
def test_step_that_is_no_function_of_the_row_is_refused(
    offers: Offers, step: Callable[[Result], Result], said: str
) -> None:
    error = refusal(PlanError, lambda: step(offers.stream().dedup("k")))
    assert said in error.message


def test_step_of_single_rows_is_taken(offers: Offers) -> None:
    shaped = offers.stream().dedup("k").select("k", "explode(tags) AS tag", "current_timestamp()")
    shaped = shaped.where("tag LIKE 'x%' AND k IN (SELECT max(id) FROM range(3))")
    shaped.select(F.window(F.lit("2020-01-01").cast("timestamp"), "1 hour", "5 minutes"), "tag")


def test_current_time_between_two_stages_is_refused(offers: Offers) -> None:
    recent = offers.join().where("a.ts > current_timestamp() - INTERVAL 1 HOUR")
    error = refusal(PlanError, lambda: recent.group_by("a.k"))
    assert error.message.startswith("the results of joined depend on the current time")


# --- aggregates, orders ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda g: g.agg(x=sw.min("folded")),
            "aggregate x=min(folded) cannot be ordered by collation",
        ),
        (lambda g: g.agg(x=sw.max("folded || 'y'")), "by collation UTF8_LCASE"),
        (lambda g: g.agg(x=sw.last("folded")), "by collation UTF8_LCASE"),
        (
            lambda g: g.agg(x=sw.first("v", by="folded")),
            "offers.folded cannot be ordered by collation",
        ),
        (lambda g: g.last(3, by="folded"), "offers.folded cannot be ordered by collation"),
        (
            lambda g: g.stream.dedup("k", by="folded"),
            "offers.folded cannot be ordered by collation",
        ),
        (
            lambda g: g.agg(x=sw.min("pair")),
            "x=min(pair) cannot be ordered: the type is struct<x:int>",
        ),
        (lambda g: g.agg(x=sw.max("tags")), "cannot be ordered: the type is array<string>"),
        (lambda g: g.agg(x=sw.first("bag")), "cannot be ordered: the type is map<string,int>"),
        (
            lambda g: g.agg(x=sw.last("tags", by="ts")),
            "cannot be ordered: the type is array<string>",
        ),
        (lambda g: g.agg(x=sw.last("v", by="pair")), "offers.pair cannot be ordered"),
        (lambda g: g.stream.dedup("k", by="tags"), "offers.tags cannot be ordered"),
        (lambda g: g.agg(x=sw.min("null")), "cannot be ordered: the type is void"),
        (lambda g: g.agg(x=sw.sum("rand()")), "aggregate x=sum(rand()) cannot be resolved"),
        (
            lambda g: g.agg(x=sw.sum("row_number() OVER (PARTITION BY k ORDER BY v)")),
            "aggregate x=sum(row_number() OVER (PARTITION BY k ORDER BY v))",
        ),
        (
            lambda g: g.stream.group_by("folded"),
            "has collation UTF8_LCASE, which cannot be a group-by",
        ),
        (
            lambda g: g.stream.dedup("folded"),
            "has collation UTF8_LCASE, which cannot be a dedup key",
        ),
    ],
)
def test_values_without_the_order_of_spark_are_refused(
    offers: Offers, wrong: Callable[[Any], Any], said: str
) -> None:
    error = refusal(PlanError, lambda: wrong(offers.stream().group_by("k")))
    assert said in error.message


def test_text_in_its_binary_form_is_taken(offers: Offers) -> None:
    grouped = offers.stream().group_by("k")
    grouped.agg(x=sw.min("folded COLLATE UTF8_BINARY"), y=sw.last("folded", by="ts"))


@pytest.mark.parametrize("condition", ["a.folded = b.folded", "a.folded < 'x' AND a.k < b.k"])
def test_collation_in_a_join_is_refused(offers: Offers, condition: str) -> None:
    frames = {name: source.stream() for name, source in offers.sources.items()}
    error = refusal(PlanError, lambda: sw.join(**frames).match(condition))
    assert "string collate UTF8_LCASE" in error.message
    error = refusal(PlanError, lambda: sw.join(**frames).on("folded"))
    assert "has collation UTF8_LCASE, which cannot be a join key" in error.message


# --- running queries -----------------------------------------------------------------------------


def test_error_of_the_users_function_is_shown(offers: Offers) -> None:
    def spread(columns: Mapping[str, Any], offsets: np.ndarray) -> np.ndarray:
        raise ValueError("the prices of 3 are odd")

    offers.add(1)
    function = sw.function(spread, "v", returns="double")
    query = offers.start(offers.stream().group_by("k").last(3).agg(x=function))
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination(LONGEST_S)
    shown = query.exception()
    assert "ValueError: the prices of 3 are odd" in str(failed.value)
    assert "ValueError: the prices of 3 are odd" in str(shown)
    assert "the prices of 3 are odd" in str(failed.value.__cause__)
    assert failed.value.__cause__ is not failed.value


def test_table_shows_new_results_in_the_users_session(offers: Offers) -> None:
    spark = offers.spark
    place = str(offers.root / "table")
    try:
        for at in range(2):
            offers.add(at)
            writer = offers.stream().dedup("k").select("k").writeStream.trigger(availableNow=True)
            writer = writer.adapt(slots=2, groups=8).option("checkpointLocation", place)
            query = writer.toTable("seen_results")
            # Spark remembers the files of a table that was read.
            spark.table("seen_results").count()
            assert query.awaitTermination(LONGEST_S)
            assert spark.table("seen_results").count() == at + 1
    finally:
        spark.sql("drop table if exists seen_results")
