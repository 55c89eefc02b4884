"""Measures a batch of a slot: seconds by phase, and rows in and out.

The clock runs while the slot produces results, and stops while results wait for the consumer.
People and the coordinator read the times; no result depends on them.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.metrics.record import SlotRecord
from spillway.operators.input import Sorted

_T = TypeVar("_T")


@dataclass
class Meter:
    """CPU seconds by phase, and total wall seconds."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    busy_s: float = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measures the time of a block."""
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.busy_s += time.perf_counter() - wall
            self.cpu_s[name] = self.cpu_s.get(name, 0.0) + time.thread_time() - cpu

    def measure(
        self, name: str, batches: Generator[pa.RecordBatch, None, _T]
    ) -> Generator[pa.RecordBatch, None, _T]:
        """Yields the batches; counts the time to produce them, not the time to consume them."""
        while True:
            with self.phase(name):
                try:
                    batch = next(batches)
                except StopIteration as end:
                    value: _T = end.value
                    return value
            yield batch

    def in_record(self, record: SlotRecord) -> SlotRecord:
        """Returns the record with the measured times."""
        cpu_s = sum(self.cpu_s.values())
        return replace(record, busy_s=self.busy_s, cpu_s=cpu_s, phases_s=self.cpu_s)


@dataclass
class Tally:
    """Row counts of one batch: received, late, with a NULL, and emitted."""

    rows: list[int]
    late: list[int]
    nulls: NDArray[np.int64]
    max_times: list[int | None]
    out: int = 0
    #: Rows passed to the operator, in their stored form.
    processed: int = 0
    #: Bytes of a row in the widest Arrow batch of the input.
    row_bytes: int = 0

    @classmethod
    def none(cls, streams: int) -> Tally:
        """Returns a tally of zero."""
        return cls([0] * streams, [0] * streams, np.zeros(streams, np.int64), [None] * streams)

    def receive(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the input as it comes, and measures its rows."""
        for batch in rows:
            if batch.num_rows:
                self.row_bytes = max(self.row_bytes, -(-batch.nbytes // batch.num_rows))
            yield batch

    def add(self, piece: Sorted) -> None:
        """Counts a piece of the input."""
        for stream, newest in enumerate(piece.max_times):
            self.rows[stream] += piece.rows[stream]
            self.late[stream] += piece.late[stream]
            seen = self.max_times[stream]
            if newest is not None and (seen is None or newest > seen):
                self.max_times[stream] = newest

    def count(
        self, batches: Generator[pa.RecordBatch, None, _T]
    ) -> Generator[pa.RecordBatch, None, _T]:
        """Yields the batches and counts their rows."""
        while True:
            try:
                batch = next(batches)
            except StopIteration as end:
                value: _T = end.value
                return value
            self.out += batch.num_rows
            yield batch

    def in_record(self, record: SlotRecord) -> SlotRecord:
        """Returns the record with the counts."""
        return replace(
            record,
            rows_in=tuple(self.rows),
            rows_late=tuple(self.late),
            rows_null=tuple(self.nulls.tolist()),
            rows_out=self.out,
            max_times=tuple(self.max_times),
            processed_rows=self.processed,
            input_row_bytes=self.row_bytes,
        )


class Watch:
    """Seconds of work, without the time that results wait for the consumer."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._since

    def next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        """Returns the next result and measures the time to produce it."""
        with self:
            return next(batches, None)
