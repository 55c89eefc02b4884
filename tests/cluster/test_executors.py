"""One run on three executors: slots stay where they are, executors die, the slot count changes.

All tests here read one run of `cluster_child`. They are in one file, so that one worker of pytest runs
them and the run is made once.

    anchors     every slot stays on its executor, at the price of one exchange
    deaths      executors and workers die by SIGKILL; their slots come back from the durable tier
    slots       a restart with another slot count: groups are routed anew, their state follows
"""

from __future__ import annotations

import warnings
from collections import Counter
from types import SimpleNamespace

import pytest
from cluster_child import FEWER_SLOTS, QUIET, SLOTS, STOP, WORKER_DIES
from processes import local_roots

from conftest import ClusterRun
from spillway.spark.runtime.exchange.anchors import check_settings
from spillway.spark.runtime.session import ANCHORING

# Anchors


def test_slots_stay_on_their_executors_from_the_second_batch_on(run: ClusterRun) -> None:
    quiet = [batch for batch in run.batches("first") if 1 <= batch.number <= QUIET]
    assert len(quiet) == QUIET
    assert len({batch.executors for batch in quiet}) == 1
    assert all(sum(batch.restored) == 0 for batch in quiet[1:])


def test_slots_are_spread_evenly_over_all_executors(run: ClusterRun) -> None:
    executors = run.batches("first")[1].executors
    assert sorted(Counter(executors).values()) == [2, 2, 2]


def test_slots_run_where_their_anchors_are_cached(run: ClusterRun) -> None:
    places = run.report["places"]
    executors = run.batches("first")[QUIET].executors
    assert len(places) == SLOTS
    assert all(place.startswith("executor_") for place in places)
    assert len(set(zip(places, executors, strict=True))) == len(set(executors)) == 3


def test_anchored_plan_has_one_exchange_with_a_partition_per_slot(run: ClusterRun) -> None:
    # What is below InMemoryRelation ran once, when the anchors were cached.
    plan = run.report["plan"].partition("InMemoryRelation")[0]
    assert plan.count("Exchange ") == 1
    assert "Exchange hashpartitioning(_anchor#" in plan
    assert f", {SLOTS}), REPARTITION_BY_NUM" in plan
    assert "ShuffledHashJoin" in plan
    assert "BuildRight" in plan, "the anchors, not the rows, belong in the hash table"
    assert "InMemoryTableScan [_anchor#" in plan


def test_anchors_outlive_a_cleared_cache(run: ClusterRun) -> None:
    cleared = run.report["cleared"]
    assert sorted(cleared["found"]) == [[slot, slot] for slot in range(SLOTS)]
    assert sorted(Counter(cleared["places"]).values()) == [2, 2, 2]


def test_session_on_a_cluster_without_the_setting_is_warned() -> None:
    with pytest.warns(UserWarning, match="spark.shuffle.reduceLocality.enabled is not false"):
        check_settings(_session("spark://host:7077", {}))


@pytest.mark.parametrize(("master", "conf"), [("local[2]", {}), ("spark://host:7077", ANCHORING)])
def test_session_that_needs_nothing_is_not_warned(master: str, conf: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_settings(_session(master, conf))


def _session(master: str, conf: dict[str, str]) -> SimpleNamespace:
    context = SimpleNamespace(master=master, getConf=lambda: conf)
    return SimpleNamespace(sparkContext=context)


# Deaths


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
    # A task that is run again in the batch of the death may go anywhere. It caches its slot's anchor
    # there, and Spark may then use either place.
    strayed = {
        slot
        for batch in batches
        if batch.number > killed["after"] + 1
        for slot in kept
        if batch.executors[slot] != before.executors[slot]
    }
    assert len(strayed) <= 1
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


# Slots


def test_restart_with_fewer_slots_is_exact(run: ClusterRun) -> None:
    first, second = run.batches("first"), run.batches("second")
    assert {len(batch.executors) for batch in first} == {SLOTS}
    assert {len(batch.executors) for batch in second} == {FEWER_SLOTS}
    assert STOP <= first[-1].number < second[0].number
    run.assert_exact()


def test_restarted_slots_stay_on_their_executors(run: ClusterRun) -> None:
    second = run.batches("second")
    assert len({batch.executors for batch in second[1:]}) == 1
    assert len(set(second[-1].executors)) == 3
    assert all(sum(batch.restored) == 0 for batch in second[2:])
