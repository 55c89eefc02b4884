"""SQL conditions against Spark: drawn at random, and evaluated by both on the same rows.

A condition that is not refused must be true, false and NULL on the same rows as in Spark, and fail on
the same. All drawn conditions are columns of one query, each evaluated on the rows on which it should
not fail; of the failures a part is tried, since every one needs a query of its own.

Conditions without parentheses have every operator inside every other, in every place. What our parser
reads in another way than Spark's must be refused.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
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
from spillway.spark.api.expressions.meaning import check_reading, unseen_rows
from tier import FULL

ROWS = 40
CONDITIONS = 400 if FULL else 120
FAILURES = 25 if FULL else 6
#: Drawn conditions of which Spark is asked how it reads them.
READ = 80 if FULL else 30
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


MODE = "spark.sql.codegen.factoryMode"


@pytest.mark.parametrize(("seed", "session"), [(1, "spark"), (2, "elsewhere")])
def test_drawn_conditions_say_what_spark_says(
    request: pytest.FixtureRequest, seed: int, session: str
) -> None:
    spark: SparkSession = request.getfixturevalue(session)
    # Compiling hundreds of columns takes longer than evaluating them.
    before = spark.conf.get(MODE)
    spark.conf.set(MODE, "NO_CODEGEN")
    try:
        compare(spark, seed)
    finally:
        spark.conf.set(MODE, before)


def compare(spark: SparkSession, seed: int) -> None:
    rows = table(seed)
    zone = spark.conf.get("spark.sql.session.timeZone")
    ours, theirs = Ours(rows, str(zone)), in_spark(spark, rows)
    drawing = Drawing(seed)
    texts = list(dict.fromkeys(drawing.condition(2) for _ in range(CONDITIONS)))
    failing = understood(ours, texts)
    assert len(failing) > len(texts) * 4 / 5
    unseen = unseen_rows(spark, theirs.schema)
    for text in list(failing)[:READ]:
        check_reading(unseen, text)
    assert_same(ours, theirs, failing)
    failed = [(text, bad[0]) for text, bad in failing.items() if bad]
    assert len(failed) > (10 if FULL else 1)
    for text, row in failed[:FAILURES]:
        with pytest.raises(Exception, match=r"OVERFLOW|_BY_ZERO"):
            theirs.where(f"id = {row}").selectExpr(text).collect()


def understood(ours: Ours, texts: Sequence[str]) -> dict[str, list[int]]:
    """The conditions that are not refused, with the rows on which each fails."""
    failing: dict[str, list[int]] = {}
    for text in texts:
        with contextlib.suppress(PlanError):
            failing[text] = ours.failing(text)
    return failing


def assert_same(ours: Ours, theirs: DataFrame, failing: dict[str, list[int]]) -> None:
    """Both say the same of the rows on which a condition does not fail."""
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


#: Operators, with a place for each operand.
LOGICAL = {"or": "{} or {}", "and": "{} and {}", "not": "not {}", "!": "! {}"}
COMPARED = {
    **{name: "{} " + name + " {}" for name in ("=", "==", "!=", "<", ">=", "like", "<=>")},
    "between": "{} between {} and {}",
    "not between": "{} not between {} and {}",
    "in": "{} in ({}, {})",
    "not in": "{} not in ({}, {})",
    "is null": "{} is null",
    "is not null": "{} is not null",
}
CALCULATED = {
    **{name: "{} " + name + " {}" for name in "+-*/%"},
    "minus": "-{}",
    "minus apart": "- {}",
}
OPERATORS = LOGICAL | COMPARED | CALCULATED | {"case": "case when {} then {} else {} end"}


class Nesting:
    """Draws operators inside operators, without parentheses."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def leaf(self, names: str) -> str:
        return f"{self.random.choice('ab')}.{self.random.choice(names)}"

    def one(self, name: str, leaves: str, place: int = 0, operand: str | None = None) -> str:
        """An operator on columns, and on one operand if it is given."""
        own = leaves or ("di" if name in CALCULATED else "q")
        of = [self.leaf(own) for _ in range(OPERATORS[name].count("{}"))]
        if operand is not None:
            of[place] = operand
        return OPERATORS[name].format(*of)

    def pairs(self) -> Iterator[str]:
        """Every operator inside every other, in every place; leaves of one kind, or as they fit."""
        for (outer, form), inner in itertools.product(OPERATORS.items(), OPERATORS):
            for place, leaves in itertools.product(range(form.count("{}")), ("", "q")):
                text = self.one(outer, leaves, place, self.one(inner, leaves))
                number = {outer, inner} <= CALCULATED.keys()
                yield f"{text} < {self.leaf('d')}" if number else text

    def chain(self, length: int) -> str:
        """Operators one inside the other."""
        text = self.leaf("q")
        for _ in range(length):
            name = self.random.choice(list(LOGICAL | COMPARED))
            text = self.one(name, "q", self.random.randrange(OPERATORS[name].count("{}")), text)
        return text


def test_condition_without_parentheses_is_read_as_spark_reads_it_or_refused(
    spark: SparkSession,
) -> None:
    rows = table(3)
    ours, theirs = Ours(rows), in_spark(spark, rows)
    nesting = Nesting(5)
    texts = [*nesting.pairs(), *(nesting.chain(4) for _ in range(150 if FULL else 50))]
    failing = understood(ours, list(dict.fromkeys(texts)))
    read, unseen = {}, unseen_rows(spark, theirs.schema)
    for text, bad in failing.items():
        with contextlib.suppress(PlanError):
            check_reading(unseen, text)
            read[text] = bad
    # Most of what we understand, Spark understands in the same way.
    assert len(failing) > len(read) > 0.5 * len(failing) > 100
    for start in range(0, len(read), CONDITIONS):
        some = list(read)[start : start + CONDITIONS]
        assert_same(ours, theirs, {text: read[text] for text in some})


def test_text_that_spark_does_not_accept_is_refused_with_its_reason(spark: SparkSession) -> None:
    unseen = unseen_rows(spark, in_spark(spark, table(4)).schema)
    # Here sqlglot adds parentheses that nobody wrote.
    with pytest.raises(PlanError) as refused:
        check_reading(unseen, "a.i is not null = b.q")
    assert str(refused.value) == (
        "the condition 'a.i is not null = b.q' cannot be used: Spark does not accept it\n"
        "  detail: [PARSE_SYNTAX_ERROR] Syntax error at or near '='. SQLSTATE: 42601 (line 1, pos 16)\n"
        "  hint: write it as Spark SQL"
    )


def test_text_that_spark_reads_in_another_way_is_refused_with_both_readings(
    spark: SparkSession,
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.parser.escapedStringLiterals", True)
    unseen = unseen_rows(session, in_spark(spark, table(4)).schema)
    with pytest.raises(PlanError) as refused:
        check_reading(unseen, r"a.s = 'x\ty' or a.q")
    assert refused.value.message == (
        "the condition \"a.s = 'x\\\\ty' or a.q\" cannot be used: Spark reads it as "
        "((a.s = 'x\\\\ty') OR a.q), but Spillway as ((`a`.`s` = 'x\ty') OR `a`.`q`)"
    )
    assert refused.value.hint == "write it with parentheses"


WRITTEN = [
    "a.z - interval '3' seconds > b.z + interval -3 minutes",
    "a.z + interval 5 milliseconds > b.z + interval 2 microseconds",
    "a.n - interval 2 days > b.n and a.z > timestamp'2024-01-01 00:00:00'",
    "not a.i is null and not (b.i is null) or isnotnull(a.s)",
    "a.i > - -1 and a.i > -(-1) and a.l > -9223372036854775808 and -a.d > .5",
    "a.i > cast(3 as bigint) and a.i in (7S, 3L) and a.d < 1e-1",
    r"a.s = 'it\'s' or a.s = 'b\%' or a.s = 'a\u0041' or a.s = 'C:\\x'",
    "nvl(a.i, 1) > len(b.s) and mod(a.i, 2) = 1 and log(a.d) < pow(b.d, 2) and ucase(a.s) = 'A'",
    "ceiling(a.d) > signum(b.d) or char_length(a.s) = 3 or ifnull(a.i, 2) = 2 or log10(a.d) > 1",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_constants_and_functions_are_to_spark_what_they_are_here(
    spark: SparkSession, text: str
) -> None:
    check_reading(unseen_rows(spark, in_spark(spark, table(4)).schema), text)
