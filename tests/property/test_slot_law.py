"""The law of the project, without Spark: whatever happens to a slot, its results are the batch query's.

Random batches go through `run_slot` with random attempts that die before they report, batches that
are lost after the sink has seen them and repeated after a restart, random restarts with other numbers
of slots, lost memory tiers, moves of groups between slots that take several batches and may fail,
budgets that let rows wait for later batches, and tiny merge and block sizes, so that a few hundred rows
pass through everything that millions would. A join tree also gets other shapes, in one slot or another,
at any time. The same histories are for all operators (subjects.py).
"""

from __future__ import annotations

import itertools
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law import Cluster, Row, Subject
from subjects import (
    PRESSED,
    SUBJECTS,
    Closed,
    Deduped,
    Joined,
    KeyedTotals,
    Treed,
    Updated,
    Windowed,
    shapes,
)

from spillway.coordinator.batch.references import References
from spillway.plan.kind import JoinKind
from spillway.plan.shape import parse
from spillway.protocols.move import Phase
from spillway.settings import VICTIMS
from spillway.slot import uniting
from spillway.slot.limits import Budget
from spillway.testing.simulated.outer import Outer
from spillway.testing.simulated.sizes import small_sizes
from tier import examples

#: Limits of one slot, from none to one that a single row exceeds.
MEMORIES = [None, 2000, 600, 200, 10]
#: What a slot may process in a batch: mostly everything, sometimes less than a row.
BUDGETS = st.one_of(
    st.none(),
    st.none(),
    st.builds(Budget, st.sampled_from([0, 1, 3, 8]), st.sampled_from([1, 300, 1 << 20])),
)
#: Operators whose rows of five units ago still count.
WAITING = [
    Joined([5, 5]),
    Treed([5, 5, 5], parse("((s0 s1) s2)")),
    Windowed(True, None, 5),
    Deduped(5),
    Deduped(5, True),
    Outer([5, 5], JoinKind("full")),
    Outer([5, 5], JoinKind("semi")),
    Closed(5, 5),
    Closed(5, None),
    Updated(5, 5),
]


@contextmanager
def small(parts: int = 2):
    """A folder, and everything that has a size made small; so many parts of a group become one."""
    united = mock.patch.multiple(uniting, FAN=parts, UNITE_BYTES=100)
    with small_sizes(), united, tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@st.composite
def histories(draw, subject: Subject):
    streams = len(subject.streams)
    clock = 0
    events = []
    values = itertools.count()
    slots = st.integers(0, 4)
    keys = st.integers(0, 4)
    if subject.null_keys or isinstance(subject, Outer):
        keys = st.one_of(st.none(), keys)
    for _ in range(draw(st.integers(1, 16))):
        kind = draw(
            st.sampled_from(
                ["batch"] * 8
                + ["restart", "lose", "memory", "round", "force", "scale"]
                + ["move", "send"] * 3
                + ["give_up"]
                + ["reshape"] * (3 if isinstance(subject, Treed) else 0)
            )
        )
        if kind == "batch":
            clock += draw(st.integers(0, 4))
            rows = [
                Row(
                    draw(st.integers(0, streams - 1)),
                    draw(keys),
                    clock - draw(st.integers(0, 6)),
                    next(values),
                )
                for _ in range(draw(st.integers(0, 9)))
            ]
            dies, slow = draw(st.lists(slots, max_size=2)), draw(st.lists(slots, max_size=1))
            lost = draw(st.integers(0, 5)) == 0
            events.append(("batch", rows, dies, lost, draw(BUDGETS), slow))
        elif kind == "restart":
            events.append(("start", draw(st.integers(1, 5))))
        elif kind == "memory":
            events.append(("memory", draw(st.sampled_from(MEMORIES))))
        elif kind == "round":
            dies = draw(st.lists(slots, max_size=2))
            events.append(("round", draw(st.integers(0, 500)), dies))
        elif kind == "force":
            events.append(("force", draw(slots), draw(st.integers(0, 500))))
        elif kind == "scale":
            events.append((kind, draw(st.integers(1, 5))))
        elif kind == "move":
            size, least = draw(st.integers(0, 900)), draw(st.integers(0, 2))
            how = (size, least, draw(st.booleans()), draw(st.sampled_from(["mslb", "ptlb"])))
            events.append(("move", draw(slots), draw(slots), *how))
        elif kind == "reshape":
            events.append(("reshape", draw(slots), draw(shapes(streams))))
        elif kind == "send":
            events.append(("send", draw(st.integers(0, 3)) == 0))
        elif kind == "give_up":
            events.append(("give_up",))
        else:
            events.append(("lose_host",))
    return hurried(draw, events, streams) if isinstance(subject, Outer) else events


def hurried(draw, events: list[tuple], streams: int) -> list[tuple]:
    """The same with leaps in time: rows without partners come out when the watermark comes far."""
    found, later, last = [], 0, 0
    for event in events:
        if event[0] != "batch":
            found.append(event)
            continue
        rows = [replace(row, time=row.time + later) for row in event[1]]
        found.append(("batch", rows, *event[2:]))
        last = max([last, *(row.time for row in rows)])
        if draw(st.booleans()):
            later += (leap := draw(st.integers(1, 20)))
            last += leap
            keys = draw(st.lists(st.integers(0, 4), min_size=streams, max_size=streams))
            ahead = [Row(at, key, last, 1000 + len(found) * 9 + at) for at, key in enumerate(keys)]
            found.append(("batch", ahead, [], False, draw(BUDGETS), []))
    return found


@pytest.mark.parametrize("kind", SUBJECTS)
@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.data(),
    st.integers(0, 5),
    st.sampled_from(MEMORIES),
    st.sampled_from(VICTIMS),
    st.sampled_from([0.1, 0.3, 1.0]),
    st.booleans(),
    st.sampled_from([None, None, 0.0, 2.5]),
    st.sampled_from([1, 3]),
    st.sampled_from([None, 1, 1 << 20]),
)
def test_any_history_gives_the_batch_query(
    kind,
    data,
    lateness,
    memory_bytes,
    victims,
    spill_fraction,
    amortised,
    t_gap_s,
    hosts,
    skew_bytes,
) -> None:
    subject = data.draw(SUBJECTS[kind])
    events = data.draw(histories(subject))
    with small() as folder:
        how = {"victims": victims, "spill_fraction": spill_fraction, "amortised": amortised}
        how |= {"t_gap_s": t_gap_s, "hosts": hosts, "skew_bytes": skew_bytes}
        cluster = Cluster(folder, subject, lateness, 2, memory_bytes, **how)
        for name, *values in events:
            if name == "memory":
                cluster.memory_bytes = values[0]
            else:
                getattr(cluster, name)(*values)
        cluster.clean_up()
        subject.check(cluster)
        assert cluster.late == cluster.late_seen


def under_pressure(subject: Subject, victims: str, memory_bytes: int = 900) -> Cluster:
    """Batches with too little memory, and then with enough."""
    rng = np.random.default_rng(5)
    streams = len(subject.streams)
    with tempfile.TemporaryDirectory() as folder:
        how = {"victims": victims, "block_rows": 1000}
        cluster = Cluster(Path(folder), subject, 3, 2, memory_bytes, **how)
        values = itertools.count()
        for clock in range(30):
            if clock == 20:
                cluster.memory_bytes = 100_000
            drawn = zip(rng.integers(0, streams, 12), rng.integers(0, 24, 12), strict=True)
            cluster.batch([Row(int(s), int(k), clock, next(values)) for s, k in drawn], [])
        cluster.clean_up()
        return cluster


@pytest.mark.parametrize("victims", VICTIMS)
@pytest.mark.parametrize("window", [None, 30])
def test_pressure_spills_reloads_and_cleans_up(victims: str, window: int | None) -> None:
    """The histories above may be kind to memory; this one is not, and then is."""
    subject = Joined([window] * 3)
    cluster = under_pressure(subject, victims)
    subject.check(cluster)
    assert cluster.events["Spilled"] > 3
    assert cluster.events["Reloaded"] > 0


@pytest.mark.parametrize("kind", PRESSED)
def test_pressure_makes_results_of_other_operators_late_but_never_wrong(kind: str) -> None:
    subject, memory_bytes = PRESSED[kind]
    cluster = under_pressure(subject, "least-productive", memory_bytes)
    subject.check(cluster)
    assert cluster.events["Spilled"] > 3
    assert cluster.events["Reloaded"] > 0


@pytest.mark.parametrize(
    "subject",
    [Joined([9, 9]), Windowed(False, None, 9), *(subject for subject, _ in PRESSED.values())],
    ids=["join", "within, updates", *PRESSED],
)
def test_rows_beyond_a_budget_wait_for_later_batches(subject) -> None:
    rng, values, waited = np.random.default_rng(7), itertools.count(), []
    with small() as folder:
        cluster = Cluster(folder, subject, 3, 2, 600, block_rows=1000)
        for clock in range(24):
            drawn = zip(
                rng.integers(0, len(subject.streams), 12),
                rng.integers(0, 24, 12),
                rng.integers(0, 4, 12),
                strict=True,
            )
            rows = [Row(int(s), int(k), clock - int(t), next(values)) for s, k, t in drawn]
            budget = Budget(2, 2000) if clock < 18 else None
            # Groups move between the slots meanwhile, and batches are lost and repeated.
            cluster.batch(rows, [], clock % 5 == 4, budget)
            waited.append(cluster.state.spooled_rows)
            cluster.send(fails=False)
            if clock % 3 == 0:
                cluster.move(clock, clock + 1, 0, 2, False)
        cluster.clean_up()
        subject.check(cluster)
    # The wait ends with the budget; until then something waits in most batches.
    assert sum(rows > 0 for rows in waited[2:18]) > 8
    assert cluster.state.moves_begun > 2
    assert not any(waited[18:])


@pytest.mark.parametrize("t_gap_s", [0.0, 2.0])
@pytest.mark.parametrize("kind", ["join", *PRESSED])
def test_groups_that_take_turns_in_memory_miss_nothing(kind: str, t_gap_s: float) -> None:
    subject, memory_bytes = PRESSED.get(kind, (Joined([9, 9]), 600))
    rng, values, waited = np.random.default_rng(3), itertools.count(), []
    with small() as folder:
        sizes = {"memory_bytes": memory_bytes, "t_gap_s": t_gap_s}
        cluster = Cluster(folder, subject, 3, 2, block_rows=1000, **sizes)
        for clock in range(24):
            drawn = zip(
                rng.integers(0, len(subject.streams), 12),
                rng.integers(0, 24, 12),
                rng.integers(0, 4, 12),
                strict=True,
            )
            rows = [Row(int(s), int(k), clock - int(t), next(values)) for s, k, t in drawn]
            cluster.batch(rows, [])
            assert cluster.state.pending == ()
            waited.append(cluster.state.spooled_rows)
            cluster.send(fails=False)
            if clock % 5 == 0:
                cluster.move(clock, clock + 1, 0, 2, clock == 10)
            if clock == 12:
                cluster.start(3)
        cluster.clean_up()
        assert cluster.state.pending == ()
        subject.check(cluster)
    assert cluster.events["Spilled"] > 3
    assert cluster.events["Reloaded"] > 3
    assert sum(rows > 0 for rows in waited) > 8


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("subject", WAITING, ids=str)
def test_rows_that_waited_for_a_budget_find_what_has_expired_since(subject, spilled) -> None:
    values, last = itertools.count(), len(subject.streams) - 1
    # The first stream stands for all but the last.
    stands = {0: range(max(last, 1))}
    # Keys of different groups; the one that is last to wait is served when all others have been.
    slow, first, *others = 0, 2, 4, 6, 8, 12, 14
    with small() as folder:
        cluster = Cluster(folder, subject, 0, 1, block_rows=1000)

        def batch(*rows: tuple[int, int, int], budget: Budget | None = None) -> None:
            made = [
                Row(stream, key, time, next(values))
                for s, key, time in rows
                for stream in stands.get(s, (s,))
            ]
            cluster.batch(made, [], budget=budget)

        little = Budget(0, 1 << 20)
        batch(*((0, key, 0) for key in (slow, first, *others)))
        if spilled:
            cluster.force(0, 1 << 20)
            batch()
        batch(*((0, key, 0) for key in (first, *others)), budget=little)
        batch((last, slow, 4), budget=little)
        for _ in range(len(others) - 1):
            batch((0, first, 100), (last, first, 100), budget=little)
        assert cluster.state.watermark_us == 100
        while cluster.state.spooled_rows:
            batch(budget=little)
        batch((0, slow, 104))
        cluster.clean_up()
        subject.check(cluster)


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("subject", WAITING, ids=str)
def test_rows_that_waited_for_their_groups_find_what_has_expired_since(subject, spilled) -> None:
    values, last = itertools.count(), len(subject.streams) - 1
    # The first stream stands for all but the last.
    stands = {0: range(max(last, 1))}
    moving, staying = 0, 2
    with small() as folder:
        cluster = Cluster(folder, subject, 0, 2, block_rows=1000)
        assert [cluster.state.routing.table[g] for g in (0, 4)] == [0, 1]

        def batch(*rows: tuple[int, int, int]) -> None:
            made = [
                Row(stream, key, time, next(values))
                for s, key, time in rows
                for stream in stands.get(s, (s,))
            ]
            cluster.batch(made, [])

        batch((0, moving, 0), (0, staying, 0))
        if spilled:
            cluster.force(0, 1 << 20)
            batch()
            batch((0, staying, 0))
        cluster.move(0, 1, 0, 0, True)
        batch()
        batch()
        batch((last, moving, 4), (0, staying, 0))
        assert [move.phase for move in cluster.state.moves] == [Phase.SENDING]
        batch((0, staying, 100), (last, staying, 100))
        batch((0, staying, 100))
        cluster.send(fails=False)
        batch((0, staying, 100))
        assert cluster.state.moves == ()
        assert bool(cluster.events["ForceSpilled"]) == spilled
        cluster.clean_up()
        subject.check(cluster)


def test_cleanup_around_a_group_that_arrives_in_parts_gives_none_of_its_results() -> None:
    values = itertools.count()
    # Keys of groups 0, 4 and 6, in slots 0, 1 and 2.
    first, between, last = 0, 2, 6
    with small(parts=8) as folder:
        subject = Joined([None, None])
        cluster = Cluster(folder, subject, 0, 3, memory_bytes=10, block_rows=1000)

        def batch(*rows: tuple[int, int]) -> None:
            cluster.batch([Row(stream, key, 0, next(values)) for stream, key in rows], [])

        batch((0, first), (0, between), (0, last))
        batch((1, first), (1, last))
        for sender, waiting in ((2, ()), (1, ((1, between),))):
            cluster.move(sender, 0, 0, 0, True)
            batch()
            batch()
            batch(*waiting)
            cluster.send(fails=False)
            if sender == 2:
                batch()
        assert [group for group, _ in cluster.state.pending] == [0, 6]
        # The group in between arrives in the round that cleans up those around it.
        cluster.round(1 << 20, [])
        assert [group for group, _ in cluster.state.pending] == [4]
        cluster.clean_up()
        subject.check(cluster)


def test_slots_added_while_groups_move_survive_a_crash_of_the_next_batch() -> None:
    values, rng = itertools.count(), np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        subject = Joined([None, None])
        cluster = Cluster(Path(folder), subject, 0, 2, block_rows=1000)

        def batch(lost: bool = False) -> None:
            drawn = zip(rng.integers(0, 2, 12), rng.integers(0, 10, 12), strict=True)
            cluster.batch([Row(int(s), int(k), 0, next(values)) for s, k in drawn], [], lost)

        batch()
        cluster.move(0, 1, 0, 0, True)
        for _ in range(4):
            batch()
        assert [move.phase for move in cluster.state.moves] == [Phase.SENDING]
        cluster.scale(4)
        batch(lost=True)
        assert [move.phase for move in cluster.state.moves] == [Phase.SENDING]
        cluster.clean_up()
        subject.check(cluster)


class Tightened(Cluster):
    """The start after a crash has almost no memory, whatever there was before."""

    def change_settings(self) -> None:
        self._memory_bytes = 10


def test_batch_that_comes_again_has_the_limits_that_it_had() -> None:
    """Groups came back from disk in the lost batch; the next start, with a limit, brings them back."""
    values = itertools.count()
    with small() as folder:
        subject = KeyedTotals()
        cluster = Tightened(folder, subject, 0, 1, 300, block_rows=1000)

        def batch(keys: int, lost: bool = False) -> None:
            cluster.batch([Row(0, k, 0, next(values)) for k in range(keys)], [], lost)

        batch(16)
        cluster.memory_bytes = None
        batch(0)
        batch(0)
        batch(16, lost=True)
        assert cluster.events["Spilled"] > 0
        assert cluster.events["Reloaded"] > 0
        cluster.clean_up()
        subject.check(cluster)


class Patient(Cluster):
    """The start after a crash never brings groups back, though it has as much memory."""

    def change_settings(self) -> None:
        self.adapt = self.adapt.changed(low_water=0.01, calm_batches=100)


def test_batch_that_comes_again_brings_the_same_groups_back() -> None:
    """The marks at which groups return are in the note, too, and not only the limit of memory."""
    values = itertools.count()
    with small() as folder:
        subject = KeyedTotals()
        cluster = Patient(folder, subject, 0, 1, 600, block_rows=1000, low_water=0.9)

        def batch(keys: range, lost: bool = False) -> None:
            cluster.batch([Row(0, k, 0, next(values)) for k in keys], [], lost)

        batch(range(16))
        cluster.memory_bytes = 200
        batch(range(16))
        cluster.memory_bytes = 2000
        batch(range(0))
        batch(range(0))
        batch(range(16), lost=True)
        assert cluster.events["Spilled"] > 0
        assert cluster.events["Reloaded"] > 0
        cluster.clean_up()
        subject.check(cluster)


def test_references_drop_a_run_only_when_no_slot_names_it() -> None:
    shared = References({"r": 2})

    @dataclass
    class Answer:
        added: tuple[str, ...]
        dropped: tuple[str, ...]

    once, gone = shared.updated([Answer((), ("r",))])
    assert gone == ()
    assert once.updated([Answer(("s",), ("r",))])[1] == ("r",)


@pytest.mark.parametrize(
    "subject",
    [
        Joined([None, None]),
        Treed([None, None, None], parse("((s0 s1) s2)")),
        KeyedTotals(),
        Windowed(False, 3, None),
        Outer([None, None], JoinKind("semi")),
        Outer([99, 99], JoinKind("full")),
    ],
    ids=["join", "tree", "group-by", "last rows", "semi join", "full join"],
)
def test_group_that_spills_in_every_batch_unites_its_parts(subject: Subject) -> None:
    values = itertools.count()
    streams = len(subject.streams)
    with (
        small() as folder,
        mock.patch.object(
            uniting.Uniting, "_chosen", autospec=True, side_effect=uniting.Uniting._chosen
        ) as asked,
    ):
        cluster = Cluster(folder, subject, 0, 2, memory_bytes=10, block_rows=1000)
        for batch in range(12):
            # Keys 0 and 1 share a hash: the last rows of one come while the other's wait.
            keys = (0, 3, 4) if batch < 6 else (1,)
            cluster.batch([Row(batch % streams, key, batch, next(values)) for key in keys], [])
        assert asked.called
        cluster.clean_up()
        subject.check(cluster)
