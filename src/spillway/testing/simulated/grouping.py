"""Group-by, windows and dedup, each with its brute-force oracle."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any

import pyarrow as pa

from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.dedup import DedupOperator
from spillway.operators.grouping.groupby import GroupByOperator
from spillway.operators.grouping.windowed import LastRows, WindowedOperator, Within
from spillway.operators.grouping.windows import PythonAggregate
from spillway.operators.input import StreamColumns
from spillway.testing.simulated.rows import Gave, Row, value_of


def in_order(rows: Iterable[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """Rows in the operator's order: by batch, then time, then content."""
    return sorted(rows, key=lambda one: (one[0], one[1].at, one[1].value))


def by_key(rows: Iterable[tuple[int, Row]]) -> dict[int | None, list[tuple[int, Row]]]:
    """Rows of each key, in order."""
    found: dict[int | None, list[tuple[int, Row]]] = defaultdict(list)
    for batch, row in in_order(rows):
        found[row.key].append((batch, row))
    return found


KEYED = StreamColumns("s", ("k", "t", "v", "x", "w"), (0, 1, 2, 3, 4), (0,))
NUMBERS = (
    Aggregate("rows", "count"),
    Aggregate("n", "count", 3, pa.int64()),
    Aggregate("sum", "sum", 3, pa.int64()),
    Aggregate("avg", "avg", 3, pa.int64()),
    Aggregate("min", "min", 3, pa.int64()),
    Aggregate("max", "max", 3, pa.int64()),
    Aggregate("sd", "stddev", 3, pa.int64()),
    Aggregate("median", "approx_quantile", 3, pa.int64(), fraction=0.5),
    Aggregate("first", "first", 4, pa.string(), 1),
    Aggregate("last", "last", 2, pa.int64(), 1),
    Aggregate("least", "min", 4, pa.string()),
)


def aggregated(rows: Sequence[Row]) -> tuple[Hashable, ...]:
    """The aggregates in `NUMBERS` of ordered rows."""
    x = [r.amount for r in rows if r.amount is not None]
    return (
        len(rows),
        len(x),
        sum(x) if x else None,
        rounded(sum(x) / len(x)) if x else None,
        min(x, default=None),
        max(x, default=None),
        rounded(stdev(x)) if len(x) > 1 else None,
        float(sorted(x)[(len(x) - 1) // 2]) if x else None,
        rows[0].value,
        rows[-1].value,
        min(r.value for r in rows),
    )


def rounded(value: Any) -> Hashable:
    """Rounds a value, so that it does not depend on the order of a sum."""
    if isinstance(value, str):
        return value_of(value)
    return round(value, 9) if isinstance(value, float) else value


@dataclass
class KeyedTotals:
    """Aggregates by key over all rows, one result per key that a batch touched."""

    null_keys = True

    @property
    def streams(self) -> tuple[StreamColumns, ...]:
        """The input."""
        return (KEYED,)

    def operator(self, block_rows: int) -> GroupByOperator:
        """The operator of the product."""
        return GroupByOperator(self.streams[0], ["k"], NUMBERS, block_rows)

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """Results as values."""
        for row in batch.to_pylist():
            yield tuple(rounded(value) for value in row.values())

    def check(self, gave: Gave) -> None:
        """Compares with brute force."""
        check_updates(gave, aggregated)


def check_updates(
    gave: Gave,
    statistic: Callable[[Sequence[Row]], tuple[Hashable, ...]],
    keyed: Callable[[Iterable[tuple[int, Row]]], dict[Any, list[tuple[int, Row]]]] = by_key,
) -> None:
    """Checks updates: each belongs to some batch, none comes twice, and the last covers all rows.

    While results wait, those of several batches become one. Several batches may have equal updates.
    """
    right: dict[Any, list[tuple[int, tuple[Hashable, ...]]]] = {
        key: [
            (batch, (key, *statistic([row for _, row in rows[:end]])))
            for end, (batch, _) in enumerate(rows, 1)
            if end == len(rows) or rows[end][0] != batch
        ]
        for key, rows in keyed(gave.accepted).items()
    }
    newest: dict[Any, int] = {}
    for batch, results in gave.said:
        keys = Counter(one[0] for one in map(values_of, results.elements()))
        assert set(keys.values()) <= {1}
        for result in map(values_of, results):
            assert result[0] in right, f"an update of key {result[0]}, which no row has"
            fits = [of for of, update in right[result[0]] if update == result and of <= batch]
            assert fits, f"{result} is no update of any batch up to {batch}"
            assert newest.get(result[0], -1) < fits[-1], f"{result} is the update of an older batch"
            newest[result[0]] = fits[-1]
    assert newest == {key: updates[-1][0] for key, updates in right.items()}


def values_of(result: Hashable) -> tuple[Any, ...]:
    """A result of a group-by: its key, then its numbers."""
    assert isinstance(result, tuple)
    return result


@dataclass
class Deduped:
    """The first row of each key; with a range, the first row that is this far from all others.

    Tumbling: the first row of each key in each interval of that length, counted from 0.
    """

    range: int | None = None
    tumbling: bool = False
    null_keys = True

    @property
    def streams(self) -> tuple[StreamColumns, ...]:
        """The input."""
        time = None if self.range is None else 1
        return (StreamColumns("s", KEYED.visible, KEYED.lanes, (0,), time, self.range),)

    def operator(self, block_rows: int) -> DedupOperator:
        """The operator of the product."""
        return DedupOperator(self.streams[0], 1, block_rows, tumbling=self.tumbling)

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """Results as values."""
        for row in batch.to_pylist():
            yield row["k"], value_of(row["w"]), row["x"]

    def check(self, gave: Gave) -> None:
        """Compares with brute force."""
        wanted: Counter[Hashable] = Counter()
        for rows in by_key(gave.accepted).values():
            taken: list[Row] = []
            for _, row in rows:
                if not any(self.same(row, one) for one in taken):
                    taken.append(row)
            wanted.update((row.key, row.value, row.amount) for row in taken)
        assert gave.results == wanted

    def same(self, row: Row, taken: Row) -> bool:
        """Whether the dedup drops a row because it kept another of its key."""
        if self.range is None:
            return True
        if self.tumbling:
            return row.at // self.range == taken.at // self.range
        return abs(row.at - taken.at) < self.range


@dataclass
class Windowed:
    """A statistic over the last rows of a key, or over a range of time, per row or per batch."""

    per_row: bool
    rows: int | None = None
    range: int | None = None
    null_keys = True

    @property
    def streams(self) -> tuple[StreamColumns, ...]:
        """The input."""
        time = None if self.range is None else 1
        return (StreamColumns("s", KEYED.visible, KEYED.lanes, (0,), time, self.range),)

    def operator(self, block_rows: int) -> WindowedOperator:
        """The operator of the product."""
        window = Within() if self.rows is None else LastRows(self.rows, 1)
        emitted = [("k", 0), ("w", 4)]
        return WindowedOperator(
            self.streams[0],
            emitted if self.per_row else emitted[:1],
            [*NUMBERS, DISTINCT],
            window,
            per_row=self.per_row,
            block_rows=block_rows,
        )

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """Results as values."""
        for row in batch.to_pylist():
            yield tuple(rounded(value) for value in row.values())

    def seen(self, rows: Sequence[Row]) -> tuple[Hashable, ...]:
        """The statistic of the last of some rows of a key."""
        last = rows[-1].at
        if self.rows is not None:
            seen = rows[-self.rows :]
        else:
            assert self.range is not None
            seen = [row for row in rows if last - self.range < row.at <= last]
        return (*aggregated(seen), len({row.amount for row in seen}))

    def check(self, gave: Gave) -> None:
        """Compares with brute force."""
        if not self.per_row:
            check_updates(gave, self.seen)
            return
        assert gave.results == Counter(
            (key, rows[at - 1][1].value, *self.seen([row for _, row in rows[:at]]))
            for key, rows in by_key(gave.accepted).items()
            for at in range(1, len(rows) + 1)
        )


def distinct(columns: Mapping[str, pa.Array], offsets: Iterable[int]) -> list[int]:
    """The number of distinct values in each window."""
    values = columns["x"].to_pylist()
    return [len(set(values[a:b])) for a, b in itertools.pairwise(offsets)]


DISTINCT = PythonAggregate("distinct", distinct, (("x", 3),), pa.int64())
