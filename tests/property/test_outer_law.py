"""Outer joins under one mechanism at a time: each row without partners comes exactly once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from law import Cluster, Row
from test_slot_law import small

from spillway.plan.kind import ANTI, FULL, LEFT, SEMI, JoinKind
from spillway.protocols.move import Phase
from spillway.slot.limits import Budget
from spillway.state.layout import compaction, compactor
from spillway.testing.simulated.outer import Outer


class Query:
    """A query whose rows are written as (stream, key, time); results are their numbers."""

    def __init__(self, folder: Path, subject: Outer, slots: int = 1, **how: object) -> None:
        self.subject = subject
        self.cluster = Cluster(folder, subject, 0, slots, block_rows=1000, **how)
        self._values = itertools.count()

    def batch(self, *rows: tuple[int, int | None, int], budget: Budget | None = None) -> None:
        made = [Row(*row, next(self._values)) for row in rows]
        self.cluster.batch(made, [], budget=budget)

    @property
    def given(self) -> Counter[object]:
        return self.cluster.results

    def check(self) -> None:
        self.cluster.clean_up()
        self.subject.check(self.cluster)


@contextmanager
def query(how: str, *windows: int, slots: int = 1, **more: object) -> Iterator[Query]:
    with small(parts=8) as folder:
        yield Query(folder, Outer(list(windows), JoinKind(how)), slots, **more)


def test_partner_that_left_its_window_long_before_is_still_seen() -> None:
    with query(LEFT, 50, 1) as left:
        left.batch((0, 0, 0), (1, 0, 0))
        for time in range(10, 50, 10):
            left.batch((0, 2, time), (1, 2, time))
        # The payment's own window ended at time 1; the order is decided at time 50.
        left.batch((0, 2, 60), (1, 2, 60))
        left.batch()
        assert (0, None) not in left.given
        left.check()


def test_row_without_a_partner_comes_when_the_watermark_passes_and_never_again() -> None:
    with query(LEFT, 10, 10) as left:
        left.batch((0, 0, 0), (0, 1, 5))
        left.batch((0, 3, 9), (1, 3, 9))
        left.batch()
        assert (0, None) not in left.given
        left.batch((0, 3, 12), (1, 3, 12))
        left.batch()
        assert left.given[0, None] == 1
        assert (1, None) not in left.given
        for time in range(13, 40, 2):
            left.batch((0, 3, time), (1, 3, time))
        left.check()
        assert left.given[0, None] == left.given[1, None] == 1


def test_round_after_the_last_batch_decides_up_to_the_watermark() -> None:
    with query(ANTI, 64, 64) as anti:
        anti.batch((0, 0, 0), (0, 2, 0))
        anti.batch((1, 2, 64), (0, 5, 64), (1, 5, 64))
        assert anti.given == Counter()
        anti.check()
        assert anti.given == Counter({(0,): 1, (1,): 1})


@pytest.mark.parametrize("how", [LEFT, FULL, SEMI, ANTI])
def test_verdict_waits_until_the_parts_of_a_group_have_met(how: str) -> None:
    with query(how, 20, 20) as spilled:
        spilled.batch((0, 0, 0), (0, 2, 0), (1, 4, 0))
        spilled.cluster.force(0, 1 << 20)
        spilled.batch()
        spilled.batch((1, 0, 10), (1, 2, 11))
        assert spilled.cluster.events["ForceSpilled"]
        spilled.batch((0, 7, 100), (1, 7, 100))
        spilled.batch((0, 7, 101), (1, 7, 101))
        assert not any(row[0] in (0, 1) and None in row for row in spilled.given)
        spilled.check()


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("decided_before", [False, True])
def test_group_that_moves_decides_once(fails: bool, decided_before: bool) -> None:
    moving, staying = 0, 2
    with query(FULL, 10, 10, slots=2) as full:
        assert [full.cluster.state.routing.table[g] for g in (0, 4)] == [0, 1]
        # Keys 0 and 1 are in one group; the row of key 1 has no partner.
        full.batch((0, moving, 0), (0, 1, 0), (0, staying, 0), (1, moving, 9))
        if decided_before:
            full.batch((0, staying, 15), (1, staying, 15))
            full.batch((0, moving, 16), (1, staying, 16))
        full.cluster.move(0, 1, 0, 0, True)
        full.batch()
        full.batch()
        full.batch((1, moving, 18), (0, staying, 18))
        assert [move.phase for move in full.cluster.state.moves] == [Phase.SENDING]
        full.batch((0, staying, 60), (1, staying, 60))
        full.batch((0, staying, 61))
        for _ in range(4):
            full.cluster.send(fails=fails)
            full.batch()
        assert full.cluster.state.moves == ()
        full.batch((0, moving, 90), (1, moving, 90))
        full.check()


def test_rows_that_wait_in_the_slot_are_decided_after_they_were_joined() -> None:
    little = Budget(0, 1 << 20)
    with query(FULL, 8, 8) as full:
        full.batch(*((0, key, 0) for key in range(0, 14, 2)))
        full.batch(*((1, key, 4) for key in range(0, 14, 2)), budget=little)
        for time in range(50, 80, 5):
            full.batch((0, 1, time), (1, 1, time), budget=little)
        assert full.cluster.state.spooled_rows
        for _ in range(20):
            full.batch(budget=little)
        full.check()
        assert not any(None in row for row in full.given if max(filter(None, row), default=0) < 14)


@pytest.mark.parametrize("before", [1, 3])
def test_merging_drops_no_row_whose_group_waited_when_the_batch_decided(before: int) -> None:
    little = Budget(0, 1 << 20)
    merging = mock.patch.multiple(compaction, FAN=2, SPAN_OF_WINDOW=100)
    at_once = mock.patch.object(compactor, "due_rows", return_value=1000)
    with merging, at_once, query(LEFT, 8, 8) as left:
        for _ in range(before):
            left.batch((0, 0, 0))
        left.batch((0, 0, 100), (1, 5, 100), budget=little)
        assert left.cluster.state.spooled_rows
        left.batch()
        assert not left.cluster.state.spooled_rows
        left.check()
        assert [left.given[at, None] for at in range(before)] == [1] * before


def test_restart_with_other_slots_and_lost_memory_decides_once() -> None:
    with query(FULL, 6, 9, slots=2) as full:
        for time in range(0, 60, 3):
            full.batch((0, time % 5, time), (1, time % 7, time), (0, 9 + time, time))
            if time % 12 == 0:
                full.cluster.lose_host()
                full.cluster.start(1 + time % 3)
        full.check()


def test_rows_without_a_key_come_at_once_and_late_ones_never() -> None:
    with query(LEFT, 10, 10) as left:
        left.batch((0, None, 0), (1, None, 0), (0, 1, 0), (1, 1, 20))
        assert left.given == Counter({(0, None): 1})
        left.batch((0, 1, 20))
        left.batch((0, None, 19), (0, None, 20))
        assert left.given[4, None] == 0
        # The number of the row in time, after one late row.
        assert left.given[6, None] == 1
        left.check()


def test_row_without_a_key_is_no_result_if_another_stream_is_required() -> None:
    with small() as folder:
        chain = Query(folder, Outer([10, 10, 10], JoinKind(LEFT, ("s2",))))
        chain.batch((0, None, 0), (0, 1, 0), (1, 1, 0), (0, 2, 0))
        chain.batch(*((stream, 4, 50) for stream in range(3)))
        chain.check()
        assert chain.given == Counter({(1, 2, None): 1, (4, 5, 6): 1})


def test_chain_joins_the_rows_that_are_there() -> None:
    """The example of the guide: the shipment is near the payment, and too far from the order."""
    with small() as folder:
        chain = Query(folder, Outer([60, 60, 60], JoinKind(LEFT, ("s1", "s2"))))
        chain.batch((0, 0, 0), (1, 0, 50), (2, 0, 80), (0, 1, 0), (2, 1, 59))
        chain.batch((0, 4, 500), (1, 4, 500), (2, 4, 500))
        chain.check()
        wanted = {(0, 1, None), (3, None, 4), (5, 6, 7)}
        assert chain.given == Counter(dict.fromkeys(wanted, 1))


def test_checkpoint_of_an_inner_join_does_not_grow() -> None:
    """Groups that decide nothing say nothing about it."""
    from spillway.testing.simulated.joins import Joined

    with small() as folder:
        cluster = Cluster(folder, Joined([5, 5]), 0, 1, block_rows=1000)
        cluster.batch([Row(0, 0, 0, 0), Row(1, 0, 0, 1)], [])
        written = cluster.checkpoint.durable.read(cluster.state.manifests[0])
        assert b"decided_us" not in bytes(written)
