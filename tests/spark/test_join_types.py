"""Keys of any type are equal where SQL says so, and every type passes through the state."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from scenario import Scenario

from spillway.testing import assert_same_rows

NAN = float("nan")


KEY_CASES: dict[str, tuple[str, list[Any], str, list[Any]]] = {
    "int and bigint": ("int", [1, -1, 2**31 - 1, None], "bigint", [1, -1, 2**31 - 1, 2**40, None]),
    "decimals of two scales": (
        "decimal(10,2)",
        [Decimal("1.50"), Decimal("-0.25"), Decimal("99999999.99")],
        "decimal(12,4)",
        [Decimal("1.5000"), Decimal("1.5001"), Decimal("-0.2500"), Decimal("99999999.9900")],
    ),
    "float and double": (
        "float",
        [NAN, 0.0, -0.0, 1.5, float("inf"), None],
        "double",
        [NAN, -NAN, 0.0, -0.0, 1.5, float("inf"), float("-inf"), None],
    ),
    "timestamps": (
        "timestamp",
        [dt.datetime(2024, 3, 10, 7), dt.datetime(2024, 3, 10, 6, 59, 59, 999_999)],
        "timestamp",
        [dt.datetime(2024, 3, 10, 7), dt.datetime(2024, 3, 10, 6, 59, 59, 999_998)],
    ),
    "dates": ("date", [dt.date(2024, 2, 29), dt.date(1969, 1, 1)], "date", [dt.date(1969, 1, 1)]),
}


@pytest.mark.parametrize("case", KEY_CASES)
def test_keys_are_equal_where_sql_says_so(spark: SparkSession, tmp_path: Path, case: str) -> None:
    left_type, left, right_type, right = KEY_CASES[case]
    scenario = Scenario(spark, tmp_path, a=f"k {left_type}, v int", b=f"v int, k {right_type}")
    for batch in range(2):
        a = [(key, batch) for key in left]
        scenario.add(a=a, b=[(batch, key) for key in right])
    joined = scenario.join().on("k")
    scenario.run(joined)

    scenario.check(joined)
    assert scenario.output(joined).count() > 0


def test_composite_keys_of_other_names_and_types_are_joined(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(
        spark,
        tmp_path,
        orders="id string, region binary, paid boolean, note string",
        payments="paid boolean, amount decimal(10,2), order_id string, area binary",
        refunds="area binary, order string, settled boolean, at date",
    )
    random_ = random.Random(5)

    def key() -> tuple[str | None, bytes | None, bool | None]:
        names, areas = ["", "a", "ab", "abc", None], [b"", b"\x00", b"\x00\x01", b"c", None]
        return random_.choice(names), random_.choice(areas), random_.choice([True, False, None])

    for _ in range(3):
        orders = [(*key(), "note") for _ in range(60)]
        payments = [(k[2], Decimal("9.99"), k[0], k[1]) for k in (key() for _ in range(60))]
        refunds = [(k[1], k[0], k[2], dt.date(2024, 1, 1)) for k in (key() for _ in range(60))]
        scenario.add(orders=orders, payments=payments, refunds=refunds)
    joined = scenario.join().on(
        orders=("id", "region", "paid"),
        payments=("order_id", "area", "paid"),
        refunds=("order", "area", "settled"),
    )
    scenario.run(joined)

    scenario.check(joined)
    assert scenario.output(joined).count() > 100


def test_columns_and_streams_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    odd = (
        "`we.ird` int, `_h` int, lane0 string, `_stream` string, `K` int, `a``b` struct<`x.y`:int>"
    )
    scenario = Scenario(spark, tmp_path, **{"bank 1": odd, "größe": odd})
    rows = [(n % 5, n, "lane", "stream", n % 3, {"x.y": n}) for n in range(30)]
    scenario.add(**{"bank 1": rows, "größe": rows[:20]})
    scenario.add(**{"bank 1": rows[:9], "größe": rows})
    joined = scenario.join().on("we.ird", "k").where("`bank 1`.`a``b`.`x.y` < `größe`.`_h`")
    scenario.run(joined)

    expected = scenario.expected(joined).where("`bank 1`.`a``b`.`x.y` < `größe`.`_h`")
    assert scenario.output(joined).count() > 20
    assert_same_rows(scenario.output(joined), expected)


PAYLOAD = """k bigint, s string, d decimal(38,10), small decimal(5,2), day date, at timestamp,
    ntz timestamp_ntz, raw binary, yes boolean, tiny tinyint, short smallint, f float, x double,
    st struct<a:int,b:struct<c:string,at:timestamp>>, ar array<string>, times array<timestamp>,
    m map<string,int>, deep map<string,array<struct<q:double,at:timestamp>>>,
    gap interval day to second"""


def payload(k: int, at: dt.datetime) -> tuple[Any, ...]:
    """A row with a value of every type, or NULLs where k is odd, or empty things where it is 4."""
    if k % 2:
        return (k, *(None,) * 18)
    some = k != 4
    return (
        k,
        "größe" if some else "",
        Decimal("12345678901234567890.0123456789") if some else Decimal(0),
        Decimal("-12.34"),
        dt.date(1582, 10, 15) if some else dt.date(1970, 1, 1),
        at,
        at,
        b"\x00\xff" if some else b"",
        some,
        -128,
        32767,
        NAN if some else -0.0,
        1e300,
        {"a": k, "b": {"c": "c", "at": at} if some else None},
        ["a", None, ""] if some else [],
        [at, None] if some else [],
        {"z": 1, "a": None} if some else {},
        {"x": [{"q": NAN, "at": at}, None], "y": None} if some else {},
        dt.timedelta(days=-1, microseconds=1),
    )


def test_every_type_passes_through_the_state_in_any_zone(
    spark: SparkSession, elsewhere: SparkSession, tmp_path: Path
) -> None:
    schemas = {"a": PAYLOAD, "b": f"{PAYLOAD}, extra string"}
    scenario = Scenario(elsewhere, tmp_path, **schemas)
    summer = dt.datetime(2024, 3, 10, 6, 59, 59, 123_456)
    for batch in range(2):
        at = summer + dt.timedelta(hours=batch)
        scenario.add(
            a=[payload(k, at) for k in range(8)],
            b=[(*payload(k, at), "x") for k in range(1, 9)],
        )
    joined = scenario.join().on("k")
    scenario.run(joined, slots=1)
    scenario.check(joined)

    # The runs of both zones are merged: nine layers are more than a level holds.
    scenario = Scenario(spark, tmp_path, **schemas)
    for batch in range(7):
        rows = [payload(k, summer - dt.timedelta(days=batch)) for k in range(batch, batch + 3)]
        scenario.add(a=rows, b=[(*row, None) for row in rows])
    joined = scenario.join().on("k")
    progress = scenario.run(joined, slots=1).recentProgress
    scenario.check(joined)
    assert any(slot["rowsMerged"] for entry in progress for slot in entry["slots"])
