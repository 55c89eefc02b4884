"""The queries that are killed: one of each operator, and two in a row.

What each takes of its streams is in `KINDS`; what it must give, in `oracles.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inputs import LATENESS, SCHEMAS, Input
from pyspark.sql import SparkSession

import spillway as sw
from spillway.spark.api.result import Result

#: The tree that a query joins in, unless a start draws another.
TREE = "((orders prices) stock)"
#: The rows of a window of last rows.
LAST = 3


@dataclass(frozen=True)
class Kind:
    """A query, and which rows it takes."""

    build: Callable[[Input, SparkSession], Result]
    streams: tuple[str, ...] = ("orders",)
    #: Whether it has a time, so that rows may be late; and whether NULL is a key.
    timed: bool = True
    null_keys: bool = True


def _two(given: Input, spark: SparkSession) -> Result:
    return given.join(spark, ("orders", "prices"))


def _full(given: Input, spark: SparkSession) -> Result:
    """All rows of two streams, with or without partners."""
    orders, prices = (given.stream(spark, name) for name in _TWO)
    joined = sw.join(orders=orders, prices=prices, how="full").on(orders="item", prices="ref")
    return joined.within(given.window, time="ts", lateness=LATENESS).select(
        *("orders.item", "orders.amount", "orders.ts AS orders_ts"),
        *("prices.ref", "prices.price", "prices.ts AS prices_ts"),
    )


def _tree(given: Input, spark: SparkSession) -> Result:
    return given.join(spark).plan(shape=TREE)


def _orders(given: Input, spark: SparkSession) -> Any:
    return sw.stream(given.stream(spark, "orders"), "orders")


def _totals(given: Input, spark: SparkSession) -> Result:
    return (
        _orders(given, spark)
        .group_by("item")
        .agg(n=sw.count(), total=sw.sum("amount"), least=sw.min("amount"), newest=sw.max("ts"))
    )


def _last_rows(given: Input, spark: SparkSession) -> Result:
    grouped = _orders(given, spark).group_by("item").last(LAST, by="ts")
    return grouped.agg(n=sw.count(), total=sw.sum("amount"), least=sw.min("amount"))


def _ranges(given: Input, spark: SparkSession) -> Result:
    grouped = _orders(given, spark).group_by("item")
    within = grouped.within(given.window, time="ts", lateness=LATENESS)
    return within.agg(n=sw.count(), total=sw.sum("amount"), least=sw.min("amount"))


def _firsts(given: Input, spark: SparkSession) -> Result:
    return _orders(given, spark).dedup("item", by="ts")


def _firsts_in_intervals(given: Input, spark: SparkSession) -> Result:
    return _orders(given, spark).dedup("item", every=given.window, time="ts", lateness=LATENESS)


def _matches(given: Input, spark: SparkSession) -> Result:
    def alike(prices: Any, stock: Any) -> Any:
        return prices.ref % 50 == stock.key % 50

    return (
        sw.join(**{name: given.stream(spark, name) for name in SCHEMAS})
        .within(given.window, time="ts", lateness=LATENESS)
        .match("abs(orders.amount - prices.price) < 0.3")
        .match(alike, "prices", "stock")
        .select(
            *("orders.item", "orders.amount", "orders.ts AS orders_ts"),
            *("prices.price", "prices.ref", "prices.ts AS prices_ts"),
            *("stock.key", "stock.place", "stock.ts AS stock_ts"),
        )
    )


def _chained(given: Input, spark: SparkSession) -> Result:
    joined = given.join(spark, ("orders", "prices"))
    return joined.group_by("item").agg(
        n=sw.count(), total=sw.sum("price"), least=sw.min("amount"), newest=sw.max("prices_ts")
    )


_TWO, _ALL = ("orders", "prices"), tuple(SCHEMAS)

KINDS = {
    "two streams": Kind(_two, _TWO, null_keys=False),
    "three streams": Kind(lambda given, spark: given.join(spark), _ALL, null_keys=False),
    "full": Kind(_full, _TWO, null_keys=False),
    "tree": Kind(_tree, _ALL, null_keys=False),
    "group-by": Kind(_totals, timed=False),
    "windowed": Kind(_last_rows, timed=False),
    "range": Kind(_ranges),
    "dedup": Kind(_firsts, timed=False),
    "intervals": Kind(_firsts_in_intervals),
    "match": Kind(_matches, _ALL),
    "chained": Kind(_chained, _TWO, null_keys=False),
}
