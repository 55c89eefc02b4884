"""Continuous SQL queries: the same text, run by Spark in batch over the same rows, is the oracle."""

from __future__ import annotations

import random
import warnings
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sql_oracle import SCHEMA, START, STREAMS, check, rows_of, run

import spillway as sw
from spillway.errors import PlanError
from spillway.testing import FileStream
from tier import few


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, FileStream]:
    """Three streams of two batches, in time order from batch to batch."""
    folder = tmp_path_factory.mktemp("sql")
    found = {name: FileStream(spark, folder / name, SCHEMA) for name in STREAMS}
    for at, stream in enumerate(found.values()):
        for batch in range(2):
            stream.add(rows_of(10 * at + batch, 14, 20 * batch))
    return found


#: Queries, and the places of the keys in the results of a group-by.
QUERIES: list[tuple[str, list[int] | None]] = [
    (
        """WITH low AS (SELECT k, lower(j) AS name, x + 1 AS y, ts FROM a WHERE x < 7)
           SELECT /*+ LATENESS('1 hour') */ low.y, b.n, c.x AS z, low.y * c.n AS product
           FROM low JOIN b ON low.k = b.k AND b.ts BETWEEN low.ts AND low.ts + INTERVAL 10 SECONDS
             JOIN c ON c.k = b.k
           WHERE c.ts <= b.ts AND c.ts > low.ts - INTERVAL '5' SECOND AND low.y <> c.x""",
        None,
    ),
    (
        """SELECT a.j, min(a.x), sum(b.n) / count(*) AS mean, count(b.x) FILTER (WHERE b.n > 1) AS many
           FROM a, b WHERE a.k = b.k GROUP BY a.j HAVING count(*) > 3 AND max(b.x) >= 1.5""",
        [0],
    ),
    ("SELECT a.x, b.x AS y FROM a JOIN b ON a.k = b.k WHERE a.x > 1 AND a.x < b.x", None),
    ("SELECT a.n, b.n AS m FROM a JOIN b ON lower(a.j) = lower(b.j) AND a.k <=> b.k", None),
    (
        """SELECT /*+ LATENESS('1 hour') */ a.x, b.x AS y FROM a, b
           WHERE abs(a.x - b.x) < 3 AND abs(a.ts - b.ts) < INTERVAL 5 SECONDS""",
        None,
    ),
    (
        """SELECT /*+ LATENESS('1 hour') */ a.n, b.n AS m, c.n AS o FROM a, b, c
           WHERE a.k = b.k AND b.j = c.j AND abs(a.ts - b.ts) < INTERVAL 8 SECONDS
             AND abs(b.ts - c.ts) <= INTERVAL 4 SECONDS""",
        None,
    ),
    ("SELECT a.n FROM a JOIN b ON a.k = b.k AND (a.n = b.n OR a.x IS NULL AND NOT b.x > 2)", None),
    ("SELECT DISTINCT k, j FROM a WHERE x > 1", None),
    ("SELECT DISTINCT a.j, b.n % 2 AS odd FROM a JOIN b USING (k)", None),
    ("SELECT k, count(*) AS n FROM (SELECT DISTINCT k, j FROM a) t GROUP BY k", [0]),
    (
        """SELECT u.k, count(*), sum(u.n), stddev(u.n) FROM (SELECT k, n FROM a UNION ALL
             SELECT k, n + 1 FROM b WHERE x > 1 UNION ALL SELECT k, 7 FROM c) u GROUP BY u.k""",
        [0],
    ),
    ("SELECT count(*), max(x), avg(n) FROM a", []),
    (
        """SELECT date_trunc('minute', ts) AS minute, upper(j) AS name, count_if(x > 1) AS many
           FROM a GROUP BY 1, upper(j)""",
        [0, 1],
    ),
    ("SELECT t.total * 2 AS twice, t.k FROM (SELECT k, sum(n) AS total FROM a GROUP BY k) t", [1]),
    (
        """SELECT * FROM (SELECT k, n FROM a) l JOIN (SELECT k, n AS m, j FROM b WHERE j = 'p') r
           USING (k) WHERE CASE WHEN l.n > 2 THEN r.m ELSE l.n END > 1""",
        None,
    ),
    (
        "SELECT /*+ PLAN('tree') */ a.n FROM a, b, c WHERE a.k = b.k AND b.k = c.k AND a.n > c.n",
        None,
    ),
]


# One has no key: the join says that it tests an equality on all pairs.
@pytest.mark.filterwarnings("ignore:the condition .* compares")
@pytest.mark.parametrize(("text", "keys"), few(QUERIES, 0, 1))
def test_query_gives_what_spark_gives_in_batch(spark, streams, tmp_path, text, keys) -> None:
    assert check(spark, text, streams, tmp_path, keys) > 0


def test_streams_may_be_given_by_keyword(spark, streams) -> None:
    spark.range(1).createOrReplaceTempView("orders")
    found = sw.sql(
        spark,
        "SELECT orders.x, min(p.ts), `p`.k FROM orders JOIN p ON orders.k = p.k GROUP BY orders.x, p.k",
        orders=streams["a"].stream(),
        p=streams["b"].stream(),
    )
    assert found.schema.names == ["x", "min(ts)", "k"]
    # The view of the same name is there again.
    assert spark.table("orders").columns == ["id"]


def test_watermarks_of_streams_are_the_lateness(spark, streams) -> None:
    marked = {n: streams[n].stream().withWatermark("ts", "7 seconds") for n in ("a", "b")}
    text = "SELECT a.x, b.n FROM a JOIN b USING (k) WHERE abs(a.ts - b.ts) < INTERVAL 1 MINUTE"
    told = sw.sql(spark, f"EXPLAIN {text}", **marked)
    assert told.count("window 60 s on ts, lateness 7 s") == 2
    with pytest.warns(UserWarning, match="nothing says how late rows may be"):
        sw.sql(spark, text, **{n: streams[n].stream() for n in ("a", "b")})


@pytest.mark.full
def test_differences_of_times_are_left_to_spark_where_days_differ(elsewhere, tmp_path) -> None:
    """In New York a day of March has 23 hours, and Spark subtracts local times."""
    streams = {name: FileStream(elsewhere, tmp_path / name, SCHEMA) for name in ("a", "b")}
    before = datetime(2026, 3, 8, 6, 30, tzinfo=timezone.utc)
    for name, later_min in (("a", 0), ("b", 45)):
        moment = before + timedelta(minutes=later_min)
        streams[name].add([(1, "p", 1.0, 1, moment)])
    text = "SELECT a.n FROM a JOIN b USING (k) WHERE abs(a.ts - b.ts) < INTERVAL 1 HOUR"
    assert run(elsewhere, text, streams, tmp_path) == []
    assert check(elsewhere, text.replace("1 HOUR", "2 HOURS"), streams, tmp_path / "2") == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "SELECT nofn(a.x) AS y FROM a JOIN b USING (k)",
            ["`nofn`", "line 1, column 8", "^^^^^^^^^"],
        ),
        (
            "SELECT a.x FROM a JOIN b USING (k) WHERE a.ts > 3",
            ['"TIMESTAMP" and "INT"', "a.ts > 3"],
        ),
        ("SELECT zz.x FROM zz JOIN a USING (k)", ["there is no stream zz", "a, b, c"]),
        ("SELECT a.*, b.* FROM a JOIN b USING (k)", ["two columns of its results are called k"]),
        ("SELECT t.x FROM table1 t JOIN a USING (k)", ["table1 is a table, not a stream"]),
        ("SELECT a.x FROM a JOIN b USING (k) WHERE rand() > a.x", ["does not follow from the row"]),
    ],
)
def test_what_spark_rejects_has_its_place(spark, streams, text, told) -> None:
    for name, stream in streams.items():
        stream.stream().createOrReplaceTempView(name)
    spark.range(1).selectExpr("id AS k", "id AS x").createOrReplaceTempView("table1")
    with pytest.raises(PlanError) as caught:
        sw.sql(spark, text)
    assert all(one in str(caught.value) for one in told), str(caught.value)


def test_query_1_runs_as_the_paper_writes_it(spark, tmp_path) -> None:
    """`min(price)` is live: every batch gives the brokers whose cheapest offer changed."""
    banks = {}
    for at, name in enumerate(("bank1", "bank2", "bank3")):
        banks[name] = FileStream(
            spark,
            tmp_path / name,
            "brokerName string, price decimal(10,2), offerCurrency string, offer int, "
            "timestamp timestamp",
        )
        for batch in range(2):
            drawn = random.Random(100 * at + batch)
            frame = spark.createDataFrame(
                [
                    (
                        f"broker{drawn.randrange(5)}", drawn.randrange(100, 900) / 7,
                        drawn.choice(["EUR", "USD"]), drawn.randrange(4),
                        START + timedelta(seconds=30 * batch + drawn.randrange(60)),
                    )
                    for _ in range(20)
                ],
                "b string, p double, c string, o int, t timestamp",
            ).select("b", F.col("p").cast("decimal(10,2)"), "c", "o", "t")  # fmt: skip
            banks[name].add(frame.toDF(*banks[name].schema.names))
    text = (Path(__file__).parents[2] / "examples" / "bank.sql").read_text()
    assert check(spark, text, banks, tmp_path, [0]) > 0


def test_only_a_likely_mistake_warns(spark, streams) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frames = {name: streams[name].stream() for name in ("a", "b")}
        sw.sql(spark, "SELECT a.x FROM a JOIN b USING (k)", **frames)
