"""The time-sliced join with its brute-force oracle: a cross join with predicates, within windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.operators.input import StreamColumns
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.conditions import predicate
from spillway.operators.predicates.tiles import tiles
from spillway.operators.theta.sliced import VISITING_ROWS, SlicedJoin
from spillway.routing.slices import Slicing
from spillway.testing.simulated.rows import GROUPS, Gave, Row, value_of

NAMES = ("k", "t", "v", "x", "w")
TYPES = (pa.int64(), pa.timestamp("us"), pa.int64(), pa.int64(), pa.string())
KINDS = ("bigint", "timestamp_ntz", "bigint", "bigint", "string")


def near(a: Any, b: Any) -> Any:
    """Whether keys are neighbours."""
    return np.abs(a.k - b.k) <= 1


def near_tiles(a: Any, b: Any) -> Any:
    """The same for all pairs of two sets of rows, whose texts must be there."""
    assert len(a.arrow("w")) == len(a.k)
    return np.abs(a.k[:, None] - b.k) <= 1


def lower_tiles(a: Any, b: Any) -> Any:
    """Whether one amount is below the other, for all pairs of two sets of rows."""
    return a.x[:, None] < b.x


def picky(a: Any, b: Any) -> Any:
    """The same; it fails on tiles with a pair of which the condition before it does not hold."""
    if (a.k[:, None] == b.k).any():
        raise ValueError("equal keys")
    return a.x[:, None] < b.x


def lower(a: Any, b: Any) -> Any:
    """Whether one amount is below the other."""
    return a.x < b.x


def number(row: Row) -> int:
    """The key of a row that has one."""
    assert row.key is not None
    return row.key


#: Predicates over two streams: the condition, and the same as a function of two rows.
PAIRED: dict[str, tuple[Callable[[str, str], Any], Callable[[Row, Row], bool]]] = {
    "function": (lambda a, b: near, lambda a, b: abs(number(a) - number(b)) <= 1),
    "band": (lambda a, b: f"abs({a}.k - {b}.k) < 2", lambda a, b: abs(number(a) - number(b)) < 2),
    "range": (lambda a, b: f"{a}.k + 1 < 2 * {b}.k", lambda a, b: number(a) + 1 < 2 * number(b)),
    "between": (
        lambda a, b: f"{b}.k - {a}.k between -1 and 2 and {a}.v != 3",
        lambda a, b: -1 <= number(b) - number(a) <= 2 and a.value != 3,
    ),
    "nulls": (
        lambda a, b: f"{a}.x < {b}.x or {b}.x is null",
        lambda a, b: b.amount is None or (a.amount is not None and a.amount < b.amount),
    ),
    "nulls, function": (
        lambda a, b: lower,
        lambda a, b: a.amount is not None and b.amount is not None and a.amount < b.amount,
    ),
    "tiles": (lambda a, b: tiles(near_tiles), lambda a, b: abs(number(a) - number(b)) <= 1),
    "tiles, nulls": (
        lambda a, b: tiles(lower_tiles),
        lambda a, b: a.amount is not None and b.amount is not None and a.amount < b.amount,
    ),
    "tiles, prefilter": (
        lambda a, b: predicate(tiles(picky), prefilter=f"{a}.k < {b}.k"),
        lambda a, b: (
            number(a) < number(b)
            and a.amount is not None
            and b.amount is not None
            and a.amount < b.amount
        ),
    ),
    "prefilter": (
        lambda a, b: predicate(near, prefilter=f"abs({a}.k - {b}.k) < 3"),
        lambda a, b: abs(number(a) - number(b)) <= 1,
    ),
}


def odd_sum(*rows: Any) -> Any:
    """Whether the keys of all rows have an odd sum."""
    return sum(one.k for one in rows) % 2 == 1


@dataclass
class Sliced:
    """The combinations within the windows that meet all predicates."""

    windows: list[int]
    #: (kind, one stream, another).
    pairs: list[tuple[str, int, int]]
    whole: bool
    widths: list[int]
    copies: int = 1
    #: Positions of the columns that results have; None: all.
    shown: tuple[int, ...] | None = None
    #: Whether all SQL conditions form one condition, over all their streams.
    conjoined: bool = False
    #: Rows that visit at a time.
    interleave: int = VISITING_ROWS
    null_keys = False

    def __post_init__(self) -> None:
        self._streams = tuple(
            StreamColumns(f"s{i}", NAMES, (0, 1, 2, 3, 4), (), 1, w, self.shown)
            for i, w in enumerate(self.windows)
        )
        columns = {stream.name: dict(zip(NAMES, KINDS, strict=True)) for stream in self.streams}
        tests: list[tuple[Any, tuple[str, ...]]] = [
            (PAIRED[kind][0](f"s{a}", f"s{b}"), (f"s{a}", f"s{b}")) for kind, a, b in self.pairs
        ]
        texts = [f"({test})" for test, _ in tests if isinstance(test, str)]
        if self.conjoined and texts:
            rest = [one for one in tests if not isinstance(one[0], str)]
            tests = [(" and ".join(texts), ()), *rest]
        self.predicates = [
            bound(test, over, columns, number) for number, (test, over) in enumerate(tests)
        ]
        if self.whole:
            self.predicates.append(bound(odd_sum, (), columns, len(tests)))
        self.slicing = Slicing(tuple(self.widths), GROUPS, self.copies)

    @property
    def streams(self) -> tuple[StreamColumns, ...]:
        """The input."""
        return self._streams

    def operator(self, block_rows: int) -> SlicedJoin:
        """The operator of the product."""
        types = [TYPES] * len(self.streams)
        how = (self.slicing, block_rows, self.interleave)
        return SlicedJoin(self.streams, types, self.predicates, *how)

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """The values of the rows of each combination."""
        for row in batch.to_pylist():
            rows = [row[s.name] for s in self.streams]
            assert all("w" not in one or value_of(one["w"]) == one["v"] for one in rows)
            yield tuple(one["v"] for one in rows)

    def stands(self, rows: tuple[Row, ...]) -> bool:
        """Whether a combination is a result."""
        last = max(r.at for r in rows)
        in_time = all(last - r.at < w for r, w in zip(rows, self.windows, strict=True))
        paired = all(PAIRED[kind][1](rows[a], rows[b]) for kind, a, b in self.pairs)
        return in_time and paired and (not self.whole or sum(number(r) for r in rows) % 2 == 1)

    def check(self, gave: Gave) -> None:
        """Compares with all combinations."""
        by_stream: list[list[Row]] = [[] for _ in self.streams]
        for _, row in gave.accepted:
            by_stream[row.stream].append(row)
        wanted: Counter[Hashable] = Counter(
            tuple(r.value for r in rows) for rows in self.product(by_stream) if self.stands(rows)
        )
        assert gave.results == wanted

    def product(self, by_stream: Sequence[Sequence[Row]]) -> list[tuple[Row, ...]]:
        """All combinations, except those whose first rows already fail."""
        found: list[tuple[Row, ...]] = [()]
        for at, rows in enumerate(by_stream):
            pairs = [one for one in self.pairs if max(one[1:]) == at]
            found = [
                (*done, row)
                for done in found
                for row in rows
                if all(PAIRED[k][1]((*done, row)[a], (*done, row)[b]) for k, a, b in pairs)
                and abs(row.at - (done or (row,))[-1].at) < max(self.windows)
            ]
        return found
