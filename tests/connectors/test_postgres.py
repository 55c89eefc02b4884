"""A real PostgreSQL has every row of a batch once, with the batch's number in the same transaction."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pytest
from database import Database
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from spillway.errors import PlanError, QueryError, SpillwayError, StateError
from spillway.spark.runtime.loop import named_failure
from spillway.spark.sinks import Sink, SinkBatch, SinkSpec, make_sink

SCHEMA = "k bigint, name string"
FIRST = [(1, "a"), (2, ""), (None, None)]
SECOND = [(4, 'quote " comma , \n line'), (5, "\\N")]


def opened(spark: SparkSession, url: str, schema: str = SCHEMA, **options: str) -> Sink:
    given = {"url": url, "dbtable": "results", **options}
    sink = make_sink(SinkSpec("postgresql", given, writer="ab12"), spark)
    sink.open(spark.createDataFrame([], schema).schema)
    return sink


def batch(
    spark: SparkSession, rows: list[Any], number: int, schema: str = SCHEMA, *, replay: bool = False
) -> SinkBatch:
    frame = spark.createDataFrame(rows, schema).repartition(2)
    return SinkBatch(frame, number, replay)


def stored(database: Database) -> list[tuple[Any, ...]]:
    return in_order(database.rows("SELECT * FROM results"))


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sorted, with NULL as the last value of each column."""
    return sorted(rows, key=lambda row: [(value is None, value or "") for value in row[:2]])


def staged(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("SELECT tablename FROM pg_tables WHERE tablename LIKE 'spillway_stage%'")


def test_batches_are_there_once_with_their_number(spark: SparkSession, database: Database) -> None:
    sink = opened(spark, database.url)
    sink.write(batch(spark, FIRST, 0))
    sink.write(batch(spark, SECOND, 1))
    sink.write(batch(spark, [], 2))
    # The driver died after the commit; another start repeats the batch.
    again = opened(spark, database.url)
    again.write(batch(spark, [], 2, replay=True))
    again.write(batch(spark, [(6, "x")], 3))
    assert stored(database) == in_order([*FIRST, *SECOND, (6, "x")])
    assert database.rows("SELECT writer, number FROM spillway_commits") == [("ab12", 3)]
    assert staged(database) == []


@pytest.mark.full
def test_names_of_a_table_may_differ_in_case(spark: SparkSession, database: Database) -> None:
    database.rows('CREATE TABLE results ("K" bigint, name text, extra int)')
    sink = opened(spark, database.url, mergeKeys="k", deleteWhen="Name = 'x'")
    sink.write(batch(spark, [(1, "a"), (2, "b")], 0))
    sink.write(batch(spark, [(1, "x"), (2, "c")], 1))
    assert stored(database) == [(2, "c", None)]


@pytest.mark.full
def test_driver_that_slept_adds_nothing(spark: SparkSession, database: Database) -> None:
    """It has staged its rows when another start commits the batch, and the one after."""
    old, new = (opened(spark, database.url) for _ in range(2))
    prepared = old._target.prepare(batch(spark, FIRST, 0).rows, 0)  # type: ignore[attr-defined]
    new._knows = True  # type: ignore[attr-defined] # It sweeps nothing.
    new.write(batch(spark, FIRST, 0))
    new.write(batch(spark, SECOND, 1))
    old._target.commit(prepared, 0)  # type: ignore[attr-defined]
    old._target.discard(prepared)  # type: ignore[attr-defined]
    assert len(stored(database)) == len(FIRST) + len(SECOND)
    assert staged(database) == []


def test_rows_merge_by_key_and_null_is_a_key(spark: SparkSession, database: Database) -> None:
    schema = "a bigint, b string, total bigint"
    sink = opened(spark, database.url, schema, mergeKeys="A, b", deleteWhen="total = 0")
    rows = [(1, "x", 10), (None, "x", 20), (1, None, 30), (None, None, 40), (2, "y", 0)]
    sink.write(batch(spark, rows, 0, schema))
    database.rows("ALTER TABLE results ADD COLUMN note text DEFAULT 'kept'")
    rows = [(1, "x", 11), (None, "x", 0), (1, None, 31), (None, None, 41), (3, "z", None)]
    sink.write(batch(spark, rows, 1, schema))
    assert stored(database) == [
        (1, "x", 11, "kept"), (1, None, 31, "kept"), (3, "z", None, "kept"), (None, None, 41, "kept"),
    ]  # fmt: skip


@pytest.mark.full
def test_two_results_of_one_key_are_refused(spark: SparkSession, database: Database) -> None:
    sink = opened(spark, database.url, mergeKeys="k")
    with pytest.raises(
        QueryError, match=r"batch 0 has more than one result with the same key \(k\)"
    ):
        sink.write(batch(spark, [(7, "a"), (7, "b")], 0))
    assert stored(database) == []
    assert staged(database) == []


@pytest.mark.full
def test_older_checkpoint_is_refused(spark: SparkSession, database: Database) -> None:
    opened(spark, database.url).write(batch(spark, FIRST, 5))
    again = opened(spark, database.url)
    with pytest.raises(StateError, match="is ahead of the checkpoint: it has the batches up to 5"):
        again.write(batch(spark, SECOND, 3, replay=True))
    assert len(stored(database)) == len(FIRST)


@pytest.mark.full
def test_server_that_crashed_between_staging_and_commit_loses_no_row(
    spark: SparkSession, database: Database
) -> None:
    """It empties unlogged tables when it starts again."""
    sink = opened(spark, database.url)
    target = sink._target  # type: ignore[attr-defined]
    prepared = target.prepare(batch(spark, FIRST, 0).rows, 0)
    database.crash()
    with pytest.raises(QueryError, match="the query cannot use the table"):
        target.commit(prepared, 0)
    database.start()
    with pytest.raises(QueryError, match="0 of 3 staged rows of batch 0 are there"):
        target.commit(prepared, 0)
    assert target.last() is None
    sink.write(batch(spark, FIRST, 0, replay=True))
    assert len(stored(database)) == len(FIRST)
    assert staged(database) == []


@pytest.mark.full
def test_every_type_comes_back_as_it_was(spark: SparkSession, database: Database) -> None:
    schema = (
        "b boolean, i tinyint, j int, f float, d double, n decimal(20,4), s string, x binary, "
        "day date, at timestamp, plain timestamp_ntz, l array<int>, o struct<y:string>"
    )
    at = dt.datetime(2026, 3, 1, 12, 30, 0, 123456)
    row = (
        *(
            True,
            7,
            -5,
            0.5,
            float("inf"),
            decimal.Decimal("12345678901234.5678"),
            "\t'é",
            b"\x00\xff",
        ),
        *(dt.date(1969, 12, 31), at.replace(tzinfo=dt.timezone.utc), at, [1, None], ("z",)),
    )
    opened(spark, database.url, schema).write(batch(spark, [row, (None,) * 13], 0, schema))
    database.rows("SET TIME ZONE 'UTC'")
    rows = database.rows("SELECT * FROM results ORDER BY b NULLS LAST")
    assert rows[0] == (*row[:11], [1, None], {"y": "z"})
    assert rows[1] == (None,) * 13


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({}, "k bigint, other string", "the result has k, other"),
        ({}, "k bigint, K string", "more than one column named k"),
        ({}, "k interval day to second", "column 'k' is of type interval day to second"),
        ({"batchsize": "5"}, SCHEMA, "the sink 'postgresql' does not take the option batchsize"),
        ({"mergeKeys": "q"}, SCHEMA, "option mergeKeys: the result has no column 'q'"),
        ({"deleteWhen": "k = 1"}, SCHEMA, "option deleteWhen of the sink 'postgresql' needs mergeKeys"),
        ({"mergeKeys": "k", "deleteWhen": "q = 1"}, SCHEMA, "cannot evaluate 'q = 1'"),
        ({"dbtable": "a.b.c"}, SCHEMA, "option dbtable must be a table or schema.table"),
        ({"dbtable": "nowhere.t"}, SCHEMA, 'the query cannot use the table "nowhere"."t"'),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_before_the_stream_starts(
    spark: SparkSession, database: Database, options: dict[str, str], schema: str, message: str
) -> None:
    opened(spark, database.url)
    with pytest.raises(SpillwayError) as refused:
        opened(spark, database.url, schema, **options)
    assert message in refused.value.message
    assert refused.value.hint


@pytest.mark.full
def test_no_error_shows_the_password(spark: SparkSession, database: Database) -> None:
    with pytest.raises(QueryError) as refused:
        opened(spark, database.url.replace("/postgres", "/missing"))
    assert 'database "missing" does not exist' in str(refused.value)
    assert "kept-secret" not in str(refused.value)


@pytest.mark.full
def test_value_that_the_server_refuses_names_the_reason(
    spark: SparkSession, database: Database
) -> None:
    sink = opened(spark, database.url)
    database.rows("ALTER TABLE results ALTER COLUMN k TYPE smallint")
    with pytest.raises(PythonException) as raised:
        sink.write(batch(spark, [(70_000, "a")], 0))
    told = named_failure(raised.value)
    assert isinstance(told, QueryError)
    assert 'value "70000" is out of range for type smallint' in (told.detail or "")
    assert staged(database) == [], "a failed attempt is removed"


@pytest.mark.full
def test_url_is_asked_for(spark: SparkSession) -> None:
    with pytest.raises(PlanError, match="the sink 'postgresql' needs the option url"):
        make_sink(SinkSpec("postgresql", {}), spark)
