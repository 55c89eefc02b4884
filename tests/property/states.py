"""What a join tree stores, held against brute force.

Of every part it stores all combinations of the part's own rows, but in gaps none. Of groups on a
parallel track those with an old row are in memory, and those of new rows alone in the track.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from law import Cluster

from spillway.operators.equi.intermediate import StoredState
from spillway.operators.equi.tree import TreeOperator
from spillway.state.layout.gaps import Gaps, Ranges
from spillway.state.layout.layers import Layer
from spillway.state.runs.merging import Segment
from spillway.state.runs.store import Store

Stacks = Sequence[Sequence[Layer]]


@dataclass(frozen=True)
class Held:
    """What one part has: for each state, its segments, and for each made one, where it is not."""

    old: list[list[Segment]]
    new: list[list[Segment]]
    gaps: Gaps


def check_states(cluster: Cluster) -> int:
    """Compares all intermediate states with what they should hold; returns how many rows they have."""
    store, checked = cluster.store(cluster.state.batch), 0
    for slot, name in enumerate(cluster.state.manifests):
        if not name:
            continue
        manifest, tree = cluster.checkpoint.manifest(name), cluster.operator(slot)
        assert isinstance(tree, TreeOperator)
        if manifest.made != tuple(state.name for state in tree.states[len(tree.streams) :]):
            continue
        none: Stacks = ((),) * len(tree.states)
        track = manifest.track.streams if manifest.track else none
        assert len(track) == len(tree.states)
        parts = [(manifest, track), *((part, none) for part in manifest.generations)]
        for part, new in parts:
            held = Held(opened(store, tree, part.streams), opened(store, tree, new), part.gaps)
            checked += check_part(cluster, tree, held)
    return checked


def opened(store: Store, tree: TreeOperator, stacks: Stacks) -> list[list[Segment]]:
    """For each state, its rows."""
    found = []
    for state, layers in zip(tree.states, stacks, strict=True):
        pieces = [piece for layer in layers for piece in layer.slices]
        data = [(store.open(p, state.layout.time_column), p.range) for p in pieces]
        found.append([Segment(rows, *rows.rows_in(within)) for rows, within in data])
    return found


def check_part(cluster: Cluster, tree: TreeOperator, held: Held) -> int:
    """Compares the states of one part with its rows; returns how many of them are combinations."""
    inputs, checked = len(tree.streams), 0
    rows = [defaultdict(list) for _ in tree.streams]
    for member in range(inputs):
        for new, segments in enumerate((held.old[member], held.new[member])):
            for h, key, time, value in values(segments, [0, 1, 2]):
                rows[member][h, key].append((time, value, bool(new)))
    for number, state in enumerate(tree.states[inputs:]):
        gaps = held.gaps[number] if held.gaps else ()
        wanted = combinations(cluster, state, rows, gaps)
        for new, segments in enumerate((held.old[inputs + number], held.new[inputs + number])):
            there = stored(cluster, state, segments, gaps)
            assert there == wanted[bool(new)]
            checked += sum(there.values())
    return checked


def combinations(cluster: Cluster, state: StoredState, rows, gaps: Ranges) -> dict[bool, Counter]:
    """What a state should hold, by whether all rows are new."""
    wanted = {False: Counter(), True: Counter()}
    for h, key in rows[state.members[0]]:
        if within(h, gaps):
            continue
        for some in itertools.product(*(rows[member][h, key] for member in state.members)):
            if living(cluster, state.members, [time for time, _, _ in some]):
                ids = tuple(value for _, value, _ in some)
                wanted[all(new for _, _, new in some)][ids] += 1
    return wanted


def stored(cluster: Cluster, state: StoredState, segments: list[Segment], gaps: Ranges) -> Counter:
    """What of a state is there and still counts."""
    at = [state.at[member][column] for member in state.members for column in (0, 1, 2)]
    there: Counter = Counter()
    for h, *columns in values(segments, at):
        assert not within(h, gaps)
        assert len(set(columns[::3])) == 1
        if living(cluster, state.members, columns[1::3]):
            there[tuple(columns[2::3])] += 1
    return there


def values(segments: list[Segment], at: list[int]) -> list[tuple]:
    """The hash and some columns of all rows."""
    batches = [segment.batch() for segment in segments if segment.rows]
    if not batches:
        return []
    table = pa.Table.from_batches(batches)
    columns = [table.column(0), *(table.column(1 + one).cast(pa.int64()) for one in at)]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def within(h: int, ranges: Ranges) -> bool:
    return any(one.lo <= h < one.hi for one in ranges)


def living(cluster: Cluster, members: Iterable[int], times: Sequence[int]) -> bool:
    """Whether a combination stands, and a row to come can complete it."""
    windows, watermark = cluster.subject.windows, cluster.state.watermark_us
    if windows[0] is None:
        return True
    deadline = min(t + windows[m] for m, t in zip(members, times, strict=True))
    return max(times) < deadline and (watermark is None or deadline > watermark)
