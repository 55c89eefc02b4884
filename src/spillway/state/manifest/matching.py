"""Matches the made streams of a manifest by name: state that another plan stored.

If two plans have a state of the same name, it is the same state (PLANS 4.1). Matching keeps what
both have, drops what the new plan does not use, and turns what is missing into a gap
(state/layout/gaps.py).
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

#: Anything that has streams of layers and gaps in them.
_Part = TypeVar("_Part", Manifest, Generation, Departure)


def arranged(manifest: Manifest, made: tuple[str, ...]) -> Manifest:
    """Returns the same state with made streams of these names: the state matching of PLANS 4.1.

    It keeps streams that match and drops the others. A missing one is a gap wherever there are
    groups.
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
    """Returns the same state without made streams of other names.

    In PLANS 4.2, the receiver of groups discards states that its plan lacks. Here they are not
    sent.
    """
    return arranged(manifest, tuple(name for name in manifest.made if name in names))
