"""The made streams of a manifest, matched by name: state that was stored under another plan.

Two plans that have a state of the same name have the same state (PLANS 4.1). What matches is kept, what
nobody asks for is dropped, and what is missing becomes a gap (state/layout/gaps.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from spillway.routing.routing import group_ranges
from spillway.state.layout.generations import Generation
from spillway.state.layout.layers import Layer
from spillway.state.layout.moving import Departure
from spillway.state.manifest.manifest import Manifest
from spillway.state.runs.merging import WHOLE

#: What has streams of layers and gaps in them.
_Part = TypeVar("_Part", Manifest, Generation, Departure)


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
