"""What the coordinator's policies read, and the summary of productivity in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.metrics.groups import GroupTable
from spillway.metrics.view import (
    CLASSES,
    RELOCATING,
    RESHAPING,
    ClusterView,
    SlotView,
    classes_of,
    profile,
)


def table(size: list[int], produced: list[int], average: list[float] | None = None) -> GroupTable:
    return replace(
        GroupTable.empty(len(size), 1),
        bytes=np.array([size], np.int64),
        produced=np.array(produced, np.int64),
        average=np.array(average or produced, np.float64),
    )


@pytest.mark.parametrize(
    ("size", "produced", "expected"),
    [
        (100, 0, 0),
        (2**23, 1, 1),
        (2**23 + 1, 1, 1),
        (2**40, 1, 1),
        (2**22, 1, 2),
        (2**22 + 1, 1, 1),
        (100, 99, 23),
        (100, 100, 24),
        (100, 199, 24),
        (100, 200, 25),
        (1, 2**7 - 1, 30),
        (1, 2**7, 31),
        (1, 2**50, 31),
    ],
)
def test_a_class_is_a_power_of_two_of_productivity(size: int, produced: int, expected: int) -> None:
    assert classes_of(table([size], [produced])).tolist() == [expected]


def test_the_class_follows_recent_batches_if_amortised() -> None:
    groups = table([100], [100], [0.0001])
    assert classes_of(groups).tolist() == [24]
    assert classes_of(groups, amortised=True).tolist() == [4]


def test_a_profile_has_the_bytes_of_each_class() -> None:
    groups = table([100, 100, 400, 50, 0], [0, 100, 400, 0, 7])
    held = profile(groups)
    assert len(held) == CLASSES
    assert {c: b for c, b in enumerate(held) if b} == {0: 150, 24: 500}


@pytest.mark.parametrize("groups", [0, 1, 1000])
def test_a_profile_without_state_is_all_zero(groups: int) -> None:
    assert profile(GroupTable.empty(groups, 2)) == (0,) * CLASSES


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), max_size=50))
def test_a_profile_has_every_byte_once(groups: list[tuple[int, int]]) -> None:
    made = table([size for size, _ in groups], [outputs for _, outputs in groups])
    assert sum(profile(made)) == made.size.sum()
    assert all(type(held) is int for held in profile(made))


def test_the_cluster_is_the_sum_of_its_slots() -> None:
    slots = SlotView(0, 70, 30, 80, 4, 9), SlotView(1, 50, 0, 100, 4, 9)
    view = ClusterView(slots)
    assert (view.memory_bytes, view.state_bytes, view.cluster_bytes) == (120, 150, 180)


def test_one_slot_without_a_limit_leaves_the_cluster_without_one() -> None:
    slots = SlotView(0, 70, 30, 80, 4, 9), SlotView(1, 50, 0, None, 4, 9)
    assert ClusterView(slots).cluster_bytes is None


def test_slots_that_are_adapting_are_not_normal() -> None:
    modes = ("normal", RELOCATING, RESHAPING, "normal")
    slots = tuple(SlotView(at, 1, 0, None, 1, 0, mode) for at, mode in enumerate(modes))
    assert [slot.slot for slot in ClusterView(slots).normal] == [0, 3]
