"""The feed of a running query says what the query's own progress says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from feed_samples import ABOUT, entry, spilled

from spillway.dashboard.feed.heat import heat_of
from spillway.dashboard.feed.news import About, StageAbout
from spillway.dashboard.feed.watching import HEAT_EVERY_S, HEAT_SHARE, Clocks, Groups, Watching
from spillway.metrics.groups import GroupTable


def table_of(groups: dict[int, int], count: int = 4) -> GroupTable:
    """A table with these bytes in memory by group."""
    table = GroupTable.empty(count, 1)
    for group, size in groups.items():
        table.bytes[0][group] = size
        table.rows[0][group] = 1
        table.produced[group] = size
    return table


@dataclass
class Stage:
    lateness_us: tuple[int | None, ...] = (1_000_000, 1_000_000)
    limits: dict[int, int | None] = field(default_factory=lambda: {0: 100, 1: None})
    scaling_to: int | None = None
    groups: Groups = field(default_factory=lambda: Groups(-1, (0, 0, 1, 1), (None, None)))
    table: Callable[[str], GroupTable] = lambda name: GroupTable.empty(4, 1)


@dataclass
class Query:
    about: About = ABOUT
    stages: list[Stage] = field(default_factory=lambda: [Stage()])
    recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=100))
    status: tuple[str, str] = ("running", "")


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.busy = 0.0

    @property
    def clocks(self) -> Clocks:
        return Clocks(lambda: 1e9 + self.now, lambda: self.now, lambda: self.busy)


@pytest.fixture
def query() -> Query:
    return Query()


def watching(query: Query, time: Time | None = None) -> Watching:
    return Watching(query, (time or Time()).clocks)


def test_numbers_of_a_point_are_those_of_the_progress(query: Query) -> None:
    query.recent.append(entry(5))
    found = watching(query).look(watched=False)
    assert found is not None
    [point], [slots] = found.points, found.slots
    assert (point.batch, point.seconds, point.at_s) == (5, 0.4, 5.4)
    assert (point.rows_in, point.rows_late, point.rows_out) == ((10, 4), (1, 0), 6)
    assert point.phases_s == (0.01, 0.09, 0.2, 0.1)
    assert (point.memory_bytes, point.disk_bytes, point.pending_groups) == (400, 40, 1)
    assert (point.watermark_s, point.reached_s) == (3.0, (8.0, 3.0))
    assert slots.memory_bytes == (150, 250)
    assert slots.limit_bytes == (100, None)
    assert slots.busy == (0.25, 0.5)
    assert point.busy == (0.25, 0.375, 0.5)


def test_every_entry_is_told_once(query: Query) -> None:
    one = watching(query)
    query.recent.extend(entry(batch) for batch in (0, 1))
    first = one.look(watched=False)
    assert first is not None
    assert [point.batch for point in first.points] == [0, 1]
    assert one.look(watched=False) is None
    # A round has the number of its batch.
    query.recent.append(entry(1, cleanupRound=1))
    query.recent.append(entry(2))
    then = one.look(watched=False)
    assert then is not None
    assert [(point.batch, point.round) for point in then.points] == [(1, 1), (2, 0)]


def test_entries_that_came_too_fast_leave_a_gap_and_no_error(query: Query) -> None:
    one = watching(query)
    query.recent.append(entry(0))
    one.look(watched=False)
    query.recent.extend(entry(batch % 60) for batch in range(1, 300))
    found = one.look(watched=False)
    assert found is not None
    assert len(found.points) == 100


def test_first_message_says_what_the_start_continues(query: Query) -> None:
    query.about = About("t", "query", "r", "wall", ABOUT.stages, epoch=3, started_s=12.0)
    query.recent.append(entry(41))
    found = watching(query).look(watched=False)
    assert found is not None
    assert found.whole
    [start] = found.happenings
    assert (start.kind, start.at_s) == ("started", 12.0)
    assert start.reason == "epoch 3: the start continues with batch 41"


@pytest.mark.parametrize(
    ("committed", "told"), [(-1, "the query started"), (6, "the start continues with batch 7")]
)
def test_start_without_a_batch_names_the_next_one(query: Query, committed: int, told: str) -> None:
    query.stages[0].groups = Groups(committed, (0, 0, 1, 1), (None, None))
    found = watching(query).look(watched=False)
    assert found is not None
    assert found.happenings[0].reason == told


def test_end_and_failure_are_told_without_secrets(query: Query) -> None:
    one = watching(query)
    one.look(watched=False)
    query.status = ("failed", "QueryError: cannot open s3://KEY123:sEcrEt99@bucket/x")
    found = one.look(watched=False)
    assert found is not None
    assert found.status == "failed"
    assert "sEcrEt99" not in found.told
    assert found.happenings[-1].kind == "stopped"
    assert one.look(watched=False) is None


def test_events_are_told_with_the_time_of_their_batch(query: Query) -> None:
    one = watching(query)
    query.recent.append(entry(0))
    one.look(watched=False)
    query.recent.append(entry(1, events=[spilled(1), spilled(1)]))
    found = one.look(watched=False)
    assert found is not None
    assert [line.kind for line in found.happenings] == ["spilled", "spilled"]
    assert len({line.number for line in found.happenings}) == 2
    assert {line.at_s for line in found.happenings} == {1.4}


def test_later_stages_have_their_own_points(query: Query) -> None:
    query.stages.append(Stage())
    query.about = About(
        "t", "query", "r", "wall", (*ABOUT.stages, StageAbout("group-by", ("j",), 4))
    )
    query.recent.append(entry(0) | {"then": [entry(0)]})
    # A round of the second stage alone.
    query.recent.append(entry(1, cleanupRound=1) | {"then": []})
    found = watching(query).look(watched=False)
    assert found is not None
    assert [(point.stage, point.batch) for point in found.points] == [(0, 0), (1, 0), (1, 1)]


def test_groups_are_read_only_while_a_page_is_open(query: Query) -> None:
    read = []
    stage = query.stages[0]
    stage.groups = Groups(3, (0, 0, 1, 1), ("m0", "m1"))
    tables = {"m0": table_of({0: 10, 1: 20}), "m1": table_of({2: 30})}
    stage.table = lambda name: read.append(name) or tables[name]
    one = watching(query)
    assert one.look(watched=False).heats == ()
    assert read == []
    [heat] = one.look(watched=True).heats
    assert (heat.batch, heat.slot, heat.memory_bytes) == (3, [0, 0, 1, 1], [10, 20, 30, 0])
    assert read == ["m0", "m1"]


def test_groups_are_read_at_most_every_few_seconds_and_only_if_they_changed(query: Query) -> None:
    time, stage = Time(), query.stages[0]
    stage.groups = Groups(3, (0, 0, 1, 1), ("m0", "m1"))
    one = watching(query, time)
    assert one.look(watched=True).heats
    stage.groups = Groups(4, (0, 0, 1, 1), ("m2", "m1"))
    assert one.look(watched=True) is None
    time.now += HEAT_EVERY_S
    assert one.look(watched=True).heats[0].batch == 4
    time.now += HEAT_EVERY_S
    assert one.look(watched=True) is None


def test_slow_look_at_the_groups_waits_so_long_that_it_costs_little(query: Query) -> None:
    time, stage = Time(), query.stages[0]

    def slow(name: str) -> GroupTable:
        time.busy += 0.5
        return GroupTable.empty(4, 1)

    stage.groups, stage.table = Groups(3, (0, 0, 1, 1), ("m0", "m1")), slow
    one = watching(query, time)
    one.look(watched=True)
    spent, looks = time.busy, 0
    for batch in range(4, 1004):
        time.now += 1.0
        stage.groups = Groups(batch, (0, 0, 1, 1), (f"a{batch}", f"b{batch}"))
        looks += one.look(watched=True) is not None
    assert looks >= 9
    assert (time.busy - spent) / 1000.0 <= HEAT_SHARE * 1.01


def test_manifest_that_is_gone_leaves_the_map_as_it_was(query: Query) -> None:
    stage = query.stages[0]
    stage.groups = Groups(3, (0, 0, 1, 1), ("gone", None))

    def gone(name: str) -> GroupTable:
        raise FileNotFoundError(name)

    stage.table = gone
    one = watching(query)
    assert one.look(watched=True).heats == ()
    assert one.look(watched=True) is None


def test_productivity_and_load_are_those_of_the_table() -> None:
    table = replace(table_of({0: 1 << 20, 1: 2 << 20}), load=np.array([1234.5678, 0.0, 7.0, 0.0]))
    table.produced[:] = [500, 500, 3, 0]
    heat = heat_of(table, (0, 0, 1, 1), stage=0, batch=1, at_s=0.0)
    assert heat.productivity == [500.0, 250.0, 0.0, 0.0]
    assert heat.load == [1230.0, 0.0, 7.0, 0.0]


def test_table_of_another_group_count_shows_no_wrong_group() -> None:
    heat = heat_of(table_of({0: 5}, count=9), (0, 1), stage=0, batch=1, at_s=0.0)
    assert heat.memory_bytes == [0, 0]
