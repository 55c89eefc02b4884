"""Settings that are found while a query runs, and the bounds that keep them from thrashing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.codec import decode, encode
from spillway.metrics.groups import GroupTable
from spillway.metrics.view import ClusterView, SlotView
from spillway.policies.cluster.account import Account
from spillway.policies.cluster.collection import Collection
from spillway.policies.cluster.cycle import Cycle, Progress
from spillway.policies.cluster.decision import ForceSpill, Move
from spillway.policies.cluster.strategy import Strategy
from spillway.policies.cluster.tuning import (
    CALM_S,
    LEAST_S,
    MOST_S,
    TURN_S,
    GapTuner,
    Tuner,
    most_moves,
)
from spillway.policies.local.picking import picked


def view(*busy_s: float, span_s: float = 1.0, rows: int = 10_000) -> ClusterView:
    made = (
        SlotView(at, 0, 0, None, 8, 0, busy_s=one, rows_in=rows) for at, one in enumerate(busy_s)
    )
    return ClusterView(tuple(made), span_s=span_s)


def move(sender: int, receiver: int) -> Move:
    return Move(sender, receiver, 0, "a test")


def test_statistics_are_collected_until_slots_have_taken_enough_rows() -> None:
    assert Tuner().observe(view(0.5, 0.5, rows=512), 1.0).delta_min_s == 2.0
    assert Tuner().observe(view(0.5, 0.5, rows=10**9), 1.0).delta_min_s == LEAST_S
    assert Tuner().observe(view(0.5, 0.5, rows=1), 1.0).delta_min_s == MOST_S
    assert Tuner().observe(view(0.0, 0.0, rows=0), 1.0) == Tuner()


def test_nothing_is_waited_for_where_bytes_are_decided_by() -> None:
    assert Tuner().observe(view(0.5, 0.5, rows=1), 1.0, counts=False).delta_min_s == LEAST_S
    full = ClusterView((SlotView(0, 10, 0, 20, 8, 0), SlotView(1, 10, 5, 20, 8, 0)))
    roomy = ClusterView(full.slots[:1])
    names = ("flux-load", "flux-memory", "flux-hybrid")
    assert [Strategy(name).counts(full) for name in names] == [True, False, False]
    assert [Strategy(name).counts(roomy) for name in names] == [True, False, True]


def test_a_reversal_is_put_off_until_a_longer_collection_asks_for_it_again() -> None:
    tuner, done = Tuner(seen_s=1.0).decide([move(0, 1)], view(0.9, 0.3), 1.0)
    assert done == (move(0, 1),)
    tuner, done = tuner.decide([move(1, 0), move(2, 3)], view(0.3, 0.9, 0.9, 0.3), 2.0)
    assert done == (move(2, 3),)
    assert tuner.delta_min_s == 2.0
    tuner, done = tuner.decide([move(1, 0)], view(0.3, 0.9, span_s=2.0), 4.0)
    assert done == (move(1, 0),)
    assert tuner.roles == (1, -1)
    # It was asked for before, so it says nothing more about the time.
    assert tuner.delta_min_s == 2.0


def test_a_reversal_that_was_not_asked_for_again_is_put_off_anew() -> None:
    tuner, _ = Tuner(seen_s=1.0).decide([move(0, 1)], view(0.9, 0.3), 1.0)
    tuner, _ = tuner.decide([move(1, 0)], view(0.3, 0.9), 2.0)
    tuner, done = tuner.decide([], view(0.5, 0.5, span_s=2.0), 4.0)
    tuner, done = tuner.decide([move(1, 2)], view(0.3, 0.9, 0.5, span_s=2.0), 6.0)
    assert done == ()
    assert tuner.delta_min_s == 4.0


def test_only_the_busiest_slot_makes_a_reversal() -> None:
    tuner, _ = Tuner(seen_s=1.0).decide([move(0, 1)], view(0.9, 0.3), 1.0)
    tuner, done = tuner.decide([move(0, 2), move(1, 3)], view(0.9, 0.5, 0.3, 0.3), 2.0)
    assert done == (move(0, 2),)
    assert tuner.delta_min_s == 1.0


def test_a_reversal_is_carried_out_at_once_where_moves_have_paid() -> None:
    tuner, _ = Tuner().decide([move(0, 1)], view(0.9, 0.3), 1.0)
    tuner = tuner.observe(view(4.0, 4.0, span_s=10.0, rows=100_000), 11.0)
    assert tuner.account.pays
    assert tuner.decide([move(1, 0)], view(0.3, 0.9), 12.0)[1] == (move(1, 0),)
    # Not if the difference may be noise, nor if the last reversal was only just now.
    assert tuner.decide([move(1, 0)], view(0.5, 0.6), 12.0)[1] == ()
    assert replace(tuner, since_s=12.0).decide([move(1, 0)], view(0.3, 0.9), 12.0)[1] == ()
    again, _ = tuner.decide([move(1, 0)], view(0.3, 0.9), 12.0)
    assert again.decide([move(0, 1)], view(0.9, 0.3), 12.0 + TURN_S - 0.1)[1] == ()
    assert len(again.decide([move(0, 1)], view(0.9, 0.3), 12.0 + TURN_S)[1]) == 1


def test_it_becomes_quick_again_while_moves_pay() -> None:
    paying = Tuner(floor_s=8.0, account=Account(1e-3, 50.0, 60.0))
    assert paying.observe(view(0.5, 0.5), 1.0).floor_s == 4.0
    losing = Tuner(floor_s=8.0, account=Account(1e-6, -10.0, 60.0))
    assert losing.observe(view(0.5, 0.5), 1.0).floor_s == 8.0


def test_what_is_no_move_is_carried_out_in_any_case() -> None:
    tuner, _ = Tuner().decide([move(0, 1)], view(0.9, 0.3), 1.0)
    spill = ForceSpill(3, 10, "a test")
    assert tuner.decide([move(1, 0), spill], view(0.3, 0.9), 2.0)[1] == (spill,)


def test_no_more_groups_move_in_a_minute_than_there_are() -> None:
    tuner, moves = Tuner(), 0
    for second in range(1, 121):
        tuner, done = tuner.decide([move(0, 1)] * 2, view(0.9, 0.3), float(second))
        moves += len(done)
        assert moves <= most_moves(16, float(second))
    assert moves == 16 + 2 * 16 - 1


def test_account_counts_what_was_won_and_what_moves_have_cost() -> None:
    account = Account().begun(2e-3)
    assert not account.pays
    won = account.collected(10.0, 1e-3)
    assert (won.won_s, won.seen_s, won.gain) == (10.0, 10.0, 1.0)
    # Nothing is done for 10 seconds that would each have done the work of two.
    lost = won.moved(10.0, 10.0)
    assert lost.won_s == pytest.approx(10.0 * 0.5 ** (10 / 60) - 10.0)
    assert not lost.pays
    assert account.collected(10.0, 4e-3).won_s == -5.0
    # However long rows took at first, a second counts for two at most.
    assert Account().begun(1.0).collected(10.0, 1e-3).won_s == 10.0
    assert Account().collected(10.0, 1e-3) == Account()


def test_account_begins_with_the_worst_that_moves_have_found() -> None:
    account = Account().begun(1e-3).begun(3e-3)
    assert account.base_s == 2e-3
    assert account.begun(1e-3).base_s == 2e-3
    assert replace(account, turned=True).begun(3e-3).base_s == 2e-3


def test_account_is_forgotten_where_nothing_moves_any_more() -> None:
    tuner, _ = Tuner().decide([move(0, 1)], view(0.9, 0.3), 1.0)
    even = view(0.5, 0.5, rows=10**6)
    assert tuner.observe(even, MOST_S).account.base_s > 0
    assert tuner.observe(even, 2 + MOST_S).account == Account()


def test_what_moves_cost_is_the_work_that_was_not_done_meanwhile() -> None:
    tuner, _ = Tuner().decide([move(0, 1)], view(0.8, 0.6), 1.0)
    # 20,000 rows a second before; half of them while groups moved for 4 seconds.
    assert tuner.moved(4.0, 40_000).cost_s == 1.0
    assert tuner.moved(4.0, 40_000).account.won_s == -2.0
    assert tuner.moved(4.0, 90_000).cost_s == 0.0


def test_dearer_moves_need_a_greater_difference() -> None:
    assert Tuner().imbalance == pytest.approx(1.2)
    # They gain at most (1 - 1/r)/2 for a minute, twice a cost of 5 s: 1/r = 2/3.
    assert Tuner(cost_s=5.0).imbalance == pytest.approx(1.5)
    assert Tuner(cost_s=5.0, lasts_s=600.0).imbalance == pytest.approx(1.2)
    assert Tuner(cost_s=500.0).imbalance == 3.0


def test_differences_that_prove_to_be_noise_are_not_acted_on_any_more() -> None:
    tuner, _ = Tuner().decide([move(0, 1)], view(0.6, 0.5), 1.0)
    tuner = tuner.moved(1.0, 10**6)
    small, _ = tuner.decide([move(1, 0)], view(0.5, 0.6), 2.0)
    assert small.imbalance == pytest.approx(1.3)
    large, _ = tuner.decide([move(1, 0)], view(0.2, 0.9), 2.0)
    assert large.imbalance == pytest.approx(1.2)


def test_it_becomes_less_careful_in_calm_times_one_step_at_a_time() -> None:
    tuner = Tuner(floor_s=4.0, noise=0.45, warned_s=10.0, roles=(1, -1))
    even = view(0.5, 0.5, span_s=4.0, rows=10**6)
    assert tuner.observe(even, 10.0 + CALM_S - 0.1).floor_s == 4.0
    calm = tuner.observe(even, 10.0 + CALM_S)
    assert (calm.floor_s, calm.roles) == (2.0, (1, -1))
    assert calm.imbalance == pytest.approx(1.3)
    assert calm.observe(even, 10.0 + CALM_S + 1).floor_s == 2.0
    for step in range(2, 20):
        calm = calm.observe(even, 10.0 + CALM_S * step)
    assert (calm.floor_s, calm.roles) == (LEAST_S, ())
    assert calm.imbalance == pytest.approx(1.1)


def test_without_tuning_nothing_is_put_off_and_nothing_learned() -> None:
    cycle = Cycle(Strategy("flux-load"), delta_min_s=1.0)
    progress, first = cycle.decided(Progress(), view(0.9, 0.3), 1.0)
    progress = cycle.ended(progress.seen(groups=True), 0.5, 5000)
    assert progress == Progress(Collection(1.0))
    assert [(one.sender, one.receiver) for one in first] == [(0, 1)]
    _, back = cycle.decided(progress, view(0.3, 0.9), 3.0)
    assert [(one.sender, one.receiver) for one in back] == [(1, 0)]


def test_the_tuned_difference_is_what_the_strategy_decides_by() -> None:
    cycle = Cycle(Strategy("flux-load"), 1.0, tunes_imbalance=True)
    dear = Progress(tuner=Tuner(cost_s=5.0))
    assert cycle.decided(dear, view(0.7, 0.5), 1.0)[1] == ()
    assert len(cycle.decided(dear, view(0.8, 0.5), 1.0)[1]) == 1
    assert len(Cycle(Strategy("flux-load"), 1.0).decided(dear, view(0.7, 0.5), 1.0)[1]) == 1


def test_what_was_learned_comes_back_from_json() -> None:
    known = Progress(Collection(2.0), Tuner(floor_s=4.0, roles=(1, -1)))
    assert decode(Progress, encode(known)) == known


def test_what_is_known_exactly_needs_no_time_after_moves() -> None:
    for tuned, exact, wanted_s in ((True, True, 0.0), (True, False, 2.0), (False, True, 2.0)):
        cycle = Cycle(Strategy("flux-memory"), None if tuned else 0.0)
        moving = Progress(Collection(moving=True, moved=True), Tuner(floor_s=0.0, seen_s=0.0))
        moving = replace(moving, tuner=replace(moving.tuner, exact=exact))
        assert cycle.ended(moving, 2.0, 0).collection.delta_s == wanted_s
    full = ClusterView((SlotView(0, 10, 5, 20, 8, 0, rows_in=9),), span_s=1.0)
    hybrid = Cycle(Strategy("flux-hybrid"), None)
    assert hybrid.decided(Progress(), full, 1.0)[0].tuner.exact
    assert not hybrid.decided(Progress(), view(0.5, 0.5), 1.0)[0].tuner.exact


class Toy:
    """Slots fed as fast as the slowest of them can take its share; groups move in 50 ms a pair."""

    slots, groups, tick_s, slow = 4, 64, 0.02, 0.43

    def __init__(self, speeds: Callable[[float], np.ndarray], cycle: Cycle) -> None:
        self.speeds, self.cycle = speeds, cycle
        self.owner = np.arange(self.groups) % self.slots
        self.progress, self.now_s, self.since_s, self.rows = Progress(), 0.0, 0.0, 0.0
        self.busy_s, self.taken = np.zeros(self.slots), np.zeros(self.slots)
        self.peak_s = 0.0
        self.leaving: list[tuple[int, int]] = []
        #: When which group moved.
        self.moves: list[tuple[float, int]] = []

    def run(self, seconds: float) -> Toy:
        while self.now_s < seconds:
            self._step()
        return self

    def per_minute(self, after_s: float) -> float:
        late = [at for at, _ in self.moves if at > after_s]
        return len(late) / (self.now_s - after_s) * 60

    def _step(self) -> None:
        speeds, share = self.speeds(self.now_s), np.bincount(self.owner, minlength=self.slots)
        moving = self.progress.collection.moving
        rows = (
            (speeds / np.maximum(share, 1e-9)).min() * self.tick_s * share * (0.7 if moving else 1)
        )
        self.taken += rows
        self.busy_s += rows / speeds
        self.peak_s += (rows / speeds).max()
        self.rows += rows.sum()
        self.now_s += self.tick_s
        elapsed_s = self.now_s - self.since_s
        if moving and elapsed_s >= 0.05 * len(self.leaving):
            self._arrive(elapsed_s)
        elif not moving and self.cycle.due(self.progress, elapsed_s):
            self._decide(elapsed_s)

    def _arrive(self, elapsed_s: float) -> None:
        for group, receiver in self.leaving:
            self.owner[group] = receiver
            self.moves.append((self.now_s, group))
        seen = self.progress.seen(groups=bool(self.leaving))
        self.progress = self.cycle.ended(seen, elapsed_s, int(self.taken.sum()))
        self._anew()

    def _decide(self, elapsed_s: float) -> None:
        counts = np.bincount(self.owner, minlength=self.slots)
        made = (
            SlotView(s, 0, 0, None, int(counts[s]), 0, busy_s=b, rows_in=int(self.taken[s]))
            for s, b in enumerate(self.busy_s.tolist())
        )
        seen = ClusterView(tuple(made), span_s=elapsed_s, peak_s=self.peak_s)
        self.progress, decided = self.cycle.decided(self.progress, seen, self.now_s)
        table = replace(GroupTable.empty(self.groups, 1), load=np.ones(self.groups))
        self.leaving = [
            (group, one.receiver)
            for one in decided
            for group in picked(table, np.flatnonzero(self.owner == one.sender), 0, one.pick).groups
        ]
        self._anew()

    def _anew(self) -> None:
        self.since_s = self.now_s
        self.busy_s[:], self.taken[:], self.peak_s = 0, 0, 0.0


def alternating(period_s: float) -> Callable[[float], np.ndarray]:
    """The first half of the slots is slow, then the second, and so on."""

    def speeds(now_s: float) -> np.ndarray:
        turn = int(now_s / period_s) % 2
        return np.where(np.arange(Toy.slots) * 2 // Toy.slots == turn, Toy.slow, 1.0) * 22_000

    return speeds


def steady(now_s: float) -> np.ndarray:
    return np.array([Toy.slow, 1.0, 1.0, 1.0]) * 22_000


TUNED = Cycle(Strategy("flux-load"), None, tunes_imbalance=True)


def fixed(delta_min_s: float) -> Cycle:
    return Cycle(Strategy("flux-load"), delta_min_s)


@pytest.mark.parametrize("period_s", [0.3, 1.0, 3.0])
def test_load_that_alternates_fast_is_left_alone_after_a_while(period_s: float) -> None:
    tuned, eager = (Toy(alternating(period_s), one).run(120) for one in (TUNED, fixed(0.01)))
    assert eager.per_minute(after_s=60) > 200
    assert tuned.per_minute(after_s=60) < 20
    assert tuned.rows > eager.rows


@pytest.mark.parametrize("period_s", [15.0, 30.0])
def test_load_that_alternates_slowly_is_followed(period_s: float) -> None:
    best = max(Toy(alternating(period_s), fixed(one)).run(120).rows for one in (0.05, 0.25, 1.0))
    assert Toy(alternating(period_s), TUNED).run(120).rows >= 0.95 * best


@settings(max_examples=6, deadline=None)
@given(st.floats(0.1, 40.0))
def test_no_more_groups_move_than_the_bound_says(period_s: float) -> None:
    toy = Toy(alternating(period_s), TUNED).run(60)
    assert len(toy.moves) <= most_moves(Toy.groups, 60)


def most_reversals(window_s: float) -> float:
    """The bound that tuning.py derives, for seconds in which moves do not pay."""
    return math.log2(MOST_S / LEAST_S) + window_s / CALM_S + window_s / MOST_S + 1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 3.0)), min_size=1, max_size=300))
def test_reversals_are_bounded_whatever_is_measured(story) -> None:
    """Every evaluation asks for the opposite of what was done, or for nothing."""
    tuner, now_s, bad, way = Tuner(), 0.0, [], (0, 1)
    for asks, more_s in story:
        span_s = tuner.delta_min_s + more_s
        now_s += span_s
        seen = view(0.5 * span_s, 0.4 * span_s, span_s=span_s, rows=10**9)
        tuner = tuner.observe(seen, now_s)
        roles = (*tuner.roles, 0, 0)
        tuner, done = tuner.decide([move(*way)] if asks else [], seen, now_s)
        if done:
            bad += [now_s] if roles[way[0]] == 1 else []
            way = way[::-1]
    for first in range(len(bad)):
        for last in range(first, len(bad)):
            assert last - first + 1 <= most_reversals(bad[last] - bad[first])


def test_a_lasting_load_is_answered_nearly_as_fast_as_by_the_best_fixed_setting() -> None:
    best = max(Toy(steady, fixed(one)).run(30).rows for one in (0.05, 0.25, 1.0))
    assert Toy(steady, TUNED).run(30).rows >= 0.95 * best


def test_t_gap_begins_with_the_time_to_read_a_group() -> None:
    assert GapTuner().t_gap_s == 0.0
    assert GapTuner().observe(0.3, 0, 0.9).t_gap_s == 0.3
    assert GapTuner(read_s=0.3).observe(0.5, 0, 0.9).t_gap_s == 0.4


def test_turns_become_longer_while_more_and_more_waits() -> None:
    tuner = GapTuner(read_s=1.0, waiting_bytes=100)
    tuner = tuner.observe(1.0, 120, 0.9)
    assert tuner.t_gap_s == 1.0
    tuner = tuner.observe(1.0, 140, 0.9)
    assert tuner.t_gap_s == 2.0
    for size in range(3, 60):
        tuner = tuner.observe(1.0, 2**size * 100, 0.9)
    assert tuner.t_gap_s == 16.0


def test_turns_become_longer_at_once_where_a_slot_has_no_time() -> None:
    assert GapTuner(read_s=1.0, waiting_bytes=100).observe(1.0, 100, 1.0).t_gap_s == 2.0


def test_turns_become_shorter_while_less_waits_or_the_slot_has_time() -> None:
    less = GapTuner(1.0, 4.0, 1000).observe(1.0, 800, 0.9).observe(1.0, 600, 0.9)
    assert less.t_gap_s == pytest.approx(3.2)
    idle = GapTuner(1.0, 4.0, 1000).observe(1.0, 1000, 0.5).observe(1.0, 1000, 0.5)
    assert idle.t_gap_s == pytest.approx(3.2)
    for _ in range(100):
        idle = idle.observe(1.0, 1000, 0.5)
    assert idle.t_gap_s == 0.5


def test_turns_stay_as_they_are_where_looks_disagree() -> None:
    tuner = GapTuner(1.0, 4.0, 1000)
    for waiting in (1200, 1000, 1200, 1000, 1000, 1200):
        tuner = tuner.observe(1.0, waiting, 0.9)
    assert tuner.t_gap_s == 4.0
