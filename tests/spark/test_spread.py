"""How joins on predicates are spread over slots: distributions, rings, and what is refused of them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matched import SCHEMA, expected, matched, rows, scenario_of
from pyspark.sql import SparkSession
from scenario import Scenario

import spillway as sw
from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator import coordinator
from spillway.metrics.counts import Judged
from spillway.metrics.events import Scaled
from spillway.operators.input import MARKER, null_number
from spillway.operators.predicates.probing import Measured
from spillway.operators.predicates.trial import tried
from spillway.policies.ring.model import HopCosts, ProbeStep, Source
from spillway.spark.api.start import distribution
from spillway.spark.runtime.exchange.lanes import micros
from spillway.spark.runtime.stage import Stage
from spillway.testing import assert_same_rows
from tier import LONGEST_S, few


@pytest.mark.parametrize(
    ("names", "how"),
    few(
        [
            ("abc", {"distribute": "atr"}),
            ("abc", {"distribute": "ctr", "copies": 2}),
            ("ab", {"distribute": "atr", "master": "b", "segment": "90 seconds"}),
            ("abcd", {"distribute": "ctr", "copies": 4}),
        ],
        *(1, 2),
    ),
)
def test_other_distributions_give_the_same(
    spark: SparkSession, tmp_path: Path, names: str, how: dict[str, Any]
) -> None:
    scenario = scenario_of(spark, tmp_path, names, count=20)
    joined = matched(scenario, names)
    told = scenario.run(joined, slots=3, **how).describe()
    assert_same_rows(scenario.output(joined), expected(scenario, names))
    assert "rows visit all slots" not in told
    assert "best slot count of each stream" not in told
    if "copies" in how:
        assert f"none: rows visit the slots of one of {how['copies']} copies of each slice" in told


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "every row visits all slots, so a slot cannot buffer rows"),
        ({"distribute": "ctr"}, "every row visits enough slots to see all slices, so a slot"),
        (
            {"distribute": "atr"},
            "every row is copied to several segments, and a slot cannot buffer copies",
        ),
        ({"distribute": "auto"}, "every row visits, or is copied to, several slots"),
    ],
)
@pytest.mark.parametrize("waiting", [{"skew_buffer": "1MB"}, {"spill_mode": "rotation"}])
def test_rows_that_wait_are_refused_by_what_the_distribution_does(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any], waiting: dict[str, Any], said: str
) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    [(name, value)] = waiting.items()
    with pytest.raises(sw.SettingsError) as refused:
        scenario.start(matched(scenario, "ab"), memory="1MB", **how, **waiting)
    assert refused.value.message == (
        f"{name}={value!r} is not possible for a join without equal keys"
    )
    assert str(refused.value.detail).startswith(said)
    assert refused.value.hint == f"leave {name} out"


@pytest.mark.full
def test_rows_of_a_copied_state_go_where_they_are_stored_and_where_they_look(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[int, set[int]]] = []
    times: Counter[int] = Counter()
    exchanged = Stage._exchanged

    def counting(self: Stage, plan: Any, rows: Any, slot: Any) -> Any:
        if "_stream" in rows.columns:
            found: dict[int, set[int]] = {}
            streams = rows.where(f"_stream != {MARKER}")
            for row in streams.groupBy("_stream", "_slot").count().collect():
                found.setdefault(row["_stream"], set()).add(row["_slot"])
                times[row["_stream"]] += row["count"]
            sent.append(found)
        return exchanged(self, plan, rows, slot)

    monkeypatch.setattr(Stage, "_exchanged", counting)
    scenario = scenario_of(spark, tmp_path, "abc", count=20)
    joined = matched(scenario, "abc")
    query = scenario.run(joined, slots=6, groups=48, distribute="ctr", copies=2)
    given = [stream.batch() for stream in scenario.streams.values()]
    # Three of six slots have a copy of every slice, and one of the others stores the row.
    timed = {at: 4 * rows.where("ts IS NOT NULL").count() for at, rows in enumerate(given)}
    # A row without a time goes to one slot, which counts it.
    without = {null_number(at): rows.where("ts IS NULL").count() for at, rows in enumerate(given)}
    assert dict(times) == timed | without
    first = sent[0]
    assert set().union(*first.values()) == set(range(6))
    assert_same_rows(scenario.output(joined), expected(scenario, "abc"))
    assert all(slot["rowsOut"] for slot in query.recentProgress[-1]["slots"])


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_microseconds_of_times_are_those_that_are_stored(spark: SparkSession, zone: str) -> None:
    # In New York no clock shows half past two on that day.
    said = ("2024-03-10 02:30:00.000001", "1969-12-31 23:59:59.999999", "1883-11-18 12:03:57.5")
    texts = ", ".join(f"('{one}')" for one in said)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for kind in ("timestamp_ntz", "timestamp"):
            times = spark.sql(f"SELECT cast(t AS {kind}) AS t FROM VALUES {texts} AS v(t)")
            stored = [one.value for one in times.toArrow().column("t")]
            found = times.selectExpr(micros("t", times.schema["t"].dataType)).toArrow()
            assert found.column(0).to_pylist() == stored
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def untimed(*given: Any) -> Measured:
    """What is measured of predicates, but for time, so that a busy machine changes no choice."""
    counts = tried(*given).counts.items()
    return Measured({key: of for key, of in counts if isinstance(key, Judged)})


def test_distribution_is_chosen_once_and_kept(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "spillway")
    monkeypatch.setattr(distribution, "tried", untimed)
    scenario = Scenario(spark, tmp_path, **dict.fromkeys("abc", SCHEMA))
    for batch in range(2):
        scenario.add(**{n: rows(100 * at + batch, 80 - 20 * at) for at, n in enumerate("bca")})
    joined = matched(scenario, "abc")
    endless = {"processingTime": "0 seconds"}
    query = scenario.start(joined, trigger=endless, distribute="auto")
    query.processAllAvailable()
    query.stop()
    assert "distribute atr: psp " in (told := query.describe())
    assert "rows, with segments of b" in told
    assert not list(scenario.checkpoint.glob("sampling-*"))
    scenario.add(**{n: rows(100 * at + 2) for at, n in enumerate("bca")})
    monkeypatch.setattr(distribution, "first_rows", None)
    query = scenario.run(joined, distribute="auto")
    assert "distribute atr: the checkpoint's first start chose it" in query.describe()
    assert len([one for one in caplog.messages if "distribute='auto': atr: psp" in one]) == 1
    assert_same_rows(scenario.output(joined), expected(scenario, "abc"))
    with pytest.raises(sw.QueryError, match="belongs to another query"):
        scenario.start(joined, distribute="psp")


def test_nothing_is_chosen_for_a_stream_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    scenario.add(a=rows(0))
    joined = matched(scenario, "ab")
    with pytest.warns(UserWarning, match="psp: stream b had no row at the first start"):
        query = scenario.run(joined, distribute="auto")
    assert "distribute psp: stream b had no row" in query.describe()
    scenario.add(a=rows(1), b=rows(0))
    scenario.run(joined, distribute="auto")
    assert_same_rows(scenario.output(joined), expected(scenario, "ab"))


@pytest.mark.full
@pytest.mark.parametrize("memory", few([2000, 20_000], 0))
def test_slices_on_disk_are_still_found(spark: SparkSession, tmp_path: Path, memory: int) -> None:
    scenario = scenario_of(spark, tmp_path, "abc")
    joined = matched(scenario, "abc")
    query = scenario.run(joined, memory=memory)
    if memory < 10_000:
        assert any(one["diskBytes"] for one in query.recentProgress)
    assert_same_rows(scenario.output(joined), expected(scenario, "abc"))


@pytest.mark.parametrize("how", few([{}, {"distribute": "ctr", "copies": 2}], 1))
def test_restart_with_other_slots(spark: SparkSession, tmp_path: Path, how: dict[str, Any]) -> None:
    scenario = scenario_of(spark, tmp_path, "abc", batches=2)
    scenario.run(matched(scenario, "abc"), slots=4, **how)
    for batch in (2, 3):
        scenario.add(**{n: rows(100 * at + batch) for at, n in enumerate("abc")})
    joined = matched(scenario, "abc")
    scenario.run(joined, slots=3, **how)
    assert_same_rows(scenario.output(joined), expected(scenario, "abc"))
    if how:
        state = Checkpoint(str(scenario.checkpoint / "spillway")).log.latest()
        assert state is not None
        planes = state.routing.table[:8], state.routing.table[8:]
        assert all(one != other for one, other in zip(*planes, strict=True))


@pytest.mark.full
@pytest.mark.parametrize("how", [{}, {"distribute": "ctr", "copies": 2}])
def test_slots_are_added_and_taken_away_while_it_runs(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any]
) -> None:
    scenario = scenario_of(spark, tmp_path, "abc", batches=2)
    joined = matched(scenario, "abc")
    query = scenario.start(joined, trigger={"processingTime": "0 seconds"}, slots=2, **how)
    try:
        for batch, slots in ((2, 3), (3, 2)):
            query.processAllAvailable()
            query.scale(slots=slots)
            ends = time.monotonic() + LONGEST_S
            while query.slots != slots and time.monotonic() < ends:
                time.sleep(0.2)
            scenario.add(**{n: rows(100 * at + batch) for at, n in enumerate("abc")})
            query.processAllAvailable()
            assert query.slots == slots
    finally:
        query.stop()
    assert_same_rows(scenario.output(joined), expected(scenario, "abc"))


@pytest.mark.full
def test_slots_come_and_go_without_a_move(spark: SparkSession, tmp_path: Path) -> None:
    scenario = scenario_of(spark, tmp_path, "abc", batches=1)
    joined = matched(scenario, "abc")
    how = {"trigger": {"processingTime": "0 seconds"}, "adjustment": "passive"}
    query = scenario.start(joined, slots=1, **how)
    held: dict[int, list[int]] = {}
    try:
        for batch in range(1, 10):
            query.processAllAvailable()
            if batch in (2, 5):
                query.scale(slots=3 if batch == 2 else 1)
            scenario.add(**{n: rows(100 * at + batch) for at, n in enumerate("abc")})
            query.processAllAvailable()
            last = next(one for one in reversed(query.recentProgress) if one["batchId"] == batch)
            held[batch] = [sum(slot["stateRows"].values()) for slot in last["slots"]]
        told = query.describe()
    finally:
        query.stop()
    assert [len(slots) for slots in held.values()][:4] == [1, 3, 3, 3]
    # New slots have rows after a batch; those that are to go keep theirs until they have expired.
    assert min(held[4]) > 0
    assert min(held[5]) > 0
    assert sum(held[9][1:]) == 0
    assert query.slots == 1
    assert "ring fixed, adjustment passive: 1 slots in use" in told
    kinds = [type(event).__name__ for event in query.events]
    assert kinds.count("Scaled") == 2
    assert "MoveAsked" not in kinds
    assert_same_rows(scenario.output(joined), expected(scenario, "abc"))


def model_of(pair_s: float) -> Any:
    """What is measured of a join whose predicate takes so long."""
    step = ProbeStep("b", 100.0, 0.01, pair_s)
    sources = (Source("a", 1.0, (step,)), Source("b", 1.0, (replace(step, stream="a"),)))
    return lambda *_: (sources, HopCosts(send_s=1e-6, hop_s=0.01))


def test_ring_is_as_long_as_the_predicate_needs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = scenario_of(spark, tmp_path, "ab", batches=8)
    joined = matched(scenario, "ab")
    how: dict[str, Any] = {"slots": 3, "ring": "auto", "adjustment": "passive"}
    monkeypatch.setattr(coordinator, "model_now", model_of(1e-9))
    query = scenario.run(joined, **how)
    assert query.slots == 1
    [scaled] = [event for event in query.events if isinstance(event, Scaled)]
    assert "3 slots are 0% busy, the best length is 1" in scaled.reason
    assert "1 of 3 slots in use, no change wanted" in query.describe()
    for batch in range(8, 12):
        scenario.add(**{n: rows(100 * at + batch) for at, n in enumerate("ab")})
    monkeypatch.setattr(coordinator, "model_now", model_of(3e-3))
    query = scenario.run(matched(scenario, "ab"), **how)
    used = [len(one["slots"]) for one in query.recentProgress]
    assert used[:4] == [1, 1, 1, 3]
    assert_same_rows(scenario.output(joined), expected(scenario, "ab"))


@pytest.mark.parametrize("how", [{"adjustment": "passive"}, {"ring": "auto"}])
@pytest.mark.parametrize("keyed", [True, False])
def test_slots_that_come_and_go_without_moves_are_for_slices_alone(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any], keyed: bool
) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    joined = matched(scenario, "ab")
    [(name, value)] = how.items()
    more = {} if keyed else {"distribute": "ctr"}
    with pytest.raises(sw.SettingsError) as refused:
        scenario.start(joined.on("name") if keyed else joined, **how, **more)
    operator = "join with conditions" if keyed else 'time-sliced join with distribute="ctr"'
    assert str(refused.value) == (
        f"{name}={value!r} does not work with the {operator}\n"
        "  detail: the slot count can change without moves only if one slot stores each row and the "
        "row visits all slots; otherwise state must be where the routing says\n"
        f"  hint: leave {name} out; it is only for .within(...).match(...) without .on(...), "
        'with distribute="psp"'
    )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            {"distribute": "ctr"},
            "distribute='ctr' does not work with the join with conditions\n"
            "  hint: leave distribute out; it is only for .within(...).match(...) without .on(...)",
        ),
        (
            {"copies": 3},
            "copies=3 does not work with the join with conditions\n"
            "  hint: leave copies out; it is only for .within(...).match(...) without .on(...), "
            'with distribute="ctr"',
        ),
    ],
)
def test_what_is_for_joins_without_keys_is_refused_beside_keys(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any], said: str
) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    joined = matched(scenario, "ab").on("name")
    for settings in (
        lambda: scenario.start(joined, **how),
        lambda: _started(scenario, joined, how),
    ):
        with pytest.raises(sw.SettingsError) as refused:
            settings()
        assert str(refused.value) == said


def _started(scenario: Scenario, joined: Any, how: dict[str, Any]) -> Any:
    """The same, where the settings are those of the join alone."""
    counted = joined.adapt(**how).group_by("a.name").agg(pairs=sw.count())
    return scenario.start(counted)


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ({}, {"distribute": "ctr"}, 'it was distribute="psp", now "ctr"'),
        (
            {"distribute": "ctr"},
            {"distribute": "ctr", "copies": 4},
            "it stored every row 2 times, now 4 times",
        ),
        (
            {"distribute": "atr", "segment": "10 minutes"},
            {"distribute": "atr", "segment": "3 minutes"},
            "it had segments of 600 s of a, now segments of 180 s of a",
        ),
        (
            {"distribute": "atr", "segment": "10 minutes"},
            {"distribute": "atr", "segment": "10 minutes", "master": "b"},
            "now segments of 600 s of b",
        ),
        ({"distribute": "ctr"}, {"distribute": "auto", "ring": "auto"}, "ring='auto'"),
    ],
)
def test_checkpoint_of_another_distribution_is_refused(
    spark: SparkSession,
    tmp_path: Path,
    first: dict[str, Any],
    then: dict[str, Any],
    said: str,
) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    scenario.run(matched(scenario, "ab"), **first)
    with pytest.raises((sw.QueryError, sw.SettingsError)) as refused:
        scenario.start(matched(scenario, "ab"), **then)
    assert said in str(refused.value)


def test_segments_count_every_row_once_and_take_any_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    named = f"{SCHEMA}, _segment long, _REPEATED string"
    scenario = Scenario(spark, tmp_path, a=named, b=named)
    scenario.add(**{n: [(*row, 7, "x") for row in rows(at)] for at, n in enumerate("ab")})
    joined = matched(scenario, "ab")
    query = scenario.run(joined, distribute="atr", segment="1 minute")
    count = {n: s.batch().where("ts IS NOT NULL").count() for n, s in scenario.streams.items()}
    [entry] = query.recentProgress
    assert entry["rowsIn"] == count
    assert entry["stateRows"] > sum(count.values())
    assert_same_rows(scenario.output(joined), expected(scenario, "ab"))


def test_master_that_is_no_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    with pytest.raises(
        sw.SettingsError, match="master='z' is not one of the joined streams"
    ) as caught:
        scenario.start(matched(scenario, "ab"), distribute="atr", master="z")
    assert caught.value.hint == "the streams are a, b"


def test_segments_that_are_too_short_for_the_windows_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    # Windows of two and four minutes.
    with pytest.raises(sw.SettingsError) as caught:
        scenario.start(matched(scenario, "ab"), distribute="atr", segment="1 second")
    assert str(caught.value) == (
        "segments of 1 s would copy a row of b 361 times\n"
        "  detail: the join copies a row to all segments within the windows of b and a; the limit is "
        "64 copies\n"
        '  hint: use segment="6 seconds" or more, or leave segment out: the default is 3 times the '
        "longest window"
    )
    scenario.start(matched(scenario, "ab"), distribute="atr", segment="6 seconds").stop()
