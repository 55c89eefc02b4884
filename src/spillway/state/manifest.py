"""Manifests: the state of one slot at one version, as a list of slices.

A stream's state is a list of *layers*; a layer is a list of slices whose hash ranges are disjoint and
ascending, so a hash is looked up in at most one run per layer. A layer is `settled`, or the `source`
or the growing `target` of a merge that is spread over batches: the sources lose hash ranges from the
left while the target gains them, so the two never hold the same row.

A manifest is small, immutable, and the only thing that gives run files a meaning. It also carries
what the slot has learned: the statistics of its groups and the selectivities that order the probes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spillway.errors import StateError
from spillway.ids import NO_VERSION, SlotId, Version
from spillway.kernels.checksum import checksum
from spillway.routing.routing import HashRange, Routing
from spillway.state.groups import GroupTable
from spillway.state.run import Run, Slice
from spillway.state.tiers import DurableTier

FORMAT = 1

SETTLED, SOURCE, TARGET = "settled", "source", "target"


@dataclass(frozen=True)
class Layer:
    """Slices with disjoint, ascending hash ranges."""

    level: int
    slices: tuple[Slice, ...]
    role: str = SETTLED

    def cut(self, ranges: Sequence[HashRange]) -> Layer | None:
        """The part of the layer inside the ranges, or None if nothing is left.

        A merge under way is given up by a cut: sources and target hold different rows, so as settled
        layers they are the same state, and the next compaction begins the merge again.
        """
        parts = [part for piece in self.slices for within in ranges if (part := piece.cut(within))]
        parts.sort(key=lambda part: part.range.lo)
        return Layer(self.level, tuple(parts)) if parts else None


@dataclass(frozen=True)
class Manifest:
    """Everything one slot knows at one version."""

    version: Version
    slot: SlotId
    #: For each stream, its layers, oldest first.
    streams: tuple[tuple[Layer, ...], ...]
    groups: GroupTable = field(default_factory=lambda: GroupTable.empty(0))
    #: For "source>target" streams, (rows probed, rows matched), older batches weighing less.
    selectivity: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: Totals for people: rows and bytes, per stream.
    state_rows: tuple[int, ...] = ()
    state_bytes: tuple[int, ...] = ()

    def runs(self) -> dict[str, Run]:
        """Every run that is named, by name."""
        return {piece.run.name: piece.run for layers in self.streams for piece in _slices(layers)}

    def encode(self) -> bytes:
        """The manifest as bytes, with a checksum in its first line."""
        body = json.dumps(_to_json(self), separators=(",", ":")).encode()
        return f"{checksum(body):016x}\n".encode() + body


@dataclass(frozen=True)
class ManifestRef:
    """The name of a manifest file in the durable tier."""

    name: str


def empty_manifest(slot: SlotId, streams: int) -> Manifest:
    """The state before the first batch."""
    return Manifest(NO_VERSION, slot, tuple(() for _ in range(streams)))


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Reads a manifest back, refusing one that is damaged or newer than this version knows."""
    head, _, body = bytes(data).partition(b"\n")
    try:
        sound = int(head, 16) == checksum(body)
    except ValueError:
        sound = False
    if not sound:
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


def combine(
    manifests: Iterable[Manifest], slot: SlotId, routing: Routing, streams: int
) -> Manifest:
    """The manifest of a slot under a new routing, from whatever slots held its groups before.

    Layers are cut, never copied: moving groups between slots is this function. Layers of different
    slots that hold disjoint ranges at the same place in their stacks are laid side by side, so that
    the number of lookups per hash does not grow with the number of former slots.
    """
    olds = list(manifests)
    ranges, owned = routing.ranges_of(slot), routing.groups_of(slot)
    groups = GroupTable.empty(routing.groups)
    for old in olds:
        groups = groups.merged(old.groups.only(owned))
    stacks: list[tuple[Layer, ...]] = []
    for stream in range(streams):
        cuts = [[c for layer in old.streams[stream] if (c := layer.cut(ranges))] for old in olds]
        stacks.append(_side_by_side([cut for cut in cuts if cut]))
    selectivity: dict[str, tuple[float, float]] = {}
    for old in olds:
        for pair, (probed, matched) in old.selectivity.items():
            before = selectivity.get(pair, (0.0, 0.0))
            selectivity[pair] = (before[0] + probed, before[1] + matched)
    return Manifest(
        max((old.version for old in olds), default=NO_VERSION),
        slot,
        tuple(stacks),
        groups=groups,
        selectivity=selectivity,
    )


def _side_by_side(stacks: list[list[Layer]]) -> tuple[Layer, ...]:
    if len(stacks) == 1:
        return tuple(stacks[0])
    layers: list[Layer] = []
    for level in sorted({layer.level for stack in stacks for layer in stack}, reverse=True):
        columns = [[layer for layer in stack if layer.level == level] for stack in stacks]
        for depth in range(max(len(column) for column in columns)):
            here = [column[depth] for column in columns if depth < len(column)]
            slices = sorted((s for one in here for s in one.slices), key=lambda s: s.range.lo)
            layers.append(Layer(level, tuple(slices)))
    return tuple(layers)


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
        "streams": [
            [
                [
                    layer.level,
                    layer.role,
                    [[at[s.run.name], s.range.lo, s.range.hi] for s in layer.slices],
                ]
                for layer in layers
            ]
            for layers in manifest.streams
        ],
        "groups": manifest.groups.to_json(),
        "selectivity": manifest.selectivity,
        "rows": manifest.state_rows,
        "bytes": manifest.state_bytes,
    }


def _from_json(found: dict[str, Any]) -> Manifest:
    runs = [Run(*values) for values in found["runs"]]
    return Manifest(
        Version(found["version"]),
        SlotId(found["slot"]),
        tuple(
            tuple(
                Layer(level, tuple(Slice(runs[i], HashRange(lo, hi)) for i, lo, hi in slices), role)
                for level, role, slices in layers
            )
            for layers in found["streams"]
        ),
        groups=GroupTable.from_json(found["groups"]),
        selectivity={pair: (p, m) for pair, (p, m) in found["selectivity"].items()},
        state_rows=tuple(found["rows"]),
        state_bytes=tuple(found["bytes"]),
    )
