"""Tumbling dedup against a plain model: which rows are let through, and what is kept of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pytest

from spillway.operators.grouping.dedup import DedupOperator
from spillway.operators.input import StreamColumns, sort_input
from spillway.operators.stats import OperatorStats
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData

#: Key, time and content.
Click = tuple[int | None, int, str]
TIMES = pa.timestamp("us", "UTC")


def hash_of(key: int | None) -> int:
    # Neighbouring keys share a hash.
    return ((0 if key is None else key // 2) * 2654435761) % 2**32


def exchanged(rows: Sequence[Click]) -> pa.RecordBatch:
    keys, times, words = zip(*rows, strict=True)
    h = np.array([hash_of(key) for key in keys], np.uint32).view(np.int32)
    lanes = [pa.array(keys, pa.int64()), pa.array(times, TIMES), pa.array(words)]
    return pa.RecordBatch.from_arrays(
        [pa.array(np.zeros(len(rows), np.int16)), pa.array(h), *lanes],
        names=["_stream", "_h", "lane0", "lane1", "lane2"],
    )


class Once:
    """A dedup of clicks over some batches, whose state is held as it is kept."""

    def __init__(self, length: int) -> None:
        self.stream = StreamColumns("clicks", ("id", "at", "what"), (0, 1, 2), (0,), 1, length)
        self.operator = DedupOperator(self.stream, block_rows=3, tumbling=True)
        self.kept: list[Segment] = []
        self.late = 0

    def stored(self, number: int, rows: Sequence[Click], watermark: int | None = None) -> RunData:
        """The rows of a batch as they are kept while they wait."""
        found = sort_input([exchanged(rows)], (self.stream,), watermark)
        self.late += found.late[0]
        [waiting] = self.operator.stored(found.deltas, number)
        return waiting

    def batch(
        self, number: int, rows: Sequence[Click], watermark: int | None = None
    ) -> list[Click]:
        """The rows of a batch that are let through."""
        made = self.operator.results(
            self.kept, self.stored(number, rows, watermark), OperatorStats(8)
        )
        through = []
        while True:
            try:
                through += [
                    (row["id"], _micros(row["at"]), row["what"]) for row in next(made).to_pylist()
                ]
            except StopIteration as end:
                [kept] = end.value
                self.kept.append(Segment(kept, 0, kept.rows))
                return through

    @property
    def beginnings(self) -> list[tuple[int | None, int]]:
        """The keys in state, each with what is kept of its time."""
        found = []
        for segment in self.kept:
            assert segment.data.times is not None
            keys = segment.data.payload.column(0).to_pylist()
            found += list(zip(keys, segment.data.times.tolist(), strict=True))
        return sorted(found, key=str)


def _micros(at: object) -> int:
    return pa.scalar(at, TIMES).value


def model(batches: Iterable[Sequence[Click]], length: int) -> list[list[Click]]:
    """The first row of each key and stretch, batch by batch."""
    seen: set[tuple[int | None, int]] = set()
    through = []
    for rows in batches:
        through.append([])
        for key, time, word in sorted(rows, key=lambda row: row[1:]):
            if (key, time // length) not in seen:
                seen.add((key, time // length))
                through[-1].append((key, time, word))
    return through


@pytest.mark.parametrize("length", [1, 7, 60])
def test_first_row_of_each_key_and_stretch_is_let_through(length: int) -> None:
    rng = np.random.default_rng(length)
    batches = []
    for _ in range(6):
        drawn = zip(
            *(rng.integers(*ends, 60) for ends in ((-1, 9), (-90, 90), (0, 3))), strict=True
        )
        batches.append([(None if k < 0 else int(k), int(t), f"w{w}") for k, t, w in drawn])
    once = Once(length)
    for number, wanted in enumerate(model(batches, length)):
        assert sorted(once.batch(number, batches[number]), key=str) == sorted(wanted, key=str)


def test_stretches_begin_at_the_epoch_and_go_on_before_it() -> None:
    once = Once(60)
    times = [-61, -60, -1, 0, 59, 60]
    through = once.batch(0, [(1, time, "a") for time in times])
    assert [time for _, time, _ in through] == [-61, -60, 0, 60]
    assert once.beginnings == [(1, -120), (1, -60), (1, 0), (1, 60)]


def test_first_is_by_the_time_of_the_row_and_then_by_content() -> None:
    once = Once(60)
    assert once.batch(0, [(1, 50, "a"), (1, 20, "c"), (1, 20, "b")]) == [(1, 20, "b")]
    # A row that was overtaken by one of an earlier batch is not the first.
    assert once.batch(1, [(1, 10, "a")]) == []


def test_slot_that_keeps_rows_for_another_has_their_keys_and_answers_alike() -> None:
    rows = [(1, 0, "a"), (1, 59, "b"), (2, 5, "c"), (1, 60, "d"), (None, 7, "e")]
    once, beside = Once(60), Once(60)
    once.batch(0, rows)
    # In two pieces, as the exchange may cut them.
    for piece in (rows[:2], rows[1:]):
        kept = beside.operator.shadow(beside.kept, beside.stored(0, piece))
        beside.kept.append(Segment(kept, 0, kept.rows))
    assert beside.beginnings == once.beginnings
    # Nothing else is kept of them.
    assert all(not any(s.data.payload.column(-1).to_pylist()) for s in beside.kept)
    more = [(1, 1, "a"), (1, 61, "b"), (2, 60, "c"), (None, 8, "d"), (3, 0, "e")]
    assert beside.batch(1, more) == once.batch(1, more) != []


def test_late_is_a_row_before_the_watermark_whenever_its_stretch_began() -> None:
    once = Once(60)
    assert once.batch(0, [(1, 61, "a")]) == [(1, 61, "a")]
    rows = [(1, 70, "a"), (2, 69, "a"), (2, 71, "a"), (3, 70, "a")]
    assert sorted(once.batch(1, rows, watermark=70)) == [(2, 71, "a"), (3, 70, "a")]
    assert once.late == 1
