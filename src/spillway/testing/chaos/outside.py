"""Spark's offsets and the files of the sink: what a loss of power does to them.

Spark writes the offsets of a batch before the batch begins, and does not sync them. A file sink renames
its files, and does not sync them either. So a loss of power may take both. Then Spark plans the batch
again with other rows: here with half of them, and the others come in the next batch.

`SYNCED` says when the product makes them durable:

    "never"    not at all
    "record"   offsets and the files of the sink, before the record of the step
    "note"     offsets before the note of the batch, the files of the sink before the record

Only "note" is enough for every sink. A sink that is durable on its own keeps a step that was not
committed. If the offsets of that step are lost, its number comes again with other rows.
"""

from __future__ import annotations

from random import Random

import pyarrow as pa

from spillway.kernels.checksum import checksum
from spillway.testing.chaos.ledger import Ledger
from spillway.testing.simulated.rows import Row

#: Whether a loss of power reaches offsets and the sink.
POWER_REACHES_OUTSIDE = True
#: When the product syncs them (checkpoint/offsets.py, spark/sinks).
SYNCED = "note"


class Outside:
    """Offsets, and the steps whose files in the sink are durable."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        #: The rows of every batch that Spark has planned.
        self._planned: dict[int, tuple[Row, ...]] = {}
        self._safe: set[int] = set()
        self._written: set[int] = set()
        #: Rows of the source that are in no batch yet: those of a batch that was planned again.
        self._left: tuple[Row, ...] = ()
        self._lost: set[int] = set()

    def plan(self, number: int, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """The rows of a batch, as Spark has planned it before or plans it now."""
        if number not in self._planned:
            rows, self._left = (*self._left, *rows), ()
            if number in self._lost:
                half = len(rows) // 2
                rows, self._left = rows[:half], rows[half:]
            self._planned[number] = rows
        return self._planned[number]

    @property
    def has_more(self) -> bool:
        """Whether the source has rows for another batch."""
        return bool(self._left)

    def settle(self, number: int) -> str:
        """Makes the offsets durable before a batch begins; returns the checksum of its rows."""
        if SYNCED == "note":
            self._safe |= set(self._planned)
        return f"{checksum(pa.py_buffer(repr(self._planned[number]).encode())):016x}"

    def record(self) -> None:
        """Called before a record: makes the files of the sink durable."""
        if SYNCED != "never":
            self._written |= set(self._ledger.sink)
        if SYNCED == "record":
            self._safe |= set(self._planned)

    def lose_power(self, chance: Random, *, sink_too: bool) -> None:
        """Loses half of the offsets that are not durable; with `sink_too`, also files of the sink."""
        if not POWER_REACHES_OUTSIDE:
            return
        for number in [n for n in self._planned if n not in self._safe]:
            if chance.random() < 0.5:
                del self._planned[number]
                self._lost.add(number)
        for number in [n for n in self._ledger.sink if n not in self._written and sink_too]:
            if chance.random() < 0.5:
                del self._ledger.sink[number]
