"""Every slot stays on its executor, at the price of one exchange."""

from __future__ import annotations

import warnings
from collections import Counter
from types import SimpleNamespace

import pytest
from cluster_child import QUIET, SLOTS

from conftest import ClusterRun
from spillway.spark.api.session import ANCHORING
from spillway.spark.runtime.anchors import check_settings


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
