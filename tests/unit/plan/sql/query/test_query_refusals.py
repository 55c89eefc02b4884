"""What SQL queries cannot say: each error points at the place and says what to write instead."""

from __future__ import annotations

import pytest

from spillway.errors import PlanError
from spillway.plan.sql.query.catalog import Catalog, Registered
from spillway.plan.sql.query.clauses import read
from spillway.plan.sql.query.planning import plan

COLUMNS = {"k": "bigint", "j": "string", "x": "double", "ts": "timestamp"}
CATALOG = Catalog({name: Registered(COLUMNS) for name in ("orders", "b", "c")})


def error(text: str) -> PlanError:
    with pytest.raises(PlanError) as caught:
        plan(read(text), CATALOG)
    return caught.value


def marked(text: str, problem: PlanError) -> str:
    """The part of the text that an error marks."""
    lines = str(problem.detail).splitlines()
    at = next(i for i, line in enumerate(lines) if "| " in line)
    shown, marks = (line.partition("| ")[2] for line in lines[at : at + 2])
    assert shown in text.splitlines()
    return shown[marks.index("^") : marks.rindex("^") + 1]


# Text, what the error marks, its reason, its remedy.
REFUSALS = [
    ("SELECT k FROM orders o JOIN b USING (j)", "k", "k is a column of o, b", "write o.k"),
    ("SELECT o.z FROM orders o JOIN b USING (k)", "o.z", "o has no column z", "o has k, j, x, ts"),
    ("SELECT o.tss FROM orders o JOIN b USING (k)", "o.tss", "no column tss", "did you mean ts?"),
    ("SELECT q.x FROM orders JOIN b USING (k)", "q.x", "q is not in FROM", "FROM has orders, b"),
    ("SELECT orders.k FROM orders, b", "orders, b", "nothing joins orders and b", "add an equality"),
    ("SELECT x FROM orders", "SELECT x FROM orders", "keeps no state", "spark.sql(text)"),
    (
        "SELECT b.k FROM b JOIN b c ON b.k = c.k",
        "b c",
        "b is joined with itself",
        "read its source twice",
    ),
    ("SELECT b.k FROM b JOIN c b ON b.k = b.k", "c b", "two streams called b", "c AS other"),
    ("SELECT k, x FROM b GROUP BY k", "x", "neither a key nor in an aggregate", "write min(x)"),
    ("SELECT k FROM b GROUP BY k HAVING sum(x) > 3", "sum(x) > 3", "can stop meeting", "count(...) > n"),
    (
        "SELECT k FROM b GROUP BY k HAVING count(*) < 3",
        "count(*) < 3",
        "can stop meeting",
        "filter where",
    ),
    (
        "SELECT k FROM b GROUP BY k HAVING max(ts) > current_timestamp()",
        "max(ts) > current_timestamp()",
        "can stop meeting",
        "filter where",
    ),
    (
        "SELECT t.k FROM (SELECT b.k, c.k FROM b JOIN c USING (j)) t JOIN orders o ON o.k = t.k",
        "(SELECT b.k, c.k FROM b JOIN c USING (j)) t",
        "two columns of t are called k",
        "k AS other",
    ),
    ("SELECT k FROM b GROUP BY 2", "2", "SELECT has no item 2", "use 1 to 1"),
    ("SELECT /*+ FOO(1) */ b.k FROM b JOIN c USING (k)", "FOO(1)", "not a hint of Spillway", "LATENESS"),
    (
        "SELECT /*+ LATENESS(z, '1 second') */ b.k FROM b JOIN c USING (k)",
        "LATENESS(z, '1 second')",
        "LATENESS names z",
        "use b, c",
    ),
    (
        "SELECT /*+ LATENESS('soon') */ b.k FROM b JOIN c USING (k)",
        "'soon'",
        "'soon' is not a duration",
        '"10 minutes"',
    ),
    (
        "SELECT /*+ LATENESS('1 second') */ b.k FROM b JOIN c USING (k)",
        "b JOIN c",
        "LATENESS has no effect",
        "INTERVAL 10 MINUTES",
    ),
    ("SELECT b.x FROM b, c WHERE b.x < c.x", "b.x < c.x", "compared with all earlier", "for every pair"),
    (
        "SELECT b.x FROM b, c WHERE b.x < c.x AND abs(b.ts - c.ts) < INTERVAL 1 MINUTE",
        "b.x < c.x",
        "how late rows may be",
        "LATENESS('30 seconds')",
    ),
    ("SELECT b.x FROM b WHERE k IN (SELECT k FROM c)", "SELECT", "a query inside", "LEFT SEMI JOIN"),
    (
        "SELECT row_number() OVER (PARTITION BY k ORDER BY ts) FROM b",
        "OVER",
        "window functions",
        "GROUP BY",
    ),
    ("SELECT sum(DISTINCT x) FROM b", "sum(DISTINCT x)", "DISTINCT", "SELECT DISTINCT <keys>, x"),
    ("SELECT collect_list(x) FROM b", "collect_list(x)", "not supported", "grows without end"),
    ("SELECT sum(max(x)) FROM b", "max(x)", "inside another", "subquery"),
    ("SELECT sum(x, k) FROM b", "sum(x, k)", "takes one argument, not 2", "sum(price)"),
    ("SELECT max_by(x) FROM b", "max_by(x)", "takes two arguments, not 1", "max_by(price, ts)"),
    ("SELECT approx_percentile(x, 2) FROM b", "2", "not a fraction from 0 to 1", "0.5"),
    ("SELECT k FROM b WHERE max(x) > 1", "max(x) > 1", "WHERE has an aggregate", "HAVING"),
    (
        "SELECT n FROM (SELECT k, count(*) AS n FROM b GROUP BY k) WHERE n > 3",
        "n > 3",
        "may keep an older version",
        "HAVING",
    ),
    (
        "SELECT n, count(*) FROM (SELECT k, count(*) AS n FROM b GROUP BY k) GROUP BY n",
        "SELECT n, count(*) FROM (SELECT k, count(*) AS n FROM b GROUP BY k) GROUP BY n",
        "cannot read the results of a GROUP BY",
        "one GROUP BY",
    ),
    (
        "SELECT max(n) FROM (SELECT /*+ LATENESS('1 s') */ count(*) AS n FROM b "
        "GROUP BY window(ts, '1 minute')) t",
        "SELECT max(n) FROM (SELECT /*+ LATENESS('1 s') */ count(*) AS n FROM b "
        "GROUP BY window(ts, '1 minute')) t",
        "cannot read the results of a GROUP BY",
        "one GROUP BY",
    ),
    (
        "SELECT t.n FROM (SELECT k, count(*) AS n FROM b GROUP BY k) t JOIN c ON t.k = c.k",
        "SELECT k, count(*) AS n FROM b GROUP BY k",
        "cannot be joined",
        "join the streams first",
    ),
    (
        "SELECT DISTINCT k FROM b GROUP BY k",
        "DISTINCT",
        "DISTINCT over a GROUP BY",
        "leave DISTINCT out",
    ),
    ("SELECT DISTINCT k, x AS k FROM b", "DISTINCT", "two columns are called k", "k AS other"),
    ("SELECT b.x FROM b JOIN c USING (k) ORDER BY x", "ORDER", "no order", "sort where"),
    ("SELECT b.x FROM b JOIN c USING (k) LIMIT 3", "LIMIT", "no last row", "leave LIMIT out"),
    ("SELECT x, FROM b", "", "an expression is missing", "remove the comma"),
    ("SELECT x FROM b WHERE (x > 1", "SELECT x FROM b WHERE (x > 1", "not closed", "close it"),
    ("SELECT x FROM b WHERE x > 1)", ")", "no parenthesis is open", "remove it"),
    ("SELECT x FROM b WHERE AND x > 1", "", "a condition is missing", "remove AND"),
    ("SELECT x FROM b WHERE x > +", "x > +", "cannot be parsed", "Spark SQL"),
    ("SELECT b.x FROM b NATURAL JOIN c", "NATURAL JOIN", "NATURAL JOIN is not", "spelled out"),
    ("SELECT b.x FROM b UNION SELECT c.x FROM c", "UNION", "without ALL", "SELECT DISTINCT *"),
    ("SELECT k FROM b EXCEPT SELECT k FROM c", "EXCEPT", "EXCEPT", "LEFT ANTI JOIN"),
    ("DELETE FROM b", "DELETE", "DELETE is not a query", "SELECT ... FROM"),
    ("SELECT 1", "SELECT 1", "reads no stream", "add FROM"),
    ("SELECT k FROM b; SELECT k FROM c", ";", "more than one statement", "its own"),
    ("SELECT x FROM range(3)", "range(3)", "table function", "name a stream"),
    (
        "SELECT struct(b.*) AS s FROM b JOIN c USING (k)",
        "b.*",
        "inside an expression",
        "name the columns",
    ),
    ("SELECT k FROM b GROUP BY ROLLUP (k)", "ROLLUP (k)", "ROLLUP", "one grouping"),
    (
        "SELECT * FROM (SELECT k FROM b UNION ALL SELECT k, x FROM c) u GROUP BY k",
        "SELECT k, x FROM c",
        "2 columns, the first of the UNION ALL 1",
        "same columns",
    ),
    (
        "SELECT b.x FROM b LEFT JOIN c USING (k)",
        "b LEFT JOIN c",
        "rows without partners never come out",
        "to ON",
    ),
    (
        "SELECT b.x FROM b LEFT JOIN c ON b.k = c.k AND b.ts = c.ts",
        "b LEFT JOIN c",
        "how late rows may be",
        "LATENESS",
    ),
    (
        "SELECT b.x FROM b LEFT JOIN c ON b.k = c.k AND b.x > 1",
        "b.x > 1",
        "about b alone",
        "write it in WHERE",
    ),
    (
        "SELECT b.x FROM b LEFT JOIN c ON b.k = c.k LEFT JOIN orders o ON o.k = c.k",
        "o.k = c.k",
        "c may be missing",
        "relate the stream to b",
    ),
    (
        "SELECT b.x FROM b FULL JOIN c ON b.k = c.k JOIN orders o ON o.k = c.k",
        "c",
        "FULL JOIN is for two streams",
        "use LEFT JOIN",
    ),
    ("SELECT c.x FROM b LEFT SEMI JOIN c USING (k)", "c.x", "c is not in FROM", "FROM has b"),
    (
        "SELECT c.y FROM b LEFT JOIN (SELECT k, x + 1 AS y FROM c) c ON b.k = c.k",
        "(SELECT k, x + 1 AS y FROM c) c",
        "computes is not supported",
        "plain columns",
    ),
    (
        "SELECT k, count(*) FROM b GROUP BY k, window(ts, '5 minutes')",
        "window(ts, '5 minutes')",
        "how late rows may be",
        "LATENESS",
    ),
    (
        "SELECT /*+ LATENESS('1 s') */ window(ts, '1 minute') FROM b GROUP BY window(ts, '5 minutes')",
        "window(ts, '1 minute')",
        "not a key",
        "in GROUP BY, too",
    ),
    (
        "SELECT k FROM b GROUP BY window(ts, '5 minutes'), session_window(ts, '5 minutes')",
        "session_window(ts, '5 minutes')",
        "two time windows",
        "keep one",
    ),
    (
        "SELECT * FROM (SELECT b.k FROM b JOIN c USING (k) UNION ALL SELECT k FROM c) u GROUP BY k",
        "SELECT b.k FROM b JOIN c USING (k)",
        "UNION ALL of the results",
        "unite the streams first",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "why", "hint"), REFUSALS)
def test_error_points_at_the_place_and_says_what_to_write(
    text: str, place: str, why: str, hint: str
) -> None:
    found = error(text)
    assert why in found.message
    assert hint in str(found.hint)
    assert marked(text, found).strip() == place or not place


def test_place_is_the_line_and_column_of_a_long_query() -> None:
    text = "SELECT b.k,\n       c.y AS other\nFROM b\n  JOIN c ON b.k = c.k"
    assert str(error(text)) == (
        "the SQL query cannot run: c has no column y\n"
        "  detail: line 2, column 8\n"
        "    2 |        c.y AS other\n"
        "      |        ^^^\n"
        "  hint: c has k, j, x, ts"
    )


@pytest.mark.parametrize("text", ["", "   ", "SELECT 'open", None])
def test_text_that_is_no_query_is_refused(text: str) -> None:
    assert error(text).hint


def test_names_in_hints_have_their_place_in_the_whole_text() -> None:
    text = "SELECT\n  /*+ LATENESS('1 second'), WRONG */ b.k FROM b JOIN c USING (k)"
    assert "line 2, column 29" in str(error(text).detail)
