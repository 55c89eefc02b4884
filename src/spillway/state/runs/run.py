"""Runs: immutable files of rows sorted by (hash, arrival).

A run file is one uncompressed Arrow record batch in the IPC file format, ready for use through a
memory map. Its first column is the 32-bit hash `_h`; the others are the columns of its stream. A
`Run` describes a file; a `Slice` is a hash range of a run; `RunData` is an opened run with its
lookup index. Nothing here changes after its creation.

The index is not stored. A process rebuilds it in 3-4 ns per row when it first opens the run, and
keeps it in 1.5 bytes per row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.checksum import checksum
from spillway.kernels.order import bucket_index, index_shape
from spillway.routing.routing import HashRange
from spillway.rows.cutting import Widths
from spillway.rows.size import bytes_between

HASH_COLUMN = "_h"
#: Slices of one run whose sizes are cached.
_ANSWERS = 8


@dataclass(frozen=True)
class Run:
    """What a manifest knows about a run file."""

    name: str
    rows: int
    #: Size of the file: the cost of the run in a tier.
    size_bytes: int
    checksum: int
    #: Least and largest event time in microseconds; None if the query has no window.
    min_time: int | None
    max_time: int | None
    #: Its local tier, "memory" or "disk".
    tier: str = "memory"


class Slice(msgspec.Struct, frozen=True, gc=False):
    """The rows of a run with hashes in a range; a struct for the same reason as `HashRange`."""

    run: Run
    range: HashRange

    def cut(self, within: HashRange) -> Slice | None:
        """Returns the part of the slice inside another range."""
        met = self.range.meet(within)
        return None if met is None else Slice(self.run, met)


class Index(NamedTuple):
    """Where to look up a hash: see `kernels.order.bucket_index`."""

    first: NDArray[np.int32]
    present: NDArray[np.uint64]
    base: Any
    shift: Any


class RunData:
    """An opened run: its rows and the index over their hashes."""

    def __init__(
        self,
        batch: pa.RecordBatch,
        time_column: int | None = None,
        covered: tuple[HashRange, ...] | None = None,
    ) -> None:
        self.batch = batch
        #: The hashes of an excerpt; None: all rows of the run are here.
        self.covered = covered
        #: The hashes, ascending.
        self.h: NDArray[np.uint32] = as_numpy(batch.column(0), np.uint32)
        self.time_column = time_column
        #: Cache of `bytes_in`, asked again in every batch.
        self._bytes: dict[tuple[int, int], int] = {}
        self._group_rows: dict[int, NDArray[np.int64]] = {}
        self._derived: dict[Hashable, Any] = {}
        #: Cache of `group_sizes`; a slice rarely changes between batches.
        self._group_sizes: dict[
            tuple[int, int, int], tuple[NDArray[np.int64], NDArray[np.int64]]
        ] = {}

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.h.shape[0])

    def covers(self, range_: HashRange) -> bool:
        """Whether all rows of the run in a range are here."""
        if self.covered is None:
            return True
        return any(one.lo <= range_.lo and range_.hi <= one.hi for one in self.covered)

    @cached_property
    def payload(self) -> pa.RecordBatch:
        """The rows without their hash."""
        return self.batch.select(self.batch.schema.names[1:])

    @cached_property
    def times(self) -> NDArray[np.int64] | None:
        """Event times in microseconds, if the query has a window."""
        if self.time_column is None:
            return None
        return as_numpy(self.batch.column(1 + self.time_column), np.int64)

    @cached_property
    def time_span(self) -> tuple[int, int]:
        """The least and the largest event time; the rows must have times."""
        assert self.times is not None
        return int(self.times.min()), int(self.times.max())

    def derived(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns a value that an operator computes from the rows once; cached with the run."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]

    def widths(self, wanted: Sequence[int]) -> Widths:
        """Returns the bytes of single rows of some columns of the payload; cached."""
        at = tuple(wanted)
        return cast(
            "Widths",
            self.derived(("widths", at), lambda: Widths([self.payload.column(one) for one in at])),
        )

    @cached_property
    def index(self) -> Index:
        """The lookup index, built at the first probe."""
        base, shift = index_shape(self.h)
        first, present = bucket_index(self.h, base, shift)
        return Index(first, present, base, shift)

    def part(self, begin: int, end: int) -> RunData:
        """Returns the rows [begin, end) as a separate run with its own index."""
        return RunData(self.batch.slice(begin, end - begin), self.time_column)

    def rows_in(self, range_: HashRange) -> tuple[int, int]:
        """Returns the positions [begin, end) of the rows with hashes in the range."""
        begin = np.searchsorted(self.h, np.uint32(range_.lo)) if range_.lo > 0 else 0
        end = np.searchsorted(self.h, np.uint32(range_.hi)) if range_.hi < 1 << 32 else self.rows
        return int(begin), int(end)

    def bytes_in(self, begin: int, end: int) -> int:
        """Returns the exact bytes of the rows [begin, end)."""
        if begin >= end:
            return 0
        known = self._bytes.get((begin, end))
        if known is None:
            known = int(bytes_between(self.batch, np.array([begin, end], np.int64))[0])
            _remember(self._bytes, (begin, end), known)
        return known

    def group_sizes(
        self, bounds: NDArray[np.int64], begin: int, end: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the rows and bytes of each group among the rows [begin, end)."""
        key = (len(bounds), begin, end)
        known = self._group_sizes.get(key)
        if known is None:
            starts = np.clip(self.group_starts(bounds), begin, end)
            known = (np.diff(starts), bytes_between(self.batch, starts))
            _remember(self._group_sizes, key, known)
        return known

    def group_starts(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns where each group begins, by the groups' hash bounds; cached."""
        starts = self._group_rows.get(len(bounds))
        if starts is None:
            starts = np.searchsorted(self.h, bounds.astype(np.uint64)).astype(np.int64)
            self._group_rows[len(bounds)] = starts
        return starts


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _remember(answers: dict[_Key, _Value], key: _Key, answer: _Value) -> None:
    """Caches an answer, and drops the oldest when the cache is full."""
    while len(answers) >= _ANSWERS:
        del answers[next(iter(answers))]
    answers[key] = answer


def encode_run(batch: pa.RecordBatch) -> pa.Buffer:
    """Encodes the bytes of a run file."""
    size = pa.MockOutputStream()
    _encode(batch, size)
    # A buffer of the right size need not grow, and takes a third of the time.
    buffer = pa.allocate_buffer(size.size())
    _encode(batch, pa.FixedSizeBufferWriter(buffer))
    return buffer


def _encode(batch: pa.RecordBatch, out: pa.NativeFile) -> None:
    with pa.ipc.new_file(out, batch.schema) as writer:
        writer.write_batch(batch)


def decode_run(buffer: pa.Buffer) -> pa.RecordBatch:
    """Decodes the rows of a run file without a copy."""
    return pa.ipc.open_file(buffer).get_batch(0)


def describe_run(name: str, data: RunData, buffer: pa.Buffer, tier: str) -> Run:
    """Describes a run whose bytes are in `buffer`."""
    times = data.times
    timed = times is not None and len(times) > 0
    return Run(
        name,
        data.rows,
        buffer.size,
        checksum(buffer),
        int(times.min()) if timed and times is not None else None,
        int(times.max()) if timed and times is not None else None,
        tier,
    )


def as_numpy(column: pa.Array, dtype: Any) -> NDArray[Any]:
    """Returns the values of a fixed-width column without NULLs, as they lie in memory."""
    data = column.buffers()[1]
    if data is None or len(column) == 0:
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype)[column.offset : column.offset + len(column)]
