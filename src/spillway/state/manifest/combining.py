"""Builds manifests from other manifests: for groups that change slots by routing or by a move.

These functions move groups between slots: they cut layers, and never copy them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import reduce

from spillway.ids import NO_VERSION, SlotId
from spillway.metrics.counts import added
from spillway.metrics.groups import GroupTable
from spillway.routing.routing import HashRange, Routing, group_ranges
from spillway.state.layout.gaps import all_gaps, gaps_inside
from spillway.state.layout.generations import by_number, cut_layers, taken_out
from spillway.state.layout.layers import Layer, side_by_side
from spillway.state.layout.moving import Departure
from spillway.state.layout.spool import Spool
from spillway.state.manifest.manifest import Manifest
from spillway.state.manifest.matching import arranged


def part_manifest(
    slot: SlotId, part: Departure, streams: Sequence[Sequence[Layer]], groups: GroupTable
) -> Manifest:
    """Returns what a slot takes over with the groups of a departure, with rows in `streams`.

    The departure says how the groups were cut, and what they have on disk. Every slice is inside
    the groups, so that it fits next to slices of other groups.
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


def combine(
    manifests: Iterable[Manifest], slot: SlotId, routing: Routing, streams: int
) -> Manifest:
    """Builds the manifest of a slot under a new routing, from the former slots of its groups.

    It cuts layers, and never copies them. Layers of different slots with disjoint ranges at the
    same height in their stacks go side by side. So the number of lookups per hash does not grow
    with the number of former slots.
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
