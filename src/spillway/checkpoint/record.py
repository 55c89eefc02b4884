"""The files of the log: records and notes, as values and as text.

    log/<sequence>.json            a record: the committed state after a batch or round
    log/<sequence>.<epoch>.begun   a note: the plan of the batch or round that this record will commit

The sequence grows by one with every record. A *takeover* is a record too: it repeats the committed state
with the next epoch.
"""

from __future__ import annotations

import os
import re
import socket
import time
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone

from spillway.codec import encode
from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import Note
from spillway.formats import Format

#: The format of records and notes; 7 is the first with owners and epochs (docs/formats.md).
FORMAT = Format(7, 7)
_RECORD = re.compile(r"^(\d+)\.json(?:\.claim)?$")
_NOTE = re.compile(r"^(\d+)\.(\d+)\.begun$")


@dataclass(frozen=True)
class Owner:
    """One start of a query."""

    host: str
    pid: int
    #: Seconds since 1970.
    started_s: float
    #: Unique, also in containers with equal host names and process ids.
    token: str

    @classmethod
    def here(cls) -> Owner:
        """Returns this process, as it starts a query now."""
        return cls(socket.gethostname(), os.getpid(), time.time(), uuid.uuid4().hex)

    @property
    def started_at(self) -> str:
        """The time of the start, in UTC."""
        return datetime.fromtimestamp(self.started_s, timezone.utc).isoformat(timespec="seconds")

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started at {self.started_at}"


@dataclass(frozen=True)
class Record:
    """One record of the log."""

    sequence: int
    epoch: int
    owner: Owner
    #: The sequence of the commit that led to this state; -1 before the first. A commit names itself.
    since: int = -1
    #: The sequences of the last takeovers, ascending. Each stops an older owner.
    takeovers: tuple[int, ...] = ()
    #: Whether it is a takeover that skipped claimed records.
    passed: bool = False
    #: None before the first commit.
    state: Committed | None = None

    @property
    def takes_over(self) -> bool:
        """Whether it commits nothing."""
        return self.since != self.sequence


@dataclass(frozen=True)
class Begun:
    """A batch or round that has begun, by its mark; without a note, nothing has begun."""

    batch: int = -1
    round: int = 0
    note: Note | None = None

    def note_of(self, mark: Mark) -> Note | None:
        """Returns the note if it belongs to this batch or round."""
        return self.note if (self.batch, self.round) == mark else None


def record_text(record: Record) -> bytes:
    """Returns a record as text."""
    return FORMAT.stamped(encode(record))


def begun_text(begun: Begun) -> bytes:
    """Returns a note as text."""
    return FORMAT.stamped(encode(begun))


def record_path(sequence: int) -> str:
    """Returns the name of a record."""
    return f"log/{sequence:09d}.json"


def note_path(sequence: int, epoch: int) -> str:
    """Returns the name of the note of one owner."""
    return f"log/{sequence:09d}.{epoch:06d}.begun"


def sequence_of(name: str) -> int | None:
    """Returns the sequence of a record from its file name, or from the name of its claim."""
    found = _RECORD.match(name)
    return int(found.group(1)) if found else None


def note_at(name: str) -> tuple[int, int] | None:
    """Returns sequence and epoch of a note from its file name."""
    found = _NOTE.match(name)
    return (int(found.group(1)), int(found.group(2))) if found else None
