"""Groups that two slots serve until the old rows have left the window: the output is the batch join."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from scenario import Scenario
from test_dedup import Clicks
from test_relocation import happened, until
from test_windowed import Readings

import spillway as sw
from spillway import Join, Query
from spillway.checkpoint.checkpoint import Checkpoint
from spillway.errors import SettingsError
from spillway.metrics.events import (
    STEPS,
    TRACK_STEPS,
    DuplicationAsked,
    GroupsDeleted,
    MoveEvent,
    MoveRolledBack,
    Scaled,
    TrackGivenUp,
)
from spillway.metrics.record import SlotRecord
from tier import few

A, B, C = (
    "k bigint, ts timestamp, a int",
    "k bigint, ts timestamp, b string",
    "k int, ts timestamp",
)
ROWS = 60
OFTEN = {"relocation_threshold": 0.99, "relocation_batches": 1, "moves": "ptlb"}


def skewed(scenario: Scenario, begin: int, end: int) -> None:
    """A file per minute; most rows are of few keys, and rows come up to a minute late."""
    for number in range(begin, end):
        rng = np.random.default_rng(number)
        made: dict[str, list[Any]] = {}
        for name in scenario.streams:
            few, many = rng.integers(0, 6, ROWS), rng.integers(0, 90, ROWS)
            keys = np.where(rng.random(ROWS) < 0.6, few, many).tolist()
            times = [datetime(2024, 1, 1, 1, number - i % 2, i % 60) for i in range(ROWS)]
            rest = {"a": range(ROWS), "b": map(str, range(ROWS))}.get(name)
            columns = (keys, times) if rest is None else (keys, times, rest)
            made[name] = list(zip(*columns, strict=True))
        scenario.add(**made)


def windowed(scenario: Scenario) -> Join:
    return scenario.join().on("k").within("3 minutes", time="ts", lateness="90 seconds")


def steps_of(query: Query) -> dict[int, list[type]]:
    found: dict[int, list[type]] = {}
    for event in query.events:
        if isinstance(event, MoveEvent):
            found.setdefault(event.move, []).append(type(event))
    return found


def rows_in(scenario: Scenario) -> tuple[int, ...]:
    state = Checkpoint(str(scenario.checkpoint / "spillway")).log.latest()
    assert state is not None
    return state.rows_in


@pytest.mark.parametrize("coalesces", few([False, True], 1))
@pytest.mark.parametrize("streams", few([{"a": A, "b": B}, {"a": A, "b": B, "c": C}], 0), ids=len)
def test_parallel_tracks_give_the_batch_join(
    spark: SparkSession, tmp_path: Path, streams: dict[str, str], coalesces: bool
) -> None:
    scenario = Scenario(spark, tmp_path, **streams)
    skewed(scenario, 1, 16)
    joined = windowed(scenario)
    sink = None
    if coalesces:
        out = str(scenario.out)
        sink = lambda rows, _: rows.coalesce(1).write.mode("append").parquet(out)  # noqa: E731 - one line
    query = scenario.run(joined, sink=sink, slots=3, strategy="relocate-only", **OFTEN)
    scenario.check(joined)
    assert rows_in(scenario) == (15 * ROWS,) * len(streams)
    ended = [steps for steps in steps_of(query).values() if GroupsDeleted in steps]
    assert ended
    assert all(steps == list(TRACK_STEPS) for steps in ended)
    moves = [move for entry in query.recentProgress for move in entry["moves"]]
    assert {move["protocol"] for move in moves} == {"ptlb"}
    assert {"computing", "duplicating", "deleting"} <= {move["phase"] for move in moves}
    # At the end of the input nobody waits for old rows.
    assert query._loop.state.moves == ()
    for given_up in happened(query, TrackGivenUp):
        assert given_up.reason == "the input has ended"


@pytest.mark.full
@pytest.mark.parametrize("mode", few(["append", "update"], 0))
def test_parallel_tracks_of_a_windowed_group_by(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    readings = Readings(spark, tmp_path)
    for second in range(12):
        readings.add(80, second, float(second), sensors=30)
    query = readings.grouped().within("3 seconds", time="at", lateness="1 second")
    totals = query.agg(total=sw.sum("value"), rows=sw.count())
    ran = readings.run(totals, mode, slots=3, strategy="relocate-only", **OFTEN)
    assert happened(ran, GroupsDeleted)
    got = spark.read.parquet(str(tmp_path / "out")).collect()
    if mode == "update":
        # One result for each sensor and batch.
        assert len(got) == sum(len({row[0] for row in batch}) for batch in readings.batches)
        return
    rows = [row for batch in readings.batches for row in sorted(batch, key=lambda one: one[1:])]
    assert len(got) == len(rows)
    wanted = sorted(
        sum(
            other[2]
            for other in rows[: at + 1]
            if other[0] == row[0] and 0 <= (row[1] - other[1]).total_seconds() < 3
        )
        for at, row in enumerate(rows)
    )
    assert sorted(row["total"] for row in got) == wanted


@pytest.mark.full
def test_parallel_tracks_of_a_tumbling_dedup(spark: SparkSession, tmp_path: Path) -> None:
    clicks, lateness = Clicks(spark, tmp_path), timedelta(milliseconds=900)
    for second in range(10):
        # Rows come up to a second late, and a few later than that is allowed.
        clicks.add(100, second, 40, float(second), seconds=2.0)
    once = sw.stream(clicks.source.stream()).dedup(
        "id", every="2 seconds", time="at", lateness=lateness
    )
    ran = clicks.run(once, slots=3, strategy="relocate-only", **OFTEN)
    assert happened(ran, GroupsDeleted)
    clicks.check_first_of_each("2 seconds", lateness)


@pytest.mark.full
def test_track_goes_on_after_a_restart_and_not_with_other_slots(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, 1, 6)
    live = {"processingTime": "0 seconds"}
    query = scenario.start(
        windowed(scenario), trigger=live, slots=2, strategy="relocate-only", **OFTEN
    )
    until(query, lambda: bool(happened(query, DuplicationAsked)))
    query.stop()
    begun = Checkpoint(str(scenario.checkpoint / "spillway")).log.latest()
    assert begun is not None
    skewed(scenario, 6, 8)
    query = scenario.start(windowed(scenario), trigger=live, slots=2, strategy="none")
    query.processAllAvailable()
    query.stop()
    skewed(scenario, 8, 12)
    again = scenario.run(windowed(scenario), slots=3, strategy="none")
    scenario.check(windowed(scenario))
    assert again.slots == 3
    gone = happened(query, GroupsDeleted) + happened(again, MoveRolledBack)
    assert {event.move for event in gone} == {move.move for move in begun.moves}
    scenario.run(windowed(scenario), slots=3, strategy="none")
    scenario.check_files(slots=3)


@pytest.mark.full
def test_slots_that_go_are_drained_by_parallel_tracks(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, 1, 4)
    query = scenario.start(
        windowed(scenario), trigger={"processingTime": "0 seconds"}, slots=3, moves="ptlb"
    )
    query.processAllAvailable()
    query.scale(slots=1)
    for number in range(4, 40):
        skewed(scenario, number, number + 1)
        query.processAllAvailable()
        if happened(query, Scaled):
            break
    assert query.slots == 1
    query.stop()
    scenario.check(windowed(scenario))
    assert len(happened(query, GroupsDeleted)) >= 2
    scenario.check_files(slots=1)


def moved_by_auto(spark: SparkSession, tmp_path: Path) -> tuple[Query, list[str]]:
    """A run in which the protocol is chosen, and why that of each move was."""
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, 1, 10)
    how = {name: value for name, value in OFTEN.items() if name != "moves"}
    query = scenario.run(windowed(scenario), slots=3, strategy="auto", **how)
    scenario.check(windowed(scenario))
    asked = [event for event in query.events if type(event) is STEPS[0]]
    assert asked
    return query, [event.reason for event in asked]


def test_auto_chooses_for_each_move_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    _, reasons = moved_by_auto(spark, tmp_path)
    # Slots of one process have one memory: nothing needs to be sent.
    assert all("sending state 0.00 s" in reason for reason in reasons)


@pytest.mark.full
def test_auto_takes_a_track_where_state_is_dear_to_send(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlotRecord, "place", lambda record, _: f"host {record.slot}")
    monkeypatch.setattr("spillway.policies.cluster.protocols.LEAST_SENT_S", 1e6)
    query, reasons = moved_by_auto(spark, tmp_path)
    assert all(" s < sending state 10000" in reason for reason in reasons)
    assert happened(query, DuplicationAsked)


def refused(stream: Any, why: str, hint: str = "") -> None:
    for strategy in (None, "auto"):
        with pytest.raises(SettingsError) as error:
            stream.writeStream.format("noop").adapt(moves="ptlb", strategy=strategy).start()
        assert 'moves="ptlb" does not work with the' in str(error.value)
        assert why in str(error.value)
        assert (error.value.hint or "").endswith(hint)


def test_parallel_tracks_are_refused_where_they_would_never_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, 1, 2)
    refused(scenario.join().on("k"), "rows of a, b never expire: there is no window")
    stream = sw.stream(scenario.streams["a"].stream(), "a")
    refused(stream.group_by("k").agg(n=sw.count()), "a result covers all rows that ever came")
    refused(stream.group_by("k").last(3).agg(n=sw.count()), "the last rows of a key stay until")
    refused(stream.dedup("k"), "without a window, keys never expire")
    within = stream.dedup("k", within="1 minute", time="ts")
    hint = (
        "; or use every= instead of within=: it keeps one row of each key in each time interval, "
        "whatever came before the interval"
    )
    refused(within, "each decision about a row depends on the rows that passed before it", hint)
