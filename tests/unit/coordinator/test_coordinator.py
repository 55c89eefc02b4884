"""The coordinator as one value: what it decides, and the effects it asks for, in their order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from committing import GROUPS, records

from spillway.coordinator.batch.committed import Committed, Mark, Scaling, initial
from spillway.coordinator.batch.references import References
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.decisions.adaptation import Rules, begin
from spillway.coordinator.decisions.ring import Ring
from spillway.coordinator.effects import (
    AppendRecord,
    DiscardFiles,
    PrepareMoves,
    Reroute,
    SendGroups,
    StepReached,
    WriteNote,
)
from spillway.coordinator.terms import Terms
from spillway.coordinator.took import Took
from spillway.coordinator.wishes import EndInput, FollowRules, LimitMemory, ScaleTo
from spillway.errors import QueryError, SettingsError
from spillway.metrics.events import SendingFailed, TrackGivenUp
from spillway.metrics.record import Chosen
from spillway.policies.cluster.decision import Move
from spillway.policies.cluster.protocols import Protocols
from spillway.policies.cluster.strategy import Strategy
from spillway.policies.ring.length import PATIENCE
from spillway.policies.ring.slicing import Resize
from spillway.protocols.messages import Received, ReceivePartitions, SendFailed
from spillway.protocols.move import Phase
from spillway.routing.routing import Routing
from spillway.settings import Adapt

TERMS = Terms((None, None))
CALM = Rules(Strategy("none"))


def coordinator(slots: int = 2, rules: Rules = CALM, **values: object) -> Coordinator:
    return Coordinator(TERMS, initial(Routing.even(GROUPS, slots), 2), rules, **values)


def committed(before: Coordinator, *memory: int, **columns: list) -> tuple[Coordinator, tuple]:
    """One more batch, with so many bytes in each slot."""
    plan, _ = before.plan_batch(before.state.batch + 1)
    return before.commit(plan, records(*memory, **columns), Took(1.0))


def moving(state: Committed, **changes: object) -> Committed:
    """The state with a move from slot 0 to slot 1 that has just been asked for."""
    return begin(state, [replace(Move(0, 1, 10, "a test", groups=1), **changes)])


def sending() -> tuple[Coordinator, tuple]:
    """A coordinator whose move has left its sender, and the effects of that commit."""
    found, _ = committed(coordinator(), 20, 10)
    found = replace(found, state=moving(found.state))
    found, _ = committed(found, 20, 10, chosen=[(Chosen(0, (0,), 10, "first"),), ()])
    return committed(found, 20, 10)


def kinds(effects: tuple) -> list[type]:
    return [type(effect) for effect in effects]


def test_start_has_the_slots_it_is_asked_for_and_their_memory() -> None:
    terms = Terms((None,), Adapt(slots=3, memory={1: 100}, strategy="spill-only"))
    state = initial(Routing.even(GROUPS, 2), 1)
    found = Coordinator.at_start(terms, state, References(), slots=3)
    assert found.slots_asked == 3
    assert found.memory == {0: None, 1: 100, 2: None}
    settled, [reroute] = found.settle()
    assert isinstance(reroute, Reroute)
    assert reroute.routing.slots == 3
    assert settled.slots_asked is None
    assert settled.settle() == (settled, ())


def test_start_waits_for_moves_before_it_has_other_slots() -> None:
    found = replace(coordinator(slots_asked=3), state=moving(coordinator().state))
    assert found.settle() == (found, ())


def test_wish_for_slots_is_granted_with_the_next_batch() -> None:
    before = coordinator()
    wishing, effects = before.take(ScaleTo(3))
    assert effects == (PrepareMoves(),)
    assert (wishing.wished, wishing.state) == (Scaling(3), before.state)
    assert wishing.changing
    granted = wishing.grant_wish()
    assert granted.wished is None
    assert granted.state.scaling == Scaling(3, ((2, 0),))
    assert granted.state.routing.slots == 3
    assert granted.grant_wish() is granted


@pytest.mark.parametrize("slots", [0, GROUPS + 1])
def test_wish_that_cannot_be_granted_is_refused(slots: int) -> None:
    with pytest.raises(SettingsError, match=f"{slots} slots cannot share 8 groups"):
        coordinator().take(ScaleTo(slots))


def test_memory_has_limits_only_where_slots_spill() -> None:
    limited, effects = coordinator(rules=Rules(Strategy("spill-only"))).take(LimitMemory({1: 100}))
    assert effects == ()
    assert limited.limits == {1: 100}
    again, _ = limited.take(LimitMemory({0: None}))
    assert again.limits == {0: None, 1: 100}
    assert replace(again, rules=CALM).limits == {}
    early = replace(again, terms=replace(TERMS, adapt=Adapt(memory_threshold=0.5)))
    assert early.limits == {0: None, 1: 50}


def test_the_end_of_the_input_gives_up_tracks() -> None:
    rules = replace(CALM, protocols=Protocols("ptlb", 60.0))
    before = replace(coordinator(rules=rules), state=moving(coordinator().state, protocol="ptlb"))
    before, _ = committed(before, 20, 10, chosen=[(Chosen(0, (0,), 10, "first"),), ()])
    assert [move.phase for move in before.state.moves] == [Phase.DUPLICATING]
    assert not before.moving
    ended, _ = before.take(EndInput())
    assert ended.moving
    heard, effects = ended.hear([])
    assert [type(event) for event in heard.told] == [TrackGivenUp]
    assert [move.phase for move in heard.state.moves] == [Phase.ROLLING_BACK]
    assert effects == ()


def test_tests_may_steer() -> None:
    rules = replace(coordinator().rules, always_sends=True)
    steered, effects = coordinator().take(FollowRules(rules))
    assert (steered.rules, effects) == (rules, ())


def test_note_is_written_of_every_plan_that_is_new() -> None:
    plain = coordinator()
    plan, effects = plain.plan_batch(0)
    assert effects == (WriteNote(Mark(0), plan.note),)
    limited = coordinator(rules=Rules(Strategy("spill-only")), memory={0: 100, 1: 100})
    plan, [written] = limited.plan_batch(0)
    assert written == WriteNote(Mark(0), plan.note)
    # The plan of a note is the same, whatever the settings have become.
    assert plain.plan_batch(0, plan.note) == (plan, ())
    with pytest.raises(QueryError, match="batch 3"):
        plain.plan_batch(3)


def test_round_is_planned_only_where_it_has_something_to_do() -> None:
    found, _ = committed(coordinator(), 20, 10)
    assert found.plan_round(()) is None
    waiting = replace(found, state=replace(found.state, pending=((3, 10), (5, 10))))
    assert waiting.due_cleanup(5, {3, 5}) == (3,)
    planned = waiting.plan_round((3,))
    assert planned is not None
    plan, effects = planned
    assert effects == (WriteNote(Mark(0, 1), plan.note),)
    assert (plan.batch, plan.cleanup) == (0, (3,))
    assert waiting.repeat_round(plan.note) == plan
    ended, _ = waiting.commit(plan, records(20, 10), Took(1.0))
    assert (ended.state.batch, ended.state.round, ended.steps) == (0, 1, 2)


def test_effects_of_a_commit_come_in_order() -> None:
    found, _ = committed(coordinator(), 20, 10)
    found = replace(found, state=moving(found.state))
    _, effects = committed(found, 20, 10, chosen=[(Chosen(0, (0,), 10, "first"),), ()])
    assert kinds(effects) == [StepReached, AppendRecord, DiscardFiles, StepReached]
    assert [one.step for one in effects if isinstance(one, StepReached)] == [2, 3]
    _, effects = sending()
    assert kinds(effects) == [StepReached, AppendRecord, DiscardFiles, SendGroups]


def test_stage_without_state_commits_nothing() -> None:
    found = replace(coordinator(), terms=replace(TERMS, identity=True))
    after, effects = committed(found, 0, 0)
    assert kinds(effects) == [DiscardFiles]
    assert after.state.batch == 0


def test_commit_discards_what_it_stops_naming() -> None:
    found, _ = committed(coordinator(), 20, 10, added=[("a", "b"), ()])
    assert found.references.counts == {"a": 1, "b": 1}
    plan, _ = found.plan_batch(1)
    last = records(20, 10, dropped=[("a",), ()])
    last = {slot: replace(one, manifest=f"manifests/1-{slot}") for slot, one in last.items()}
    lost = replace(last[0], manifest="manifests/lost", added=("b", "c"))
    after, effects = found.commit(plan, last, Took(1.0), [*last.values(), lost])
    [files] = [one for one in effects if isinstance(one, DiscardFiles)]
    assert files.runs == ("a", "c")
    assert files.manifests == ("manifests/0", "manifests/1", "manifests/lost")
    assert after.garbage == ("a", "c")
    assert after.plan_batch(2)[0].garbage == ("a", "c")


def test_move_is_sent_once_until_it_is_answered() -> None:
    found, effects = sending()
    [sent] = [one for one in effects if isinstance(one, SendGroups)]
    assert (sent.move.phase, sent.manifest) == (Phase.SENDING, "manifests/0")
    assert sent.by_name
    assert found.sending == {0}
    heard, effects = found.hear([(ReceivePartitions(0), 0.1)])
    assert (heard.sending, effects) == ({0}, ())
    answered, effects = heard.hear([(Received(0, "part", 10), 0.1)])
    assert (answered.sending, effects) == (frozenset(), ())
    assert [move.phase for move in answered.state.moves] == [Phase.REACTIVATING]


def test_another_start_sends_again() -> None:
    found, _ = sending()
    started = replace(found, sending=frozenset(), last={}, first=True)
    again, [sent] = started.hear([])
    assert isinstance(sent, SendGroups)
    # Nobody knows yet where the slots are.
    assert not sent.by_name
    assert again.hear([]) == (again, ())


def test_what_was_heard_is_told_with_the_next_batch() -> None:
    found, _ = sending()
    heard, _ = found.hear([(SendFailed(0, "lost"), 0.1)])
    assert [type(event) for event in heard.told] == [SendingFailed]
    after, _ = committed(heard, 20, 10)
    assert after.state.events[:1] == heard.told
    assert after.told == ()


def test_crowded_while_much_waits_for_groups_on_their_way() -> None:
    found, _ = sending()
    assert not found.crowded
    after, _ = committed(found, 20, 10, parked_bytes=[0, TERMS.buffer_bytes + 1])
    assert after.crowded


def ring_that_wants(slots: int, *, aggressive: bool) -> Ring:
    """An automatic ring that has wanted this length for long enough."""
    ring = Ring.of(Adapt(slots=4, ring="auto"), 4)
    wanted = Resize(slots, aggressive, "a test")
    return replace(ring, length=replace(ring.length, wanted=wanted, times=PATIENCE))


def test_automatic_ring_wishes_for_another_length() -> None:
    found = coordinator(ring=ring_that_wants(1, aggressive=False))
    found, effects = committed(found, 20, 10, state_rows=[(1, 1), (1, 1)])
    assert found.wished == Scaling(1, passive=True, reason="a test")
    # Nothing moves, so nothing is prepared.
    assert kinds(effects) == [AppendRecord, DiscardFiles]
    assert found.grant_wish().state.scaling == found.wished


def test_ring_that_changes_by_moves_prepares_them() -> None:
    found = coordinator(ring=ring_that_wants(3, aggressive=True))
    _, effects = committed(found, 20, 10, state_rows=[(1, 1), (1, 1)])
    assert kinds(effects) == [AppendRecord, DiscardFiles, PrepareMoves]


def test_ring_waits_while_slots_change() -> None:
    found, _ = coordinator(ring=ring_that_wants(3, aggressive=True)).take(ScaleTo(1))
    after, _ = committed(found, 20, 10, state_rows=[(1, 1), (1, 1)])
    assert after.wished == found.wished
    assert after.ring is not None
    assert after.ring.length.wanted is None
