"""Victim policies: which groups leave memory first, and which come back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spillway.codec import decode, encode, made, plain
from spillway.errors import SettingsError
from spillway.metrics.groups import GroupNews, GroupSizes, GroupTable
from spillway.policies.local.controller import LocalController
from spillway.settings import VICTIMS, Adapt


def table(**columns: list[float]) -> GroupTable:
    groups = len(next(iter(columns.values())))
    made = GroupTable.empty(groups, 1)
    for name, values in columns.items():
        kind = getattr(made, name).dtype
        shape = (1, groups) if name in ("rows", "bytes") else (groups,)
        made = replace(made, **{name: np.array(values, kind).reshape(shape)})
    return made


GROUPS = table(
    bytes=[100, 100, 400, 50, 0],
    produced=[10, 500, 400, 0, 0],
    average=[90, 1, 1, 0, 0],
    last_insert=[9, 2, 9, 9, -1],
)


@pytest.mark.parametrize(
    ("policy", "wanted", "groups"),
    [
        (LocalController("least-productive"), 150, (3, 0)),
        (LocalController("least-productive", amortised=True), 400, (3, 2)),
        (LocalController("most-productive"), 150, (1, 2)),
        (LocalController("largest"), 1, (2,)),
        (LocalController("inactive", inactive_batches=5), 101, (1, 3)),
        (LocalController("inactive", inactive_batches=50), 101, (3, 0)),
    ],
)
def test_victims_come_in_the_policys_order_until_they_are_enough(policy, wanted, groups) -> None:
    assert policy.victims(GROUPS, wanted, batch=10).groups == groups


@pytest.mark.parametrize("name", VICTIMS)
def test_a_policy_takes_only_groups_that_are_in_memory_and_all_if_need_be(name: str) -> None:
    assert set(LocalController(name).victims(GROUPS, 10**9, batch=10).groups) == {0, 1, 2, 3}


def test_random_is_drawn_anew_for_every_batch_and_the_same_in_a_replay() -> None:
    many = table(bytes=[1] * 50)
    drawn = [
        LocalController("random", seed=4).victims(many, 10, batch).groups for batch in range(5)
    ]
    assert drawn == [
        LocalController("random", seed=4).victims(many, 10, batch).groups for batch in range(5)
    ]
    assert len(set(drawn)) == 5
    assert LocalController("random", seed=5).victims(many, 10, 0).groups != drawn[0]


def test_the_last_to_leave_come_back_first_as_long_as_they_fit() -> None:
    frozen = replace(GROUPS, disk_bytes=np.array([30, 30, 30, 30, 0]))
    policy = LocalController("least-productive")
    assert policy.returning(frozen, 65, batch=10).groups == (1, 2)
    assert policy.returning(frozen, 10, batch=10).groups == ()


def test_what_a_spilled_part_produced_is_not_counted_for_the_next() -> None:
    before = table(produced=[10, 20], average=[4, 8], outputs=[10, 20], bytes=[5, 5])
    news = GroupNews.none(batch=3, groups=2)
    news.add_outputs(np.array([6, 6]))
    news.end_parts([0])
    news.add_outputs(np.array([1, 1]))
    zeros = np.zeros(2, np.int64)
    after = before.after(GroupSizes(before.rows, before.bytes, zeros, zeros, zeros), news)
    assert after.outputs.tolist() == [17, 27]
    assert after.produced.tolist() == [1, 27]
    assert after.sampled.tolist() == [7, 7]
    assert after.average.tolist() == [0.5, 7.5]
    assert after.productivity().tolist() == [0.2, 5.4]


def test_the_load_of_a_group_is_what_it_took_and_gave_in_recent_batches() -> None:
    before = table(load=[10, 0, 5], bytes=[5, 5, 5])
    news = GroupNews.none(batch=3, groups=3)
    news.add_rows(np.array([20, 0, 0]))
    news.add_rows(np.array([10, 5, 0]))
    news.add_outputs(np.array([0, 15, 0]))
    zeros = np.zeros(3, np.int64)
    after = before.after(GroupSizes(before.rows, before.bytes, zeros, zeros, zeros), news)
    assert after.load.tolist() == [14.0, 4.0, 4.0]
    assert after.last_insert.tolist()[:2] == [3, 3]
    assert decode(GroupTable, encode(after)).load.tolist() == [14, 4, 0]


def test_a_column_that_a_file_lacks_is_neutral() -> None:
    found = plain(table(bytes=[5, 5], load=[1, 2], last_insert=[3, 3]))
    del found["columns"]["load"]
    read = made(GroupTable, found)
    assert read.load.tolist() == [0, 0]
    assert read.bytes.tolist() == [[5, 5]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"victims": "oldest"}, "victims='oldest' is not one of 'least-productive'"),
        ({"spill_fraction": 0}, "spill_fraction=0 must be a number above 0"),
        ({"low_water": 1.5}, "low_water=1.5 must be a number above 0 and at most 1"),
        ({"cleanup": "never"}, "cleanup='never' is not one of 'auto', 'manual'"),
        ({"slots": 2, "memory": {2: "1MB"}}, "memory has a limit for slot 2"),
        ({"memory": {0: "much"}}, "memory of slot 0='much'"),
        ({"calm_batches": 0}, "calm_batches=0 must be a whole number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message) -> None:
    with pytest.raises(SettingsError, match=message):
        Adapt(**settings)
