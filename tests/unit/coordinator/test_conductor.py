"""A coordinator in its host: nothing is lost, whatever the host refuses and whoever wishes when."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from committing import GROUPS, records
from hosting import MemoryHost

from spillway.coordinator.batch.committed import Mark, initial
from spillway.coordinator.batch.plan import BatchPlan
from spillway.coordinator.batch.references import References
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.decisions.adaptation import Rules, begin
from spillway.coordinator.terms import Terms
from spillway.coordinator.took import Took
from spillway.coordinator.wishes import LimitMemory, ScaleTo
from spillway.errors import QueryError, SettingsError
from spillway.metrics.record import Chosen
from spillway.policies.cluster.decision import Move
from spillway.policies.cluster.strategy import Strategy
from spillway.protocols.messages import Received, ReceivePartitions
from spillway.protocols.move import Phase
from spillway.routing.routing import Routing

TERMS = Terms((None, None))


def conductor(strategy: str = "none", **values: object) -> Conductor:
    """A conductor of two slots; `values` are those of its coordinator."""
    state, rules = initial(Routing.even(GROUPS, 2), 2), Rules(Strategy(strategy))
    return Conductor(Coordinator(TERMS, state, rules, **values), MemoryHost())


def commit(one: Conductor, plan: BatchPlan, **columns: list) -> None:
    memory = [10] * plan.routing.slots
    one.commit(plan, records(*memory, **columns), Took(1.0))


def run(one: Conductor, **columns: list) -> BatchPlan:
    """One more batch."""
    plan = one.begin_batch(one.state.batch + 1)
    commit(one, plan, **columns)
    return plan


def with_move(one: Conductor) -> Conductor:
    """The same after a batch, with a move from slot 0 to slot 1 that has just been asked for."""
    run(one)
    state = begin(one.state, [Move(0, 1, 5, "a test", groups=1)])
    one.coordinator = replace(one.coordinator, state=state)
    one.host.called()
    return one


def test_batch_is_planned_and_committed_in_order() -> None:
    found = conductor()
    run(found)
    assert found.host.called() == ["messages", "write_note", "append", "discard"]
    assert found.host.log == [found.state]


def test_move_goes_through_its_steps() -> None:
    found = with_move(conductor())
    run(found, chosen=[(Chosen(0, (0,), 5, "first"),), ()])
    assert found.host.called() == [
        "messages", "write_note", "reach 2", "append", "discard", "reach 3",
    ]  # fmt: skip
    run(found)
    assert found.host.called() == [
        "messages", "write_note", "reach 4", "append", "discard", "send",
    ]  # fmt: skip
    # It is being sent, so it is not sent again.
    run(found)
    assert "send" not in found.host.called()
    found.host.said = [(ReceivePartitions(0), 0.1), (Received(0, "part", 5), 0.1)]
    plan = found.begin_batch(4)
    assert [move.phase for move in plan.moves] == [Phase.REACTIVATING]
    commit(found, plan)
    assert found.state.moves == ()
    assert found.state.routing.table[0] == 1


def test_refused_record_leaves_the_coordinator_as_it_was() -> None:
    found = conductor()
    run(found)
    plan = found.begin_batch(1)
    before = found.coordinator
    found.host.refuses = "append"
    with pytest.raises(QueryError, match="append is refused"):
        commit(found, plan)
    assert found.coordinator is before
    assert [state.batch for state in found.host.log] == [0]
    commit(found, plan)
    assert [state.batch for state in found.host.log] == [0, 1]


def test_refused_note_begins_no_batch() -> None:
    found = conductor("spill-only", memory={0: 100, 1: 100})
    before = found.coordinator
    found.host.refuses = "write_note"
    with pytest.raises(QueryError, match="write_note is refused"):
        found.begin_batch(0)
    assert found.coordinator == before
    assert set(found.host.notes) == set()
    found.begin_batch(0)
    assert set(found.host.notes) == {Mark(0)}


def test_wish_from_another_thread_while_a_batch_is_committed_is_not_lost() -> None:
    found = conductor()

    def wish() -> None:
        thread = threading.Thread(target=found.wish, args=(ScaleTo(3),))
        thread.start()
        thread.join()

    found.host.meanwhile = wish
    run(found)
    assert found.coordinator.wished is None
    assert found.ahead.wished is not None
    found.host.called()
    plan = found.begin_batch(1)
    assert found.host.called() == ["prepare_moves", "messages", "write_note"]
    assert plan.routing.slots == 3
    assert found.state.scaling is not None


def test_wishes_of_many_threads_are_all_granted() -> None:
    found = conductor("spill-only")
    wishes = [LimitMemory({slot: 100 + slot}) for slot in range(50)]
    threads = [threading.Thread(target=found.wish, args=(wish,)) for wish in wishes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.catch_up()
    assert found.coordinator.limits == {slot: 100 + slot for slot in range(50)}


def test_wish_that_cannot_be_granted_is_refused_at_once() -> None:
    found = conductor()
    with pytest.raises(SettingsError, match="99 slots cannot share 8 groups"):
        found.wish(ScaleTo(99))
    before = found.coordinator
    found.catch_up()
    assert found.coordinator == before


def test_start_with_other_slots_has_its_state_written_anew() -> None:
    state = initial(Routing.even(GROUPS, 2), 2)
    started = Coordinator.at_start(TERMS, state, References(), slots=3)
    found = Conductor(started, MemoryHost())
    plan = found.begin_batch(0)
    assert found.host.called() == ["messages", "reroute", "write_note"]
    assert plan.routing.slots == 3
    assert plan.manifests == ("rerouted-0", "rerouted-1", "rerouted-2")
    assert found.coordinator.references.counts == {"run": 1}
    commit(found, plan)
    found.begin_batch(1)
    assert "reroute" not in found.host.called()


def test_start_whose_state_cannot_be_written_anew_asks_again() -> None:
    started = Coordinator.at_start(TERMS, conductor().state, References(), slots=3)
    found = Conductor(started, MemoryHost())
    found.host.refuses = "reroute"
    with pytest.raises(QueryError, match="reroute is refused"):
        found.begin_batch(0)
    assert (found.coordinator.slots_asked, found.state.routing.slots) == (3, 2)
    assert found.begin_batch(0).routing.slots == 3


def test_first_batch_of_a_start_has_the_plan_of_its_note() -> None:
    begun = conductor("spill-only", memory={0: 100, 1: 100})
    plan = begun.begin_batch(0)
    again = Conductor(conductor("spill-only", memory={0: 7, 1: 7}).coordinator, begun.host)
    assert again.replays
    assert again.begin_batch(0) == plan
    commit(again, plan)
    assert not again.replays
    assert again.begin_batch(1).memory_bytes == (7, 7)


def test_batch_that_the_same_start_repeats_has_the_plan_of_its_note() -> None:
    """Its results may have reached a sink or a later stage, whoever repeats it."""
    found = conductor("spill-only", memory={0: 100, 1: 100})
    run(found)
    plan = found.begin_batch(1)
    found.wish(LimitMemory({0: 7}))
    assert found.replays
    assert found.begin_batch(1) == plan
    commit(found, plan)
    assert found.begin_batch(2).memory_bytes == (7, 100)


def test_round_that_was_begun_is_found_again() -> None:
    found = conductor()
    run(found, pending=[((0, 5),), ()])
    plan = found.begin_round(10, {0})
    assert plan is not None
    assert plan.cleanup == (0,)
    again = Conductor(replace(found.coordinator, first=True), found.host)
    assert again.open_round() == plan
    commit(again, plan)
    assert again.state.round == 1
    assert again.open_round() is None
    assert again.begin_round(10, {0}) is None


def test_what_is_being_sent_arrives_before_more_waits_for_it() -> None:
    found = conductor()
    run(found, parked_bytes=[TERMS.buffer_bytes + 1, 0])
    found.host.called()
    found.begin_batch(1)
    assert found.host.called() == ["finish_sending", "messages", "write_note"]


@pytest.mark.parametrize(("strategy", "asked"), [("none", []), ("lazy-disk", ["prepare_moves"])])
def test_moves_are_prepared_where_the_strategy_makes_them(strategy: str, asked: list[str]) -> None:
    assert conductor(strategy).host.called() == asked


def test_failure_after_a_commit_does_not_undo_the_commit() -> None:
    found = with_move(conductor())
    run(found, chosen=[(Chosen(0, (0,), 5, "first"),), ()])
    found.host.refuses = "send"
    with pytest.raises(QueryError, match="send is refused"):
        run(found)
    # The batch is on record: running it again could give a sink other results.
    assert found.state == found.host.log[-1]
    assert found.state.batch == 2
