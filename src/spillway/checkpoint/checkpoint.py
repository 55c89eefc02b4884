"""A checkpoint directory: its query, its committed state, and its cleanup.

    metadata.json     what the query is; written once, by the first start
    log/              committed batches (checkpoint/log.py)
    manifests/        the slots' manifests; meaningful only when the log names them
    runs/             run files; meaningful only when a manifest names them
    lock              held by the running query, on a local filesystem

Cleanup is bounded: a batch deletes the files that the batch before last stopped naming. Each start
of the query looks once for files of attempts that never committed.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
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
from spillway.plan.difference import refuse_other_query
from spillway.routing.routing import Routing
from spillway.state.manifest.combining import combine
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.tiers import DurableTier, not_opened

#: Of metadata.json; 2 is the first whose log and manifests the codec writes (docs/formats.md).
FORMAT = Format(2, 2)
#: Log records kept for people to read; a restart needs only the last.
KEEP_LOG = 100


class Checkpoint:
    """The durable state of one query."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.durable = DurableTier(location)
        self.log = Log(self.durable)
        self._lock: IO[str] | None = None

    def acquire(self) -> None:
        """Locks the checkpoint against other queries, until released or dead."""
        local = self.durable.local_path()
        try:
            if local is None:
                # On other filesystems, the exclusive creation of log records keeps two queries
                # apart.
                self.durable.names("log")
                return
            local.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise not_opened(self.location, problem) from problem
        handle = open(local / "lock", "a+")  # noqa: SIM115
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
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        self._lock = handle

    def release(self) -> None:
        """Unlocks the checkpoint."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def metadata(self) -> dict[str, Any] | None:
        """Returns what the first start wrote, or None in a new checkpoint."""
        data = self.durable.read("metadata.json")
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

    def open(self, fingerprint: dict[str, Any], groups: int, version: str) -> dict[str, Any]:
        """Returns the metadata; writes it if the checkpoint is new, otherwise compares it."""
        found = self.metadata()
        if found is None:
            found = {
                "format": FORMAT.number,
                "spillway": version,
                "query_id": uuid.uuid4().hex,
                "groups": groups,
                "query": fingerprint,
            }
            body = msgspec.json.format(encode(found), indent=1)
            self.durable.replace("metadata.json", sealed(body))
        refuse_other_query(self.location, found["query"], fingerprint)
        if found["groups"] != groups:
            raise QueryError(
                f"the checkpoint at {self.location} has {found['groups']} groups, but this "
                f"query asks for {groups}",
                hint=f"use .adapt(groups={found['groups']}); only the number of slots may differ",
            )
        return found

    def recover(self, streams: int, new: Routing) -> tuple[Committed, References]:
        """Returns the committed state, in its former slots, and the files it refers to.

        A new checkpoint begins with the given routing.
        """
        state = self.log.latest() or initial(new, streams)
        manifests = self._manifests(state, streams)
        note = self.log.open_note(state)
        self._sweep(state, manifests, note)
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
            name = f"manifests/{state.batch:09d}-{manifest.slot}-{uuid.uuid4().hex[:12]}.json"
            self.durable.write(name, manifest.encode())
            names.append(name)
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

    def manifest(self, name: str) -> Manifest:
        """Reads one manifest. Rejects a missing or damaged one."""
        return read_manifest(self.durable, name)

    def discard(self, names: Sequence[str]) -> None:
        """Deletes files that nothing names any more."""
        for name in names:
            self.durable.delete(name)

    def _manifests(self, state: Committed, streams: int) -> list[Manifest]:
        return [
            self.manifest(name) if name else empty_manifest(SlotId(slot), streams)
            for slot, name in enumerate(state.manifests)
        ]

    def _sweep(self, state: Committed, manifests: list[Manifest], note: Note | None) -> None:
        """Deletes the files of attempts that never committed."""
        parts = [move.part for move in (note.moves if note else ()) if move.part]
        named = {name for name in (*state.manifests, *parts) if name}
        known = [*manifests, *(self.manifest(name) for name in parts)]
        runs = {name for manifest in known for name in manifest.runs()}
        orphans = [f"manifests/{n}" for n in self.durable.names("manifests")]
        self.discard([name for name in orphans if name not in named])
        self.discard([f"runs/{n}" for n in self.durable.names("runs") if n not in runs])
        for mark in self.log.marks()[:-KEEP_LOG]:
            self.log.forget(mark)


def _references(manifests: Sequence[Manifest]) -> References:
    counts: dict[str, int] = {}
    for manifest in manifests:
        for name in manifest.runs():
            counts[name] = counts.get(name, 0) + 1
    return References(counts)
