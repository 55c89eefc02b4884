"""What SQL queries mean: keys, windows, conditions, groups. No Spark."""

from __future__ import annotations

import pytest

from spillway.plan.sql.query.catalog import Catalog, Registered
from spillway.plan.sql.query.clauses import read
from spillway.plan.sql.query.explaining import explained
from spillway.plan.sql.query.nodes import (
    DedupNode,
    GroupNode,
    JoinNode,
    Node,
    Planned,
    SelectNode,
    StreamNode,
)
from spillway.plan.sql.query.planning import plan

COLUMNS = {"k": "bigint", "j": "string", "x": "double", "ts": "timestamp", "s": "struct<k:bigint>"}
OTHERS = {"k": "int", "J": "string", "n": "decimal(10,2)", "ts": "timestamp", "my col": "string"}
STREAMS = {**{name: Registered(COLUMNS) for name in "abc"}, "d": Registered(OTHERS)}
SECOND = 1_000_000

QUERY_1 = """
SELECT bank1.brokerName, min(bank1.price)
FROM bank1, bank2, bank3
WHERE bank1.offerCurrency = bank2.offerCurrency
  AND bank2.offerCurrency = bank3.offerCurrency
  AND bank1.offer = bank2.offer
  AND bank2.offer = bank3.offer
  AND bank1.timestamp >= bank2.timestamp + INTERVAL 20 SECONDS
  AND bank1.timestamp >= bank3.timestamp + INTERVAL 20 SECONDS
GROUP BY bank1.brokerName
"""
BANK = {
    "brokerName": "string",
    "price": "decimal(10,2)",
    "offerCurrency": "string",
    "offer": "int",
    "timestamp": "timestamp",
}


def planned(text: str, *, steady: bool = True, **streams: Registered) -> Planned:
    return plan(read(text), Catalog({**STREAMS, **streams}, steady))


def under(node: Node | StreamNode, kind: type) -> Node | StreamNode:
    """The first node of a kind, from the results down."""
    while not isinstance(node, kind):
        assert not isinstance(node, JoinNode | StreamNode), f"there is no {kind.__name__}"
        node = node.before
    return node


def join_of(text: str, **how: object) -> JoinNode:
    found = under(planned(text, **how).node, JoinNode)  # type: ignore[arg-type]
    assert isinstance(found, JoinNode)
    return found


def keys(text: str) -> list[tuple[str, ...]]:
    return list(join_of(text).keys)


def conditions(text: str) -> list[str]:
    return [one.text.replace("`", "") for one in join_of(text).matches]


def lengths(text: str, **how: object) -> list[float]:
    return [one.window_us / SECOND for one in join_of(text, **how).windows]


def columns(text: str) -> dict[str, str]:
    node = planned(text).node
    assert isinstance(node, SelectNode)
    return {one.name: one.text.replace("`", "") for one in node.columns or ()}


# Keys


def test_equalities_are_keys_also_by_transitivity() -> None:
    joined = "SELECT a.x FROM a, b, c WHERE a.k = b.k AND c.k = b.k"
    assert keys(joined) == [("k", "k", "k")]
    assert conditions(joined) == []


def test_using_and_on_and_where_give_the_same_keys() -> None:
    for text in (
        "SELECT a.x FROM a JOIN d USING (k, j)",
        "SELECT a.x FROM a JOIN d ON a.k = d.k AND (a.j = d.j)",
        "SELECT a.x FROM a INNER JOIN d ON a.k = d.k WHERE D.J = A.J",
        "SELECT a.x FROM a CROSS JOIN d WHERE a.k = d.k AND a.j = d.j",
    ):
        assert keys(text) == [("k", "k"), ("j", "J")]


def test_equality_that_misses_a_stream_stays_a_condition() -> None:
    text = "SELECT a.x FROM a, b, c WHERE a.k = b.k AND b.k = c.k AND a.j = b.j"
    assert keys(text) == [("k", "k", "k")]
    assert conditions(text) == ["a.j = b.j"]


def test_second_column_of_a_stream_in_a_class_stays_a_condition() -> None:
    text = "SELECT a.x FROM a, b WHERE a.k = b.k AND a.s.k = b.k"
    assert len(keys(text)) == 1
    assert conditions(text) == ["a.s.k = b.k"]


def test_keys_of_several_types_keep_their_equalities_as_conditions() -> None:
    # Spark compares d.n with each of the others in another type.
    text = "SELECT a.x FROM a, b, d WHERE a.k = d.n AND d.n = b.x"
    assert len(keys(text)) == 1
    assert conditions(text) == ["a.k = d.n", "d.n = b.x"]


def test_text_and_number_are_no_key() -> None:
    text = "SELECT a.x FROM a JOIN b ON a.j = b.k AND a.k = b.k"
    assert keys(text) == [("k", "k")]
    assert conditions(text) == ["a.j = b.k"]


def test_key_may_be_an_expression() -> None:
    join = join_of("SELECT a.x FROM a JOIN b ON lower(a.j) = concat(b.j, 'x')")
    assert join.keys == (("_key0", "_key0"),)
    assert [one.text for stream in join.streams for one in stream.rows.more] == [
        "lower(`j`)",
        "concat(`j`, 'x')",
    ]


def test_equality_inside_or_is_a_condition() -> None:
    text = "SELECT a.x FROM a JOIN b ON a.k = b.k AND (a.j = b.j OR a.x = b.x)"
    assert keys(text) == [("k", "k")]
    assert conditions(text) == ["a.j = b.j OR a.x = b.x"]


def test_words_of_clauses_are_names_where_no_clause_can_be() -> None:
    kafka = Registered({"offset": "bigint", "key": "string", "limit": "int", "order": "int"})
    text = """SELECT l.offset, l.limit, order, l.key IS DISTINCT FROM a.j AS other FROM l JOIN a
              ON l.key = a.j WHERE offset > 5 AND l.limit IS NOT DISTINCT FROM a.n"""
    own = Registered({"j": "string", "n": "int"})
    assert join_of(text, l=kafka, a=own).keys == (("key", "j"),)


def test_interval_without_a_name_keeps_its_unit() -> None:
    found = columns(
        "SELECT a.ts + INTERVAL 5 MINUTES, a.j COLLATE UTF8_LCASE FROM a JOIN b USING (k)"
    )
    assert list(found.values()) == ["a.ts + INTERVAL 5 MINUTES", "a.j COLLATE UTF8_LCASE"]


# Filters of streams


def test_conditions_on_one_stream_filter_it_before_the_join() -> None:
    join = join_of(
        "SELECT a.x FROM a JOIN b USING (k) WHERE a.x > 1 AND b.j LIKE 'a%' AND a.k <> 3"
    )
    assert [[one.text for one in s.rows.filters] for s in join.streams] == [
        ["`x` > 1", "`k` <> 3"],
        ["`j` LIKE 'a%'"],
    ]
    assert join.matches == ()


def test_between_keeps_its_and() -> None:
    join = join_of("SELECT a.x FROM a JOIN b USING (k) WHERE a.x BETWEEN 1 AND 2 AND b.x > 3")
    assert [len(s.rows.filters) for s in join.streams] == [1, 1]


# Windows


@pytest.mark.parametrize(
    ("bound", "windows"),
    [
        ("abs(a.ts - b.ts) < INTERVAL 10 SECONDS", [10, 10]),
        ("abs(a.ts - b.ts) <= INTERVAL '10' SECOND", [10.000001, 10.000001]),
        ("INTERVAL 10 SECONDS > abs(b.ts - a.ts)", [10, 10]),
        ("b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 MINUTE", [60.000001, 0.000001]),
        (
            "a.ts BETWEEN b.ts - INTERVAL 5 SECONDS AND b.ts + INTERVAL 2 SECONDS",
            [5.000001, 2.000001],
        ),
        ("a.ts - b.ts BETWEEN INTERVAL -5 SECONDS AND INTERVAL 2 SECONDS", [5.000001, 2.000001]),
        ("a.ts < b.ts + INTERVAL 3 SECONDS AND b.ts < a.ts + INTERVAL 4 SECONDS", [4, 3]),
        ("a.ts = b.ts", [0.000001, 0.000001]),
        ("b.ts >= a.ts + INTERVAL 5 SECONDS AND b.ts < a.ts + INTERVAL 9 SECONDS", [9, 0.000001]),
    ],
)
def test_bounds_on_times_are_windows(bound: str, windows: list[float]) -> None:
    text = f"SELECT /*+ LATENESS('1 second') */ a.x FROM a JOIN b ON a.k = b.k AND {bound}"
    assert lengths(text) == windows


def test_bounds_add_up_over_several_streams() -> None:
    text = """SELECT /*+ LATENESS('0 seconds') */ a.x FROM a, b, c WHERE a.k = b.k AND b.k = c.k
              AND abs(a.ts - b.ts) < INTERVAL 10 SECONDS AND abs(b.ts - c.ts) < INTERVAL 1 SECOND"""
    assert lengths(text) == [10.999999, 10, 10.999999]
    # Windows are as long as the furthest stream needs; nearer ones keep their bound.
    assert conditions(text) == [
        "b.ts <= a.ts + INTERVAL 9999999 MICROSECOND",
        "b.ts <= c.ts + INTERVAL 999999 MICROSECOND",
        "c.ts <= b.ts + INTERVAL 999999 MICROSECOND",
    ]


def test_bound_that_windows_imply_needs_no_condition() -> None:
    text = """SELECT /*+ LATENESS('0 seconds') */ a.x FROM a JOIN b USING (k)
              WHERE abs(a.ts - b.ts) < INTERVAL 10 SECONDS"""
    assert conditions(text) == []


def test_window_of_a_stream_that_comes_first_is_as_short_as_can_be() -> None:
    text = """SELECT /*+ LATENESS('0 seconds') */ a.x FROM a JOIN b USING (k)
              WHERE b.ts >= a.ts + INTERVAL 5 SECONDS AND b.ts < a.ts + INTERVAL 9 SECONDS"""
    assert conditions(text) == ["a.ts + INTERVAL 5 SECOND <= b.ts"]


def test_lateness_comes_from_hints_or_from_watermarks() -> None:
    text = """SELECT /*+ LATENESS('1 minute'), LATENESS(b, '5 seconds') */ a.x FROM a JOIN b USING (k)
              WHERE abs(a.ts - b.ts) < INTERVAL 10 SECONDS"""
    assert [one.lateness_us / SECOND for one in join_of(text).windows] == [60, 5]
    marked = Registered(COLUMNS, ("ts", 7 * SECOND))
    text = "SELECT a.x FROM a JOIN b USING (k) WHERE abs(a.ts - b.ts) < INTERVAL 10 SECONDS"
    assert [one.lateness_us / SECOND for one in join_of(text, a=marked, b=marked).windows] == [7, 7]


def test_without_lateness_nothing_expires_and_a_note_warns() -> None:
    text = "SELECT a.x FROM a JOIN b USING (k) WHERE abs(a.ts - b.ts) < INTERVAL 10 SECONDS"
    assert join_of(text).windows == ()
    assert conditions(text) == [
        "a.ts <= b.ts + INTERVAL 9999999 MICROSECOND",
        "b.ts <= a.ts + INTERVAL 9999999 MICROSECOND",
    ]
    [note] = planned(text).notes
    assert note.warns
    assert "nothing says how late rows may be" in note.text


def test_differences_are_no_bounds_where_days_differ_in_length() -> None:
    text = "SELECT a.x FROM a JOIN b USING (k) WHERE abs(a.ts - b.ts) < INTERVAL 10 SECONDS"
    found = planned(text, steady=False)
    assert "summer time" in found.notes[0].text
    kept = """SELECT /*+ LATENESS('1 second') */ a.x FROM a JOIN b USING (k)
              WHERE a.ts < b.ts + INTERVAL 3 SECONDS AND b.ts < a.ts + INTERVAL 4 SECONDS"""
    assert lengths(kept, steady=False) == [4, 3]


def test_interval_of_several_units_is_not_misread() -> None:
    # sqlglot reads it as `(b.ts - INTERVAL 1 MINUTE) + INTERVAL 30 SECONDS`.
    text = "SELECT a.x FROM a JOIN b USING (k) WHERE a.ts > b.ts - INTERVAL 1 MINUTE 30 SECONDS"
    assert conditions(text) == ["a.ts > b.ts - INTERVAL 1 MINUTE 30 SECONDS"]


# Conditions without keys


def test_join_without_keys_tests_its_conditions_on_pairs() -> None:
    text = """SELECT /*+ LATENESS('1 second') */ a.x FROM a, b
              WHERE abs(a.x - b.x) < 3 AND abs(a.ts - b.ts) < INTERVAL 5 SECONDS"""
    join = join_of(text)
    assert join.keys == ()
    assert [one.required for one in join.matches] == [True]


def test_join_with_a_plan_filters_its_results_in_spark() -> None:
    join = join_of("SELECT /*+ PLAN('auto') */ a.x FROM a JOIN b USING (k) WHERE a.x < b.x")
    assert (join.plan, join.matches, join.filters) == ("auto", (), ("`a`.`x` < `b`.`x`",))


# Subqueries


def test_subqueries_without_state_disappear() -> None:
    text = """WITH cheap AS (SELECT k, x * 2 AS y FROM a WHERE x < 5), both AS (
                SELECT cheap.k, cheap.y, b.x FROM cheap JOIN b ON cheap.k = b.k)
              SELECT both.y, c.x AS z FROM both JOIN c ON c.k = both.k WHERE both.y > c.x"""
    assert keys(text) == [("k", "k", "k")]
    assert conditions(text) == ["(a.x * 2) > c.x"]
    assert columns(text) == {"y": "a.x * 2", "z": "c.x"}


def test_streams_of_one_name_in_different_subqueries_stay_apart() -> None:
    text = """SELECT s.x, t.x AS y FROM (SELECT q.* FROM a q) s JOIN (SELECT q.* FROM b q) t
              ON s.k = t.k"""
    assert [one.name for one in join_of(text).streams] == ["q", "q_2"]


def test_united_streams_are_one_stream() -> None:
    text = """SELECT u.k, count(*) AS n FROM (SELECT k, x FROM a UNION ALL SELECT k, n FROM d
              WHERE n > 1) u GROUP BY u.k"""
    found = under(planned(text).node, StreamNode)
    assert isinstance(found, StreamNode)
    assert [one.relation for one in found.rows.relations] == ["a", "d"]
    assert [[c.name for c in part.columns or ()] for part in found.rows.of] == [["k", "x"]] * 2


def test_star_has_shared_columns_once_and_first() -> None:
    text = "SELECT * FROM (SELECT k, x FROM a) a JOIN (SELECT k, x AS y FROM b) b USING (k)"
    assert columns(text) == {"k": "a.k", "x": "a.x", "y": "b.x"}


# Groups


def test_query_1_of_dcape_is_a_join_and_a_group_by() -> None:
    banks = {name: Registered(BANK) for name in ("bank1", "bank2", "bank3")}
    found = planned(QUERY_1, **banks)
    join = under(found.node, JoinNode)
    assert isinstance(join, JoinNode)
    assert join.keys == (("offerCurrency",) * 3, ("offer",) * 3)
    assert len(join.matches) == 2
    group = under(found.node, GroupNode)
    assert isinstance(group, GroupNode)
    assert [(one.function, one.of) for one in group.aggregates] == [("min", "`_value0`")]
    assert group.keys == ("brokerName",)


def test_expressions_over_aggregates_and_keys() -> None:
    text = """SELECT upper(j) AS u, sum(x*2) / count(*) AS mean, concat(upper(j), '!') AS shout,
                count(*) FILTER (WHERE x > 1) AS n, count_if(x > 1) AS m
              FROM a GROUP BY upper( j ) HAVING count(*) > 3"""
    assert columns(text) == {
        "u": "_key0",
        "mean": "_agg0 / _agg1",
        "shout": "concat(_key0, '!')",
        "n": "_agg2",
        "m": "_agg2",
    }


def test_every_aggregate_of_the_api_has_its_words() -> None:
    text = """SELECT count(DISTINCT x), approx_count_distinct(x, 0.1), every(x > 1), any(x > 1),
                max_by(x, ts) FILTER (WHERE k > 2), approx_percentile(x, 0.5), std(x), var_samp(x)
              FROM a GROUP BY j HAVING count(DISTINCT x) > 2"""
    group = under(planned(text).node, GroupNode)
    assert isinstance(group, GroupNode)
    assert [(one.function, one.fraction, one.by) for one in group.aggregates] == [
        ("count_distinct", None, None),
        ("approx_count_distinct", 0.1, None),
        ("bool_and", None, None),
        ("bool_or", None, None),
        ("max_by", None, "_by4"),
        ("approx_quantile", 0.5, None),
        ("stddev", None, None),
        ("variance", None, None),
    ]
    source = under(group, StreamNode)
    assert isinstance(source, StreamNode)
    assert "CASE WHEN `k` > 2 THEN `ts` END" in [one.text for one in source.rows.columns or ()]


def test_group_by_alias_and_number_mean_the_items_of_select() -> None:
    for key in ("u", "1", "upper(j)"):
        text = f"SELECT upper(j) AS u, max(x) AS top FROM a GROUP BY {key}"
        assert columns(text)["u"] == "u"


def test_column_wins_over_alias_in_group_by() -> None:
    text = "SELECT k, max(x) AS j FROM a GROUP BY k, j"
    group = under(planned(text).node, GroupNode)
    assert isinstance(group, GroupNode)
    assert group.keys == ("k", "j")


def test_aggregates_without_keys_are_one_group() -> None:
    group = under(planned("SELECT count(*), avg(x) FROM a").node, GroupNode)
    assert isinstance(group, GroupNode)
    assert group.keys == ("_all",)


def test_group_by_without_aggregates_and_distinct_are_dedups() -> None:
    for text in ("SELECT k, j FROM a GROUP BY k, j", "SELECT DISTINCT k, j FROM a"):
        found = under(planned(text).node, DedupNode)
        assert isinstance(found, DedupNode)
        assert found.keys == ("k", "j")


def test_group_by_reads_the_results_of_distinct() -> None:
    text = "SELECT k, count(*) AS n FROM (SELECT DISTINCT k, j FROM a) t GROUP BY k"
    group = under(planned(text).node, GroupNode)
    assert isinstance(group, GroupNode)
    assert isinstance(under(group.before, DedupNode), DedupNode)


@pytest.mark.parametrize(
    "having",
    [
        "count(*) > 3",
        "3 <= count(x)",
        "max(x) >= 5 OR min(x) < 2",
        "k > 3",
        "(k = 1 AND max(x) > 2)",
    ],
)
def test_having_that_a_group_keeps_meeting_is_a_filter(having: str) -> None:
    text = f"SELECT k, count(*), max(x), min(x) FROM a GROUP BY k HAVING {having}"
    node = planned(text).node
    assert isinstance(node, SelectNode)
    assert len(node.filters) == 1


def test_names_in_backticks_are_names() -> None:
    text = "SELECT `d`.`my col` AS `a b` FROM d JOIN a ON d.k = a.k"
    assert columns(text) == {"a b": "d.my col"}


def test_explanation_says_what_every_condition_became() -> None:
    text = """EXPLAIN SELECT /*+ LATENESS('30 seconds') */ a.x, b.x AS y FROM a JOIN b ON a.k = b.k
              AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 MINUTE WHERE a.x > 1 AND a.x < b.x"""
    assert explained(planned(text)).splitlines() == [
        "select `a`.`x` AS x, `b`.`x` AS y",
        "n-way join on equal keys of 2 streams",
        "  key 1: a.k = b.k",
        "  condition `a`.`x` < `b`.`x`, of rows with equal keys",
        "  stream a",
        "    reads a",
        "    where `x` > 1",
        "    window 60.000001 s on ts, lateness 30 s",
        "  stream b",
        "    reads b",
        "    window 0.000001 s on ts, lateness 30 s",
    ]


# Outer joins

LATE = "/*+ LATENESS('1 second') */"
BOUND = "abs(a.ts - b.ts) < INTERVAL 1 MINUTE"


@pytest.mark.parametrize(
    ("words", "how"),
    [("LEFT OUTER", "left"), ("LEFT", "left"), ("RIGHT", "right"), ("FULL OUTER", "full"),
     ("LEFT SEMI", "semi"), ("SEMI", "semi"), ("LEFT ANTI", "anti"), ("ANTI", "anti")],
)  # fmt: skip
def test_joins_of_two_streams_have_every_kind(words: str, how: str) -> None:
    shown = "b.x" if how == "right" else "a.x"
    text = f"SELECT {LATE} {shown} FROM a {words} JOIN b ON a.k = b.k AND {BOUND}"
    join = join_of(text)
    assert (join.how, join.optional, join.keys) == (how, (), (("k", "k"),))


def test_left_join_filters_what_on_and_where_may_filter() -> None:
    join = join_of(
        f"""SELECT {LATE} a.x, b.x AS y FROM a LEFT JOIN b
            ON a.k = b.k AND {BOUND} AND b.x > 1 AND a.x < b.x
            WHERE a.x > 3 AND coalesce(b.x, 2) > 1 AND (a.j = b.j OR b.j IS NULL)"""
    )
    assert [[one.text for one in s.rows.filters] for s in join.streams] == [
        ["`x` > 3"],
        ["`x` > 1"],
    ]
    # The join must test it: a row of a whose only partner fails it comes out alone.
    assert [(one.text, one.required) for one in join.matches] == [("`a`.`x` < `b`.`x`", True)]
    assert join.filters == ("coalesce(`b`.`x`, 2) > 1", "`a`.`j` = `b`.`j` OR `b`.`j` IS NULL")


def test_where_of_a_full_join_filters_results_alone() -> None:
    join = join_of(
        f"SELECT {LATE} a.x FROM a FULL JOIN b ON a.k = b.k AND {BOUND} WHERE a.x > 3 AND b.x > 1"
    )
    assert join.filters == ("`a`.`x` > 3", "`b`.`x` > 1")
    assert all(not stream.rows.filters for stream in join.streams)


def test_left_joins_of_several_streams_are_one_join() -> None:
    join = join_of(
        f"""SELECT {LATE} a.x FROM a JOIN d ON a.k = d.k AND a.ts = d.ts LEFT JOIN b
            ON a.k = b.k AND {BOUND} LEFT JOIN c ON c.k = a.k
            AND c.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS"""
    )
    assert (join.how, join.optional) == ("inner", ("b", "c"))
    assert join.keys == (("k", "k", "k", "k"),)
    # a may wait a minute for b; that c is near a must not shorten it.
    assert [one.window_us // SECOND for one in join.windows] == [60, 60, 65, 60]


def test_shared_column_is_that_of_the_stream_that_is_there() -> None:
    for words, key in (("LEFT", "a.k"), ("RIGHT", "b.k"), ("FULL", "coalesce(a.k, b.k)")):
        text = f"""SELECT {LATE} k, n FROM (SELECT k, ts FROM a) a {words} JOIN
                   (SELECT k, ts, x AS n FROM b) b USING (k, ts)"""
        assert columns(text)["k"] == key


# Time windows


@pytest.mark.parametrize(
    ("window", "told"),
    [
        ("window(ts, '5 minutes')", "window of 300 s, lateness 1 s"),
        ("window(ts, '5 minutes', '5 minutes')", "window of 300 s, lateness 1 s"),
        ("window(ts, '5 minutes', '1 minute')", "window of 300 s every 60 s, lateness 1 s"),
        ("session_window(ts, '10 seconds')", "session_window of 10 s, lateness 1 s"),
    ],
)
def test_windows_of_time_are_keys(window: str, told: str) -> None:
    name = window.partition("(")[0]
    text = (
        f"SELECT {LATE} {name}.start AS s, {window}.end AS e, k, max(x) FROM a GROUP BY k, {window}"
    )
    assert f"  {told}" in explained(planned(text)).splitlines()
    assert columns(text)["s"] == f"{name}.start"
    assert columns(text)["e"] == f"{name}.end"


def test_windows_over_a_join_wait_for_its_latest_results() -> None:
    text = f"""SELECT {LATE} window.end AS e, count(*) AS n FROM a JOIN b ON a.k = b.k AND {BOUND}
               GROUP BY window(a.ts, '1 hour')"""
    assert "lateness 121 s" in explained(planned(text))
