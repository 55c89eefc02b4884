"""What a checkpoint holds and whether it is intact, read without its lock and without Spark.

A running query commits meanwhile, and its janitor deletes files of older versions. So missing files
count only if the log still ends with the batch that named them; otherwise the reader continues with
the newer batch. It never writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.record import Record
from spillway.coordinator.batch.committed import Committed
from spillway.errors import QueryError, StateError
from spillway.ids import SlotId
from spillway.inspect.explanation import ShapeReport, shape_report
from spillway.kernels.checksum import checksum
from spillway.metrics.events import Event
from spillway.metrics.groups import GroupTable
from spillway.state.layout.layers import Layer
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.runs.durable.opening import file_sizes
from spillway.state.runs.run import Run

#: Groups listed for each slot, those with the most results first.
TOP_GROUPS = 5
#: Newest events shown.
LAST_EVENTS = 50
#: Newer batches to follow before a finding counts; a batch takes longer than a read.
_LOOKS = 5


@dataclass(frozen=True)
class StreamState:
    """One stream's state in one slot: in memory, and on disk."""

    rows: int
    bytes: int
    layers: int
    runs: int
    disk_rows: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True)
class FrozenPart:
    """A generation: groups that spilled together."""

    number: int
    groups: int
    runs: int


@dataclass(frozen=True)
class MovingPart:
    """A slot's part of groups in transit: groups that have left, or rows that wait."""

    move: int
    rows: int
    bytes: int
    disk_rows: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True)
class BusyGroup:
    """A group that produced results."""

    group: int
    rows: int
    bytes: int
    outputs: int
    #: The last batch that brought a row.
    last_insert: int


@dataclass(frozen=True)
class SlotReport:
    """One slot, from its manifest; `streams` is empty if the manifest cannot be read."""

    slot: int
    groups: int
    manifest: str | None
    streams: Mapping[str, StreamState]
    top_groups: Sequence[BusyGroup]
    generations: Sequence[FrozenPart] = ()
    #: Groups that miss results because they have several parts.
    pending: int = 0
    #: Groups that have left for another slot, and rows that wait for groups in transit to this one.
    departed: Sequence[MovingPart] = ()
    parked: Sequence[MovingPart] = ()
    #: New rows of groups that another slot also serves.
    tracked: Sequence[MovingPart] = ()
    #: Rows that wait for a later batch.
    spooled_rows: int = 0
    spooled_bytes: int = 0
    #: The join shape of the slot; None: the n-way join.
    plan: ShapeReport | None = None


@dataclass(frozen=True)
class Files:
    """The run files of a checkpoint."""

    named: int = 0
    named_bytes: int = 0
    #: Files that no manifest names: of attempts that did not commit, or of a move that is not
    #: complete. The next start of the query deletes those that remain.
    unnamed: int = 0


@dataclass(frozen=True)
class Inspection:
    """Everything that `spillway inspect` shows."""

    location: str
    metadata: Mapping[str, Any]
    #: The newest record of the log; None in a new checkpoint.
    record: Record | None
    slots: Sequence[SlotReport] = ()
    files: Files = field(default_factory=Files)
    #: What the query did to its state, as far as the log goes back, newest last.
    events: Sequence[Event] = ()
    problems: Sequence[str] = ()
    #: Whether every run was read and compared with its checksum.
    verified: bool = False

    @property
    def committed(self) -> Committed | None:
        """The committed state; None before the first commit."""
        return None if self.record is None else self.record.state

    @property
    def streams(self) -> list[str]:
        """The names of the streams."""
        return [stream["name"] for stream in self.metadata["query"]["streams"]]


def inspect_checkpoint(path: str, *, verify: bool = False) -> Inspection:
    """Inspects a checkpoint: the user's checkpointLocation, or the state directory in it.

    Raises:
        QueryError: There is no checkpoint.
        StateError: Its metadata is damaged, or a newer version wrote it.
    """
    checkpoint, metadata = _find(path)
    looked = _look(checkpoint, metadata, verify)
    for _ in range(_LOOKS):
        if not looked.problems or _still_last(checkpoint, looked.record):
            break
        looked = _look(checkpoint, metadata, verify)
    return looked


def _find(path: str) -> tuple[Checkpoint, dict[str, Any]]:
    for location in (f"{path.rstrip('/')}/spillway", path):
        checkpoint = Checkpoint(location)
        metadata = checkpoint.metadata()
        if metadata is not None:
            return checkpoint, metadata
    raise QueryError(
        f"{path} is not a Spillway checkpoint",
        detail="neither it nor a directory 'spillway' in it has a metadata.json",
        hint=(
            "pass the checkpointLocation of the query, or the directory in "
            ".adapt(durable=...) if the query uses it"
        ),
    )


def _look(checkpoint: Checkpoint, metadata: Mapping[str, Any], verify: bool) -> Inspection:
    try:
        record = checkpoint.log.newest()
    except StateError as damage:
        return Inspection(checkpoint.location, metadata, None, problems=[damage.message])
    if record is None or record.state is None:
        return Inspection(checkpoint.location, metadata, record, verified=verify)
    state = record.state
    names = [stream["name"] for stream in metadata["query"]["streams"]]
    problems: list[str] = []
    manifests = [
        _manifest(checkpoint, state, slot, problems) for slot in range(len(state.manifests))
    ]
    parts = _parts(checkpoint, record, problems)
    known = [manifest for manifest in (*manifests, *parts) if manifest]
    runs = {name: run for manifest in known for name, run in manifest.runs().items()}
    present = file_sizes(checkpoint.location, "runs")
    problems += _missing(runs, present)
    if verify:
        problems += _damaged(checkpoint, runs, present)
    return Inspection(
        checkpoint.location,
        metadata,
        record,
        [_slot(state, slot, manifest, names) for slot, manifest in enumerate(manifests)],
        Files(
            len(runs),
            sum(run.size_bytes for run in runs.values()),
            len(present.keys() - runs.keys()),
        ),
        _events(checkpoint),
        problems,
        verify,
    )


def _events(checkpoint: Checkpoint) -> list[Event]:
    """Returns the last events on record; a missing or damaged record has none."""
    found: list[Event] = []
    for sequence in reversed(checkpoint.log.sequences()):
        try:
            record = checkpoint.log.read(sequence)
        except StateError:
            continue
        if record.state is not None and not record.takes_over:
            found = [*record.state.events, *found]
        if len(found) >= LAST_EVENTS:
            break
    return found[-LAST_EVENTS:]


def _still_last(checkpoint: Checkpoint, record: Record | None) -> bool:
    sequences = checkpoint.log.sequences()
    return record is None or not sequences or sequences[-1] == record.sequence


def _manifest(
    checkpoint: Checkpoint, state: Committed, slot: int, problems: list[str]
) -> Manifest | None:
    name = state.manifests[slot]
    if name is None:
        return empty_manifest(SlotId(slot), len(state.rows_in))
    try:
        return checkpoint.manifest(name)
    except StateError as damage:
        problems.append(f"{damage.message} (slot {slot})")
        return None


def _parts(checkpoint: Checkpoint, record: Record, problems: list[str]) -> list[Manifest]:
    """Reads what the current batch has received; only its note names it."""
    found = []
    try:
        note = checkpoint.log.open_note(record)
        for move in note.moves if note else ():
            if move.part:
                found.append(checkpoint.manifest(move.part))
    except StateError as damage:
        problems.append(damage.message)
    return found


def _missing(runs: Mapping[str, Run], present: Mapping[str, int]) -> Iterator[str]:
    for name, run in sorted(runs.items()):
        if name not in present:
            yield f"run {name} is missing"
        elif present[name] != run.size_bytes:
            yield f"run {name} has {present[name]} bytes instead of {run.size_bytes}"


def _damaged(
    checkpoint: Checkpoint, runs: Mapping[str, Run], present: Mapping[str, int]
) -> Iterator[str]:
    for name, run in sorted(runs.items()):
        if present.get(name) == run.size_bytes:
            data = checkpoint.durable.read(f"runs/{name}")
            if data is None or checksum(data) != run.checksum:
                yield f"run {name} is damaged: its checksum does not match its content"


def _slot(
    state: Committed, slot: int, manifest: Manifest | None, inputs: Sequence[str]
) -> SlotReport:
    groups = len(state.routing.groups_of(SlotId(slot)))
    if manifest is None:
        return SlotReport(slot, groups, state.manifests[slot], {}, ())
    names = (*inputs, *manifest.made)
    none = (0,) * len(names)
    totals = [
        total or none
        for total in (
            manifest.state_rows,
            manifest.state_bytes,
            manifest.disk_rows,
            manifest.disk_bytes,
        )
    ]
    sizes = zip(*totals, strict=True)
    streams = {
        name: StreamState(rows, size, len(layers), _count_runs(layers), *on_disk)
        for name, (rows, size, *on_disk), layers in zip(names, sizes, manifest.streams, strict=True)
    }
    generations = [
        FrozenPart(g.number, len(g.groups), sum(map(_count_runs, g.streams)))
        for g in manifest.generations
    ]
    departed, parked, tracked = _moving(manifest)
    missing = [group for group, _ in state.pending]
    return SlotReport(
        slot,
        groups,
        state.manifests[slot],
        streams,
        _busiest(manifest.groups),
        generations,
        int(np.isin(np.flatnonzero(manifest.groups.pending), missing).sum()),
        departed,
        parked,
        tracked,
        manifest.spool.rows,
        manifest.spool.bytes,
        shape_report(state, slot, manifest, len(inputs)),
    )


def _moving(manifest: Manifest) -> tuple[list[MovingPart], ...]:
    """Returns the slot's part in a move: totals minus groups. A slot is in one move at a time.

    Rows that wait have separate runs. Departed groups are slices of runs, and only the runs know
    their rows; so they get what the totals have beyond all else.
    """
    table, waiting = manifest.groups, [_run_rows(part.streams) for part in manifest.parked]
    sizes = [sum(map(sum, part.sizes)) for part in manifest.departures]
    rows = sum(manifest.state_rows) - int(table.rows.sum()) - sum(waiting)
    size = sum(manifest.state_bytes) - int(table.bytes.sum()) - sum(sizes)
    disk_rows = sum(manifest.disk_rows) - int(table.disk_rows.sum())
    disk_bytes = sum(manifest.disk_bytes) - int(table.disk_bytes.sum())
    departed = [
        MovingPart(part.move, rows, own, disk_rows, disk_bytes)
        for part, own in zip(manifest.departures, sizes, strict=True)
    ]
    own_rows = zip(manifest.parked, waiting, strict=True)
    parked = [MovingPart(part.move, own, part.bytes) for part, own in own_rows]
    track = manifest.track
    return departed, parked, [] if track is None else [MovingPart(track.move, rows, size)]


def _run_rows(stacks: Sequence[Sequence[Layer]]) -> int:
    return sum(piece.run.rows for layers in stacks for layer in layers for piece in layer.slices)


def _busiest(table: GroupTable) -> list[BusyGroup]:
    order = np.argsort(-table.outputs, kind="stable")[:TOP_GROUPS]
    rows = table.rows.sum(axis=0) + table.disk_rows
    columns = (rows, table.size + table.disk_bytes, table.outputs, table.last_insert)
    return [
        BusyGroup(int(group), *(int(column[group]) for column in columns))
        for group in order
        if table.outputs[group] > 0
    ]


def _count_runs(layers: Sequence[Layer]) -> int:
    return len({piece.run.name for layer in layers for piece in layer.slices})
