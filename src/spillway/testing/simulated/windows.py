"""Group-by over tumbling, hopping and session windows, with brute-force oracles."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.kernels.ranking import numbers
from spillway.operators.grouping.closing import ClosingOperator
from spillway.operators.grouping.final import FinalOperator
from spillway.operators.grouping.groupby import WindowUpdateOperator
from spillway.operators.grouping.lasting import LastingOperator
from spillway.operators.grouping.marks import Marks, Sessions, Spans
from spillway.operators.grouping.windowed import Within
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.testing.simulated.grouping import (
    DISTINCT,
    KEYED,
    NUMBERS,
    aggregated,
    by_key,
    check_updates,
    in_order,
    rounded,
)
from spillway.testing.simulated.rows import Gave, Row

#: A group: its key, and the start and end of its window.
Group = tuple[Any, int, int]
Grouped = dict[Group, list[tuple[int, Row]]]


@dataclass
class Closed:
    """One final result for each key and window, when the watermark has passed the end."""

    length: int
    #: None: sessions, whose gap is the length.
    slide: int | None
    start: int = 0
    null_keys = True

    @property
    def marks(self) -> Marks:
        """The windows, in the form of the product."""
        if self.slide is None:
            return Sessions(self.length, "window")
        return Spans(self.length, self.slide, self.start)

    @property
    def streams(self) -> tuple[StreamColumns, ...]:
        """The input."""
        return (StreamColumns("s", KEYED.visible, KEYED.lanes, (0,), 1, self.length),)

    def operator(self, block_rows: int) -> Operator:
        """The operator of the product."""
        return ClosingOperator(self.streams[0], ["k"], NUMBERS, block_rows, self.marks)

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """Results as values, the window as two numbers."""
        start, end = (numbers(one, np.int64).tolist() for one in batch.column("window").flatten())
        rows = batch.drop_columns(["window"]).to_pylist()
        for first, last, row in zip(start, end, rows, strict=True):
            key, *values = row.values()
            yield (key, first, last, *map(rounded, values))

    def check(self, gave: Gave) -> None:
        """Compares with the windows that have ended by the watermark."""
        watermark = gave.watermark_us
        assert gave.results == Counter(
            (*group, *aggregated([row for _, row in rows]))
            for group, rows in self.grouped(gave.accepted).items()
            if watermark is not None and self._ended(group[2], watermark)
        )

    def _ended(self, end: int, watermark: int) -> bool:
        # A row at the end of a session is part of it.
        return end < watermark if self.slide is None else end <= watermark

    def grouped(self, accepted: Iterable[tuple[int, Row]]) -> Grouped:
        """The rows of each key and window, in order."""
        if self.slide is None:
            return self._sessions(accepted)
        found: Grouped = defaultdict(list)
        for batch, row in in_order(accepted):
            least = row.at - self.length - self.slide
            for start in range(least - (least - self.start) % self.slide, row.at + 1, self.slide):
                if start <= row.at < start + self.length:
                    found[row.key, start, start + self.length].append((batch, row))
        return found

    def _sessions(self, accepted: Iterable[tuple[int, Row]]) -> Grouped:
        found: Grouped = {}
        for key, rows in by_key(accepted).items():
            held: list[tuple[int, Row]] = []
            for one in sorted(rows, key=lambda one: one[1].at):
                if held and one[1].at - held[-1][1].at > self.length:
                    found[self._session(key, held)] = in_order(held)
                    held = []
                held.append(one)
            found[self._session(key, held)] = in_order(held)
        return found

    def _session(self, key: Any, rows: list[tuple[int, Row]]) -> Group:
        return key, rows[0][1].at, rows[-1][1].at + self.length


@dataclass
class Updated(Closed):
    """The same windows; a batch gives the aggregates of those that it touched."""

    def operator(self, block_rows: int) -> Operator:
        """The operator of the product."""
        return WindowUpdateOperator(self.streams[0], ["k"], NUMBERS, block_rows, self.marks)

    def check(self, gave: Gave) -> None:
        """Compares with brute force."""
        check_updates(_ByGroup(gave), aggregated, self.grouped)


@dataclass
class Lasting(Closed):
    """Totals of each key since its last pause longer than the length; updates for touched keys."""

    @property
    def marks(self) -> Marks:
        """The sessions, in the form of the product."""
        return Sessions(self.length, None)

    def operator(self, block_rows: int) -> Operator:
        """The operator of the product."""
        return LastingOperator(self.streams[0], ["k"], NUMBERS, block_rows, self.marks)

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """Results as values."""
        for row in batch.to_pylist():
            yield tuple(map(rounded, row.values()))

    def check(self, gave: Gave) -> None:
        """Compares with brute force."""
        check_updates(gave, self._newest)

    def _newest(self, rows: Sequence[Row]) -> tuple[Hashable, ...]:
        """The aggregates of the newest session of some rows of a key, which come in their order."""
        sessions = self._sessions(enumerate(rows))
        _, held = max(sessions.items(), key=lambda one: one[0][1])
        return aggregated([row for _, row in held])


@dataclass
class Finalised(Closed):
    """For each row, the aggregates over the range of time up to it, when the watermark has passed it."""

    def operator(self, block_rows: int) -> Operator:
        """The operator of the product."""
        return FinalOperator(
            self.streams[0],
            [("k", 0), ("w", 4)],
            [*NUMBERS, DISTINCT],
            Within(),
            per_row=True,
            block_rows=block_rows,
        )

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """Results as values."""
        for row in batch.to_pylist():
            yield tuple(map(rounded, row.values()))

    def check(self, gave: Gave) -> None:
        """Compares with brute force."""
        watermark = gave.watermark_us
        wanted: Counter[Hashable] = Counter()
        for key, rows in by_key(gave.accepted).items():
            ordered = sorted((row for _, row in rows), key=lambda row: (row.at, row.value))
            for row in ordered:
                if watermark is not None and row.at < watermark:
                    seen = [one for one in ordered if row.at - self.length < one.at <= row.at]
                    distinct = len({one.amount for one in seen})
                    wanted[(key, row.value, *aggregated(seen), distinct)] += 1
        assert gave.results == wanted


class _ByGroup:
    """What a stage gave, with key and window as the first value of its results."""

    def __init__(self, gave: Gave) -> None:
        self._gave = gave
        self.accepted, self.apart = gave.accepted, gave.apart
        self.watermark_us = gave.watermark_us
        self.results = _by_group(gave.results)

    @property
    def said(self) -> Sequence[tuple[int, Counter[Hashable]]]:
        """The results of each batch and round."""
        return [(batch, _by_group(results)) for batch, results in self._gave.said]


def _by_group(results: Counter[Hashable]) -> Counter[Hashable]:
    found: Counter[Hashable] = Counter()
    for result, count in results.items():
        assert isinstance(result, tuple)
        found[(result[:3], *result[3:])] += count
    return found
