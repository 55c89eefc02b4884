"""Cuts rows into blocks of bounded bytes; no other module does.

A block has a bounded number of rows, and of bytes (rows/bounds.py). The bytes are exact: the sum of the
values in the block. So only blocks with large rows end early.

Most blocks need no cut. `Widths` knows the widest row of its columns, found once for a run. If the
number of rows times this width fits, no row is measured. For columns of fixed width it is a constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.rows import bounds
from spillway.rows.joining import narrowed
from spillway.rows.size import Ints, bytes_at, bytes_between, fixed_bytes, widest_bytes

#: The rows [begin, end).
Stretch = tuple[int, int]


class Widths:
    """The bytes of single rows of some columns."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        sizes = [fixed_bytes(column.type) for column in columns]
        #: Bytes of the columns of fixed width, without bits.
        self._fixed = sum(size for size in sizes if size is not None)
        self._varied = [c for c, size in zip(columns, sizes, strict=True) if size is None]

    @cached_property
    def widest(self) -> int:
        """No row has more bytes."""
        return self._fixed + sum(map(widest_bytes, self._varied))

    def at(self, rows: NDArray[Any]) -> Ints:
        """Returns the bytes of each of some rows."""
        return bytes_at(self._varied, rows) + self._fixed


def stretches(
    sizes: Ints, most_bytes: int | None = None, most_rows: int | None = None
) -> Iterator[Stretch]:
    """Cuts rows of known sizes into stretches of bounded bytes, or of one row.

    Example:
        >>> list(stretches(np.array([4, 4, 9, 1, 1]), most_bytes=8))
        [(0, 2), (2, 3), (3, 5)]
    """
    most_bytes = bounds.BLOCK_BYTES if most_bytes is None else most_bytes
    ends = np.cumsum(sizes)
    at, done = 0, 0
    while at < len(sizes):
        until = max(at + 1, int(np.searchsorted(ends, done + most_bytes, side="right")))
        until = until if most_rows is None else min(until, at + most_rows)
        yield at, until
        at, done = until, int(ends[until - 1])


class Taken(Protocol):
    """The bytes of rows that a caller is about to take."""

    @property
    def widest(self) -> int:
        """No row has more bytes."""
        ...

    def sizes(self) -> Ints:
        """Returns the bytes of each row."""
        ...


@dataclass(frozen=True)
class TakenRows:
    """Rows to take from some columns."""

    widths: Widths
    rows: NDArray[Any]

    @property
    def widest(self) -> int:
        """No row has more bytes."""
        return self.widths.widest

    def sizes(self) -> Ints:
        """Returns the bytes of each row."""
        return self.widths.at(self.rows)


def cut_taken(
    taken: Sequence[Taken], count: int, most_rows: int | None = None
) -> Iterator[Stretch]:
    """Cuts `count` rows into blocks; each row comes from several sides."""
    if count * sum(one.widest for one in taken) > bounds.BLOCK_BYTES:
        sizes = sum((one.sizes() for one in taken), np.zeros(count, np.int64))
        yield from stretches(sizes, None, most_rows)
        return
    step = most_rows or max(count, 1)
    for begin in range(0, count, step):
        yield begin, min(begin + step, count)


def cut_rows(
    batch: pa.RecordBatch, most_bytes: int | None = None, most_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Cuts a batch into blocks, without a copy unless it has 64-bit offsets."""
    most_bytes = bounds.BLOCK_BYTES if most_bytes is None else most_bytes
    if batch.nbytes <= most_bytes:
        step = most_rows or max(batch.num_rows, 1)
        for begin in range(0, batch.num_rows, step):
            yield narrowed(batch.slice(begin, step))
        return
    sizes = bytes_between(batch, np.arange(batch.num_rows + 1))
    for begin, end in stretches(sizes, most_bytes, most_rows):
        yield narrowed(batch.slice(begin, end - begin))
