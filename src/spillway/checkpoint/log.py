"""The coordinator's log: one small file per commit, in the durable tier.

A batch is committed when its record appears, whole and for the first time, under `log/`. The same
holds for a round, which comes between two batches. Everything else in the checkpoint gets its
meaning from the newest record, and from the note next to it, if any. The note is the part of the
plan that a started batch or round must use again (`coordinator.Note`). Each file carries a
checksum.
"""

from __future__ import annotations

import re

from spillway.codec import decode, encode
from spillway.coordinator.batch.committed import (
    Committed,
    Mark,
    next_round_of,
)
from spillway.coordinator.batch.plan import Note
from spillway.errors import QueryError, StateError
from spillway.formats import Format, read_as
from spillway.kernels.checksum import sealed
from spillway.state.runs.tiers import DurableTier

#: Of records and of notes; 6 is the first that the codec writes (docs/formats.md).
FORMAT = Format(6, 6)
_BEGUN = ".begun"
#: A round before the first batch counts as one after batch -1.
_NAME = re.compile(r"^(-?\d+)(?:\.(\d+))?\.json$")


class Log:
    """Commits, newest last."""

    def __init__(self, durable: DurableTier) -> None:
        self._durable = durable

    def latest(self) -> Committed | None:
        """Returns the newest committed state, or None in a new checkpoint."""
        marks = self.marks()
        return None if not marks else self.read(marks[-1])

    def marks(self) -> list[Mark]:
        """Returns the commits on record, ascending."""
        found = (_NAME.match(name) for name in self._durable.names("log"))
        return sorted(Mark(int(one.group(1)), int(one.group(2) or 0)) for one in found if one)

    def read(self, mark: Mark) -> Committed:
        """Reads one record. Rejects a damaged one and an unsupported format."""
        name = _path(mark)
        data = self._durable.read(name)
        if data is None:
            raise StateError(
                f"log record {name} is missing",
                detail=f"in {self._durable.location}",
                hint="restore the checkpoint directory from a backup",
            )
        return read_as(Committed, *self._body(data, name))

    def append(self, state: Committed) -> None:
        """Commits a batch; fails if another query has committed it first."""
        path = _path(Mark(state.batch, state.round))
        if not self._durable.publish(path, sealed(record_text(state))):
            raise QueryError(
                f"batch {state.batch} was committed by another query on {self._durable.location}",
                hint=(
                    "stop one of the two queries that share this checkpoint; give each "
                    "query its own checkpointLocation"
                ),
            )

    def begin(self, mark: Mark, note: Note) -> None:
        """Writes what a batch or round is about to do, so that a restart repeats it exactly."""
        self._durable.replace(_path(mark, _BEGUN), sealed(note_text(note)))

    def read_note(self, mark: Mark) -> Note | None:
        """Returns the note of a batch or round, if it has one."""
        name = _path(mark, _BEGUN)
        data = self._durable.read(name)
        return None if data is None else read_as(Note, *self._body(data, name))

    def open_note(self, state: Committed) -> Note | None:
        """Returns the note of a batch or round that began after a commit and has not ended."""
        return self.read_note(next_round_of(state)) or self.read_note(Mark(state.batch + 1))

    def forget(self, mark: Mark) -> None:
        """Deletes one record and its note; only for those that no restart can need."""
        self._durable.delete(_path(mark))
        self._durable.delete(_path(mark, _BEGUN))

    def _body(self, data: object, name: str) -> tuple[bytes, str, str]:
        """Returns the JSON of a file, with its name and location for errors."""
        what, location = f"log record {name}", self._durable.location
        return FORMAT.body_of(data, what, location), what, location


def record_text(state: Committed) -> bytes:
    """Returns a record as text."""
    return FORMAT.stamped(encode(state))


def record_of(text: bytes) -> Committed:
    """The inverse of `record_text`."""
    return decode(Committed, text)


def note_text(note: Note) -> bytes:
    """Returns a note as text."""
    return FORMAT.stamped(encode(note))


def note_of(text: bytes) -> Note:
    """The inverse of `note_text`."""
    return decode(Note, text)


def _path(mark: Mark, suffix: str = ".json") -> str:
    after = f".{mark.round:06d}" if mark.round else ""
    return f"log/{mark.batch:09d}{after}{suffix}"
