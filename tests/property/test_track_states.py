"""A join tree on a parallel track: its sender keeps its plan and its states, and fills what it lacks."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from law import GROUPS, Cluster, Row
from states import check_states
from subjects import Treed
from test_slot_law import small

from spillway.plan.shape import Shape, binary_shapes, flat, parse
from spillway.protocols.move import Phase
from spillway.routing.routing import group_ranges
from spillway.slot.limits import Budget
from spillway.state.layout.gaps import gaps_inside
from spillway.state.manifest.manifest import Manifest
from tier import few

SUBJECTS = [
    Treed([9, 9, 9], parse("((s0 s1) s2)")),
    Treed([5, 12, 7], parse("(s0 (s1 s2))")),
    Treed([10] * 4, parse("(((s0 s1) s2) s3)")),
    Treed([6, 12, 8, 15], parse("((s0 s1) (s2 s3))")),
]
BUSHY = parse("((s0 s1) (s2 s3))")
#: The batch that is lost after the sink has seen it, and the one from which on a track is given up.
LOST, GIVEN_UP = 30, 44


def shapes_of(streams: int) -> list[Shape]:
    names = [f"s{at}" for at in range(streams)]
    return [*binary_shapes(names), flat(names)]


def sender(cluster: Cluster) -> Manifest | None:
    """The manifest that has a track, if one has."""
    named = [cluster.checkpoint.manifest(name) for name in cluster.state.manifests if name]
    return next((one for one in named if one.track is not None), None)


def lacking(manifest: Manifest) -> bool:
    """Whether a made stream has a gap where the track is."""
    inside = gaps_inside(manifest.gaps, group_ranges(manifest.track.groups, GROUPS))
    return any(inside)


def rows_of(rng: np.random.Generator, clock: int, streams: int, values) -> list[Row]:
    drawn = zip(*(rng.integers(0, most, 7) for most in (streams, 8, 5)), strict=True)
    return [Row(int(s), int(k), clock - int(back), next(values)) for s, k, back in drawn]


@pytest.mark.parametrize("subject", few(SUBJECTS, 0, 1), ids=str)
def test_states_are_whole_through_tracks_and_changes_of_plan(subject: Treed) -> None:
    rng, values, seen = np.random.default_rng(4), itertools.count(), Counter()
    inputs, filling = len(subject.streams), False
    shapes = shapes_of(inputs)
    with small() as folder:
        cluster = Cluster(folder, subject, 1, 3, block_rows=100)
        for clock in range(64):
            one = sender(cluster)
            cluster.move(clock % 3, clock % 3 + 1, 0, 2, clock % 5 == 0, "ptlb")
            if clock % 5 == 3:
                slot = clock % 3 if one is None else int(one.slot)
                cluster.reshape(slot, shapes[rng.integers(0, len(shapes))])
            if clock >= GIVEN_UP and not cluster.events["TrackGivenUp"]:
                cluster.give_up()
            if clock % 11 == 8:
                # Another start, on a host that has nothing in memory.
                cluster.lose_host()
                cluster.start(3)
            budget = Budget(4, 2000) if clock % 9 == 4 else None
            rows = rows_of(rng, clock, inputs, values)
            cluster.batch(rows, [clock % 3] if clock % 4 == 0 else [], clock == LOST, budget)
            if clock == LOST:
                # It comes back with other settings, and then they are as before.
                cluster.memory_bytes = cluster.t_gap_s = None
                cluster.start(3)
            seen["checked"] += check_states(cluster)
            one = sender(cluster)
            seen["new"] += one is not None and any(one.track.streams[inputs:])
            seen["filled"] += one is not None and filling and not lacking(one)
            filling = one is not None and lacking(one)
        cluster.clean_up()
        check_states(cluster)
        subject.check(cluster)
        assert cluster.late == cluster.late_seen > 0
    assert seen["checked"] > 200
    assert min(seen["new"], seen["filled"]) > 0
    assert min(cluster.events["TrackGivenUp"], cluster.events["GroupsDeleted"]) > 0


class Sender:
    """Slot 0 of two, with a row of every other key in each batch, and then a track of two groups."""

    def __init__(self, folder, shape: Shape = BUSHY) -> None:
        self.subject = Treed([1000] * 4, shape)
        self.cluster = Cluster(folder, self.subject, 0, 2, block_rows=1000)
        self._times, self._values = itertools.count(), itertools.count()

    def after(self, batches: int, later: int = 0) -> Manifest:
        """What the first slot has after so many batches."""
        for time in itertools.islice(self._times, batches):
            rows = [
                Row((at + time) % 4, 2 * at, time + later, next(self._values))
                for at in range(GROUPS)
            ]
            self.cluster.batch(rows, [])
            check_states(self.cluster)
        return self.cluster.checkpoint.manifest(self.cluster.state.manifests[0])

    def begin(self) -> list[int]:
        """The groups of a track that has begun."""
        self.cluster.move(0, 1, 0, 2, False, "ptlb")
        self.after(3)
        [track] = self.cluster.state.moves
        assert (track.phase, len(track.groups)) == (Phase.DUPLICATING, 2)
        return list(track.groups)

    def check(self) -> None:
        self.cluster.clean_up()
        check_states(self.cluster)
        self.subject.check(self.cluster)


def made_rows(manifest: Manifest) -> Counter:
    """The rows of made streams over all of a slot, its track included."""
    return Counter(dict(zip(manifest.made, manifest.state_rows[4:], strict=True)))


def test_sender_keeps_its_states_and_makes_no_gap_when_a_track_begins_or_is_given_up() -> None:
    with small() as folder:
        slot = Sender(folder)
        before = slot.after(4)
        groups = slot.begin()
        manifest = slot.after(4)
        assert manifest.gaps == ((), ())
        # What was there is there, and what was made since with an old row.
        assert (manifest.groups.rows[4:, groups] > before.groups.rows[4:, groups]).all()
        assert all(manifest.track.streams[4:])
        both = made_rows(manifest)
        slot.cluster.give_up()
        manifest = slot.after(1)
        assert (manifest.track, manifest.gaps) == (None, ((), ()))
        assert made_rows(manifest) > both
        slot.check()


@pytest.mark.parametrize("given_up", [True, False])
def test_states_of_another_plan_are_made_while_the_track_lasts(given_up: bool) -> None:
    with small() as folder:
        slot = Sender(folder)
        slot.after(6)
        groups = slot.begin()
        slot.after(4)
        slot.cluster.reshape(0, parse("((s0 s2) (s1 s3))"))
        manifest = slot.after(2)
        assert manifest.made == ("s0+s2", "s1+s3")
        assert lacking(manifest)
        manifest = slot.after(16)
        assert manifest.gaps == ((), ())
        assert manifest.groups.rows[4:, groups].all()
        assert all(manifest.track.streams[4:])
        if given_up:
            slot.cluster.give_up()
            assert slot.after(2).gaps == ((), ())
        else:
            manifest = slot.after(4, later=2000)
            assert manifest.track is None
            assert not manifest.groups.rows[:, groups].any()
        assert slot.cluster.state.moves == ()
        slot.check()


def test_states_of_a_track_expire_like_its_rows() -> None:
    """Those that are made of new rows alone are merged, and each goes when it is over."""
    values = itertools.count()
    with small() as folder:
        subject = Treed([8, 8, 8], parse("((s0 s1) s2)"))
        cluster = Cluster(folder, subject, 0, 2, block_rows=1000)
        # An old row far ahead of its time keeps the track.
        cluster.batch([Row(0, 0, 900, next(values)), Row(1, 0, 0, next(values))], [])
        cluster.move(0, 1, 0, 0, True, "ptlb")
        cluster.batch([], [])
        most = layers = 0
        for time in range(50):
            cluster.batch([Row(s, 0, time, next(values)) for s in (0, 1, 2)], [])
            check_states(cluster)
            if (one := sender(cluster)) is not None and time > 20:
                # Of eight rows each with eight others, and those that are not merged away yet.
                most = max(most, one.state_rows[3])
                layers = max(layers, len(one.track.streams[3]))
        assert [move.phase for move in cluster.state.moves] == [Phase.DUPLICATING]
        assert 0 < most < 200
        # A batch adds a layer for each piece of bounded bytes, and merges take some batches.
        assert 0 < layers < 40
        cluster.clean_up()
        subject.check(cluster)
