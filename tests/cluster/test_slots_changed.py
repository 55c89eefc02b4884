"""A restart with another number of slots: groups are routed anew, their state follows."""

from __future__ import annotations

from cluster_child import FEWER_SLOTS, SLOTS, STOP

from conftest import ClusterRun


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
