"""Manifests: the state of one slot at one version, as a list of slices.

A stream's state in memory is a list of layers (state/layout/layers.py); what was moved out of memory is
a list of generations (state/layout/generations.py), which have layers too.

Streams are the input streams and, after them, those that the operator makes, which have names: a state
that was stored under another plan is matched by them (`arranged`).

A manifest is small, immutable, and the only thing that gives run files a meaning. It also carries
what the slot has learned: the statistics of its groups and the selectivities that order the probes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from spillway.errors import StateError
from spillway.ids import NO_VERSION, SlotId, Version
from spillway.kernels.checksum import sealed, unsealed
from spillway.metrics.counts import Counts, added, key_of_text, key_text
from spillway.metrics.groups import GroupTable
from spillway.routing.routing import HashRange, Routing, group_ranges
from spillway.state.layout.gaps import Gaps, all_gaps, gaps_inside
from spillway.state.layout.generations import Generation, by_number, cut_layers, taken_out
from spillway.state.layout.layers import Layer, side_by_side
from spillway.state.layout.moving import Departure, Parked
from spillway.state.runs.merging import WHOLE
from spillway.state.runs.run import Run, Slice
from spillway.state.runs.tiers import DurableTier
from spillway.state.slot.spool import Spool
from spillway.state.slot.tracks import Track

#: 2 added what moves between slots, 3 rows that wait for a later batch, 4 the names of made streams and
#: their gaps, 5 a parallel track, 6 its made streams.
FORMAT = 6


@dataclass(frozen=True)
class Manifest:
    """Everything one slot knows at one version."""

    version: Version
    slot: SlotId
    #: For each stream, its layers, oldest first.
    streams: tuple[tuple[Layer, ...], ...]
    groups: GroupTable = field(default_factory=lambda: GroupTable.empty(0))
    #: What operators have counted, older batches weighing less.
    selectivity: Counts = field(default_factory=dict)
    #: What was moved out of memory, oldest first.
    generations: tuple[Generation, ...] = ()
    #: Groups that have left for another slot, and rows that came for groups on their way here.
    departures: tuple[Departure, ...] = ()
    parked: tuple[Parked, ...] = ()
    #: The names of the made streams, which come after the input streams, and where they are not there.
    made: tuple[str, ...] = ()
    gaps: Gaps = ()
    #: Rows that wait for a later batch.
    spool: Spool = field(default_factory=Spool)
    #: Groups that another slot serves as well, from their new rows on.
    track: Track | None = None
    #: Batches in a row that left memory below its low-water mark.
    calm: int = 0
    #: Totals for people: rows and bytes in memory, and bytes on disk, per stream.
    state_rows: tuple[int, ...] = ()
    state_bytes: tuple[int, ...] = ()
    disk_rows: tuple[int, ...] = ()
    disk_bytes: tuple[int, ...] = ()

    def stacks(self) -> Iterator[tuple[Layer, ...]]:
        """All stacks of layers: of memory, of every generation, of what moves, and of what waits."""
        yield from self.streams
        for generation in self.generations:
            yield from generation.streams
        for departure in self.departures:
            yield from departure.stacks()
        for parked in self.parked:
            yield from parked.streams
        yield from self.spool.streams
        yield from self.track.streams if self.track else ()

    def runs(self) -> dict[str, Run]:
        """Every run that is named, by name."""
        return {piece.run.name: piece.run for layers in self.stacks() for piece in _slices(layers)}

    def encode(self) -> bytes:
        """The manifest as bytes, with a checksum in its first line."""
        return sealed(json.dumps(_to_json(self), separators=(",", ":")).encode())


#: What has streams of layers and gaps in them.
_Part = TypeVar("_Part", Manifest, Generation, Departure)


@dataclass(frozen=True)
class ManifestRef:
    """The name of a manifest file in the durable tier."""

    name: str


def empty_manifest(slot: SlotId, streams: int) -> Manifest:
    """The state before the first batch."""
    return Manifest(NO_VERSION, slot, tuple(() for _ in range(streams)))


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Reads a manifest back, refusing one that is damaged or newer than this version knows."""
    body = unsealed(data)
    if body is None:
        raise StateError(
            f"manifest {name} is damaged",
            detail="its checksum does not fit its content",
            hint="restore the checkpoint directory from a copy",
        )
    found = json.loads(body)
    if found["format"] > FORMAT:
        raise newer_format(f"manifest {name}", found["format"], FORMAT)
    return _from_json(found)


def read_manifest(durable: DurableTier, name: str) -> Manifest:
    """One manifest of a checkpoint, refused if it is missing or damaged."""
    data = durable.read(name)
    if data is None:
        raise StateError(
            f"manifest {name} is missing",
            detail=f"in {durable.location}",
            hint="restore the checkpoint directory from a copy",
        )
    return decode_manifest(bytes(data), name)


def newer_format(what: str, found: int, known: int) -> StateError:
    """The error for something a later version of Spillway wrote."""
    return StateError(
        f"{what} was written by a newer version of Spillway",
        detail=f"its format is {found}, this version reads up to {known}",
        hint="upgrade Spillway, or use another checkpoint location",
    )


def part_manifest(
    slot: SlotId, part: Departure, streams: Sequence[Sequence[Layer]], groups: GroupTable
) -> Manifest:
    """What a slot takes over with the groups of a departure, their rows in these layers.

    The departure says how the groups were cut, and what of them is on disk. Every slice is within the
    groups, so that it can be laid beside slices of others.
    """
    ranges = group_ranges(part.groups, len(groups))
    layers = tuple(cut_layers(stack, ranges) for stack in streams)
    return Manifest(
        NO_VERSION,
        slot,
        layers,
        groups=groups.only(part.groups),
        generations=part.generations,
        made=part.made,
        gaps=part.gaps,
    )


def arranged(manifest: Manifest, made: tuple[str, ...]) -> Manifest:
    """The same state with made streams of these names: the state matching of PLANS 4.1.

    Those that match are kept, others dropped; one that is missing is a gap wherever there are groups.
    """
    if manifest.made == made:
        return manifest
    inputs, total = len(manifest.streams) - len(manifest.made), len(manifest.groups)
    places = {name: inputs + at for at, name in enumerate(manifest.made)}
    order = [*range(inputs), *(places.get(name) for name in made)]

    def sorted_out(streams: Sequence[tuple[Layer, ...]]) -> tuple[tuple[Layer, ...], ...]:
        return tuple(() if at is None else streams[at] for at in order)

    def fitting(part: _Part, groups: Sequence[int] | None) -> _Part:
        missing = (WHOLE,) if groups is None else group_ranges(groups, total) if groups else ()
        gaps = tuple(
            missing if at is None else part.gaps[at - inputs] if part.gaps else ()
            for at in order[inputs:]
        )
        return replace(part, streams=sorted_out(part.streams), gaps=gaps)

    table = manifest.groups
    unknown = None if any(manifest.streams) else ()
    here = np.flatnonzero(table.here).tolist() if total else unknown
    departures = []
    for one in manifest.departures:
        sizes = tuple((0,) * len(one.groups) if at is None else one.sizes[at] for at in order)
        frozen = tuple(fitting(part, part.groups) for part in one.generations)
        whole = replace(fitting(one, one.groups), sizes=sizes, generations=frozen, made=made)
        departures.append(whole)
    track = manifest.track
    return replace(
        fitting(manifest, here),
        groups=table.arranged(order) if total else table,
        generations=tuple(fitting(part, part.groups) for part in manifest.generations),
        departures=tuple(departures),
        made=made,
        track=track and replace(track, streams=sorted_out(track.streams)),
    )


def matched(manifest: Manifest, names: Collection[str]) -> Manifest:
    """The same state without made streams of other names, which nobody asks for.

    PLANS 4.2 has the receiver of groups discard the states that its plan does not have: they are not
    sent.
    """
    return arranged(manifest, tuple(name for name in manifest.made if name in names))


def combine(
    manifests: Iterable[Manifest], slot: SlotId, routing: Routing, streams: int
) -> Manifest:
    """The manifest of a slot under a new routing, from whatever slots held its groups before.

    Layers are cut, never copied: moving groups between slots is this function. Layers of different
    slots that hold disjoint ranges at the same place in their stacks are laid side by side, so that
    the number of lookups per hash does not grow with the number of former slots.
    """
    olds = list(manifests)
    made = tuple(dict.fromkeys(name for old in olds for name in old.made))
    olds = [arranged(old, made) for old in olds]
    ranges, owned = routing.ranges_of(slot), routing.groups_of(slot)
    groups = GroupTable.empty(routing.groups, streams + len(made))
    for old in olds:
        groups = groups.merged(old.groups.only(owned))
    stacks = [
        _combined([old.streams[stream] for old in olds], ranges)
        for stream in range(streams + len(made))
    ]
    return Manifest(
        max((old.version for old in olds), default=NO_VERSION),
        slot,
        tuple(stacks),
        groups=groups,
        selectivity=added(old.selectivity for old in olds),
        generations=tuple(
            by_number(
                part
                for old in olds
                for part in taken_out(old.generations, set(owned), routing.groups)[0]
            )
        ),
        made=made,
        gaps=all_gaps([gaps_inside(old.gaps, ranges) for old in olds]),
        spool=_combined_spool([old.spool for old in olds], ranges, set(owned)),
    )


def _combined(stacks: Iterable[Sequence[Layer]], ranges: Sequence[HashRange]) -> tuple[Layer, ...]:
    cuts = (cut_layers(layers, ranges) for layers in stacks)
    none: tuple[Layer, ...] = ()
    return reduce(side_by_side, cuts, none)


def _combined_spool(
    spools: Iterable[Spool], ranges: Sequence[HashRange], owned: Collection[int]
) -> Spool:
    found = [spool for spool in spools if spool.since_s]
    since_s = {g: at for spool in found for g, at in spool.since_s.items() if g in owned}
    if not since_s:
        return Spool()
    streams = zip(*(spool.streams for spool in found), strict=True)
    return Spool(tuple(_combined(stacks, ranges) for stacks in streams), since_s)


def _slices(layers: Sequence[Layer]) -> Iterable[Slice]:
    return (piece for layer in layers for piece in layer.slices)


def _to_json(manifest: Manifest) -> dict[str, Any]:
    names = list(manifest.runs().values())
    at = {run.name: i for i, run in enumerate(names)}
    return {
        "format": FORMAT,
        "version": manifest.version,
        "slot": manifest.slot,
        "runs": [list(vars(run).values()) for run in names],
        "streams": [_layers_to_json(layers, at) for layers in manifest.streams],
        "generations": _generations_to_json(manifest.generations, at),
        "departures": [
            [
                one.move,
                list(one.groups),
                [_layers_to_json(layers, at) for layers in one.streams],
                one.sizes,
                _generations_to_json(one.generations, at),
                list(one.made),
                _gaps_to_json(one.gaps),
            ]
            for one in manifest.departures
        ],
        "parked": [
            [one.move, [_layers_to_json(layers, at) for layers in one.streams]]
            for one in manifest.parked
        ],
        "made": list(manifest.made),
        "gaps": _gaps_to_json(manifest.gaps),
        "spool": [
            [_layers_to_json(layers, at) for layers in manifest.spool.streams],
            list(manifest.spool.since_s.items()),
            manifest.spool.rows,
            manifest.spool.bytes,
        ],
        "track": _track_to_json(manifest.track, at),
        "calm": manifest.calm,
        "groups": manifest.groups.to_json(),
        "selectivity": {key_text(key): of for key, of in manifest.selectivity.items()},
        "rows": manifest.state_rows,
        "bytes": manifest.state_bytes,
        "disk_rows": manifest.disk_rows,
        "disk_bytes": manifest.disk_bytes,
    }


def _generations_to_json(generations: Sequence[Generation], at: dict[str, int]) -> list[Any]:
    return [
        [
            g.number,
            list(g.groups),
            [_layers_to_json(layers, at) for layers in g.streams],
            _gaps_to_json(g.gaps),
        ]
        for g in generations
    ]


def _track_to_json(track: Track | None, at: dict[str, int]) -> list[Any] | None:
    if track is None:
        return None
    streams = [_layers_to_json(layers, at) for layers in track.streams]
    return [track.move, list(track.groups), track.until_us, streams]


def _track_from_json(
    found: Sequence[Any] | None, runs: Sequence[Run], streams: int
) -> Track | None:
    if found is None:
        return None
    move, groups, until_us, stacks = found
    # Up to format 5 a track had input streams alone, and made ones had gaps where it was.
    more = ((),) * (streams - len(stacks))
    layers = (*(_layers_from_json(x, runs) for x in stacks), *more)
    return Track(move, tuple(groups), until_us, layers)


def _gaps_to_json(gaps: Gaps) -> list[list[list[int]]]:
    return [[[one.lo, one.hi] for one in ranges] for ranges in gaps]


def _gaps_from_json(found: Sequence[Sequence[Sequence[int]]]) -> Gaps:
    return tuple(tuple(HashRange(lo, hi) for lo, hi in ranges) for ranges in found)


def _layers_to_json(layers: Sequence[Layer], at: dict[str, int]) -> list[Any]:
    return [
        [layer.level, layer.role, [[at[s.run.name], s.range.lo, s.range.hi] for s in layer.slices]]
        for layer in layers
    ]


def _from_json(found: dict[str, Any]) -> Manifest:
    runs = [Run(*values) for values in found["runs"]]
    return Manifest(
        Version(found["version"]),
        SlotId(found["slot"]),
        tuple(_layers_from_json(layers, runs) for layers in found["streams"]),
        groups=GroupTable.from_json(found["groups"]),
        selectivity={key_of_text(key): (p, m) for key, (p, m) in found["selectivity"].items()},
        generations=_generations_from_json(found["generations"], runs),
        departures=tuple(
            Departure(
                move,
                tuple(groups),
                tuple(_layers_from_json(x, runs) for x in streams),
                tuple(tuple(column) for column in sizes),
                _generations_from_json(generations, runs),
                *_made_from_json(*more),
            )
            for move, groups, streams, sizes, generations, *more in found.get("departures", ())
        ),
        parked=tuple(
            Parked(move, tuple(_layers_from_json(x, runs) for x in streams))
            for move, streams in found.get("parked", ())
        ),
        made=tuple(found.get("made", ())),
        gaps=_gaps_from_json(found.get("gaps", ())),
        spool=_spool_from_json(found["spool"], runs) if "spool" in found else Spool(),
        track=_track_from_json(found.get("track"), runs, len(found["streams"])),
        calm=found["calm"],
        state_rows=tuple(found["rows"]),
        state_bytes=tuple(found["bytes"]),
        disk_rows=tuple(found["disk_rows"]),
        disk_bytes=tuple(found["disk_bytes"]),
    )


def _generations_from_json(found: Sequence[Any], runs: Sequence[Run]) -> tuple[Generation, ...]:
    return tuple(
        Generation(
            number,
            tuple(groups),
            tuple(_layers_from_json(x, runs) for x in streams),
            *(_gaps_from_json(gaps) for gaps in more),
        )
        for number, groups, streams, *more in found
    )


def _made_from_json(
    made: Sequence[str] = (), gaps: Sequence[Sequence[Sequence[int]]] = ()
) -> tuple[tuple[str, ...], Gaps]:
    return tuple(made), _gaps_from_json(gaps)


def _spool_from_json(found: Sequence[Any], runs: Sequence[Run]) -> Spool:
    streams, since_s, rows, size = found
    stacks = tuple(_layers_from_json(layers, runs) for layers in streams)
    return Spool(stacks, dict(since_s), rows, size)


def _layers_from_json(found: Sequence[Any], runs: Sequence[Run]) -> tuple[Layer, ...]:
    return tuple(
        Layer(level, tuple(Slice(runs[i], HashRange(lo, hi)) for i, lo, hi in slices), role)
        for level, role, slices in found
    )
