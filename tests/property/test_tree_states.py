"""What a join tree stores, through spills, moves and plans; of tracks, see test_track_states.py."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from law import GROUPS, Cluster, Row
from states import check_states
from subjects import Treed
from test_slot_law import small

from spillway.ids import HASH_END
from spillway.plan.shape import Shape, binary_shapes, flat, parse
from spillway.slot.limits import Budget
from tier import few

FOUR = [f"s{at}" for at in range(4)]
SHAPES = [*binary_shapes(FOUR), flat(FOUR), parse("((s0 s1 s3) s2)")]


@pytest.mark.parametrize("windows", few([[None] * 4, [9, 9, 9, 9], [4, 12, 7, 20]], 2), ids=str)
@pytest.mark.parametrize(("seed", "t_gap_s"), [(0, None), (1, None), (2, 1.0)])
def test_states_hold_what_their_parts_have_through_spills_moves_and_plans(
    windows, seed, t_gap_s
) -> None:
    rng = np.random.default_rng(seed)
    subject = Treed(windows, SHAPES[seed])
    checked, filling, waiting, value = 0, 0, 0, itertools.count()
    with small() as folder:
        cluster = Cluster(
            folder, subject, 3, 2, 4000, t_gap_s=t_gap_s, block_rows=100, hosts=seed + 1
        )
        for clock in range(28):
            kind = rng.integers(0, 10)
            if kind < 3:
                cluster.reshape(int(rng.integers(0, 3)), SHAPES[rng.integers(0, len(SHAPES))])
            elif kind == 3:
                cluster.force(int(rng.integers(0, 2)), 500)
            elif kind == 4:
                cluster.move(int(rng.integers(0, 3)), int(rng.integers(0, 3)), 800, 1, False)
            elif kind == 5:
                cluster.send()
            elif kind == 6:
                cluster.memory_bytes = int(rng.choice([1500, 4000, 20_000]))
            elif kind == 7 and clock % 3 == 0:
                cluster.start(int(rng.integers(1, 4)))
            elif kind == 8:
                cluster.round(400, [])
            drawn = zip(
                rng.integers(0, 4, 8), rng.integers(0, 8, 8), rng.integers(0, 4, 8), strict=True
            )
            rows = [Row(int(s), int(k), clock - int(back), next(value)) for s, k, back in drawn]
            cluster.batch(rows, [], budget=None if clock % 3 else Budget(4, 2000))
            waiting += cluster.state.spooled_rows > 0
            checked += check_states(cluster)
            named = [cluster.checkpoint.manifest(one) for one in cluster.state.manifests if one]
            filling += any(ranges for one in named for ranges in one.gaps)
        cluster.clean_up()
        subject.check(cluster)
        assert cluster.events["Spilled"] + cluster.events["ForceSpilled"] > 0
    assert checked > 100
    assert filling > 0
    assert waiting > 0


def test_gaps_are_filled_a_few_rows_at_a_time_and_then_are_gone() -> None:
    value = itertools.count()
    with small() as folder:
        subject = Treed([None] * 4, flat(FOUR))
        cluster = Cluster(folder, subject, 0, 1)
        rows = [Row(s, k, 0, next(value)) for s in range(4) for k in range(2 * GROUPS)]
        cluster.batch(rows, [])
        cluster.reshape(0, parse("((s0 s1) (s2 s3))"))
        cluster.batch([], [])
        left = []
        while not left or left[-1]:
            cluster.batch([], [])
            [manifest] = [cluster.checkpoint.manifest(name) for name in cluster.state.manifests]
            left.append(sum(r.hi - r.lo for ranges in manifest.gaps for r in ranges))
            cluster.batch([Row(0, len(left), 0, next(value))], [])
        assert len(left) > 3
        assert sorted(left, reverse=True) == left
        assert left[0] < 2 * HASH_END
        assert check_states(cluster) == 2 * 2 * GROUPS + len(left)
        cluster.clean_up()
        subject.check(cluster)


def test_batch_that_is_lost_is_joined_again_in_the_shape_of_its_note() -> None:
    value = itertools.count()
    with small() as folder:
        subject = Treed([None] * 4, flat(FOUR))
        cluster = Cluster(folder, subject, 0, 2)
        rows = [Row(at % 4, at // 8, 0, next(value)) for at in range(64)]
        cluster.batch(rows[:32], [])
        told = parse("((s0 s1) (s2 s3))")
        cluster.reshape(1, told)
        cluster.batch([], [])
        cluster.batch(rows[32:], [], lost=True)
        assert cluster.shapes == (flat(FOUR), told)
        made = [cluster.checkpoint.manifest(name).made for name in cluster.state.manifests]
        assert made == [(), ("s0+s1", "s2+s3")]
        cluster.clean_up()
        subject.check(cluster)


def test_rows_find_what_left_memory_before_its_states_were_made() -> None:
    """A group that is spilled with a gap still has it for the rows that come in the same batch."""
    value = itertools.count()
    with small() as folder:
        subject = Treed([None] * 4, flat(FOUR))
        cluster = Cluster(folder, subject, 0, 1)
        cluster.batch([Row(s, k, 0, next(value)) for s in range(3) for k in range(16)], [])
        cluster.reshape(0, parse("(((s0 s1) s2) s3)"))
        cluster.force(0, 1 << 20)
        cluster.batch([], [])
        cluster.batch([Row(3, k, 0, next(value)) for k in range(16)], [])
        assert cluster.events["ForceSpilled"] > 0
        [manifest] = [cluster.checkpoint.manifest(name) for name in cluster.state.manifests]
        [generation] = manifest.generations
        assert any(generation.gaps)
        subject.check(cluster)
        cluster.batch([Row(s, k, 0, next(value)) for s in range(4) for k in range(16)], [])
        check_states(cluster)
        cluster.clean_up()
        check_states(cluster)
        subject.check(cluster)


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("spilled", few([False, True], 0))
def test_groups_move_between_slots_whose_plans_differ(spilled: bool, by_name: bool) -> None:
    """What the receiver's plan has too is taken over, the rest is made there (PLANS 4.1)."""
    value = itertools.count()
    with small() as folder:
        subject = Treed([None] * 4, parse("((s0 s1) (s2 s3))"))
        # What was spilled stays on disk.
        how = {"hosts": 1 if by_name else 2, "calm_batches": 100}
        cluster = Cluster(folder, subject, 0, 2, block_rows=1000, **how)
        cluster.reshape(1, parse("(((s0 s1) s2) s3)"))
        cluster.batch([], [])

        def batch() -> None:
            cluster.batch(
                [Row(s, k, 0, next(value)) for s in range(4) for k in range(0, 16, 2)], []
            )

        batch()
        if spilled:
            cluster.force(0, 1 << 20)
            batch()
            batch()
        cluster.move(0, 1, 0, 0, True)
        batch()
        batch()
        batch()
        sent = cluster.checkpoint.manifest(cluster.state.manifests[0]).departures[0]
        assert sent.made == ("s0+s1", "s2+s3")
        cluster.send()
        cluster.batch([], [])
        assert cluster.state.moves == ()
        there = cluster.checkpoint.manifest(cluster.state.manifests[1])
        assert there.made == ("s0+s1", "s0+s1+s2")
        moved = set(sent.groups)
        assert moved & {g for g in range(GROUPS) if there.groups.rows[4][g]}
        assert there.gaps[0] == ()
        assert there.gaps[1] != ()
        assert bool(there.generations) == spilled
        check_states(cluster)
        for _ in range(3):
            batch()
            check_states(cluster)
        cluster.clean_up()
        subject.check(cluster)


def test_plans_that_share_a_state_keep_it() -> None:
    value = itertools.count()
    with small() as folder:
        cluster = Cluster(folder, Treed([None] * 4, parse("((s0 s1) (s2 s3))")), 0, 1)
        cluster.batch([Row(s, k, 0, next(value)) for s in range(4) for k in range(8)], [])
        before = cluster.checkpoint.manifest(cluster.state.manifests[0])
        cluster.reshape(0, Shape((parse("((s0 s1) s2)"), "s3")))
        cluster.batch([], [])
        cluster.batch([], [])
        after = cluster.checkpoint.manifest(cluster.state.manifests[0])
        assert before.made == ("s0+s1", "s2+s3")
        assert after.made == ("s0+s1", "s0+s1+s2")
        assert after.gaps[0] == ()
        assert after.gaps[1] != ()
        assert after.streams[4] == before.streams[4]


def test_rows_wait_through_a_change_of_plan_and_of_slots() -> None:
    """What waits is input, whatever is stored of it."""
    value = itertools.count()
    with small() as folder:
        subject = Treed([None] * 4, parse("((s0 s1) (s2 s3))"))
        cluster = Cluster(folder, subject, 0, 2, block_rows=1000)
        cluster.reshape(1, parse("(((s0 s1) s2) s3)"))
        cluster.batch([], [])
        rows = [(s, k) for s in range(4) for k in range(0, 16, 2)]
        cluster.batch([Row(s, k, 0, next(value)) for s, k in rows], [])
        cluster.batch([Row(s, k, 0, next(value)) for s, k in rows], [], budget=Budget(0, 1 << 20))
        waits = cluster.state.spooled_rows
        assert waits > 0
        cluster.reshape(0, flat(FOUR))
        cluster.batch([], [], budget=Budget(0, 1 << 20))
        cluster.batch([], [], budget=Budget(0, 1 << 20))
        assert 0 < cluster.state.spooled_rows < waits
        cluster.start(1)
        cluster.batch([], [], budget=Budget(0, 1 << 20))
        [manifest] = [cluster.checkpoint.manifest(name) for name in cluster.state.manifests]
        assert len(manifest.spool.streams) == 4
        assert manifest.spool.rows == cluster.state.spooled_rows > 0
        check_states(cluster)
        cluster.clean_up()
        check_states(cluster)
        subject.check(cluster)
