"""Rows, and the operators under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator

GROUPS = 8
#: The form of a value as text; values of later stages combine several.
_DIGITS = 15


@dataclass(frozen=True)
class Row:
    """One row of a stream."""

    stream: int
    key: int | None
    time: int | None
    #: Different for every row.
    value: int

    @property
    def amount(self) -> int | None:
        """A number that rows share, sometimes NULL."""
        return None if self.value % 4 == 3 else self.value * 7 % 5 - 2

    @property
    def at(self) -> int:
        """The time of a row that has one."""
        assert self.time is not None
        return self.time


class Gave(Protocol):
    """The input and the output of a stage."""

    @property
    def accepted(self) -> Sequence[tuple[int, Row]]:
        """The rows that were neither late nor NULL, with their batch."""
        ...

    @property
    def apart(self) -> Sequence[Row]:
        """The rows with a NULL key or time that were not late."""
        ...

    @property
    def results(self) -> Counter[Hashable]:
        """All results."""
        ...

    @property
    def watermark_us(self) -> int | None:
        """The watermark after the last batch."""
        ...

    @property
    def said(self) -> Sequence[tuple[int, Counter[Hashable]]]:
        """For each batch and round, the number of its batch and its results."""
        ...


class Subject(Protocol):
    """An operator, and the law for its results."""

    #: Whether NULL is a key like any other.
    null_keys: bool

    @property
    def streams(self) -> tuple[StreamColumns, ...]:
        """The input."""
        ...

    def operator(self, block_rows: int) -> Operator:
        """The operator of the product."""
        ...

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """The results of a batch as values."""
        ...

    def check(self, gave: Gave) -> None:
        """Raises AssertionError if the complete results are wrong."""
        ...


def matches_nothing(subject: Subject, row: Row) -> bool:
    """Whether a row has a NULL key or time: the query only counts it."""
    stream = subject.streams[row.stream]
    null_key = row.key is None and bool(stream.keys) and not subject.null_keys
    return null_key or (row.time is None and stream.time is not None)


def hash_of(key: int | None) -> int:
    """The hash of a key. Neighbouring keys share one, so that a hash match is not yet a key match."""
    return ((0 if key is None else key // 2) * 2654435761) % 2**32


def text_of(value: int) -> str:
    """A value as text in the same order; a few texts are long, to cross limits in bytes."""
    return f"{value:0{_DIGITS}d}" + "x" * (120 if value % 7 == 3 else value % 5)


def value_of(text: str) -> int:
    """The value of a text."""
    value = int(text[:_DIGITS])
    assert text == text_of(value), f"{text} is not the text of a value"
    return value


@dataclass(frozen=True)
class Exchanged:
    """One row in the exchange; without a row, the marker of a slot."""

    stream: int
    h: int
    row: Row | None = None


def exchanged(found: Sequence[Exchanged], attempt: int) -> list[pa.RecordBatch]:
    """Rows as a task gets them; every attempt gets another order."""
    order = np.random.default_rng(attempt).permutation(len(found))
    mine = [found[at] for at in order]
    rows = [one.row for one in mine]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([one.stream for one in mine], pa.int16()),
            pa.array(np.array([one.h for one in mine], np.uint32).view(np.int32)),
            pa.array([r and r.key for r in rows], pa.int64()),
            pa.array([r and r.time for r in rows], pa.timestamp("us")),
            pa.array([r and r.value for r in rows], pa.int64()),
            pa.array([r and r.amount for r in rows], pa.int64()),
            pa.array([r and text_of(r.value) for r in rows], pa.string()),
        ],
        names=["_stream", "_h", *(f"lane{at}" for at in range(5))],
    )
    cut = len(mine) // 2
    return [batch.slice(0, cut), batch.slice(cut)] if mine else []
