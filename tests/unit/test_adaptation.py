"""What the coordinator begins between batches: evaluations, moves, forced spills, scaling."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.coordinator.adaptation import Rules, adapt, begin, rescale, resume, waits
from spillway.coordinator.coordinator import (
    Committed,
    Sample,
    Scaling,
    commit_batch,
    initial,
    new_note,
    plan_batch,
    plan_round,
)
from spillway.errors import SettingsError
from spillway.metrics.events import (
    ForceSpilled,
    GroupsSent,
    MoveAsked,
    Scaled,
    SendingAsked,
    Spilled,
)
from spillway.metrics.record import Chosen, SlotRecord
from spillway.metrics.view import CLASSES
from spillway.operators.orders import Choose, Force
from spillway.plan.shape import parse
from spillway.policies.collection import Collection
from spillway.policies.flux import Thresholds
from spillway.policies.proposal import Wish
from spillway.policies.rounds import Progress, Rounds
from spillway.policies.shaping import SlotShape
from spillway.policies.strategy import ForceSpill, Move, Strategy
from spillway.protocols.messages import (
    Received,
    ReceivePartitions,
    SendFailed,
    SendPartitions,
)
from spillway.protocols.move import Phase
from spillway.routing.routing import Routing
from spillway.settings import Adapt

GROUPS = 8
EVERY_BATCH = Rules(Strategy("lazy-disk"), interval_batches=1)


def record(slot: int, memory: int = 0, **values: object) -> SlotRecord:
    none = (0, 0)
    return SlotRecord(
        *(0, slot, f"manifests/{slot}", none, none, 0, (None, None), none, (memory, 0), none, "w"),
        **values,  # type: ignore[arg-type]
    )


def records(*memory: int, **columns: list) -> dict[int, SlotRecord]:
    """One record per slot with so many bytes in memory, and other values in columns."""
    made = {slot: record(slot, held) for slot, held in enumerate(memory)}
    for name, values in columns.items():
        made = {s: replace(made[s], **{name: value}) for s, value in enumerate(values)}
    return made


def after(state: Committed, answers: dict[int, SlotRecord], seconds: float = 1.0) -> Committed:
    """The state after one more batch, before anything is begun."""
    return commit_batch(state, plan_batch(state, state.batch + 1), answers, (None, None), seconds)


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
    assert Rules.of(settings) == Rules(strategy, 10.0, 4, 128 << 20)
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
    ("wish", "lacking", "disk", "moves"),
    [
        (Wish(), (), 0, 1),
        (Wish(parse("(a b)"), 1), (), 0, 0),
        (Wish(), ("a+b",), 0, 0),
        (Wish(), ("a+b",), 9, 1),
    ],
)
def test_a_slot_that_changes_its_shape_is_left_alone_while_memory_suffices(
    new, wish, lacking, disk, moves
) -> None:
    uneven = records(100, 10, lacking=[lacking, ()], disk_bytes=[(disk, 0), (0, 0)])
    shapes = tuple(SlotShape(parse("(a b)"), one) for one in (wish, Wish()))
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
    assert rules == Rules(strategy, 45.0, None, 128 << 20, Rounds(strategy, 3.0))
    tuned = by_load(imbalance_threshold="auto", delta_min="auto")
    assert tuned.rounds == Rounds(Strategy("flux-load"), None, tunes_imbalance=True)


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


@pytest.mark.parametrize("slots", [0, -1, GROUPS + 1])
def test_impossible_numbers_of_slots_are_refused(new, slots: int) -> None:
    with pytest.raises(SettingsError) as refused:
        rescale(new, slots)
    assert str(refused.value) == (
        f"{slots} slots cannot share 8 groups\n"
        "  hint: use at least one slot, and at most as many as there are groups"
    )


def test_query_has_new_slots_at_once_and_they_are_empty(new) -> None:
    state = rescale(after(new, records(10, 10)), 4)
    assert state.routing.counts() == (4, 4, 0, 0)
    assert state.routing.version == 1
    assert state.manifests == ("manifests/0", "manifests/1", None, None)
    assert state.scaling == Scaling(4, ((2, 0), (3, 0)))


def test_slots_that_are_to_go_stay_until_they_are_drained(new) -> None:
    state = rescale(after(new, records(10, 10)), 1)
    assert state.routing == new.routing
    assert state.scaling == Scaling(1)


def test_second_wish_keeps_filling_the_slots_that_were_being_filled(new) -> None:
    first = replace(rescale(new, 4), scaling=Scaling(4, ((2, 1), (3, 0))))
    assert rescale(first, 5).scaling == Scaling(5, ((2, 1), (3, 0), (4, 0)))
    assert rescale(first, 3).scaling == Scaling(3, ((2, 1),))
    assert rescale(first, 2).scaling == Scaling(2)


def test_slots_that_were_to_go_and_are_wanted_again_are_filled(new) -> None:
    fewer = rescale(new, 1)
    assert rescale(fewer, 2).scaling == Scaling(2, ((1, 0),))
    assert rescale(fewer, 3).scaling == Scaling(3, ((1, 0), (2, 0)))


def test_new_slot_is_filled_whatever_the_strategy_and_each_move_is_counted(new) -> None:
    answers = records(90, 10, 0)
    state = after(rescale(new, 3), answers)
    state = adapt(state, answers, {}, Rules(Strategy("none")))
    assert [(move.sender, move.receiver) for move in state.moves] == [(0, 2)]
    assert state.scaling == Scaling(3, ((2, 1),))
    assert isinstance(state.events[-1], MoveAsked)


def test_drained_slots_are_cut_off_and_scaling_ends_with_its_event(new) -> None:
    answers = records(90, 0)
    drained = replace(after(new, answers), routing=Routing(3, 2, (0,) * GROUPS))
    state = adapt(rescale(drained, 1), answers, {}, EVERY_BATCH)
    assert state.scaling is None
    assert state.routing == Routing(4, 1, (0,) * GROUPS)
    assert state.manifests == ("manifests/0",)
    assert state.sample.rows_out == (0,)
    assert state.events == (Scaled(0, 1, (), 0, 0.0, "the groups are shared by 1"),)


def test_slot_with_rows_is_never_cut_off(new) -> None:
    answers = records(90, 0, state_rows=[(9, 0), (0, 3)], disk_rows=[(0, 0), (0, 0)])
    rerouted = replace(after(new, answers), routing=Routing(3, 2, (0,) * GROUPS))
    for passive in (False, True):
        state = adapt(rescale(rerouted, 1, passive=passive), answers, {}, EVERY_BATCH)
        assert state.routing.slots == 2
        assert state.scaling == Scaling(1, passive=passive)
        assert state.moves == ()
    on_disk = records(90, 0, disk_rows=[(0, 0), (0, 3)])
    assert adapt(rescale(rerouted, 1, passive=True), on_disk, {}, EVERY_BATCH).scaling is not None
    none = records(90, 0)
    ended = adapt(rescale(rerouted, 1, passive=True, reason="why"), none, {}, EVERY_BATCH)
    assert ended.routing == Routing(4, 1, (0,) * GROUPS)
    assert ended.events == (Scaled(0, 1, (), 0, 0.0, "the groups are shared by 1: why"),)


def test_passive_change_begins_no_move_and_ends_when_new_slots_have_groups(new) -> None:
    answers = records(90, 90, 0, 0)
    state = adapt(after(rescale(new, 4, passive=True), answers), answers, {}, EVERY_BATCH)
    assert (state.moves, state.scaling) == ((), Scaling(4, passive=True))
    assert not waits(replace(state, round=1), answers)
    shared = replace(state, routing=Routing(3, 4, (0, 1, 2, 3) * 2))
    state = adapt(after(shared, answers), answers, {}, EVERY_BATCH)
    assert (state.moves, state.scaling) == ((), None)
    assert state.routing == shared.routing
    assert isinstance(state.events[-1], Scaled)


def test_passive_change_leaves_groups_to_the_routing_of_slices(new) -> None:
    answers = records(90, 0)
    state = adapt(rescale(after(new, answers), 1, passive=True), answers, {}, EVERY_BATCH)
    assert state.routing == new.routing
    assert (state.moves, state.scaling) == ((), Scaling(1, passive=True))


def test_rounds_are_of_no_use_while_rows_have_to_expire(new) -> None:
    held = records(90, 0, state_rows=[(9, 0), (0, 3)])
    rerouted = replace(after(new, held), routing=Routing(3, 2, (0,) * GROUPS))
    state = rescale(rerouted, 1, passive=True)
    # The first round lets go what expired with the last batch.
    assert not waits(state, held)
    state = replace(state, round=1)
    assert waits(state, held)
    assert not waits(state, records(90, 0))
    assert not waits(replace(state, routing=new.routing), held)
    assert not waits(replace(state, scaling=None), held)
    assert not waits(begin(state, [Move(0, 1, 10, "a test")]), held)


def test_another_wish_may_change_how_slots_come_and_go(new) -> None:
    first = rescale(new, 4)
    assert rescale(first, 3, passive=True).scaling == Scaling(3, passive=True)
    again = rescale(rescale(new, 1, passive=True), 2)
    assert again.scaling == Scaling(2, ((1, 0),))


def test_scaling_does_not_end_while_something_moves(new) -> None:
    answers = records(90, 0)
    drained = replace(after(new, answers), routing=Routing(3, 2, (0,) * GROUPS))
    moving = begin(rescale(drained, 1), [Move(1, 0, 0, "a test", everything=True)])
    state = adapt(moving, answers, {}, EVERY_BATCH)
    assert state.scaling == Scaling(1)
    assert state.routing.slots == 2


def test_scaling_goes_on_in_rounds(new) -> None:
    answers = records(90, 10, 0)
    state = rescale(after(new, records(90, 10)), 3)
    plan = plan_round(state, new_note(state, {}))
    state = commit_batch(state, plan, answers, (None, None))
    assert len(adapt(state, answers, {}, EVERY_BATCH).moves) == 1


def ended(state: Committed, move: int, groups: tuple[int, ...]) -> Committed:
    """The state when a move that was just begun has come to its end, with nothing decided."""
    chosen = Chosen(move, groups, 1, "test")
    state = after(state, records(0, 0, chosen=[(chosen,), ()]))
    state = after(state, records(0, 0))
    said = [ReceivePartitions(move), Received(move, "part", 1)]
    state, _ = resume(state, [(one, 0.0) for one in said])
    return after(state, records(0, 0))


def test_large_amount_moves_in_parts_one_after_the_other(new) -> None:
    state = begin(new, [Move(0, 1, 25, "full")], part_bytes=10)
    asked = []
    for number in range(3):
        [move] = state.moves
        assert (move.move, move.slots, move.reason) == (number, (0, 1), "full")
        asked.append((move.wanted_bytes, move.left_bytes))
        state = ended(state, number, (number,))
        told = [event.bytes for event in state.events if isinstance(event, MoveAsked)]
        assert told == [[10], [5], []][number]
    assert asked == [(10, 15), (10, 5), (5, 0)]
    assert state.moves == ()
    assert state.moves_begun == 3
    assert state.routing.table[:4] == (1, 1, 1, 0)


def test_parts_end_where_the_sender_has_nothing_more_to_give(new) -> None:
    state = begin(new, [Move(0, 1, 25, "full")], part_bytes=10)
    state = ended(state, 0, (0,))
    state = after(state, records(0, 0, chosen=[(Chosen(1, (), 0, "none fits"),), ()]))
    assert state.moves == ()


def test_move_of_everything_is_one_part(new) -> None:
    state = begin(new, [Move(0, 1, 25, "goes", 4, everything=True)], part_bytes=10)
    assert (state.moves[0].wanted_bytes, state.moves[0].left_bytes) == (25, 0)


def test_move_that_was_given_up_is_not_followed(new) -> None:
    state = begin(new, [Move(0, 1, 25, "full")], part_bytes=10)
    state = after(state, records(0, 0, chosen=[(Chosen(0, (0,), 1, "test"),), ()]))
    state = after(state, records(0, 0))
    state, _ = resume(state, [(SendFailed(0, "lost"), 0.0)] * 3)
    assert state.moves[0].phase is Phase.ROLLING_BACK
    assert after(state, records(0, 0)).moves == ()
