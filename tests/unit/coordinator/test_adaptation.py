"""What the coordinator begins between batches: evaluations, moves, forced spills, scaling."""

from __future__ import annotations

from dataclasses import replace

import pytest
from committing import GROUPS, after, records

from spillway.coordinator.batch.commit import commit_batch
from spillway.coordinator.batch.committed import Committed, Sample, initial
from spillway.coordinator.batch.plan import new_note, plan_batch, plan_round
from spillway.coordinator.decisions.adaptation import Rules, adapt, begin, rescale, resume
from spillway.metrics.events import (
    ForceSpilled,
    GroupsSent,
    MoveAsked,
    SendingAsked,
    Spilled,
)
from spillway.metrics.record import Chosen, SlotRecord
from spillway.metrics.view import CLASSES
from spillway.plan.shape import parse
from spillway.policies.cluster.collection import Collection
from spillway.policies.cluster.cycle import Cycle, Progress
from spillway.policies.cluster.decision import ForceSpill, Move
from spillway.policies.cluster.flux import Thresholds
from spillway.policies.cluster.strategy import Strategy
from spillway.policies.shape.proposal import Proposal
from spillway.policies.shape.shaping import SlotShape
from spillway.protocols.messages import (
    ReceivePartitions,
    SendPartitions,
)
from spillway.protocols.move import Phase
from spillway.routing.routing import Routing
from spillway.settings import Adapt
from spillway.slot.orders import Choose, Force

EVERY_BATCH = Rules(Strategy("lazy-disk"), interval_batches=1)


@pytest.fixture
def new() -> Committed:
    return initial(Routing.even(GROUPS, 2), 2)


def test_rules_are_what_the_settings_say() -> None:
    settings = Adapt(
        strategy="active-disk",
        relocation_threshold=0.7,
        productivity_ratio=3,
        spill_fraction=0.2,
        max_forced_spill="5MB",
        relocation_interval="10 seconds",
        relocation_batches=4,
    )
    strategy = Strategy("active-disk", 0.7, 3, 0.2, 5_000_000)
    assert Rules.of(settings) == Rules(strategy, 10.0, 4, 1 << 30)
    assert Rules.of(Adapt(relocation_bytes="5MB")) == Rules(Strategy("none"), 45.0, None, 5 * 10**6)
    assert Rules.of(Adapt(memory="1MB")).strategy.name == "lazy-disk"


def test_slots_are_not_compared_before_the_interval_of_the_querys_clock(new) -> None:
    rules, uneven = Rules(Strategy("lazy-disk"), interval_s=10.0), records(100, 10)
    state = new
    for _ in range(3):
        state = adapt(after(state, uneven, 3.0), uneven, {}, rules)
        assert state.moves == ()
        assert state.sample.clock_s == 0.0
    state = adapt(after(state, uneven, 3.0), uneven, {}, rules)
    assert [(move.sender, move.receiver) for move in state.moves] == [(0, 1)]
    assert state.sample == Sample(12.0, 3, 110, (0, 0))


@pytest.mark.parametrize(
    ("proposal", "lacking", "disk", "moves"),
    [
        (Proposal(), (), 0, 1),
        (Proposal(parse("(a b)"), 1), (), 0, 0),
        (Proposal(), ("a+b",), 0, 0),
        (Proposal(), ("a+b",), 9, 1),
    ],
)
def test_a_slot_that_changes_its_shape_is_left_alone_while_memory_suffices(
    new, proposal, lacking, disk, moves
) -> None:
    uneven = records(100, 10, lacking=[lacking, ()], disk_bytes=[(disk, 0), (0, 0)])
    shapes = tuple(SlotShape(parse("(a b)"), one) for one in (proposal, Proposal()))
    state = replace(after(new, uneven), shapes=shapes)
    rules = Rules(Strategy("relocate-only"), interval_batches=1)
    assert len(adapt(state, uneven, {}, rules).moves) == moves


def test_slots_are_not_compared_before_the_interval_in_batches(new) -> None:
    rules = Rules(Strategy("lazy-disk"), interval_s=0.0, interval_batches=3)
    state, uneven, moves = new, records(100, 10), []
    for _ in range(4):
        state = adapt(after(state, uneven), uneven, {}, rules)
        moves.append(len(state.moves))
        state = replace(state, moves=())
    assert moves == [0, 0, 1, 0]


def test_results_since_the_last_comparison_are_counted_without_what_cleanup_made(new) -> None:
    rules = Rules(Strategy("lazy-disk"), interval_batches=3)
    answers = records(50, 50, rows_out=[9, 5], rows_cleaned=[2, 0])
    state = adapt(after(new, answers), answers, {}, rules)
    assert state.sample.rows_out == (7, 5)
    state = adapt(after(state, answers), answers, {}, rules)
    assert state.sample.rows_out == (14, 10)
    state = adapt(after(state, answers), answers, {}, rules)
    assert state.sample == Sample(3.0, 2, 100, (0, 0))


def by_load(**adapt: object) -> Rules:
    return Rules.of(Adapt(strategy="flux-load", **adapt))


def test_rules_of_flux_are_what_the_settings_say() -> None:
    rules = by_load(imbalance_threshold=1.5, utilisation_threshold=0.8, delta_min="3 seconds")
    strategy = Strategy("flux-load", flux=Thresholds(1.5, 0.8))
    assert rules == Rules(strategy, 45.0, None, 1 << 30, Cycle(strategy, 3.0))
    tuned = by_load(imbalance_threshold="auto", delta_min="auto")
    assert tuned.cycle == Cycle(Strategy("flux-load"), None, tunes_imbalance=True)


def uneven_load(**more: list) -> dict[int, SlotRecord]:
    return records(50, 50, busy_s=[0.9, 0.3], rows_in=[(80, 10), (30, 0)], **more)


def test_busy_time_and_rows_are_counted_until_the_next_comparison(new) -> None:
    rules, state = by_load(delta_min="3 seconds"), new
    for _ in range(2):
        state = adapt(after(state, uneven_load()), uneven_load(), {}, rules)
    assert state.sample.busy_s == (1.8, 0.6)
    assert state.sample.rows_in == (180, 60)
    assert state.moves == ()
    state = adapt(after(state, uneven_load()), uneven_load(), {}, rules)
    [move] = state.moves
    assert (move.sender, move.receiver, move.pick.share) == (0, 1, pytest.approx(1 / 3))
    assert move.reason == "U_max/U_min = 0.90/0.30 = 3.00 >= 1.20"
    assert plan_batch(state, 3).orders == {0: (Choose(0, 0, pick=move.pick),)}
    assert state.sample == Sample(3.0, 2, 100, (0, 0), progress=Progress(Collection(moving=True)))


def test_nothing_is_decided_while_groups_move_and_then_statistics_are_collected_as_long(
    new,
) -> None:
    rules, level = by_load(), records(50, 50)
    state = adapt(after(new, uneven_load()), uneven_load(), {}, rules)
    chosen = uneven_load(chosen=[(Chosen(0, (2,), 10, "a test"),), ()])
    state = adapt(after(state, chosen, 3.0), chosen, {}, rules)
    assert state.sample.progress.collection == Collection(moving=True, moved=True)
    for _ in range(2):
        state = adapt(after(state, uneven_load(), 2.0), uneven_load(), {}, rules)
        assert [move.phase for move in state.moves] == [Phase.SENDING]
    # The moves end in a round, for want of a batch: 7 seconds after they were decided on.
    state = replace(state, moves=())
    plan = plan_round(state, new_note(state, {}))
    state = adapt(commit_batch(state, plan, level, (None, None), 0.0), level, {}, rules)
    expected = Sample(8.0, 3, 100, (0, 0), progress=Progress(Collection(7.0)))
    assert state.sample == expected
    moves = []
    for _ in range(7):
        state = adapt(after(state, uneven_load()), uneven_load(), {}, rules)
        moves.append(len(state.moves))
    assert moves == [0] * 6 + [1]


def test_statistics_are_collected_half_as_long_where_no_sender_had_a_group(new) -> None:
    rules = by_load()
    state = replace(new, sample=Sample(progress=Progress(Collection(8.0))))
    state = adapt(after(state, uneven_load(), 8.0), uneven_load(), {}, rules)
    nothing = uneven_load(chosen=[(Chosen(0, (), 0, "none"),), ()])
    state = adapt(after(state, nothing), nothing, {}, rules)
    assert state.moves == ()
    assert state.sample == Sample(9.0, 1, 100, (0, 0), progress=Progress(Collection(4.0)))


def test_rounds_of_flux_go_by_batches_where_they_are_given(new) -> None:
    rules, state, moves = by_load(relocation_batches=2, delta_min="1 hour"), new, []
    for _ in range(4):
        state = adapt(after(state, uneven_load()), uneven_load(), {}, rules)
        moves.append(len(state.moves))
        state = replace(state, moves=())
    # The third batch ends the moves, and collecting begins.
    assert moves == [0, 1, 0, 0]
    assert state.sample.batch == 2


def test_tuned_collection_lasts_until_slots_have_taken_enough_rows(new) -> None:
    rules = by_load(delta_min="auto")
    even = records(5, 5, busy_s=[1, 1], rows_in=[(512, 0), (500, 12)])
    state = adapt(after(new, even), even, {}, rules)
    # 512 rows a second each: 1024 take 2 seconds.
    assert state.sample.progress.tuner.delta_min_s == 2.0
    assert state.sample.progress.collection.delta_s == 2.0


def test_change_of_slots_ends_a_round_of_flux(new) -> None:
    state = adapt(after(new, uneven_load()), uneven_load(), {}, by_load())
    assert state.sample.progress.collection.moving
    assert rescale(state, 3).sample.progress == Progress()


def test_what_was_measured_of_slots_is_cut_off_with_them(new) -> None:
    answers = records(90, 0, busy_s=[1.0, 2.0], rows_in=[(5, 0), (6, 0)])
    drained = replace(after(new, answers), routing=Routing(3, 2, (0,) * GROUPS))
    state = adapt(rescale(drained, 1), answers, {}, EVERY_BATCH)
    assert (state.sample.busy_s, state.sample.rows_in) == ((1.0,), (5,))
    more = adapt(after(rescale(new, 3), records(1, 1, 1)), records(1, 1, 1), {}, EVERY_BATCH)
    assert more.sample.busy_s == (0.0, 0.0, 0.0)


def test_move_is_begun_with_the_event_of_step_one(new) -> None:
    uneven = records(100, 10)
    state = adapt(after(new, uneven), uneven, {}, EVERY_BATCH)
    [move] = state.moves
    assert (move.move, move.phase, move.wanted_bytes, move.since_s) == (0, Phase.COMPUTING, 45, 1.0)
    assert state.moves_begun == 1
    reason = "M_least/M_max = 0.10 < 0.80"
    assert state.events == (MoveAsked(0, 0, (), 45, 0.0, reason, 0, 1),)
    assert plan_batch(state, 1).orders == {0: (Choose(0, 45),)}


def test_slots_that_take_part_in_a_move_are_left_out_of_the_next_comparison(new) -> None:
    uneven = records(100, 10)
    state = adapt(after(new, uneven), uneven, {}, EVERY_BATCH)
    answers = records(100, 10, chosen=[(Chosen(0, (1,), 40, "a test"),), ()])
    state = adapt(after(state, answers), answers, {}, EVERY_BATCH)
    assert [(move.move, move.phase) for move in state.moves] == [(0, Phase.DEACTIVATING)]


def test_forced_spill_is_told_in_the_next_batch_only_and_its_bytes_are_kept(new) -> None:
    rules = Rules(Strategy("active-disk", max_forced_spill=1000), interval_batches=1)
    answers = records(100, 100, rows_out=[40, 4])
    state = adapt(after(new, answers), answers, {}, rules)
    [(slot, force)] = state.forces
    assert (slot, force.bytes, force.below) == (1, 30, None)
    assert force.reason.startswith("R_max/R_min = 10.0 > 2.0")
    assert plan_batch(state, 1).orders == {1: (force,)}
    done = (ForceSpilled(1, 1, (5,), 28, 0.1, force.reason), Spilled(1, 1, (6,), 7, 0.1, "full"))
    state = after(state, records(100, 65, events=[(), done]))
    assert state.forces == ()
    assert state.forced_bytes == 28
    assert state.events == done


def test_what_was_forced_out_counts_as_long_as_it_is_on_disk(new) -> None:
    rules = Rules(Strategy("active-disk", max_forced_spill=100), interval_batches=1)
    answers = records(100, 100, rows_out=[40, 4], disk_bytes=[(0, 0), (90, 0)])
    spent = replace(after(new, answers), forced_bytes=90)
    assert adapt(spent, answers, {}, rules).forces[0][1].bytes == 10
    gone = records(100, 100, rows_out=[40, 4])
    assert adapt(spent, gone, {}, rules).forces[0][1].bytes == 30


def test_least_productive_groups_of_all_slots_are_forced_out_by_class(new) -> None:
    profile = tuple(60 if at == 3 else 40 if at == 20 else 0 for at in range(CLASSES))
    answers = records(100, 100, profile=[profile, profile])
    rules = Rules(Strategy("global-disk", max_forced_spill=1000), interval_batches=1)
    state = adapt(after(new, answers), answers, {0: 90, 1: 90}, rules)
    assert [(slot, one.bytes, one.below) for slot, one in state.forces] == [(0, 30, 3), (1, 30, 3)]


@pytest.mark.parametrize("name", ["none", "spill-only"])
def test_strategy_that_moves_nothing_leaves_the_state_as_it_is(new, name: str) -> None:
    uneven = records(100, 1, rows_out=[5, 0])
    state = after(new, uneven, 1000.0)
    assert adapt(state, uneven, {}, Rules(Strategy(name), 1.0)) is state


def test_round_counts_results_and_begins_nothing(new) -> None:
    uneven = records(100, 10, rows_out=[6, 0], rows_cleaned=[4, 0])
    state = after(new, uneven)
    plan = plan_round(state, new_note(state, {}))
    state = commit_batch(state, plan, uneven, (None, None), 1.0)
    state = adapt(state, uneven, {}, EVERY_BATCH)
    assert (state.round, state.moves, state.forces) == (1, (), ())
    assert state.sample.rows_out == (2, 0)


def test_decisions_of_a_policy_are_begun_by_kind(new) -> None:
    state = begin(new, [ForceSpill(1, 9, "a test", below=4)])
    assert state.forces == ((1, Force(9, "a test", 4)),)
    state = begin(state, [Move(0, 1, 7, "a test", groups=2, everything=True)])
    assert plan_batch(state, 0).orders == {
        0: (Choose(0, 7, 2, True),),
        1: (Force(9, "a test", 4),),
    }


def test_what_is_said_beside_the_batches_is_told_with_its_seconds(new) -> None:
    state = begin(new, [Move(0, 1, 7, "a test")])
    sending = replace(state.moves[0], phase=Phase.SENDING, groups=(2,), bytes=5)
    state, events = resume(
        replace(state, moves=(sending,)), [(SendPartitions(0), 0.0), (ReceivePartitions(0), 1.5)]
    )
    assert state.moves[0].phase is Phase.RECEIVING
    assert events == (
        SendingAsked(-1, 0, (2,), 5, 0.0, "a test", 0, 1),
        GroupsSent(-1, 0, (2,), 5, 1.5, "a test", 0, 1),
    )
