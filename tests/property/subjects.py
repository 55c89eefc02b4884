"""The operators under the law, each with its brute-force oracle."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from statistics import stdev

import pyarrow as pa
from hypothesis import strategies as st
from law import Cluster, Row

from spillway.operators.equi.join import JoinOperator
from spillway.operators.equi.tree import TreeOperator
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.dedup import DedupOperator
from spillway.operators.grouping.groupby import GroupByOperator
from spillway.operators.grouping.windowed import LastRows, WindowedOperator, Within
from spillway.operators.grouping.windows import PythonAggregate
from spillway.operators.input import StreamColumns
from spillway.plan.shape import Shape, parse


@dataclass
class Joined:
    """The n-way join: all combinations of rows with equal keys whose times fit."""

    windows: list[int | None]
    null_keys = False

    def __post_init__(self) -> None:
        self.streams = tuple(
            StreamColumns(f"s{i}", ("k", "t", "v"), (0, 1, 2), (0,), None if w is None else 1, w)
            for i, w in enumerate(self.windows)
        )

    def operator(self, block_rows: int) -> JoinOperator:
        return JoinOperator(self.streams, block_rows)

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        for row in batch.to_pylist():
            yield tuple(row[s.name]["v"] for s in self.streams)

    def check(self, cluster: Cluster) -> None:
        rows = [row for _, row in cluster.accepted]
        found = defaultdict(lambda: [[] for _ in self.streams])
        for row in rows:
            found[row.key][row.stream].append(row)
        wanted: Counter = Counter()
        for combination in (one for key in found.values() for one in itertools.product(*key)):
            last = max(r.time for r in combination)
            if all(
                w is None or last - r.time < w
                for r, w in zip(combination, self.windows, strict=True)
            ):
                wanted[tuple(r.value for r in combination)] += 1
        assert cluster.results == wanted


@dataclass
class Treed(Joined):
    """The same combinations, by way of stored intermediate states."""

    shape: Shape

    def operator(self, block_rows: int) -> TreeOperator:
        return TreeOperator(self.streams, self.shape, block_rows)


def in_order(rows: Iterable[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """Rows as an operator orders them: by batch, then time, then content."""
    return sorted(rows, key=lambda one: (one[0], one[1].time, one[1].value))


def by_key(rows: Iterable[tuple[int, Row]]) -> dict[int | None, list[tuple[int, Row]]]:
    found = defaultdict(list)
    for batch, row in in_order(rows):
        found[row.key].append((batch, row))
    return found


KEYED = StreamColumns("s", ("k", "t", "v", "x"), (0, 1, 2, 3), (0,))
NUMBERS = (
    Aggregate("rows", "count"),
    Aggregate("n", "count", 3, pa.int64()),
    Aggregate("sum", "sum", 3, pa.int64()),
    Aggregate("avg", "avg", 3, pa.int64()),
    Aggregate("min", "min", 3, pa.int64()),
    Aggregate("max", "max", 3, pa.int64()),
    Aggregate("sd", "stddev", 3, pa.int64()),
    Aggregate("median", "approx_quantile", 3, pa.int64(), fraction=0.5),
    Aggregate("first", "first", 2, pa.int64(), 1),
    Aggregate("last", "last", 2, pa.int64(), 1),
)


def aggregated(rows: list[Row]) -> tuple:
    """What `NUMBERS` are of rows in order."""
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
    )


def rounded(value: object) -> object:
    return round(value, 9) if isinstance(value, float) else value


@dataclass
class Grouped:
    """Aggregates by key over all rows, one result per key that a batch touched."""

    streams: tuple[StreamColumns, ...] = (KEYED,)
    null_keys = True

    def operator(self, block_rows: int) -> GroupByOperator:
        return GroupByOperator(self.streams[0], ["k"], NUMBERS, block_rows)

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        for row in batch.to_pylist():
            yield tuple(rounded(value) for value in row.values())

    def check(self, cluster: Cluster) -> None:
        check_updates(cluster, aggregated)


def check_updates(cluster: Cluster, statistic) -> None:
    """Every update is what some batch would have said; the last is of all rows; none is said twice.

    While results wait, those of several batches become one.
    """
    right = {
        key: {
            (key, *statistic([row for _, row in rows[:end]])): batch
            for end, (batch, _) in enumerate(rows, 1)
            if end == len(rows) or rows[end][0] != batch
        }
        for key, rows in by_key(cluster.accepted).items()
    }
    newest: dict[int | None, int] = {}
    for batch, results in cluster.said:
        keys = Counter(key for key, *_ in results.elements())
        assert set(keys.values()) <= {1}
        for result in results:
            of = right[result[0]][result]
            assert newest.get(result[0], -1) < of <= batch
            newest[result[0]] = of
    assert newest == {key: max(updates.values()) for key, updates in right.items()}


@dataclass
class Deduped:
    """The first row of each key; with a range, the first that is so far from all others.

    Tumbling: the first row of each key and stretch of that length, the stretches beginning at 0.
    """

    range: int | None = None
    tumbling: bool = False
    null_keys = True

    def __post_init__(self) -> None:
        time = None if self.range is None else 1
        self.streams = (
            StreamColumns("s", ("k", "t", "v", "x"), (0, 1, 2, 3), (0,), time, self.range),
        )

    def operator(self, block_rows: int) -> DedupOperator:
        return DedupOperator(self.streams[0], 1, block_rows, tumbling=self.tumbling)

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        for row in batch.to_pylist():
            yield row["k"], row["v"], row["x"]

    def check(self, cluster: Cluster) -> None:
        wanted: Counter = Counter()
        for rows in by_key(cluster.accepted).values():
            taken: list[Row] = []
            for _, row in rows:
                if not any(self.same(row, one) for one in taken):
                    taken.append(row)
            wanted.update((row.key, row.value, row.amount) for row in taken)
        assert cluster.results == wanted

    def same(self, row: Row, taken: Row) -> bool:
        """Whether a row is not let through because another of its key was."""
        if self.range is None:
            return True
        if self.tumbling:
            return row.time // self.range == taken.time // self.range
        return abs(row.time - taken.time) < self.range


@dataclass
class Windowed:
    """A statistic over the last rows of a key, or over a range of time, per row or per batch."""

    per_row: bool
    rows: int | None = None
    range: int | None = None
    null_keys = True

    def __post_init__(self) -> None:
        time = None if self.range is None else 1
        self.streams = (
            StreamColumns("s", ("k", "t", "v", "x"), (0, 1, 2, 3), (0,), time, self.range),
        )

    def operator(self, block_rows: int) -> WindowedOperator:
        window = Within() if self.rows is None else LastRows(self.rows, 1)
        emitted = [("k", 0), ("v", 2)]
        return WindowedOperator(
            self.streams[0],
            emitted if self.per_row else emitted[:1],
            [*NUMBERS, DISTINCT],
            window,
            per_row=self.per_row,
            block_rows=block_rows,
        )

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        for row in batch.to_pylist():
            yield tuple(rounded(value) for value in row.values())

    def seen(self, rows: list[Row]) -> tuple:
        """The statistic of the last of some rows of a key."""
        last = rows[-1].time
        if self.rows is not None:
            seen = rows[-self.rows :]
        else:
            seen = [row for row in rows if last - self.range < row.time <= last]
        return (*aggregated(seen), len({row.amount for row in seen}))

    def check(self, cluster: Cluster) -> None:
        if not self.per_row:
            check_updates(cluster, self.seen)
            return
        assert cluster.results == Counter(
            (key, rows[at - 1][1].value, *self.seen([row for _, row in rows[:at]]))
            for key, rows in by_key(cluster.accepted).items()
            for at in range(1, len(rows) + 1)
        )


def distinct(columns, offsets) -> list[int]:
    values = columns["x"].to_pylist()
    return [len(set(values[a:b])) for a, b in itertools.pairwise(offsets)]


DISTINCT = PythonAggregate("distinct", distinct, (("x", 3),), pa.int64())


@st.composite
def joins(draw):
    streams = draw(st.integers(2, 4))
    windowed = draw(st.booleans())
    return Joined([draw(st.integers(1, 12)) if windowed else None for _ in range(streams)])


@st.composite
def shapes(draw, streams: int) -> Shape:
    """Any tree over streams, with inner nodes of two or more children."""
    nodes: list = [f"s{at}" for at in draw(st.permutations(range(streams)))]
    while len(nodes) > 1:
        size = draw(st.integers(2, min(3, len(nodes))))
        at = draw(st.integers(0, len(nodes) - size))
        nodes[at : at + size] = [Shape(tuple(nodes[at : at + size]))]
    return nodes[0]


@st.composite
def trees(draw):
    streams = draw(st.integers(2, 4))
    windowed = draw(st.booleans())
    windows = [draw(st.integers(1, 12)) if windowed else None for _ in range(streams)]
    return Treed(windows, draw(shapes(streams)))


#: For each operator, the ways it may be set up.
SUBJECTS = {
    "join": joins(),
    "tree": trees(),
    "group-by": st.just(Grouped()),
    "last rows": st.builds(Windowed, st.booleans(), st.integers(1, 4)),
    "within": st.builds(Windowed, st.booleans(), st.none(), st.integers(1, 9)),
    "dedup": st.just(Deduped()) | st.builds(Deduped, st.integers(1, 9), st.just(True)),
    "dedup within": st.builds(Deduped, st.integers(1, 9)),
}
#: For each operator but the n-way join, one that is put under pressure, and the memory of its slots.
PRESSED = {
    "tree": (Treed([30] * 4, parse("((s0 s1) (s2 s3))")), 1500),
    "group-by": (Grouped(), 400),
    "last rows": (Windowed(True, 3), 400),
    "within": (Windowed(True, None, 9), 300),
    "dedup": (Deduped(), 60),
    "dedup within": (Deduped(9), 90),
    "dedup every": (Deduped(9, True), 90),
}
