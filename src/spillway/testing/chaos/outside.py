"""What others keep, and what a loss of power does to it: Spark's offsets, and what the sink has.

Spark writes the offsets of a batch before the batch begins, and never syncs them. A file sink moves its
files, which makes nothing safe. After a loss of power both may be gone. Then Spark plans the batch
again, with other rows: here with half of them, and the others come in the next batch.

`SYNCED` says when the product makes them safe:

    "never"    by nobody
    "record"   offsets and the sink's files, before the record of the step
    "note"     offsets before the note of the batch, the sink's files before the record

Only "note" is enough for every sink. A sink that is durable on its own keeps a step that was not
committed. If the offsets of that step are lost, its number comes again with other rows.
"""

from __future__ import annotations

from random import Random

from spillway.testing.chaos.ledger import Ledger
from spillway.testing.simulated.rows import Row

#: Whether a loss of power reaches offsets and the sink. Off until the product syncs both.
POWER_REACHES_OUTSIDE = False
#: When the product syncs them.
SYNCED = "never"


class Outside:
    """Offsets, and the numbers of steps that the sink has for sure."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        #: The rows of every batch that Spark has planned.
        self._planned: dict[int, tuple[Row, ...]] = {}
        self._safe: set[int] = set()
        self._written: set[int] = set()
        #: Rows that the source has and no batch: those of a batch that was planned again.
        self._left: tuple[Row, ...] = ()
        self._lost: set[int] = set()

    def plan(self, number: int, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """The rows of a batch: as planned before, or as Spark plans it now."""
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

    def note(self) -> None:
        """A note is about to be written."""
        if SYNCED == "note":
            self._safe |= set(self._planned)

    def record(self) -> None:
        """A record is about to be written."""
        if SYNCED != "never":
            self._written |= set(self._ledger.sink)
        if SYNCED == "record":
            self._safe |= set(self._planned)

    def lose_power(self, chance: Random, *, sink_too: bool) -> None:
        """Half of what is not safe is lost; with `sink_too`, also of what the sink has."""
        if not POWER_REACHES_OUTSIDE:
            return
        for number in [n for n in self._planned if n not in self._safe]:
            if chance.random() < 0.5:
                del self._planned[number]
                self._lost.add(number)
        for number in [n for n in self._ledger.sink if n not in self._written and sink_too]:
            if chance.random() < 0.5:
                del self._ledger.sink[number]
