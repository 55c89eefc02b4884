"""Rows, and the operators under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from spillway.operators.input import StreamColumns, null_number
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
    def results(self) -> Counter[Hashable]:
        """All results."""
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


def exchanged(
    rows: Sequence[Row], h: Sequence[int], attempt: int, nulls: Sequence[bool] | None = None
) -> list[pa.RecordBatch]:
    """Rows as a slot task gets them; every attempt gets another order.

    `nulls` marks rows that the slot only counts.
    """
    order = np.random.default_rng(attempt).permutation(len(rows))
    mine, h = [rows[at] for at in order], [h[at] for at in order]
    null = [False] * len(rows) if nulls is None else [nulls[at] for at in order]
    streams = [null_number(r.stream) if n else r.stream for r, n in zip(mine, null, strict=True)]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(streams, pa.int16()),
            pa.array(np.array(h, np.uint32).view(np.int32)),
            pa.array([r.key for r in mine], pa.int64()),
            pa.array([r.time for r in mine], pa.timestamp("us")),
            pa.array([r.value for r in mine], pa.int64()),
            pa.array([r.amount for r in mine], pa.int64()),
            pa.array([text_of(r.value) for r in mine], pa.string()),
        ],
        names=["_stream", "_h", *(f"lane{at}" for at in range(5))],
    )
    cut = len(mine) // 2
    return [batch.slice(0, cut), batch.slice(cut)] if mine else []
