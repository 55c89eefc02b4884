"""SQL with outer joins and with windows of time: the same text, run by Spark in batch, is the oracle.

A last row in every stream, later than all windows, makes the query decide about all rows before it.
Filters of streams keep it: the rows that they drop do not move the watermark.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sql_oracle import SCHEMA, START, STREAMS, check, rows_of, run

from spillway.testing import FileStream
from tier import few

LATE = "/*+ LATENESS('1 minute') */"
NEAR = "a.k = b.k AND abs(a.ts - b.ts) < INTERVAL 8 SECONDS"
#: Key and name of the last rows. They may still wait for partners, so the comparison leaves them out.
LAST = (99, "z")


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, FileStream]:
    folder: Path = tmp_path_factory.mktemp("kinds")
    found = {name: FileStream(spark, folder / name, SCHEMA) for name in STREAMS}
    for at, stream in enumerate(found.values()):
        for batch in range(2):
            stream.add(rows_of(50 + 10 * at + batch, 14, 20 * batch))
        stream.add([(*LAST, 7.5, 3, START + timedelta(hours=5))])
    return found


JOINS = [
    f"""SELECT {LATE} a.k, a.n, b.n AS m FROM a LEFT JOIN b ON {NEAR} AND b.x > 1 AND a.n <= b.n
        WHERE a.n > 0 AND coalesce(b.n, 7) > 1""",
    f"SELECT {LATE} a.n, b.k, b.n AS m FROM a RIGHT JOIN b ON {NEAR} WHERE b.n < 4",
    f"""SELECT {LATE} coalesce(a.k, b.k) AS k, a.n, b.n AS m FROM a FULL OUTER JOIN b
        ON {NEAR} AND a.j = b.j WHERE coalesce(a.n, 9) <> b.n OR b.n IS NULL""",
    f"SELECT {LATE} a.k, a.n, a.ts FROM a LEFT SEMI JOIN b ON {NEAR} AND b.x > a.x",
    f"SELECT {LATE} * FROM a LEFT ANTI JOIN b ON {NEAR} AND b.x > a.x WHERE a.n > 1",
    f"""SELECT {LATE} a.k, a.n, b.n AS m, c.n AS o FROM a LEFT JOIN b ON {NEAR} LEFT JOIN c
        ON c.k = a.k AND c.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS AND c.n > 1""",
    f"""SELECT {LATE} a.j, count(*) AS n, count(b.n) AS m FROM a LEFT JOIN b ON {NEAR}
        GROUP BY a.j""",
]


@pytest.mark.parametrize("text", few(JOINS, 0))
def test_outer_join_gives_what_spark_gives_in_batch(spark, streams, tmp_path, text) -> None:
    found = run(spark, text, streams, tmp_path)
    if "GROUP BY" in text:
        found = list({row[0]: row for row in found}.values())
    assert decided(found) == decided(batch(spark, text, streams))
    assert decided(found)


def batch(spark: SparkSession, text: str, streams: dict[str, FileStream]) -> list[tuple[Any, ...]]:
    for name, stream in streams.items():
        stream.batch().createOrReplaceTempView(name)
    return [tuple(row) for row in spark.sql(text).collect()]


def decided(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(repr(row) for row in rows if not set(row) & set(LAST))


WINDOWS = [
    f"""SELECT {LATE} k, window.start AS s, window.end AS e, count(*) AS n, max(x) AS top
        FROM a GROUP BY k, window(ts, '10 seconds')""",
    f"""SELECT {LATE} window(ts, '10 seconds', '5 seconds').start AS s, sum(n) AS n, j FROM a
        GROUP BY window(ts, '10 seconds', '5 seconds'), j""",
    f"""SELECT {LATE} session_window.start AS s, session_window.end AS e, j, count(*) AS n FROM a
        GROUP BY session_window(ts, '3 seconds'), j""",
    f"""SELECT {LATE} window.end AS e, count(*) AS n FROM a JOIN b ON {NEAR}
        GROUP BY window(a.ts, '10 seconds')""",
]


@pytest.mark.parametrize("text", few(WINDOWS, 0))
def test_windows_of_time_give_what_spark_gives_in_batch(spark, streams, tmp_path, text) -> None:
    found = run(spark, text, streams, tmp_path)
    expected = batch(spark, text, streams)
    first_hour = START.replace(tzinfo=None) + timedelta(hours=1)
    # The window of the last row is still open.
    closed = [
        row
        for row in expected
        if any(isinstance(v, type(first_hour)) and v < first_hour for v in row)
    ]
    assert sorted(map(repr, found)) == sorted(map(repr, closed))
    assert closed


#: Aggregates that only Spillway's group-by has as functions.
MORE = """SELECT j, count(DISTINCT n) AS d, approx_count_distinct(n) AS e, bool_and(n > 1) AS f,
          any(n > 3) AS g, max_by(n, unix_micros(ts) + n) FILTER (WHERE n < 4) AS h FROM a GROUP BY j"""


@pytest.mark.full
def test_other_aggregates_give_what_spark_gives_in_batch(spark, streams, tmp_path) -> None:
    assert check(spark, MORE, streams, tmp_path, [0]) > 0
