"""The shapes of slots from commit to commit, without Spark."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from spillway.checkpoint.log import Log
from spillway.cli.inspection import _event
from spillway.codec import decode, encode
from spillway.coordinator.batch.commit import commit_batch
from spillway.coordinator.batch.committed import Committed, Mark, initial
from spillway.coordinator.batch.plan import BatchPlan, new_note, plan_batch, plan_round
from spillway.coordinator.decisions.reshaping import reshape, shapes_of
from spillway.errors import PlanError
from spillway.ids import SlotId
from spillway.inspect.explanation import shape_report
from spillway.metrics.counts import Probed, Sampled
from spillway.metrics.events import Event, Reshaped
from spillway.metrics.record import SlotRecord
from spillway.operators.stats import OperatorStats
from spillway.plan.shape import Shape, flat, left_deep, parse
from spillway.policies.shape.costs import cheapest
from spillway.policies.shape.proposal import Proposal
from spillway.policies.shape.shaping import Shaping, SlotShape
from spillway.protocols.move import Phase
from spillway.protocols.parallel_track import ParallelTrack
from spillway.protocols.relocation import Relocation
from spillway.routing.routing import HashRange, Routing
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.runs.durable import open_durable

NAMES = ("a", "b", "c")
AUTO, TREE, NWAY = (Shaping(NAMES, kind) for kind in ("auto", "tree", "nway"))
FIXED = Shaping.asked(NAMES, None, "((a c) b)")


def record(slot: int, far: str = "ac", rows: int = 1000, state: int = 20_000) -> SlotRecord:
    """A slot in which the two streams that are named match twenty times less often than others."""
    sampled = {
        Sampled(str(i), str(j)): (1e7, 50.0 if {NAMES[i], NAMES[j]} == set(far) else 1000.0)
        for i, j in itertools.permutations(range(3), 2)
    }
    return SlotRecord(
        0, slot, f"m{slot}", (rows,) * 3, (0,) * 3, 0, (None,) * 3, (state,) * 3,
        (state * 24,) * 3, (1,) * 3, "w", sampled=sampled,
    )  # fmt: skip


def batch(
    state: Committed, shaping: Shaping, far: str = "ac", slots: int = 2, **more: int
) -> Committed:
    """The state after one more batch."""
    plan = planned(state, state.batch + 1, shapes=shapes_of(state, shaping))
    records = {slot: record(slot, far, **more) for slot in range(slots)}
    after = commit_batch(state, plan, records, (None,) * 3, 1.0)
    return reshape(after, plan, records, {}, 1.0, shaping)


def planned(state: Committed, batch: int, shapes: tuple[Shape, ...]) -> BatchPlan:
    return plan_batch(state, batch, note=new_note(state, {}, shapes=shapes))


def start(slots: int = 2) -> Committed:
    return initial(Routing.even(8, slots), 3)


def shapes(state: Committed) -> list[str]:
    return [str(one.shape) for one in state.shapes]


def test_the_n_way_join_leaves_no_trace() -> None:
    state = batch(start(), NWAY)
    assert state.shapes == ()
    assert planned(state, 1, shapes=shapes_of(state, NWAY)).shape_of(0) is None
    assert shapes_of(state, None) == ()


def test_a_given_shape_is_there_from_the_first_batch_on() -> None:
    plan = planned(start(), 0, shapes=shapes_of(start(), FIXED))
    assert plan.shape_of(1) == parse("((a c) b)")
    state = batch(start(), FIXED)
    assert shapes(state) == ["((a c) b)"] * 2
    assert state.events == ()


def test_a_tree_begins_left_deep_and_has_the_cheapest_once_measured() -> None:
    assert shapes_of(start(), TREE) == (left_deep(NAMES),) * 2
    state = batch(start(), TREE)
    assert shapes(state) == ["((a c) b)"] * 2
    assert [type(event) for event in state.events] == [Reshaped] * 2


def test_auto_begins_at_once_and_changes_when_it_is_sure() -> None:
    state = batch(start(), AUTO)
    assert shapes(state) == ["(a b c)"] * 2
    assert state.shapes[0].proposal.times == 1
    state = batch(state, AUTO)
    [first, _] = state.events
    assert isinstance(first, Reshaped)
    assert (first.before, first.batch, first.slot) == ("(a b c)", 1, 0)
    assert first.shape == "((a c) b)"
    assert shapes(state) == [first.shape] * 2
    assert decode(Event, encode(first)) == first


def test_another_selectivity_gives_another_shape_after_two_evaluations() -> None:
    state = start()
    for _ in range(4):
        state = batch(state, AUTO, "bc")
    assert shapes(state) == ["(a (b c))"] * 2
    state = batch(state, AUTO, "ac")
    assert shapes(state) == ["(a (b c))"] * 2
    state = batch(state, AUTO, "ac")
    assert shapes(state) == ["((a c) b)"] * 2


def test_a_paused_query_measures_and_keeps_its_shapes() -> None:
    state = start()
    for _ in range(4):
        plan = planned(state, state.batch + 1, shapes=shapes_of(state, AUTO))
        records = {slot: record(slot) for slot in range(2)}
        after = commit_batch(state, plan, records, (None,) * 3, 1.0)
        state = reshape(after, plan, records, {}, 1.0, AUTO, paused=True)
    assert shapes(state) == ["(a b c)"] * 2
    assert state.events == ()
    assert state.shapes[0].rates is not None
    # It can decide again at once.
    assert shapes(batch(batch(state, AUTO), AUTO)) == ["((a c) b)"] * 2


def test_a_steady_stream_never_changes_its_shapes_again() -> None:
    state = start()
    seen = []
    for number in range(40):
        # Noise of a quarter, up and down.
        state = batch(state, AUTO, rows=(1000, 1250, 800)[number % 3])
        seen.append(tuple(shapes(state)))
    assert len(set(seen[2:])) == 1


def test_a_slot_that_takes_part_in_a_move_keeps_its_shape() -> None:
    state = start(3)
    moving = replace(state, moves=(Relocation(0, 0, 1, 100, 0, False, "a test"),))
    plan = planned(moving, 0, shapes=(flat(NAMES),) * 3)
    records = {slot: record(slot) for slot in range(3)}
    after = reshape(replace(moving, batch=0), plan, records, {}, 1.0, FIXED)
    assert shapes(after) == ["(a b c)", "(a b c)", "((a c) b)"]
    [event] = after.events
    assert isinstance(event, Reshaped)
    assert (event.slot, event.reason) == (2, "the query asks for it")


def while_moving(state: Committed, shaping: Shaping, far: str = "ac") -> Committed:
    """The shapes after one more batch, in which groups are on their way between both slots."""
    moving = replace(state, moves=(Relocation(0, 0, 1, 100, 0, False, "a test"),), events=())
    plan = planned(moving, state.batch + 1, shapes=shapes_of(state, shaping))
    records = {slot: record(slot, far) for slot in range(2)}
    after = reshape(replace(moving, batch=state.batch + 1), plan, records, {}, 1.0, shaping)
    assert after.events == ()
    return replace(after, moves=())


def test_a_slot_that_takes_part_in_a_move_has_the_proposed_shape_when_the_move_is_over() -> None:
    state = batch(batch(start(), AUTO, "bc"), AUTO, "bc")
    for _ in range(3):
        state = while_moving(state, AUTO, "ac")
        assert shapes(state) == ["(a (b c))"] * 2
    assert [one.proposal.shape for one in state.shapes] == [parse("((a c) b)")] * 2
    assert shapes(batch(state, AUTO, "ac")) == ["((a c) b)"] * 2


def test_a_tree_that_was_never_chosen_is_left_without_a_margin_after_a_move_too() -> None:
    state = while_moving(start(), TREE)
    assert [one.chosen for one in state.shapes] == [False] * 2
    assert shapes(batch(state, TREE)) == ["((a c) b)"] * 2


@pytest.mark.parametrize("phase", [Phase.COMPUTING, Phase.DUPLICATING, Phase.DELETING])
def test_slots_on_a_parallel_track_are_evaluated_as_ever(phase: Phase) -> None:
    track = ParallelTrack(0, 0, 1, 100, 0, False, "a test", phase, groups=(0,))
    moving = replace(start(3), moves=(track,))
    plan = planned(moving, 0, shapes=(flat(NAMES),) * 3)
    records = {slot: record(slot) for slot in range(3)}
    after = reshape(replace(moving, batch=0), plan, records, {}, 1.0, FIXED)
    assert shapes(after) == ["((a c) b)"] * 3


def many_records(count: int, slots: int) -> dict[int, SlotRecord]:
    pairs = {
        Sampled(str(i), str(j)): (1e4, 10.0) for i, j in itertools.permutations(range(count), 2)
    }
    rows, none = (100,) * count, (0,) * count
    return {
        at: SlotRecord(
            *(0, at, f"m{at}", rows, none, 5, (None,) * count, rows, (2400,) * count, none, "w"),
            sampled=pairs,
        )
        for at in range(slots)
    }


@pytest.mark.parametrize("count", [9, 14])
def test_a_given_shape_of_any_number_of_streams_is_measured_and_explained(count: int) -> None:
    names = tuple(f"s{at}" for at in range(count))
    shaping = Shaping.asked(names, None, str(left_deep(names)))
    state, answers = initial(Routing.even(8, 2), count), many_records(count, 2)
    for number in range(3):
        plan = planned(state, number, shapes=shapes_of(state, shaping))
        state = commit_batch(state, plan, answers, (None,) * count, 1.0)
        state = reshape(state, plan, answers, {0: 10**6, 1: 10**6}, 1.0, shaping)
    assert [one.shape for one in state.shapes] == [left_deep(names)] * 2
    again = decode(SlotShape, encode(state.shapes[0]))
    assert again == state.shapes[0]
    assert list(again.costs()) == [left_deep(names), flat(names)]
    report = shape_report(state, 0, None, count)
    assert report is not None
    assert f"s{count - 1} 100 rows/s" in "\n".join(report.lines())


def test_a_given_shape_waits_for_no_turn() -> None:
    names = tuple(f"s{at}" for at in range(8))
    shaping = Shaping.asked(names, None, str(left_deep(names)))
    state, answers = initial(Routing.even(8, 4), 8), many_records(8, 4)
    plan = planned(state, 0, shapes=(flat(names),) * 4)
    state = commit_batch(state, plan, answers, (None,) * 8, 1.0)
    after = reshape(state, plan, answers, {}, 1.0, shaping)
    assert [one.shape for one in after.shapes] == [left_deep(names)] * 4


def evaluated(limits: dict[int, int | None]) -> int:
    """The slots of six streams of which a commit looks for the cheapest shape."""
    names = tuple(f"s{at}" for at in range(6))
    shaping, slots = Shaping(names, "auto"), 64
    state, answers = initial(Routing.even(64, slots), 6), many_records(6, slots)
    before = SlotShape(flat(names), Proposal(flat(names), 1))
    state = replace(state, shapes=(before,) * slots)
    plan = planned(state, 0, shapes=(flat(names),) * slots)
    state = commit_batch(state, plan, answers, (None,) * 6, 1.0)
    after = reshape(state, plan, answers, limits, 1.0, shaping)
    return sum(one.proposal != before.proposal for one in after.shapes)


def first_last(streams: int, slots: int) -> dict[int, SlotRecord]:
    """Slots in which the first stream matches most often, and is not to be joined first."""
    sampled = {
        Sampled(str(i), str(j)): (1e4, 10.0 if min(i, j) else 1000.0)
        for i, j in itertools.permutations(range(streams), 2)
    }
    records = many_records(streams, slots)
    return {at: replace(one, sampled=sampled) for at, one in records.items()}


def test_every_slot_leaves_the_tree_it_began_with_when_its_turn_comes(tmp_path: Path) -> None:
    names, slots = tuple(f"s{at}" for at in range(8)), 4
    shaping, log = Shaping(names, "tree"), Log(open_durable(str(tmp_path)))
    log.take_over()
    state, answers = initial(Routing.even(8, slots), 8), first_last(8, slots)
    for number in range(slots):
        plan = planned(state, number, shapes=shapes_of(state, shaping))
        state = commit_batch(state, plan, answers, (None,) * 8, 1.0)
        state = reshape(state, plan, answers, {}, 1.0, shaping)
        # It is not forgotten by a restart either.
        log.append(state)
        state = log.latest()
        assert [one.chosen for one in state.shapes].count(True) == number + 1
    best = cheapest(state.shapes[0].rates, binary=True)
    assert [one.shape for one in state.shapes] == [best] * slots
    assert best != left_deep(names)


def test_a_search_that_minds_memory_has_fewer_slots_in_a_turn() -> None:
    limits: dict[int, int | None] = dict.fromkeys(range(64), 1000)
    assert 0 < evaluated(limits) < evaluated({}) < 64


def test_a_round_decides_nothing() -> None:
    state = batch(start(), AUTO)
    note = new_note(state, {}, shapes=shapes_of(state, AUTO))
    plan = plan_round(state, note)
    records = {slot: record(slot, rows=0) for slot in range(2)}
    after = commit_batch(state, plan, records, (None,) * 3, 1.0)
    assert reshape(after, plan, records, {}, 1.0, AUTO).shapes == state.shapes


def test_new_slots_begin_as_most_others_are_and_slots_that_go_are_forgotten() -> None:
    mixed = tuple(SlotShape(parse(text)) for text in ("(a b c)", "((a c) b)", "((a c) b)"))
    state = replace(start(5), shapes=mixed)
    assert [str(one) for one in shapes_of(state, AUTO)[3:]] == ["((a c) b)"] * 2
    assert len(shapes_of(replace(start(2), shapes=mixed), AUTO)) == 2


def test_another_plan_at_a_start_comes_with_the_first_commit() -> None:
    state = batch(batch(start(), AUTO), AUTO)
    state = batch(state, FIXED)
    assert shapes(state) == ["((a c) b)"] * 2
    state = batch(state, NWAY)
    assert state.shapes == ()
    assert [event.reason for event in state.events] == ["the query asks for it"] * 2


def test_states_that_do_not_fit_into_memory_are_not_chosen() -> None:
    plan = planned(start(), 0, shapes=shapes_of(start(), AUTO))
    records = {slot: record(slot) for slot in range(2)}
    state = start()
    for number in range(4):
        state = reshape(
            replace(state, batch=number), plan, records, dict.fromkeys(range(2), 1 << 20), 1.0, AUTO
        )
    assert shapes(state) == ["(a b c)"] * 2


def test_streams_that_come_in_turns_are_averaged() -> None:
    known = SlotShape(flat(NAMES))
    for number in range(8):
        one = replace(record(0), rows_in=tuple(3000 * (at == number % 3) for at in range(3)))
        known = AUTO.observed(known, one, 1.0)
    assert known.rates is not None
    assert all(300 < stream.rate < 2000 for stream in known.rates.streams)


def test_what_was_never_sampled_decides_nothing() -> None:
    known = AUTO.observed(SlotShape(flat(NAMES)), replace(record(0), sampled={}), 1.0)
    assert known.rates is None
    assert AUTO.decided(0, known, None) == (None, known)


def test_a_report_tells_costs_made_states_and_gaps() -> None:
    state = batch(start(), FIXED)
    [mine] = state.routing.ranges_of(SlotId(1))
    manifest = replace(
        empty_manifest(SlotId(1), 4),
        made=("a+c",),
        gaps=((HashRange(mine.lo, mine.lo + (mine.hi - mine.lo) // 4), HashRange(0, 5)),),
        state_bytes=(1, 1, 1, 500),
        disk_bytes=(0, 0, 0, 70),
    )
    report = shape_report(state, 1, manifest, 3)
    assert report is not None
    assert report.made == {"a+c": 570}
    assert report.gaps["a+c"] == pytest.approx(0.25, abs=0.01)
    text = "\n".join(report.lines())
    assert text.startswith("slot 1 ((a c) b), cost ")
    assert "(a b c) " in text
    assert "selectivity a~b 0.0001" in text
    assert "a+c 570 bytes, 25% still missing" in text
    found = json.loads(json.dumps(report.to_json()))
    assert next(iter(found["costs"])) == found["shape"] == "((a c) b)"
    assert [one["rate"] for one in found["streams"]] == [1000.0] * 3
    assert shape_report(start(), 0, None, 3) is None


def test_an_event_tells_from_what_to_what() -> None:
    event = Reshaped(4, 1, (), 0, 0.0, "it is cheaper", "(a b c)", "((a c) b)")
    assert _event(event) == ("batch 4, slot 1: reshaped from (a b c) to ((a c) b) (it is cheaper)")


def test_shapes_survive_the_log(tmp_path: Path) -> None:
    log = Log(open_durable(str(tmp_path)))
    log.take_over()
    state = batch(start(), AUTO)
    log.append(state)
    found = log.latest()
    assert shapes(found) == shapes(state)
    assert found.shapes[0].proposal == state.shapes[0].proposal
    assert found.shapes == state.shapes
    note = new_note(state, {}, shapes=shapes_of(state, AUTO))
    log.begin(Mark(1), note)
    assert log.read_note(Mark(1)) == note


def test_samples_of_three_batches_are_mostly_new() -> None:
    stats = OperatorStats(1)
    learned = {Sampled("0", "1"): (1000.0, 1000.0), Probed("0", "1"): (1000.0, 1000.0)}
    for _ in range(3):
        stats = OperatorStats(1)
        stats.count_sampled("0", "1", 1000, 0)
        stats.count_probed("0", "1", 1000, 0)
        learned = stats.blended(learned)
    sampled, probed = (learned[key][1] / learned[key][0] for key in learned)
    assert sampled < 0.1 < probed


def test_predicate_with_a_tilde_in_its_text_decays_like_any_other() -> None:
    stats = OperatorStats(1)
    stats.count_judged("a.x ~ b.x", 1000, 500, 0.1)
    stats.count_judged("a.x = b.x", 1000, 500, 0.1)
    learned = OperatorStats(1).blended(stats.selectivity)
    assert {key: of[0] for key, of in learned.items()} == dict.fromkeys(stats.selectivity, 800.0)


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (("abc", "best", None), "'best' is not a valid plan", 'plan("auto")'),
        (("abcdefghi", "auto", None), "up to 8 streams, not 9", 'plan("nway")'),
        (("abcdefghi", "tree", None), "up to 8 streams, not 9", "plan(shape="),
        (("abc", None, "((a b) x)"), "names x, which is not one of the joined streams", "a, b, c"),
        (("abc", "tree", "(a b)"), "leaves out the stream c", "each of them once"),
        (("abc", "nway", "((a b) c)"), 'plan("nway") does not take a shape', "plan(shape="),
        (("abc", None, "((a b) c"), "'((a b) c' is not a valid join shape", "brackets"),
        (("abc", None, "((a b) (a c))"), "stream a is in a shape twice", "brackets"),
        (
            ("abc", None, ("a", "b")),
            "plan(shape=('a', 'b')): a shape must be a string",
            '"((a b) c)"',
        ),
        (("abc", ["tree"], None), "['tree'] is not a valid plan", 'plan("tree")'),
        ((("a b", "c"), "auto", None), "stream 'a b' cannot be named in a shape", "spaces"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_one_clear_message(asked, message, hint) -> None:
    with pytest.raises(PlanError) as refused:
        Shaping.asked(*asked)
    assert message in refused.value.message
    assert refused.value.hint is not None
    assert hint in refused.value.hint


def test_nine_streams_may_be_joined_at_once_or_in_a_given_shape() -> None:
    many = "abcdefghi"
    assert Shaping.asked(tuple(many), None, None).first == flat(many)
    given = str(left_deep(many))
    assert str(Shaping.asked(tuple(many), None, given).first) == given
