from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.log import Log
from spillway.coordinator.batch.commit import commit_batch, next_watermark
from spillway.coordinator.batch.committed import Committed, Mark, Sample, initial
from spillway.coordinator.batch.plan import new_note, plan_batch, plan_round
from spillway.coordinator.decisions.adaptation import rescale
from spillway.errors import QueryError, StateError
from spillway.metrics.record import SlotRecord
from spillway.policies.cluster.account import Account
from spillway.policies.cluster.collection import Collection
from spillway.policies.cluster.cycle import Progress
from spillway.policies.cluster.tuning import Tuner
from spillway.protocols.relocation import Relocation
from spillway.routing.routing import Routing
from spillway.slot.limits import Budget
from spillway.slot.orders import Pick
from spillway.state.runs.durable import open_durable


def record(slot: int, batch: int = 0, times: tuple[int | None, ...] = (None, None)) -> SlotRecord:
    return SlotRecord(
        batch=batch,
        slot=slot,
        manifest=f"manifests/{batch}-{slot}",
        rows_in=(3, 4),
        rows_late=(1, 0),
        rows_null=(0, slot),
        rows_out=5,
        max_times=times,
        state_rows=(0, 0),
        state_bytes=(0, 0),
        layers=(0, 0),
        worker="w",
    )


def owned(place: Path) -> Log:
    log = Log(open_durable(str(place)))
    log.take_over()
    return log


def test_budgets_and_turns_are_part_of_the_note_and_come_back_with_it(tmp_path) -> None:
    log, state = owned(tmp_path), initial(Routing.even(groups=8, slots=3), 1)
    note = new_note(state, {}, budgets={1: Budget(7, 1000)}, t_gaps_s={0: 0.5, 1: 0.0})
    plan = plan_batch(state, 0, note=note)
    assert [plan.budget_of(slot) for slot in range(3)] == [None, Budget(7, 1000), None]
    assert [plan.t_gap_of(slot) for slot in range(3)] == [0.5, 0.0, None]
    log.begin(Mark(0), plan.note)
    assert log.read_note(Mark(0)) == plan.note
    unbounded = plan_batch(state, 0)
    assert [unbounded.budget_of(slot) for slot in range(3)] == [None] * 3


def test_watermark_waits_for_every_stream_and_never_goes_back() -> None:
    assert next_watermark(None, (100, None), (0, 0)) is None
    assert next_watermark(None, (100, 40), (10, 5)) == 35
    assert next_watermark(50, (100, 40), (10, 5)) == 50


def test_commit_adds_up_slots_and_moves_the_watermark() -> None:
    state = initial(Routing.even(4, 2), 2)
    plan = plan_batch(state, 0)
    after = commit_batch(
        state, plan, {0: record(0, times=(10, 20)), 1: record(1, times=(30, None))}, (5, 5)
    )
    assert after.rows_in == (6, 8)
    assert after.rows_late == (2, 0)
    assert after.rows_null == (0, 1)
    assert after.rows_out == 10
    assert after.max_times == (30, 20)
    assert after.watermark_us == 15
    assert after.manifests == ("manifests/0-0", "manifests/0-1")


def test_commit_without_an_answer_of_every_slot_is_refused() -> None:
    state = initial(Routing.even(4, 2), 2)
    with pytest.raises(QueryError) as refused:
        commit_batch(state, plan_batch(state, 0), {0: record(0)}, (None, None))
    assert str(refused.value) == (
        "batch 0: slots [1] sent no record\n  hint: start the query again: it repeats the batch"
    )


def test_a_batch_that_does_not_follow_the_state_is_refused() -> None:
    with pytest.raises(QueryError, match="Spark asks for batch 7, but the state is at batch -1"):
        plan_batch(initial(Routing.even(4, 2), 2), 7)


def test_log_gives_back_what_it_was_given(tmp_path) -> None:
    log = owned(tmp_path)
    assert log.latest() is None
    state = initial(Routing.even(4, 2), 2)
    after = commit_batch(state, plan_batch(state, 0), {0: record(0), 1: record(1)}, (None, None))
    log.append(after)
    assert log.latest() == after


def measured() -> Committed:
    """A state in which a strategy of FLUX has moved something and learned from it."""
    account = Account(0.125, 2.0, 4.0, turned=True)
    tuner = Tuner(0.5, cost_s=0.25, roles=(1, -1), put_off=True, account=account)
    progress = Progress(Collection(4.0, moving=True, moved=True), tuner)
    sample = Sample(8.0, 3, 100, (5, 6), (0.5, 0.25), (10, 20), progress, 0.75)
    move = Relocation(0, 0, 1, 0, 0, False, "a test", pick=Pick("load", 0.25, 100))
    return replace(initial(Routing.even(4, 2), 2), sample=sample, moves=(move,))


def test_log_gives_back_what_was_measured_and_learned(tmp_path) -> None:
    log = owned(tmp_path)
    log.append(measured())
    assert log.latest() == measured()


def test_log_gives_back_a_passive_change_of_slots(tmp_path) -> None:
    log = owned(tmp_path)
    state = rescale(initial(Routing.even(4, 1), 2), 2, passive=True, reason="busy")
    log.append(state)
    assert log.latest() == state


def test_round_before_the_first_batch_is_on_record(tmp_path) -> None:
    log = owned(tmp_path)
    state = rescale(initial(Routing.even(4, 1), 2), 2)
    plan = plan_round(state, new_note(state, {}))
    after = commit_batch(state, plan, {0: record(0), 1: record(1)}, (None, None))
    log.append(after)
    assert log.latest() == after
    first = commit_batch(after, plan_batch(after, 0), {0: record(0), 1: record(1)}, (None, None))
    log.append(first)
    assert log.commits() == [after, first]


def test_damaged_log_record_is_refused_by_name(tmp_path) -> None:
    log = owned(tmp_path)
    state = initial(Routing.even(4, 1), 2)
    log.append(commit_batch(state, plan_batch(state, 0), {0: record(0)}, (None, None)))
    path = tmp_path / "log" / "000000001.json"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(StateError, match=r"log/000000001.json is damaged"):
        log.latest()


def test_two_holders_of_one_checkpoint_are_kept_apart(tmp_path) -> None:
    first, second = Checkpoint(str(tmp_path)), Checkpoint(str(tmp_path))
    first.acquire()
    with pytest.raises(QueryError, match="another query is running on the checkpoint"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_start_sweeps_what_never_committed(tmp_path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.durable.write("runs/orphan.arrow", b"x")
    checkpoint.durable.write("manifests/orphan.json", b"x")
    checkpoint.recover(2, Routing.even(4, 2))
    assert checkpoint.durable.names("runs") == []
    assert checkpoint.durable.names("manifests") == []
