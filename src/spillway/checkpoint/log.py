"""The coordinator's log: one small file per commit, in the durable tier.

A batch is committed when its record appears, whole and for the first time, under `log/`; so is a
round, which comes after a batch and before the next. Everything else in the checkpoint gets its meaning
from the newest record, and from the note beside it, if there is one: what of its plan a batch or round
that was begun must have again (`coordinator.Note`). Each carries a checksum.
"""

from __future__ import annotations

import re

from spillway.codec import decode, encode
from spillway.coordinator.committed import (
    Committed,
    Mark,
    next_round_of,
)
from spillway.coordinator.plan import Note
from spillway.errors import QueryError, StateError
from spillway.formats import Format, read_as
from spillway.kernels.checksum import sealed
from spillway.state.runs.tiers import DurableTier

#: Of records and of notes; 6 is the first that the codec writes (docs/formats.md).
FORMAT = Format(6, 6)
_BEGUN = ".begun"
#: A round may come before the first batch, and then is one after batch -1.
_NAME = re.compile(r"^(-?\d+)(?:\.(\d+))?\.json$")


class Log:
    """Commits, newest last."""

    def __init__(self, durable: DurableTier) -> None:
        self._durable = durable

    def latest(self) -> Committed | None:
        """The newest committed state, or None in a new checkpoint."""
        marks = self.marks()
        return None if not marks else self.read(marks[-1])

    def marks(self) -> list[Mark]:
        """The commits on record, ascending."""
        found = (_NAME.match(name) for name in self._durable.names("log"))
        return sorted(Mark(int(one.group(1)), int(one.group(2) or 0)) for one in found if one)

    def read(self, mark: Mark) -> Committed:
        """One record, refused if it is damaged, or of a format that this version cannot read."""
        name = _path(mark)
        data = self._durable.read(name)
        if data is None:
            raise StateError(
                f"log record {name} is missing",
                detail=f"in {self._durable.location}",
                hint="restore the checkpoint directory from a copy",
            )
        return read_as(Committed, *self._body(data, name))

    def append(self, state: Committed) -> None:
        """Commits a batch; refused if another query has committed it first."""
        path = _path(Mark(state.batch, state.round))
        if not self._durable.publish(path, sealed(record_text(state))):
            raise QueryError(
                f"batch {state.batch} was committed by another query on {self._durable.location}",
                hint="stop one of the two queries that share this checkpoint; "
                "each query needs a checkpointLocation of its own",
            )

    def begin(self, mark: Mark, note: Note) -> None:
        """Notes what a batch or round is about to do, so that a restart repeats it as it was."""
        self._durable.replace(_path(mark, _BEGUN), sealed(note_text(note)))

    def begun(self, mark: Mark) -> Note | None:
        """The note of a batch or round, if it was begun with one."""
        name = _path(mark, _BEGUN)
        data = self._durable.read(name)
        return None if data is None else read_as(Note, *self._body(data, name))

    def open_note(self, state: Committed) -> Note | None:
        """The note of whatever was begun after a commit and has not ended."""
        return self.begun(next_round_of(state)) or self.begun(Mark(state.batch + 1))

    def forget(self, mark: Mark) -> None:
        """Drops one record, and its note; only those that no restart can need."""
        self._durable.delete(_path(mark))
        self._durable.delete(_path(mark, _BEGUN))

    def _body(self, data: object, name: str) -> tuple[bytes, str, str]:
        """The JSON of a file, and how it and its place are called."""
        what, location = f"log record {name}", self._durable.location
        return FORMAT.body_of(data, what, location), what, location


def record_text(state: Committed) -> bytes:
    """A record, as it is written."""
    return FORMAT.stamped(encode(state))


def record_of(text: bytes) -> Committed:
    """The inverse of `record_text`."""
    return decode(Committed, text)


def note_text(note: Note) -> bytes:
    """A note, as it is written."""
    return FORMAT.stamped(encode(note))


def note_of(text: bytes) -> Note:
    """The inverse of `note_text`."""
    return decode(Note, text)


def _path(mark: Mark, suffix: str = ".json") -> str:
    after = f".{mark.round:06d}" if mark.round else ""
    return f"log/{mark.batch:09d}{after}{suffix}"
