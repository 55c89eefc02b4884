"""Joins on equal keys, with or without predicates, each with its brute-force oracle."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.operators.equi.join import JoinOperator
from spillway.operators.equi.tree import TreeOperator
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.conditions import predicate
from spillway.plan.shape import Shape
from spillway.routing.intervals import Intervals
from spillway.testing.simulated.rows import Gave, Row, value_of

#: Key, time, value, and the value as text.
NAMES = ("k", "t", "v", "w")
COLUMNS = {"k": "bigint", "t": "timestamp", "v": "bigint", "w": "string"}


@dataclass
class Joined:
    """The n-way join: all combinations of rows with equal keys within the windows."""

    windows: Sequence[int | None]
    null_keys = False

    @property
    def streams(self) -> tuple[StreamColumns, ...]:
        """The input."""
        return tuple(
            StreamColumns(f"s{i}", NAMES, (0, 1, 2, 4), (0,), None if w is None else 1, w)
            for i, w in enumerate(self.windows)
        )

    def operator(self, block_rows: int) -> Operator:
        """The operator of the product."""
        return JoinOperator(self.streams, block_rows)

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """The values of the rows of each combination."""
        for row in batch.to_pylist():
            rows = [row[s.name] for s in self.streams]
            assert all(value_of(one["w"]) == one["v"] for one in rows)
            yield tuple(one["v"] for one in rows)

    def check(self, gave: Gave) -> None:
        """Compares with all combinations."""
        rows = [row for _, row in gave.accepted]
        found: dict[int | None, list[list[Row]]] = defaultdict(lambda: [[] for _ in self.streams])
        for row in rows:
            found[row.key][row.stream].append(row)
        wanted: Counter[Hashable] = Counter()
        for combination in (one for key in found.values() for one in itertools.product(*key)):
            last = max(r.at for r in combination)
            if all(
                w is None or last - r.at < w for r, w in zip(combination, self.windows, strict=True)
            ):
                wanted[tuple(r.value for r in combination)] += 1
        assert gave.results == wanted


@dataclass
class Treed(Joined):
    """The same combinations, made from stored intermediate states."""

    shape: Shape

    def operator(self, block_rows: int) -> Operator:
        """The operator of the product."""
        return TreeOperator(self.streams, self.shape, block_rows)


def near(a: Any, b: Any) -> Any:
    """Whether values are close, modulo 5."""
    return np.abs(a.v % 5 - b.v % 5) < 3


def differ(*rows: Any) -> Any:
    """Whether the values of all rows have a certain sum, modulo 3."""
    return sum(one.v for one in rows) % 3 != 1


@dataclass
class Matched(Joined):
    """The combinations with equal keys that meet all predicates."""

    whole: bool

    def operator(self, block_rows: int) -> Operator:
        """The operator of the product."""
        names = {stream.name: COLUMNS for stream in self.streams}
        predicates = [
            bound("abs(s0.v % 5 - s1.v % 5) < 3", (), names),
            bound(predicate(near, prefilter="s0.v != s1.v"), ("s0", "s1"), names, 1),
        ]
        if len(names) > 2:
            chain = "s0.v - s1.v < 9 and s1.v - s2.v < 9"
            predicates.append(bound(chain, (), names, 3))
        if self.whole:
            predicates.append(bound(differ, (), names, 2))
        return JoinOperator(self.streams, block_rows, predicates)

    def stands(self, rows: tuple[Row, ...]) -> bool:
        """Whether a combination is a result."""
        last = max(r.at for r in rows)
        in_time = all(w is None or last - r.at < w for r, w in zip(rows, self.windows, strict=True))
        paired = abs(rows[0].value % 5 - rows[1].value % 5) < 3
        if len(rows) > 2:
            paired &= all(rows[at].value - rows[at + 1].value < 9 for at in (0, 1))
        return in_time and paired and (not self.whole or sum(r.value for r in rows) % 3 != 1)

    def check(self, gave: Gave) -> None:
        """Compares with all combinations."""
        assert gave.results == self.wanted([row for _, row in gave.accepted])

    def wanted(self, rows: Sequence[Row]) -> Counter[Hashable]:
        """All combinations that are results."""
        found: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            found[row.stream].append(row)
        done: list[tuple[Row, ...]] = [()]
        for stream in range(len(self.streams)):
            done = [
                (*some, row)
                for some in done
                for row in found[stream]
                if not some or row.key == some[0].key
            ]
        return Counter(tuple(r.value for r in rows) for rows in done if self.stands(rows))


@dataclass
class Aligned(Matched):
    """All combinations that meet the predicates, with any keys; intervals get copies of rows."""

    intervals: Intervals

    def copied(self, rows: Iterable[Row]) -> list[Row]:
        """The rows, once for each of their intervals."""
        copies: list[Row] = []
        for row in rows:
            _, numbers = self.intervals.copies(row.stream, np.array([row.at]))
            copies += [replace(row, key=int(number)) for number in numbers]
        return copies

    def check(self, gave: Gave) -> None:
        """Compares with all combinations."""
        rows = {row.value: replace(row, key=0) for _, row in gave.accepted}
        assert gave.results == self.wanted(list(rows.values()))
