"""The rows of the laws, and what an operator under a law is."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator

if TYPE_CHECKING:
    from law.stages import Held

GROUPS = 8


@dataclass(frozen=True)
class Row:
    stream: int
    key: int | None
    time: int
    #: Its own for every row.
    value: int

    @property
    def amount(self) -> int | None:
        """A number that rows share, sometimes NULL."""
        return None if self.value % 4 == 3 else self.value * 7 % 5 - 2


class Subject(Protocol):
    """An operator, and the law that its results follow."""

    #: The input.
    streams: tuple[StreamColumns, ...]
    #: Whether rows may have NULL as their key.
    null_keys: bool

    def operator(self, block_rows: int) -> Operator: ...

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """The results of a batch as values."""
        ...

    def check(self, held: Held) -> None:
        """Whether the results are right, when none is missing any more."""
        ...


def hash_of(key: int | None) -> int:
    # Neighbouring keys share a hash, so that a hash match is not yet a key match.
    return ((0 if key is None else key // 2) * 2654435761) % 2**32


def exchanged(rows: list[Row], h: list[int], attempt: int) -> list[pa.RecordBatch]:
    """Rows as they come to a slot task, in an order that differs from attempt to attempt."""
    order = np.random.default_rng(attempt).permutation(len(rows))
    mine, h = [rows[at] for at in order], [h[at] for at in order]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([r.stream for r in mine], pa.int8()),
            pa.array(np.array(h, np.uint32).view(np.int32)),
            pa.array([r.key for r in mine], pa.int64()),
            pa.array([r.time for r in mine], pa.timestamp("us")),
            pa.array([r.value for r in mine], pa.int64()),
            pa.array([r.amount for r in mine], pa.int64()),
        ],
        names=["_stream", "_h", "lane0", "lane1", "lane2", "lane3"],
    )
    cut = len(mine) // 2
    return [batch.slice(0, cut), batch.slice(cut)] if mine else []
