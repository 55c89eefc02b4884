"""The store of a slot task: writes runs to tiers, and opens them from the nearest intact copy.

The store writes a run to one local tier, and to the durable tier if a manifest may name it. Reads
try the local tiers first. A process compares the checksum of a file on disk when it first opens it; of
one that is only in memory a stamp is enough (state/runs/tiers.py). If the file is missing there or
damaged, the store restores it from the durable copy. If that is damaged too, it raises an error: a
wrong result is never an option.

Groups move by reference: the receiver's manifest names slices of runs that another host wrote. So the
store of a slot restores only the rows that the slot needs, unless these are most of the run. Such an
*excerpt* is a run file in the memory tier, with the covered hashes in its metadata, and its own checksum
at its end. A slot has at most one of each run. A damaged one is made again.

Each process keeps its opened runs, and releases those unused for a few batches, so that deleted
files free their memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from spillway.errors import StateError
from spillway.kernels.checksum import checksum
from spillway.routing.routing import HashRange, united
from spillway.rows.joining import is_wide
from spillway.state.runs.durable import DurableStore
from spillway.state.runs.merging import Segment, inside
from spillway.state.runs.names import excerpt_name
from spillway.state.runs.run import Run, RunData, Slice, decode_run, describe_run, encode_run
from spillway.state.runs.tiers import LocalTier

#: Batches after which an unused opened run is released.
_KEEP_OPEN_BATCHES = 4
#: Compared files that a process remembers; more are compared again.
_KEEP_COMPARED = 65_536
#: A slot that needs more than this part of a run copies all of it, which other slots can use too.
_MOSTLY = 0.8
#: Bytes of the checksum at the end of an excerpt.
_CHECKSUM_BYTES = 8
#: Where an excerpt names its hashes.
_COVERED_KEY = b"covered"
_COVERED = msgspec.json.Decoder(tuple[HashRange, ...])

Ranges = tuple[HashRange, ...]
#: The name of a local file, its rows, and their hashes; None: all rows of the run.
_Found = tuple[str, pa.RecordBatch, Ranges | None]


@dataclass
class _Opened:
    data: RunData
    used_at: int


@dataclass
class OpenRuns:
    """The open runs of a process, with the batch that last used each."""

    entries: dict[str, _Opened] = field(default_factory=dict)
    #: Files on disk whose checksums this process has compared, as they were then.
    _compared: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def find(self, name: str, range_: HashRange, batch: int) -> RunData | None:
        """Returns an opened file that has all rows of a range, and marks it as used."""
        entry = self.entries.get(name)
        if entry is None or not entry.data.covers(range_):
            return None
        entry.used_at = batch
        return entry.data

    def keep(self, name: str, data: RunData, batch: int) -> None:
        """Caches an opened run."""
        self.entries[name] = _Opened(data, batch)

    def compared(self, name: str, identity: tuple[int, int, int] | None) -> bool:
        """Whether this process has found the file intact before, and nothing has changed it since."""
        return identity is not None and self._compared.get(name) == identity

    def remember(self, name: str, identity: tuple[int, int, int] | None) -> None:
        """Remembers a file that is intact."""
        if identity is not None:
            self._compared[name] = identity
        while len(self._compared) > _KEEP_COMPARED:
            del self._compared[next(iter(self._compared))]

    def forget(self, name: str) -> None:
        """Forgets a file that goes."""
        self.entries.pop(name, None)
        self._compared.pop(name, None)

    def release(self, before: int) -> None:
        """Releases runs last used before a batch."""
        for name in [n for n, entry in self.entries.items() if entry.used_at < before]:
            del self.entries[name]


class Store:
    """Runs in their tiers, as one slot task sees them."""

    def __init__(
        self,
        memory: LocalTier,
        disk: LocalTier,
        durable: DurableStore,
        opened: OpenRuns,
        batch: int,
        slot: int = 0,
    ) -> None:
        self.memory = memory
        self.disk = disk
        self.durable = durable
        self.batch = batch
        self.slot = slot
        self._opened = opened
        self._opened.release(batch - _KEEP_OPEN_BATCHES)
        #: Runs that were damaged or missing locally and came from the durable tier.
        self.restored: list[str] = []

    def write(
        self,
        name: str,
        batch: pa.RecordBatch,
        time_column: int | None,
        *,
        in_memory: bool,
        durable: bool = True,
    ) -> tuple[Run, RunData]:
        """Writes sorted rows as a run, durable if a manifest may name it; returns it opened."""
        assert not is_wide(batch), "runs have 32-bit offsets (rows/joining.py)"
        buffer = encode_run(batch)
        data = RunData(batch, time_column)
        tier = self.memory if in_memory else self.disk
        run = describe_run(name, data, buffer, tier.kind)
        if durable:
            self.durable.write(f"runs/{name}", buffer)
        tier.write(name, buffer, run.checksum)
        return run, data

    def open(
        self, piece: Slice, time_column: int | None, named: Callable[[], Ranges] | None = None
    ) -> RunData:
        """Opens a run, or an excerpt that has all rows of a slice, from the nearest intact copy.

        `named` gives the hashes of the run that the slot needs in all; without it, those of the slice.
        """
        run, range_ = piece.run, piece.range
        for name in (run.name, excerpt_name(run.name, self.slot)):
            data = self._opened.find(name, range_, self.batch)
            if data is not None:
                return data
        name, batch, covered = self._local(run, range_) or self._restored(
            run, united((range_, *(named() if named else ())))
        )
        data = RunData(batch, time_column, covered)
        self._opened.keep(name, data, self.batch)
        return data

    def bring(self, run: Run, ranges: Sequence[HashRange]) -> int:
        """Makes rows of a run local before a batch needs them; returns the bytes that it wrote."""
        found = [self._local(run, range_) for range_ in ranges]
        if all(found):
            return 0
        known = self._excerpt(run)
        kept = known.covered or () if known else ()
        return int(self._restored(run, united((*ranges, *kept)))[1].nbytes)

    def forget(self, name: str) -> None:
        """Removes the local copies of a run that no manifest names any more."""
        for mine in (name, excerpt_name(name, self.slot)):
            self._opened.forget(mine)
            self.memory.delete(mine)
        self.disk.delete(name)

    def _local(self, run: Run, range_: HashRange) -> _Found | None:
        """Returns the rows of a local copy that has all rows of a range."""
        buffer = self._whole(run)
        if buffer is not None:
            return run.name, decode_run(buffer), None
        known = self._excerpt(run)
        if known is None or not known.covers(range_):
            return None
        return excerpt_name(run.name, self.slot), known.batch, known.covered

    def _whole(self, run: Run) -> pa.Buffer | None:
        """Returns the file of a run in a local tier, if it is intact."""
        for tier in (self.memory, self.disk):
            buffer = tier.map(run.name)
            if buffer is None or buffer.size != run.size_bytes:
                continue
            identity = tier.identity(run.name)
            if tier.stamped(run.name, run.checksum) or self._opened.compared(run.name, identity):
                return buffer
            if _intact(buffer, run):
                tier.stamp(run.name, run.checksum)
                self._opened.remember(run.name, identity)
                return buffer
        return None

    def _excerpt(self, run: Run) -> RunData | None:
        """Returns the slot's excerpt of a run, if it is there and intact."""
        name = excerpt_name(run.name, self.slot)
        buffer = self.memory.map(name)
        if buffer is None or buffer.size <= _CHECKSUM_BYTES:
            return None
        body = buffer.slice(0, buffer.size - _CHECKSUM_BYTES)
        if not self.memory.stamped(name, run.checksum):
            if buffer.slice(body.size).to_pybytes() != _encoded_checksum(body):
                return None
            self.memory.stamp(name, run.checksum)
        batch = decode_run(body)
        covered = _COVERED.decode(batch.schema.metadata[_COVERED_KEY])
        return RunData(batch.replace_schema_metadata(None), None, covered)

    def _restored(self, run: Run, ranges: Ranges) -> _Found:
        """Copies a run, or an excerpt with these hashes, from the durable tier to a local one."""
        buffer = self._durable(run)
        self.restored.append(run.name)
        if run.tier == self.disk.kind:
            self.disk.write(run.name, buffer, run.checksum)
            return run.name, decode_run(self.disk.map(run.name) or buffer), None
        whole = RunData(decode_run(buffer))
        rows = inside(Segment(whole, 0, whole.rows), ranges)
        if rows.rows > _MOSTLY * run.rows:
            self.memory.write(run.name, buffer, run.checksum)
            return run.name, decode_run(self.memory.map(run.name) or buffer), None
        batch = rows.batch()
        marked = batch.replace_schema_metadata({_COVERED_KEY: msgspec.json.encode(ranges)})
        name, body = excerpt_name(run.name, self.slot), encode_run(marked)
        file = pa.py_buffer(body.to_pybytes() + _encoded_checksum(body))
        self.memory.write(name, file, run.checksum)
        known = self._excerpt(run)
        return name, batch if known is None else known.batch, ranges

    def _durable(self, run: Run) -> pa.Buffer:
        buffer = self.durable.read(f"runs/{run.name}")
        if buffer is None or not _intact(buffer, run):
            raise StateError(
                f"run {run.name} is {'missing' if buffer is None else 'damaged'} in the durable tier",
                detail=f"looked in {self.durable.location}; expected {run.size_bytes} bytes with "
                f"checksum {run.checksum:016x}",
                hint=(
                    "restore the checkpoint directory from a backup; without this file the "
                    "query cannot give exact results"
                ),
            )
        return buffer


def _encoded_checksum(buffer: pa.Buffer) -> bytes:
    return checksum(buffer).to_bytes(_CHECKSUM_BYTES, "little")


def _intact(buffer: pa.Buffer, run: Run) -> bool:
    return buffer.size == run.size_bytes and checksum(buffer) == run.checksum
