"""The coordinator's log, and who may write to it.

A batch is committed when its record appears, whole and for the first time, under `log/`. The same holds
for a round. Everything else in the checkpoint gets its meaning from the newest record, and from the note
next to it, if any: the part of the plan that a started batch or round must use again
(`coordinator.batch.plan.Note`). Each file carries a checksum.

**Ownership.** A record takes the next sequence by a write that fails if another has it. A start
publishes a record that repeats the committed state with the next epoch: the *takeover*. From then on,
the next sequence of the older owner is taken, and its commit fails. So two owners never both commit, and
no lock or process id matters.

**An older owner in the middle of a batch** may still write to the sink. So an owner first writes its
note and then checks that it still is the owner; a takeover first publishes its record and then looks for
notes. So the older owner stops before it runs anything, or the new one finds its note. Then the new
owner repeats the batch with the same plan, sink number and results. Before anything else, the takeover
copies the valid note, or states that there is none. Later notes of older owners do not count.

**Lost answers.** A publication may fail although the record is there. Its owner compares, and adopts its
own record. If it cannot read either, the outcome is unknown: the owner commits nothing more, and the
next start continues after whatever is on record.

**Claimed records.** On some local filesystems, a writer claims a name before it creates the file
(state/runs/durable/exclusive.py). A takeover skips a claimed name, publishes the next record, and looks
again. The writer of the claim completes its record and looks for a later one. So one of the two sees the
other.

Known limitation: the log keeps the last 100 takeovers. An owner that sleeps through more starts than
that, between its last check and its commit, finds its sequence free again. Its record is older than all
others and has no effect, but the owner believes in it until its next check.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from spillway.checkpoint.record import (
    FORMAT,
    Begun,
    Owner,
    Record,
    begun_text,
    note_at,
    note_path,
    record_path,
    record_text,
    sequence_of,
)
from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import Note
from spillway.errors import QueryError, StateError
from spillway.formats import read_as
from spillway.kernels.checksum import sealed
from spillway.state.runs.durable import DurableStore
from spillway.state.runs.durable.exclusive import CLAIM
from spillway.state.runs.names import whole_name

#: Records kept for people to read; a restart needs only the last. And takeovers kept.
KEEP_RECORDS = 100
#: Times that a takeover meets another writer before it gives up. Commits are far rarer than attempts.
_TRIES = 100


class Log:
    """Records, newest last. Anybody may read; `take_over` comes before the first write."""

    def __init__(self, durable: DurableStore) -> None:
        self._durable = durable
        self._own: Record | None = None
        #: What this owner has begun. Nobody else writes its notes, so reading them again is not needed.
        self._open = Begun()

    # Reading

    def sequences(self) -> list[int]:
        """Returns the records on record, ascending, with those that are only claimed."""
        found = map(sequence_of, self._durable.names("log"))
        return sorted({number for number in found if number is not None})

    def newest(self) -> Record | None:
        """Returns the newest record, or None in a new checkpoint."""
        whole = (self._whole(number) for number in reversed(self.sequences()))
        return next((record for record in whole if record is not None), None)

    def latest(self) -> Committed | None:
        """Returns the newest committed state, or None before the first commit."""
        newest = self.newest()
        return None if newest is None else newest.state

    def read(self, sequence: int) -> Record:
        """Reads one record. Rejects a missing or damaged one and an unsupported format."""
        record = self._whole(sequence)
        if record is None:
            raise StateError(
                f"log record {record_path(sequence)} is missing",
                detail=f"in {self._durable.location}",
                hint="restore the checkpoint directory from a backup",
            )
        return record

    def commits(self) -> list[Committed]:
        """Returns the committed states on record, oldest first."""
        records = [self._whole(number) for number in self.sequences()]
        return [one.state for one in records if one and one.state and not one.takes_over]

    def open_note(self, record: Record | None) -> Note | None:
        """Returns the note of a batch or round that began after a record and has not ended."""
        return self._begun(record).note

    def read_note(self, mark: Mark) -> Note | None:
        """Returns the owner's note of a batch or round, if it has begun."""
        return self._open.note_of(mark)

    # Writing

    @property
    def owned(self) -> Record:
        """The last record of this owner."""
        assert self._own is not None, "take_over comes first"
        return self._own

    def take_over(self, owner: Owner | None = None) -> Record:
        """Becomes the owner; returns the record, with the committed state."""
        owner = owner or Owner.here()
        for _ in range(_TRIES):
            base, taken = self._base()
            record = _takeover(base, taken, owner)
            if self._publish(record) and not any(map(self._holds, taken)):
                self._own = record
                self._write_begun(self._begun(record))
                return record
        raise QueryError(
            f"the checkpoint at {self._durable.location} cannot be taken over",
            detail=f"other queries wrote to its log {_TRIES} times meanwhile",
            hint="stop the other queries that use this checkpoint, then start again",
        )

    def append(self, state: Committed) -> list[str]:
        """Commits a batch or round; returns the log files that nobody needs any more.

        Fails if another start has taken over.
        """
        own = self.owned
        sequence = own.sequence + 1
        record = replace(own, sequence=sequence, since=sequence, passed=False, state=state)
        if not self._publish(record):
            raise self._refusal()
        if self._durable.local_path() is not None and self._has_record(sequence + 1):
            # A takeover has passed this record while it was only claimed.
            raise self._fenced()
        # Only now: if that read fails, the caller does not know of the commit, and must not go on.
        self._own, self._open = record, Begun()
        old = sequence - KEEP_RECORDS
        if old < 0:
            return []
        path = record_path(old)
        claims = [path + CLAIM] if self._durable.local_path() is not None else []
        records = [] if old in own.takeovers else [path, *claims]
        return [*records, note_path(old, own.epoch)]

    def begin(self, mark: Mark, note: Note) -> None:
        """Writes how a batch or round begins, so that a restart repeats it exactly.

        Fails if another start has taken over: then nothing may run.
        """
        self._write_begun(Begun(*mark, note))
        self.check_owner()

    @property
    def is_owner(self) -> bool:
        """Whether no other start has taken over."""
        return not self._has_next or self._newest_is_own()

    def check_owner(self) -> None:
        """Fails if another start has taken over, or if this one has a commit that it does not know."""
        if self._has_next:
            raise self._refusal()

    def leftovers(self) -> list[str]:
        """Returns the log files that no restart needs, of all owners."""
        own = self.owned
        oldest = own.sequence - KEEP_RECORDS
        found = []
        for name in self._durable.names("log"):
            number, at = sequence_of(name), note_at(name)
            if number is not None and number <= oldest and number not in own.takeovers:
                found.append(f"log/{name}")
            if at is not None and at[0] <= min(oldest, own.since):
                found.append(f"log/{name}")
            if (whole := whole_name(name)) is not None and self._is_past(whole):
                found.append(f"log/{name}")
        return found

    def _is_past(self, name: str) -> bool:
        """Whether a record can no longer get its name, or a note is of an older owner."""
        number, at = sequence_of(name), note_at(name)
        if number is not None:
            return number <= self.owned.sequence
        return at is not None and at[1] < self.owned.epoch

    # The files

    def _base(self) -> tuple[Record | None, list[int]]:
        """Returns the newest record that holds, and the later sequences that are taken."""
        taken: list[int] = []
        for number in reversed(self.sequences()):
            record = self._holds(number)
            if record is not None:
                return record, taken
            taken.append(number)
        return None, taken

    def _holds(self, sequence: int) -> Record | None:
        """Reads a record; None if it is only claimed, or a takeover that did not look again.

        A takeover that passed a claimed record has looked again when it has written its note.
        """
        record = self._whole(sequence)
        if record is None or not record.passed:
            return record
        noted = self._durable.read(note_path(record.sequence + 1, record.epoch))
        return None if noted is None else record

    def _publish(self, record: Record) -> bool:
        """Publishes a record. An answer may get lost, so what is there is compared."""
        path, data = record_path(record.sequence), sealed(record_text(record))
        try:
            if self._durable.publish(path, data):
                return True
        except OSError:
            with suppress(OSError):
                if self._has(path, data):
                    return True
            raise
        return self._has(path, data)

    def _has(self, path: str, data: bytes) -> bool:
        found = self._durable.read(path)
        return found is not None and bytes(found) == data

    @property
    def _has_next(self) -> bool:
        """Whether there is a record after the last one of this owner."""
        return self._has_record(self.owned.sequence + 1)

    def _has_record(self, sequence: int) -> bool:
        return self._durable.read(record_path(sequence)) is not None

    def _newest_is_own(self) -> bool:
        newest = self.newest()
        return newest is not None and newest.owner.token == self.owned.owner.token

    def _whole(self, sequence: int) -> Record | None:
        """Reads a record; None if it is missing or only claimed."""
        name = record_path(sequence)
        data = self._durable.read(name)
        return None if data is None else read_as(Record, *self._body(data, name))

    def _begun(self, record: Record | None) -> Begun:
        """Returns what began after a record, by the newest owner that says so."""
        since, last = (-1, -1) if record is None else (record.since, record.sequence)
        found = filter(None, map(note_at, self._durable.names("log")))
        notes = [(epoch, number) for number, epoch in found if since < number <= last + 1]
        if not notes:
            return Begun()
        epoch, number = max(notes)
        return self._read_begun(number, epoch)

    def _read_begun(self, sequence: int, epoch: int) -> Begun:
        name = note_path(sequence, epoch)
        data = self._durable.read(name)
        return Begun() if data is None else read_as(Begun, *self._body(data, name))

    def _write_begun(self, begun: Begun) -> None:
        path = note_path(self.owned.sequence + 1, self.owned.epoch)
        self._durable.replace(path, sealed(begun_text(begun)))
        self._open = begun

    def _body(self, data: object, name: str) -> tuple[bytes, str, str]:
        """Returns the JSON of a file, with its name and location for errors."""
        what, location = f"log record {name}", self._durable.location
        return FORMAT.body_of(data, what, location), what, location

    def _refusal(self) -> QueryError:
        """Returns why this owner cannot write the next record."""
        return self._unsure() if self._newest_is_own() else self._fenced()

    def _unsure(self) -> QueryError:
        """Returns the error of an owner whose commit succeeded, or began, while the answer got lost."""
        sequence = self.owned.sequence + 1
        record = self._whole(sequence)
        what = (
            f"batch {record.state.batch}" if record and record.state else "only its name is taken"
        )
        return QueryError(
            f"the checkpoint at {self._durable.location} has a commit of this start whose outcome it "
            "did not learn",
            detail=f"record {sequence} of the log: {what}; no row is lost",
            hint="start the query again: it continues after that commit",
        )

    def _fenced(self) -> QueryError:
        """Returns the error of an owner whose checkpoint another start has taken over."""
        newest, own = self.newest(), self.owned
        newer = own if newest is None else newest
        return QueryError(
            f"another start has taken over the checkpoint at {self._durable.location}, "
            f"epoch {newer.epoch} after {own.epoch}",
            detail=f"the owner is {newer.owner}; this start commits nothing more, and no row is lost",
            hint="let one query run on a checkpoint; give each query its own checkpointLocation",
        )


def _takeover(base: Record | None, taken: list[int], owner: Owner) -> Record:
    """Returns the takeover that repeats a record, after the later sequences that are taken."""
    base = base or Record(-1, 0, owner)
    sequence = max([base.sequence, *taken]) + 1
    # Each of those that are taken may have an epoch of its own.
    epoch = base.epoch + len(taken) + 1
    takeovers = (*base.takeovers, *sorted(taken), sequence)[-KEEP_RECORDS:]
    return Record(sequence, epoch, owner, base.since, takeovers, bool(taken), base.state)
