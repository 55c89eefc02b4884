"""Joins on any predicate against Spark's batch cross join: streams, windows, types."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from matched import (
    BEGIN,
    PAIRS,
    SCHEMA,
    expected,
    matched,
    rows,
    scenario_of,
    window_rows,
    windows_of,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from scenario import Scenario

import spillway as sw
from spillway.spark.api.expressions.reading import fields_read
from spillway.testing import assert_same_rows, oracle
from tier import few


@pytest.mark.parametrize(
    ("names", "equal", "count"),
    few([("ab", True, 40), ("abc", False, 40), ("abcd", False, 40), ("abcde", True, 10)], 1),
)
def test_every_combination_comes_once(
    spark: SparkSession, tmp_path: Path, names: str, equal: bool, count: int
) -> None:
    scenario = scenario_of(spark, tmp_path, names, count=count)
    joined = matched(scenario, names, equal)
    query = scenario.run(joined)
    assert sum(sum(one["rowsLate"].values()) for one in query.recentProgress) == 0
    wanted = expected(scenario, names, equal=equal)
    assert wanted.count() > 100
    assert_same_rows(scenario.output(joined), wanted)
    # Every row is stored once, and as long as it can find partners.
    last = query.recentProgress[-1]
    held = window_rows(names, equal, count)
    assert last["stateRows"] == held > count
    assert sum(sum(slot["stateRows"].values()) for slot in last["slots"]) == held
    assert_explained(query.describe(), "a -> b -> c" if names == "abc" else "a -> b")


def assert_explained(told: str, order: str) -> None:
    """The text tells what was measured."""
    assert "none: rows visit all slots" in told
    assert "µs per pair, selectivity 0." in told
    assert f"probe orders: {order}" in told
    assert "in use" in told


IMAGES = "id int, x double, ts timestamp, image binary"


@pytest.mark.parametrize("how", few(["psp", "atr"], 0))
def test_rows_with_a_null_image_match_nothing(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    def alike(a: Any, b: Any) -> Any:
        return (a.matrix("image") == b.matrix("image")).all(axis=1)

    scenario = Scenario(spark, tmp_path, a=IMAGES, b=IMAGES)
    for batch in range(2):
        pictures = [None if n % 5 == batch else bytes([n % 3] * 4) for n in range(20)]
        given = [(n, 1.0, BEGIN + dt.timedelta(seconds=n), p) for n, p in enumerate(pictures)]
        scenario.add(a=given, b=given[::2] if batch else given[:1])
    joined = scenario.join().within("4 minutes", time="ts").match(alike, "a", "b")
    scenario.run(joined, distribute=how)
    frames = {name: stream.batch() for name, stream in scenario.streams.items()}
    windows = dict.fromkeys("ab", ("ts", 240_000_000))
    assert_same_rows(scenario.output(joined), oracle(frames, None, windows, "a.image = b.image"))


#: Columns of which Spark knows that nothing in them is NULL.
SURE = {
    "array": lambda: F.array(F.lit(1.0), F.lit(2.0)),
    "struct": lambda: F.struct(F.lit(1).alias("p"), F.array(F.lit(3)).alias("q")),
}


@pytest.mark.parametrize("kind", few(SURE, 0))
@pytest.mark.parametrize("sure", few(["a", "abc"], 1))
def test_columns_that_are_never_null_inside_pass_through_rounds(
    spark: SparkSession, tmp_path: Path, kind: str, sure: str
) -> None:
    scenario = scenario_of(spark, tmp_path, "abc", batches=2)
    made = SURE[kind]
    streams = {n: s.stream(1) for n, s in scenario.streams.items()}
    more = {n: f.withColumn("v", made()) if n in sure else f for n, f in streams.items()}
    joined = sw.join(**more).within(windows_of("abc"), time="ts", lateness="6 minutes")
    for text in list(PAIRS.values())[:2]:
        joined = joined.match(text)
    scenario.run(joined)
    names = [f"struct({n}.*{', v' if n in sure else ''}) AS {n}" for n in "abc"]
    wanted = expected(scenario, "abc").withColumn("v", made()).selectExpr(*names)
    assert_same_rows(scenario.output(joined), wanted)


def test_condition_over_all_streams_and_a_function_of_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = scenario_of(spark, tmp_path, "abc", batches=2)

    def same_letter(a: Any, c: Any) -> bool:
        return bool(a.name[1] == c.name[1])

    with pytest.warns(UserWarning, match="same_letter"):
        test = sw.scalar(same_letter)
    joined = matched(scenario, "abc").match(test, "a", "c").match("a.x + b.x + c.x < 14")
    scenario.run(joined)
    more = "a.name = c.name and a.x + b.x + c.x < 14"
    assert_same_rows(scenario.output(joined), expected(scenario, "abc", more))


@pytest.mark.parametrize("how", few(["psp", "atr"], 1))
def test_conditions_said_as_one_give_the_same(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    scenario = scenario_of(spark, tmp_path, "abc", batches=2)
    joined = scenario.join().within(windows_of("abc"), time="ts", lateness="6 minutes")
    joined = joined.match(" and ".join(f"({text})" for text in list(PAIRS.values())[:2]))
    scenario.run(joined, distribute=how)
    assert_same_rows(scenario.output(joined), expected(scenario, "abc"))


def test_conditions_beside_equal_keys(spark: SparkSession, tmp_path: Path) -> None:
    scenario = scenario_of(spark, tmp_path, "abc")
    joined = matched(scenario, "abc").on("name")
    scenario.run(joined)
    more = "a.name = b.name and b.name = c.name"
    assert_same_rows(scenario.output(joined), expected(scenario, "abc", more))


def test_decimals_times_and_nulls_are_compared_as_spark_compares_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = "id int, m decimal(10,2), l bigint, d date, ts timestamp"
    scenario = Scenario(spark, tmp_path, a=schema, b=schema)
    for batch in range(3):
        made = {
            name: [
                (
                    number,
                    None if x is None else Decimal(str(round(x, 2))),
                    None if number % 4 == 0 else number % 10,
                    dt.date(2024, 1, 1 + number % 3),
                    at,
                )
                for number, x, _, at in rows(batch + offset, 60)
            ]
            for name, offset in (("a", 0), ("b", 100))
        }
        scenario.add(**made)
    joined = scenario.join().within("4 minutes", time="ts", lateness="6 minutes")
    conditions = (
        "a.m * 0.1 > b.l / 10 or a.d = '2024-01-02'",
        "a.ts between b.ts - INTERVAL 2 MINUTES and b.ts",
        "not (a.m < b.l)",
    )
    for text in conditions:
        joined = joined.match(text)
    scenario.run(joined)
    frames = {name: stream.batch() for name, stream in scenario.streams.items()}
    windows = dict.fromkeys("ab", ("ts", 240_000_000))
    condition = " and ".join(f"({text})" for text in conditions)
    wanted = oracle(frames, None, windows, condition)
    assert wanted.count() > 20
    assert_same_rows(scenario.output(joined), wanted)


@pytest.mark.parametrize("keys", [(), pytest.param(("name",), marks=pytest.mark.full)])
def test_columns_that_nothing_reads_are_not_made(
    spark: SparkSession, tmp_path: Path, keys: tuple[str, ...]
) -> None:
    scenario = scenario_of(spark, tmp_path, "abc")
    chosen = ("a.id AS a", "c.x + 1 AS c", "hash(c) AS whole")
    whole = matched(scenario, "abc").on(*keys) if keys else matched(scenario, "abc")
    joined = whole.where("a.x < 9").select(*chosen)
    made = {one.name: one.dataType.names for one in joined.made_schema.fields}
    assert made == {"a": ["id", "x"], "b": ["id"], "c": ["id", "x", "name", "ts"]}
    scenario.run(joined)
    more = "a.x < 9" + "".join(f" and a.{key} = b.{key} and b.{key} = c.{key}" for key in keys)
    same = expected(scenario, "abc", more).selectExpr(*chosen)
    assert_same_rows(scenario.output(joined), same)


@pytest.mark.parametrize(
    ("selected", "read"),
    [
        (["a.id"], {"a": {"id"}, "b": set()}),
        (["a.s.p", "B.ID AS n"], {"a": {"s"}, "b": {"id"}}),
        (["a.*"], {"a": {"id", "s"}, "b": set()}),
        (["struct(a, b.id) AS n"], {"b": {"id"}}),
        (["transform(b.of, one -> one + a.id) AS n"], {"a": {"id"}, "b": {"of"}}),
        (["a.id IN (SELECT 1) AS n"], None),
        (["1 AS n"], {"a": set(), "b": set()}),
    ],
)
def test_fields_that_a_query_reads_are_known(
    spark: SparkSession, selected: list[str], read: dict[str, set[str]] | None
) -> None:
    schema = "a struct<id:int,s:struct<p:int,q:int>>, b struct<id:int,of:array<int>>"
    rows = spark.createDataFrame([], schema)
    assert fields_read(rows.where("true").selectExpr(*selected)) == read


@pytest.mark.parametrize("how", ["psp", "auto"])
def test_equal_text_is_warned_of_once_before_the_stream_starts(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    scenario = scenario_of(spark, tmp_path, "ab", batches=1)
    joined = scenario.join().within("4 minutes", time="ts").match("a.name = b.name")
    said = (
        r"the condition 'a.name = b.name' compares a.name with b.name in every pair of rows .*; "
        r'\.on\(a="name", b="name", ...\) is faster: it finds equal keys by hash'
    )
    with pytest.warns(UserWarning, match=said) as caught:
        scenario.run(joined, distribute=how)
    assert len([one for one in caught if "a.name = b.name" in str(one.message)]) == 1
    # Beside equal keys few pairs are compared; a warning would fail the test.
    scenario_of(spark, tmp_path / "keys", "ab", batches=1).run(joined.on("name"))


def test_no_window_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    joined = scenario.join().match("a.x < b.x")
    with pytest.raises(sw.PlanError, match="neither equal keys nor a window"):
        scenario.start(joined)


@pytest.mark.parametrize("keys", [(), ("name",)])
@pytest.mark.parametrize("how", [{"kind": "tree"}, {"kind": "nway"}, {"shape": "(a b)"}])
def test_plan_beside_conditions_is_refused(
    spark: SparkSession, tmp_path: Path, keys: tuple[str, ...], how: dict[str, str]
) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    joined = matched(scenario, "ab").plan(**how)
    with pytest.raises(sw.PlanError) as refused:
        scenario.start(joined.on(*keys) if keys else joined)
    assert str(refused.value) == (
        "a join cannot have both match() and plan()\n"
        "  hint: leave plan() out: the query measures the best order itself; or, with equal keys, "
        "move the condition to where()"
    )


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("a.y < b.x", "has no column y"),
        ("a.x < z.x", "z"),
        ("sha2(a.name, 256) = b.name", "sha2"),
        ("a.x > 3", "one stream"),
        ("a.name = b.x", r"= does not take a.name \(string\) and b.x \(double\)"),
        ("a.ts - b.ts < 3", r"- does not take a.ts \(timestamp\)"),
    ],
)
def test_conditions_that_do_not_fit_are_refused(
    spark: SparkSession, tmp_path: Path, condition: str, said: str
) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    with pytest.raises(sw.PlanError, match=said):
        scenario.join().match(condition)


def test_column_is_refused_with_the_text_to_write_instead(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    with pytest.raises(
        sw.PlanError, match=r"not Column<'.*a\.x.*'>\n  hint: .*match\(\"a\.x < b\.x\"\)"
    ):
        scenario.join().match(F.col("a.x") < F.col("b.x"))


def test_condition_of_a_session_without_ansi_mode_is_refused(
    elsewhere: SparkSession, tmp_path: Path
) -> None:
    elsewhere.conf.set("spark.sql.ansi.enabled", "false")
    scenario = Scenario(elsewhere, tmp_path, a=SCHEMA, b=SCHEMA)
    with pytest.raises(sw.PlanError, match=r"'a.x < b.x' needs ANSI SQL"):
        scenario.join().match("a.x < b.x")
