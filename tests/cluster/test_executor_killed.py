"""Executors and workers die by SIGKILL; their slots come back elsewhere, from the durable tier."""

from __future__ import annotations

from cluster_child import STOP, WORKER_DIES
from processes import local_roots

from conftest import ClusterRun


def test_slots_of_a_killed_executor_come_back_from_the_durable_tier(run: ClusterRun) -> None:
    killed, batches = run.report["killed"], run.batches("first")
    before = next(batch for batch in batches if batch.number == killed["after"])
    lost = [slot for slot, pid in enumerate(before.executors) if pid == killed["pid"]]
    assert lost, "the killed executor had no slot"
    later = [batch for batch in batches if batch.number > killed["after"] + 1]
    for slot in lost:
        assert all(batch.executors[slot] != killed["pid"] for batch in later)
        fetched = [b.restored[slot] for b in batches if b.number > killed["after"]]
        assert sum(fetched) > 0, f"slot {slot} found its state without the durable tier"


def test_a_killed_executor_is_replaced_and_the_others_keep_their_slots(run: ClusterRun) -> None:
    killed, batches = run.report["killed"], run.batches("first")
    before = next(batch for batch in batches if batch.number == killed["after"])
    kept = [slot for slot, pid in enumerate(before.executors) if pid != killed["pid"]]
    for batch in batches:
        # In the batch that the death falls into, a task that is run again may go anywhere.
        if batch.number > killed["after"] + 1:
            assert [batch.executors[s] for s in kept] == [before.executors[s] for s in kept]
    replacements = set(run.report["executors"]) - set(killed["executors"])
    assert len(replacements) == 1


def test_output_is_exact_over_the_death_of_an_executor(run: ClusterRun) -> None:
    for batch in (
        run.report["killed"]["after"],
        run.report["killed"]["after"] + 1,
        WORKER_DIES - 1,
    ):
        run.assert_exact(batch)


def test_spark_runs_the_task_of_a_killed_worker_again(run: ClusterRun) -> None:
    assert (run.root / "worker-died").exists()
    batches = {batch.number: batch for batch in run.batches("first")}
    assert batches[WORKER_DIES].workers[2] != batches[WORKER_DIES - 1].workers[2]
    run.assert_exact(WORKER_DIES)
    run.assert_exact(STOP)


def test_a_query_that_ended_leaves_nothing_on_the_host(run: ClusterRun) -> None:
    assert not any(root.exists() for root in local_roots(run.root))
