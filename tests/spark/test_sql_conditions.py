"""SQL conditions against Spark: drawn at random, and evaluated by both on the same rows.

A condition that is not refused must be true, false and NULL on the same rows as in Spark, and fail on
the same. All drawn conditions are columns of one query, each evaluated on the rows on which it should
not fail; of the failures a part is tried, since every one needs a query of its own.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.errors import PlanError, QueryError
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.columns import Rows
from spillway.operators.predicates.evaluation import holds

ROWS = 40
CONDITIONS = 400
FAILURES = 25
NAN, INF = math.nan, math.inf
#: Columns: the type as Spark calls it, as Arrow does, and values.
COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "t": ("tinyint", pa.int8(), [0, 1, -1, 3, 5, 127, -128]),
    "i": ("int", pa.int32(), [0, 1, -1, 2, 3, 7, 10, 100, -100, 2**31 - 1, -(2**31)]),
    "l": ("bigint", pa.int64(), [0, 1, -1, 3, 7, 2**53 + 1, -5, 10**12, 2**63 - 1, -(2**63)]),
    "f": ("float", pa.float32(), [0.0, -0.0, 0.1, 0.3, 1.0, -2.5, 3e38, NAN, INF]),
    "d": ("double", pa.float64(), [0.0, -0.0, 0.1, 0.3, 1.0, 2.5, -1.0, 1e308, 1e-310, NAN, -INF]),
    "m": ("decimal(10,2)", pa.decimal128(10, 2), ["0.00", "0.10", "1.50", "3.00", "-2.50"]),
    "w": (
        "decimal(30,12)",
        pa.decimal128(30, 12),
        ["0.1", "0.300000000001", "7", "9007199254740993"],
    ),
    "s": ("string", pa.string(), ["", "a", "A", "b", "Straße", "ΑΣ", "2024-01-01", "é"]),
    "e": ("date", pa.date32(), [dt.date(2024, 1, 1), dt.date(2024, 2, 29), dt.date(1969, 12, 31)]),
    "z": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        [dt.datetime(2024, 1, 1), dt.datetime(1969, 1, 1)],
    ),
    "n": (
        "timestamp_ntz",
        pa.timestamp("us"),
        [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 5)],
    ),
    "q": ("boolean", pa.bool_(), [True, False]),
}
NUMBERS, TIMES = "tilfdmw", "ezn"
CONSTANTS = {
    "number": ["0", "1", "3", "-2", "100", "0.1", "0.30", "2.5", "1e0", "1e-1", "0.5D", "3L", "7S"],
    "text": ["'a'", "'A'", "''", "'STRASSE'", "'2024-01-01'", "'ας'"],
    "e": ["'2024-01-01'", "DATE'2024-02-29'", "null"],
    "z": ["'2024-01-01'", "'2024-01-01 05:00:00Z'", "TIMESTAMP'2024-01-01 00:00:00'"],
    "n": ["'2024-01-01 05:00'", "'2024-01-01T05:00:00.5'", "TIMESTAMP_NTZ'2024-01-01 05:00:00'"],
}


class Drawing:
    """Draws the text of conditions; every operator has a column below it, so that none is constant."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        #: The columns of times that may meet in a condition, and constants of their type.
        self.times, self.moments = TIMES, ["null"]

    def of(self, *ways: Callable[[], str]) -> str:
        return self.random.choice(ways)()

    def column(self, names: str) -> str:
        return f"{self.random.choice('ab')}.{self.random.choice(names)}"

    def number(self, deep: int) -> str:
        if deep == 0 or self.random.random() < 0.3:
            return self.column(NUMBERS)
        one, two = self.number(deep - 1), self.operand("number", deep - 1)
        functions = [
            "abs",
            "sqrt",
            "ln",
            "log10",
            "floor",
            "ceil",
            "sign",
            "exp",
            "radians",
            "atan",
        ]
        return self.of(
            lambda: f"({one} {self.random.choice('+-*/%')} {two})",
            lambda: f"({one} {self.random.choice('+-*')} {two})",
            lambda: f"-{one}",
            lambda: f"{self.random.choice(functions)}({one})",
            lambda: f"{self.random.choice(['coalesce', 'least', 'greatest'])}({one}, {two})",
            lambda: f"{self.random.choice(['power', 'atan2', 'hypot'])}({one}, {two})",
            lambda: f"length({self.text(deep - 1)})",
        )

    def text(self, deep: int) -> str:
        if deep == 0 or self.random.random() < 0.5:
            return self.column("s")
        one, two = self.text(deep - 1), self.operand("text", deep - 1)
        return self.of(
            lambda: f"{self.random.choice(['upper', 'lower'])}({one})",
            lambda: f"{self.random.choice(['coalesce', 'least', 'greatest'])}({one}, {two})",
        )

    def time(self, deep: int) -> str:
        if deep == 0 or self.random.random() < 0.5:
            return self.column(self.times)
        return self.of(
            lambda: f"({self.column(self.times)} {self.random.choice('+-')} INTERVAL 5 HOURS)",
            lambda: f"coalesce({self.column(self.times)}, {self.operand('time', 0)})",
            lambda: f"least({self.column(self.times)}, {self.operand('time', 0)})",
        )

    def operand(self, kind: str, deep: int) -> str:
        """A value of a kind, now and then of another one, or NULL."""
        if (chance := self.random.random()) < 0.02:
            return "null"
        if chance < 0.05:
            kind = self.random.choice(["number", "text", "time"])
        if chance < 0.45:
            return self.random.choice(self.moments if kind == "time" else CONSTANTS[kind])
        return {"number": self.number, "text": self.text, "time": self.time}[kind](deep)

    def condition(self, deep: int) -> str:
        if deep and self.random.random() < 0.4:
            one, two = self.condition(deep - 1), self.condition(deep - 1)
            return self.of(
                lambda: f"({one} and {two})", lambda: f"({one} or {two})", lambda: f"not ({one})"
            )
        kind = self.random.choice(["number", "number", "number", "text", "time"])
        self.times = self.random.choice(["e", "z", "n", "z", "n", TIMES])
        self.moments = CONSTANTS[self.times[0]]
        one = {"number": self.number, "text": self.text, "time": self.time}[kind](deep)
        two, three = (self.operand(kind, deep) for _ in range(2))
        compared = self.random.choice(["<", "<=", ">", ">=", "=", "!="])
        return self.of(
            *[lambda: f"{one} {compared} {two}"] * 5,
            lambda: f"{one} between {two} and {three}",
            lambda: f"{one} {self.random.choice(['in', 'not in'])} ({two}, {three})",
            lambda: f"{one} is {self.random.choice(['', 'not '])}null",
            lambda: f"{self.column('q')} {compared} {self.column('q')}",
            lambda: self.column("q"),
        )


def table(seed: int) -> pa.Table:
    """Rows of both streams, side by side."""
    draw = random.Random(seed)
    columns = {"id": pa.array(range(ROWS))}
    for stream, (name, (_, kind, values)) in itertools.product("ab", COLUMNS.items()):
        likely = [*values[:6], *values[:6], *values, None]
        made = [draw.choice(likely) for _ in range(ROWS)]
        if pa.types.is_decimal(kind):
            made = [None if one is None else Decimal(one) for one in made]
        columns[f"{stream}_{name}"] = pa.array(made, kind)
    return pa.table(columns)


class Ours:
    """What is said here of the rows of a table."""

    def __init__(self, rows: pa.Table, zone: str = "UTC") -> None:
        self._rows = {
            stream: [rows[f"{stream}_{name}"].combine_chunks() for name in COLUMNS]
            for stream in "ab"
        }
        self._zone = zone

    def held(self, text: str, at: Sequence[int]) -> list[bool | None]:
        """True, false or NULL for each of some rows."""
        true, false = (self._true(one, at) for one in (text, f"not ({text})"))
        return [True if t else False if f else None for t, f in zip(true, false, strict=True)]

    def _true(self, text: str, at: Sequence[int]) -> list[bool]:
        names = {stream: {name: kind for name, (kind, *_) in COLUMNS.items()} for stream in "ab"}
        test = bound(text, ("a", "b"), names, zone=self._zone).test
        places = np.array(at, np.int64)
        rows = {
            stream: Rows(stream, list(COLUMNS), of.__getitem__, places, len(places))
            for stream, of in self._rows.items()
        }
        return holds(test, rows, len(places)).tolist()

    def failing(self, text: str) -> list[int]:
        """The rows on which a condition fails."""
        try:
            self.held(text, range(ROWS))
        except QueryError:
            return [at for at in range(ROWS) if self._fails(text, at)]
        return []

    def _fails(self, text: str, at: int) -> bool:
        try:
            self.held(text, [at])
        except QueryError:
            return True
        return False


def in_spark(spark: SparkSession, rows: pa.Table) -> DataFrame:
    types = [f"{s}_{name} {kind}" for s in "ab" for name, (kind, *_) in COLUMNS.items()]
    flat = spark.createDataFrame(rows, ", ".join(["id bigint", *types]))
    sides = [F.struct(*(F.col(f"{s}_{n}").alias(n) for n in COLUMNS)).alias(s) for s in "ab"]
    return flat.select("id", *sides)


@pytest.mark.parametrize(("seed", "session"), [(1, "spark"), (2, "elsewhere")])
def test_drawn_conditions_say_what_spark_says(
    request: pytest.FixtureRequest, seed: int, session: str
) -> None:
    spark: SparkSession = request.getfixturevalue(session)
    # Compiling hundreds of columns takes longer than evaluating them.
    spark.conf.set("spark.sql.codegen.wholeStage", False)
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    try:
        compare(spark, seed)
    finally:
        for name in ("wholeStage", "factoryMode"):
            spark.conf.unset(f"spark.sql.codegen.{name}")


def compare(spark: SparkSession, seed: int) -> None:
    rows = table(seed)
    zone = spark.conf.get("spark.sql.session.timeZone")
    ours, theirs = Ours(rows, str(zone)), in_spark(spark, rows)
    drawing = Drawing(seed)
    texts = list(dict.fromkeys(drawing.condition(2) for _ in range(CONDITIONS)))
    failing: dict[str, list[int]] = {}
    refused = 0
    for text in texts:
        try:
            failing[text] = ours.failing(text)
        except PlanError:
            refused += 1
    assert refused < len(texts) / 5
    guarded = [
        f"CASE WHEN id NOT IN ({', '.join(map(str, [-1, *bad]))}) THEN {text} END AS c{at}"
        for at, (text, bad) in enumerate(failing.items())
    ]
    said = {row["id"]: row for row in theirs.selectExpr("id", *guarded).collect()}
    wrong = []
    for at, (text, bad) in enumerate(failing.items()):
        good = [row for row in range(ROWS) if row not in bad]
        spoken = [said[row][f"c{at}"] for row in good]
        if (mine := ours.held(text, good)) != spoken:
            differ = [r for r, m, s in zip(good, mine, spoken, strict=True) if m != s]
            wrong.append((text, len(differ), differ[0]))
    assert not wrong, "\n".join(map(str, wrong[:20]))
    failed = [(text, bad[0]) for text, bad in failing.items() if bad]
    assert len(failed) > 10
    for text, row in failed[:FAILURES]:
        with pytest.raises(Exception, match=r"OVERFLOW|_BY_ZERO"):
            theirs.where(f"id = {row}").selectExpr(text).collect()
