"""A checkpoint directory: its query, its committed state, and its cleanup.

    metadata.json     what the query is; written once, by the first start
    log/              committed batches and their owners (checkpoint/log.py)
    manifests/        the slots' manifests; meaningful only when the log names them
    runs/             run files; meaningful only when a manifest names them
    lock              held by the running query, on a local filesystem

The lock is a quick and friendly refusal. What keeps two queries apart is the ownership of the log: a
start takes over, and the older owner cannot commit any more.

Cleanup is bounded: a commit deletes the files that the commit before it stopped naming. Each start of
the query takes over, and then looks once for files that nothing names. It deletes those of older epochs.
While the query runs, a sweep deletes those of earlier batches (`orphans`).
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import msgspec

from spillway.checkpoint.log import Log
from spillway.codec import decode, encode
from spillway.coordinator.batch.committed import Committed, Sample, initial
from spillway.coordinator.batch.plan import Note
from spillway.coordinator.batch.references import References
from spillway.errors import QueryError, StateError
from spillway.formats import Format
from spillway.ids import SlotId
from spillway.kernels.checksum import sealed, unsealed
from spillway.plan.difference import Fingerprint, refuse_other_query
from spillway.redaction import learn_location
from spillway.routing.routing import Routing
from spillway.state.manifest.combining import combine
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.durable import DurableStore, open_durable
from spillway.state.runs.durable.opening import not_opened
from spillway.state.runs.durable.syncing import make_folder
from spillway.state.runs.names import epoch_of, new_attempt, whole_name
from spillway.state.runs.orphans import orphans

#: Of metadata.json; 4 is the first whose log has owners and epochs (docs/formats.md).
FORMAT = Format(4, 4)
_METADATA = "metadata.json"


class Checkpoint:
    """The durable state of one query."""

    def __init__(self, location: str, durable: DurableStore | None = None) -> None:
        learn_location(location)
        self.location = location
        self.durable = durable or open_durable(location)
        self.log = Log(self.durable)
        self._lock: IO[str] | None = None

    def acquire(self) -> None:
        """Locks the checkpoint against other queries, until released or dead."""
        local = self.durable.local_path()
        try:
            if local is None:
                # Elsewhere there is only the ownership of the log.
                self.durable.names("log")
                return
            make_folder(os.path.abspath(local))
        except OSError as problem:
            raise not_opened(self.location, problem) from problem
        self._lock = self._lock_file(local / "lock")

    def _lock_file(self, path: Path) -> IO[str] | None:
        handle = open(path, "a+")  # noqa: SIM115 - open while it is locked
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip()
            handle.close()
            raise QueryError(
                f"another query is running on the checkpoint at {self.location}",
                detail=f"process {holder} holds its lock" if holder else None,
                hint="stop that query first, or use another checkpointLocation for this one",
            ) from None
        except OSError:
            # The filesystem has no locks.
            handle.close()
            return None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        return handle

    def release(self) -> None:
        """Unlocks the checkpoint."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def metadata(self) -> dict[str, Any] | None:
        """Returns what the first start wrote, or None in a new checkpoint."""
        data = self.durable.read(_METADATA)
        if data is None:
            return None
        body = unsealed(data)
        if body is None:
            raise StateError(
                f"the metadata of the checkpoint at {self.location} is damaged",
                hint="restore the checkpoint directory from a backup",
            )
        FORMAT.checked(body, f"the checkpoint at {self.location}")
        return decode(dict[str, Any], body)

    def open(
        self,
        query: Fingerprint,
        groups: int,
        version: str,
        then: Sequence[Fingerprint] = (),
        sources: Mapping[str, Sequence[Any]] | None = None,
    ) -> dict[str, Any]:
        """Returns the metadata; writes it if the checkpoint is new, otherwise compares it.

        The first stage of a query also names the stages after it, and the sources of its streams.
        """
        found = self.metadata()
        if found is None:
            found = {
                "format": FORMAT.number,
                "spillway": version,
                "query_id": uuid.uuid4().hex,
                "groups": groups,
                "query": query,
                "then": then,
                "sources": sources or {},
            }
            body = msgspec.json.format(encode(found), indent=1)
            if not self.durable.publish(_METADATA, sealed(body)):
                # Another first start was quicker, or died after it had claimed the name.
                other = self.metadata()
                if other is None:
                    self.durable.replace(_METADATA, sealed(body))
                found = other or found
        refuse_other_query(self.location, [found["query"], *found["then"]], [query, *then])
        if found["groups"] != groups:
            raise QueryError(
                f"the checkpoint at {self.location} has {found['groups']} groups, but this "
                f"query asks for {groups}",
                hint=f"use .adapt(groups={found['groups']}); only the number of slots may differ",
            )
        return found

    def recover(self, streams: int, new: Routing) -> tuple[Committed, References]:
        """Takes over; returns the committed state, in its former slots, and the files it refers to.

        A new checkpoint begins with the given routing.
        """
        record = self.log.take_over()
        state = record.state or initial(new, streams)
        try:
            manifests = self._manifests(state, streams)
            note = self.log.open_note(record)
            self._sweep(state, manifests, note)
        except StateError:
            # A newer owner may have deleted files that this one still wants to read.
            self.log.check_owner()
            raise
        # A batch that began under another routing is repeated under it.
        if note is None or note.routing == state.routing:
            return state, _references(manifests)
        more = note.routing.slots - state.routing.slots
        if more > 0 and note.routing.table == state.routing.table:
            # New slots are empty; moves between the others continue.
            names = (*state.manifests, *(None,) * more)
            return replace(state, routing=note.routing, manifests=names), _references(manifests)
        return self.reroute(state, streams, note.routing)

    def reroute(
        self, state: Committed, streams: int, routing: Routing
    ) -> tuple[Committed, References]:
        """Returns the same state under another routing, without copies; no group may be moving."""
        olds = self._manifests(state, streams)
        slots = range(routing.slots)
        combined = [combine(olds, SlotId(slot), routing, streams) for slot in slots]
        names: list[str | None] = []
        for manifest in combined:
            name = f"manifests/{state.batch:09d}-{manifest.slot}-{self.new_attempt()}.json"
            self.durable.write(name, manifest.encode())
            names.append(name)
        self.durable.sync()
        # Pending orders and fills were meant for the former slots.
        changed = replace(
            state,
            routing=routing,
            manifests=tuple(names),
            sample=Sample(
                state.sample.clock_s,
                state.sample.batch,
                state.sample.state_bytes,
                (0,) * routing.slots,
            ),
            forces=(),
            scaling=None,
        )
        return changed, _references(combined)

    @property
    def epoch(self) -> int:
        """The epoch of this start."""
        return self.log.owned.epoch

    def new_attempt(self) -> str:
        """Returns a name for files of this start that no other attempt has."""
        return new_attempt(self.epoch)

    def manifest(self, name: str) -> Manifest:
        """Reads one manifest. Rejects a missing or damaged one."""
        return read_manifest(self.durable, name)

    def discard(self, names: Sequence[str]) -> None:
        """Deletes files that nothing names any more."""
        self.durable.delete(names)

    def orphans(self, state: Committed, before: Committed) -> list[str]:
        """The files of attempts that died unreported, while the query runs.

        `before` is the commit before `state`; what it names may still have a reader. While groups move,
        files that nothing names yet are on their way, so there are none then.
        """
        if state.moves or before.moves:
            return []
        manifests = {name for one in (state, before) for name in one.manifests if name}
        runs = {run for name in manifests for run in self.manifest(name).runs()}
        found = orphans(self.durable.names("runs"), runs, before.batch)
        old = orphans(self.durable.names("manifests"), {n[10:] for n in manifests}, before.batch)
        names = [*(f"runs/{name}" for name in found), *(f"manifests/{name}" for name in old)]
        return [name for name in names if epoch_of(name) <= self.epoch]

    def _manifests(self, state: Committed, streams: int) -> list[Manifest]:
        return [
            self.manifest(name) if name else empty_manifest(SlotId(slot), streams)
            for slot, name in enumerate(state.manifests)
        ]

    def _sweep(self, state: Committed, manifests: list[Manifest], note: Note | None) -> None:
        """Deletes the files of earlier starts that never committed.

        Files of this start stay, and so do those of a later one: it may already run.
        """
        parts = [move.part for move in (note.moves if note else ()) if move.part]
        named = {name for name in (*state.manifests, *parts) if name}
        known = [*manifests, *(self.manifest(name) for name in parts)]
        runs = {name for manifest in known for name in manifest.runs()}
        found = [f"manifests/{n}" for n in self.durable.names("manifests")]
        orphans = [name for name in found if name not in named]
        orphans += [f"runs/{n}" for n in self.durable.names("runs") if n not in runs]
        older = [name for name in orphans if epoch_of(name) < self.epoch]
        partial = [name for name in self.durable.names("") if whole_name(name) == _METADATA]
        self.discard([*older, *partial, *self.log.leftovers()])


def _references(manifests: Sequence[Manifest]) -> References:
    counts: dict[str, int] = {}
    for manifest in manifests:
        for name in manifest.runs():
            counts[name] = counts.get(name, 0) + 1
    return References(counts)
