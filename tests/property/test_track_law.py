"""The law while two slots serve the same groups: parallel tracks that end, and such that are given up.

The histories of test_slot_law.py have tracks among everything else; here one follows upon the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law import Cluster, Row
from states import check_states
from subjects import Closed, Deduped, Joined, KeyedTotals, Treed, Updated, Windowed, shapes
from test_slot_law import BUDGETS, small

from spillway.coordinator.decisions.adaptation import Rules
from spillway.plan.shape import parse
from spillway.policies.cluster.protocols import LEAST_TRACK_S, Protocols
from spillway.policies.cluster.strategy import Strategy
from spillway.protocols.move import Phase
from spillway.slot.limits import Budget
from tier import examples

TRACKED = [
    Joined([5, 5]),
    Joined([4, 9, 6]),
    Treed([7, 7, 7], parse("((s0 s1) s2)")),
    Treed([6, 9, 6, 8], parse("((s0 s1) (s2 s3))")),
    Treed([8, 5, 7, 6], parse("(((s0 s1) s2) s3)")),
    Windowed(True, None, 6),
    Windowed(False, None, 6),
    Deduped(6, True),
    Closed(6, 6),
    Closed(6, 4),
    Updated(6, 6),
]
#: The batch that is lost after the sink has seen it, and from when on the next track is given up.
LOST, GIVEN_UP = 18, 48
OTHER_SHAPES = {
    3: [parse(text) for text in ("(s0 (s1 s2))", "(s0 s1 s2)", "((s0 s2) s1)")],
    4: [parse(text) for text in ("(((s0 s1) s3) s2)", "((s0 s2) (s1 s3))", "(s0 s1 s2 s3)")],
}


def rows_of(rng: np.random.Generator, clock: int, count: int, streams: int, values) -> list[Row]:
    drawn = zip(
        *(rng.integers(0, most, count) for most in (streams, 12, 7)),
        strict=True,
    )
    return [Row(int(s), int(k), clock - int(t), next(values)) for s, k, t in drawn]


@pytest.mark.parametrize("subject", TRACKED, ids=str)
def test_groups_move_from_slot_to_slot_by_parallel_tracks(subject) -> None:
    rng, values, streams = np.random.default_rng(2), itertools.count(), len(subject.streams)
    with small() as folder:
        cluster = Cluster(folder, subject, 1, 3, block_rows=1000)
        for clock in range(64):
            # Rows wait in slots for some time, and then for none.
            budget = Budget(2, 2000) if clock % 40 < 12 else None
            rows = rows_of(rng, clock, 10, streams, values)
            cluster.batch(rows, [clock % 7] if clock % 4 == 0 else [], clock == LOST, budget)
            if clock == LOST:
                # It comes back with other settings, and then they are as before.
                cluster.memory_bytes = cluster.t_gap_s = None
                cluster.start(3)
            sender = clock % 3
            cluster.move(sender, sender + 1, 0, 2, clock % 5 == 0, "ptlb")
            if isinstance(subject, Treed) and clock % 6 == 0:
                others = OTHER_SHAPES[streams]
                cluster.reshape(clock % 3, others[clock % len(others)])
            if clock >= GIVEN_UP and not cluster.events["TrackGivenUp"]:
                cluster.give_up()
        cluster.clean_up()
        subject.check(cluster)
        assert cluster.late == cluster.late_seen > 0
    assert cluster.events["GroupsDeleted"] > 2
    assert cluster.events["TrackGivenUp"] > 0
    assert cluster.events["DuplicationAsked"] >= cluster.events["OldPurged"] > 2


@pytest.mark.parametrize("subject", TRACKED, ids=str)
def test_sender_forgets_groups_when_the_last_old_row_has_left_the_window(subject) -> None:
    values, streams = itertools.count(), range(len(subject.streams))
    windows = [stream.window_us for stream in subject.streams]
    moving, staying = 0, 2
    with small() as folder:
        cluster = Cluster(folder, subject, 0, 2, block_rows=1000)

        def batch(key: int, time: int) -> None:
            cluster.batch([Row(s, key, time, next(values)) for s in streams], [])

        batch(moving, 0)
        cluster.move(0, 1, 0, 0, True, "ptlb")
        cluster.batch([], [])
        batch(staying, 0)
        batch(moving, 1)
        assert [move.phase for move in cluster.state.moves] == [Phase.DUPLICATING]
        last = max(windows)
        # The watermark of a batch is what the one before has left.
        batch(moving, last - 1)
        batch(staying, last)
        assert [move.phase for move in cluster.state.moves] == [Phase.DUPLICATING]
        batch(moving, last)
        assert [move.phase for move in cluster.state.moves] == [Phase.DELETING]
        batch(moving, last + 1)
        assert cluster.state.moves == ()
        sender = cluster.checkpoint.manifest(cluster.state.manifests[0])
        assert sender.track is None
        assert not sender.groups.here.any()
        batch(moving, last + 2)
        subject.check(cluster)


def test_receiver_of_a_track_has_every_key_once() -> None:
    subject, values, keys = Deduped(1000, True), itertools.count(), range(16)
    with small() as folder:
        cluster = Cluster(folder, subject, 0, 2, block_rows=1000)
        cluster.batch([Row(0, key, 0, next(values)) for key in keys], [])
        cluster.move(0, 1, 0, 0, True, "ptlb")
        cluster.batch([], [])
        for time in range(1, 40):
            cluster.batch([Row(0, key, time, next(values)) for key in keys], [])
        assert [move.phase for move in cluster.state.moves] == [Phase.DUPLICATING]
        sender, receiver = (cluster.checkpoint.manifest(one) for one in cluster.state.manifests)
        assert 0 < sender.state_rows[0] < receiver.state_rows[0] == len(keys)
        cluster.clean_up()
        subject.check(cluster)


@pytest.mark.parametrize("subject", TRACKED[:3], ids=str)
def test_slot_is_drained_although_a_stream_is_silent(subject) -> None:
    """The watermark stands, so no track would ever end: it is given up, and state is moved."""
    values, streams = itertools.count(), range(len(subject.streams))
    rules = Rules(Strategy("none"), protocols=Protocols("ptlb", 20e-6))
    longest = int(LEAST_TRACK_S)
    with small() as folder:
        cluster = Cluster(folder, subject, 0, 2, block_rows=1000, rules=rules)

        def batch(time: int, some: Iterable[int]) -> None:
            rows = [Row(s, key, time, next(values)) for s in some for key in range(0, 8, 3)]
            cluster.batch(rows, [])
            cluster.send()

        batch(0, streams)
        cluster.scale(1)
        for time in range(1, longest + 20):
            batch(min(time, 4), streams[:1])
            if cluster.state.scaling is None:
                break
        assert longest < time < longest + 10
        assert cluster.state.routing.slots == 1
        assert cluster.events["TrackGivenUp"] == cluster.events["DuplicationAsked"] == 1
        assert cluster.events["GroupsReactivated"] > 0
        batch(5, streams)
        cluster.clean_up()
        subject.check(cluster)


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        (KeyedTotals(), "a result covers all rows that ever came"),
        (Windowed(True, 3), "the last rows of a key stay until newer ones come"),
        (Deduped(), "without a window, keys never expire"),
        (Closed(5, None), "a session goes on as long as rows come"),
        (Deduped(5), "each decision about a row depends on the rows that passed before it"),
        (Joined([5, None]), "rows of s1 never expire: there is no window"),
        (Treed([None, None, 5], parse("((s0 s1) s2)")), "rows of s0, s1 never expire"),
    ],
    ids=str,
)
def test_results_that_never_get_free_of_old_rows_have_no_track(subject, why: str) -> None:
    assert subject.operator(7).untracked.startswith(why)


@pytest.mark.parametrize("subject", TRACKED, ids=str)
def test_windows_are_enough_for_a_track(subject) -> None:
    assert subject.operator(7).untracked == ""


@st.composite
def tracks(draw, subject):
    """Batches, with tracks and changes of shape in any order between them."""
    values, clock, steps = itertools.count(), 0, []
    slots, streams = st.integers(0, 2), len(subject.streams)
    for _ in range(draw(st.integers(8, 30))):
        kinds = ["batch"] * 4 + ["move", "move", "give_up", "mslb", "send"]
        kind = draw(st.sampled_from(kinds + ["reshape"] * isinstance(subject, Treed)))
        if kind == "batch":
            clock += draw(st.integers(0, 3))
            rows = [
                Row(
                    draw(st.integers(0, streams - 1)),
                    draw(st.integers(0, 3)),
                    clock - draw(st.integers(0, 4)),
                    next(values),
                )
                for _ in range(draw(st.integers(0, 6)))
            ]
            dies = draw(st.lists(slots, max_size=1))
            steps.append(("batch", rows, dies, draw(st.integers(0, 7)) == 0, draw(BUDGETS)))
        elif kind in ("move", "mslb"):
            protocol = "ptlb" if kind == "move" else "mslb"
            least, everything = draw(st.integers(1, 4)), draw(st.booleans())
            steps.append(("move", draw(slots), draw(slots), 0, least, everything, protocol))
        elif kind == "send":
            steps.append(("send", False))
        elif kind == "reshape":
            steps.append(("reshape", draw(slots), draw(shapes(streams))))
        else:
            steps.append(("give_up",))
    return steps


@pytest.mark.parametrize("subject", TRACKED, ids=str)
@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), st.integers(0, 3))
def test_any_mix_of_both_protocols_gives_the_batch_query(subject, data, lateness) -> None:
    steps = data.draw(tracks(subject))
    with small() as folder:
        cluster = Cluster(folder, subject, lateness, 3)
        for name, *given_ in steps:
            getattr(cluster, name)(*given_)
            if name == "batch" and isinstance(subject, Treed):
                check_states(cluster)
        cluster.clean_up()
        subject.check(cluster)
        assert cluster.late == cluster.late_seen
