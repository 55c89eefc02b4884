"""Drawn SQL queries give what Spark gives in batch for the same text and rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as example_settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from sql_oracle import SCHEMA, STREAMS, check, rows_of

from spillway.testing import FileStream
from tier import examples

#: Conditions between two streams; some are keys, some bounds on time, some neither.
CONDITIONS = (
    "{a}.k = {b}.k", "{b}.j = {a}.j", "lower({a}.j) = lower({b}.j)", "{a}.k = {b}.n",
    "{a}.x = {b}.n", "abs({a}.ts - {b}.ts) < INTERVAL 6 SECONDS",
    "{b}.ts BETWEEN {a}.ts - INTERVAL 2 SECONDS AND {a}.ts + INTERVAL 9 SECONDS",
    "{a}.ts <= {b}.ts", "{a}.x < {b}.x", "{a}.x + {b}.x > 5 OR {a}.n = {b}.n",
    "NOT {a}.n BETWEEN {b}.n AND 3", "coalesce({a}.j, {b}.j) IS NOT NULL", "{a}.k <=> {b}.k",
)  # fmt: skip
#: Conditions on one stream.
ALONE = ("{a}.n > 1", "{a}.j IN ('p', 'q')", "{a}.x IS NOT NULL", "{a}.n % 2 = 1 OR {a}.k = 1")
ITEMS = ("{a}.n", "{a}.k + 1", "concat({a}.j, '!')", "{a}.x * {b}.n", "coalesce({a}.x, {b}.x)")
AGGREGATES = ("count(*)", "sum({a}.n)", "min({b}.x)", "max({a}.ts)", "avg({a}.n + {b}.n)")


@st.composite
def queries(draw: st.DrawFn) -> tuple[str, int]:
    """A query over two or three streams, and the number of its keys; -1: it has no GROUP BY."""
    names = list(STREAMS[: draw(st.integers(2, 3))])
    chain = [(names[at - 1], name) for at, name in enumerate(names) if at]
    # A key for every stream, so that nothing must compare all pairs.
    where = [CONDITIONS[0].format(a=a, b=b) for a, b in chain]
    pairs = st.sampled_from([(a, b) for a in names for b in names if a != b])
    for _ in range(draw(st.integers(0, 3))):
        a, b = draw(pairs)
        where.append(draw(st.sampled_from((*CONDITIONS, *ALONE))).format(a=a, b=b))
    source = ", ".join(names)
    if draw(st.booleans()):
        first = names[0]
        source = source.replace(first, f"(SELECT * FROM {first} WHERE n < 4) {first}", 1)
    hint = "/*+ LATENESS('1 hour') */ " if _is_bounded(where, names) else ""

    def written(texts: list[str]) -> list[str]:
        return [text.format(a=a, b=b) for text in texts for a, b in [draw(pairs)]]

    items = written(draw(st.lists(st.sampled_from(ITEMS), min_size=1, max_size=3)))
    named = [f"{item} AS c{at}" for at, item in enumerate(items)]
    condition = " AND ".join(draw(st.permutations(where)))
    if not draw(st.booleans()):
        return f"SELECT {hint}{', '.join(named)} FROM {source} WHERE {condition}", -1
    made = written(draw(st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=3)))
    named += [f"{one} AS m{at}" for at, one in enumerate(made)]
    keys = ", ".join(dict.fromkeys(items))
    return f"SELECT {hint}{', '.join(named)} FROM {source} WHERE {condition} GROUP BY {keys}", len(
        items
    )


def _is_bounded(where: list[str], names: list[str]) -> bool:
    """Whether the conditions bound the time of every pair in both directions."""
    near = [text for text in where if "abs(" in text or ".ts BETWEEN" in text]
    joined = {names[0]}
    for _ in names:
        for text in near:
            pair = {name for name in names if f"{name}.ts" in text}
            joined |= pair if pair & joined else set()
    return joined == set(names)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*nothing says how late rows may be")
def test_drawn_queries_give_what_spark_gives_in_batch(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder: Path = tmp_path_factory.mktemp("drawn")
    streams = {name: FileStream(spark, folder / name, SCHEMA) for name in STREAMS}
    for at, stream in enumerate(streams.values()):
        for batch in range(2):
            stream.add(rows_of(70 + 10 * at + batch, 12, 20 * batch))

    @example_settings(
        max_examples=examples(16), suppress_health_check=list(HealthCheck), deadline=None
    )
    @given(queries())
    def compare(drawn: tuple[str, int]) -> None:
        text, keys = drawn
        place = tmp_path_factory.mktemp("query")
        check(spark, text, streams, place, None if keys < 0 else list(range(keys)))

    compare()
