"""Joins in any shape, which slots choose and change for themselves: the output is the batch join."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from scenario import Scenario

from spillway import Join, Query
from spillway.cli.main import app
from spillway.coordinator.took import Took
from spillway.errors import PlanError
from spillway.metrics.events import GroupsReactivated, Reshaped, Scaled, Spilled
from spillway.plan.shape import flat, parse
from spillway.policies.shape.shaping import Shaping
from spillway.spark.runtime.moves.mover import Mover
from spillway.testing import Fault
from tier import LONGEST_S, few

SCHEMAS = {
    "a": "k bigint, ts timestamp, a int",
    "b": "ts timestamp, b string, k int",
    "c": "k bigint, c double, ts timestamp",
}
ROWS = 60
#: Verbs of `plan`, by what they are called here.
CHOSEN: dict[str, dict[str, Any]] = {
    "tree": {"kind": "tree"},
    "auto": {"kind": "auto"},
    "fixed": {"shape": "((a c) b)"},
}
HOW: dict[str, dict[str, Any]] = {
    "spill": {"memory": 7000},
    "moving": {
        "slots": 3,
        "strategy": "relocate-only",
        "relocation_threshold": 0.99,
        "relocation_batches": 1,
    },
}


def feed(scenario: Scenario, files: int, *, far: str, seed: int = 5) -> None:
    """Files in which the two streams that are named share few keys, and each many with the third.

    So the rows of the third find partners in each of them, and few in both.
    """
    rng = np.random.default_rng(seed)
    begin = len(scenario.streams["a"].files)
    for number in range(begin, begin + files):
        times = [datetime(2024, 1, 1, 0, number, i % 60) for i in range(ROWS)]
        given = {
            name: list(enumerate(zip(_keys(rng, name, far), times, strict=True)))
            for name in SCHEMAS
        }
        scenario.add(
            a=[(k, ts, i) for i, (k, ts) in given["a"]],
            b=[(ts, f"b{i}", k) for i, (k, ts) in given["b"]],
            c=[(k, i / 2, ts) for i, (k, ts) in given["c"]],
        )


def _keys(rng: np.random.Generator, name: str, far: str) -> list[int]:
    everybody = rng.integers(0, 12, ROWS)
    # What each of the two shares with the third alone.
    places = {far[0]: (100, 106), far[1]: (106, 112)}
    alone = rng.integers(*places.get(name, (100, 112)), ROWS)
    return np.where(rng.random(ROWS) < 0.1, everybody, alone).tolist()


def joined(scenario: Scenario, window: str | None = "4 minutes", **plan: Any) -> Join:
    found = scenario.join().on("k")
    if window:
        found = found.within(window, time="ts", lateness="1 minute")
    return found.plan(**plan) if plan else found


def happened(query: Query, kind: type) -> list[Any]:
    return [event for event in query.events if isinstance(event, kind)]


def until(query: Query, true: Callable[[], bool], seconds: float = LONGEST_S) -> None:
    """Waits for something that the query does by itself."""
    ends = time.monotonic() + seconds
    while not true():
        assert query.exception() is None
        assert time.monotonic() < ends, "it took too long"
        time.sleep(0.05)


@pytest.mark.parametrize("how", few(HOW, 0))
@pytest.mark.parametrize("window", few([None, "4 minutes"], 1))
@pytest.mark.parametrize("plan", few(CHOSEN, 0))
def test_every_plan_gives_the_batch_join(
    spark: SparkSession, tmp_path: Path, plan: str, window: str | None, how: str
) -> None:
    scenario = Scenario(spark, tmp_path, **SCHEMAS)
    feed(scenario, 4, far="ac")
    feed(scenario, 3, far="bc", seed=6)
    query = scenario.run(joined(scenario, window, **CHOSEN[plan]), **HOW[how])
    scenario.check(joined(scenario, window))
    scenario.check_files(slots=HOW[how].get("slots", 2))
    kinds = {type(event) for event in query.events}
    assert (Spilled in kinds) == (how == "spill")
    assert (GroupsReactivated in kinds) == (how == "moving")
    shapes = {slot["shape"] for entry in query.recentProgress for slot in entry["slots"]}
    if plan == "fixed":
        assert shapes == {"((a c) b)"}
        assert Reshaped not in kinds
    if plan == "tree":
        assert "(a b c)" not in shapes


def test_another_selectivity_makes_another_shape(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, **SCHEMAS)
    feed(scenario, 8, far="ac")
    feed(scenario, 10, far="bc", seed=6)
    query = scenario.run(joined(scenario, kind="auto"))
    scenario.check(joined(scenario))
    changes = happened(query, Reshaped)
    for slot in (0, 1):
        mine = [one for one in changes if one.slot == slot]
        assert mine[0].before == "(a b c)"
        assert all(one.shape == two.before for one, two in pairwise(mine))
        assert {one.shape for one in mine if one.batch >= 8}, "nothing changed with the streams"
        assert "margin 0.2" in mine[0].reason
    told = [event for entry in query.recentProgress for event in entry["events"]]
    assert [one["shape"] for one in told if one["event"] == "reshaped"] == [
        one.shape for one in changes
    ]


@pytest.fixture(autouse=True)
def _steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are taken to last equally long, so that shapes do not follow how busy the machine is."""

    monkeypatch.setattr(Took, "came_s", property(lambda _: 0.5))


@pytest.mark.full
@pytest.mark.usefixtures("apart")
def test_state_is_fetched_between_slots_of_different_shapes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = ("((a b) c)", "(a (b c))", "((a c) b)")
    monkeypatch.setattr(
        "spillway.coordinator.coordinator.shapes_of", lambda *_: tuple(map(parse, shapes))
    )
    monkeypatch.setattr(Shaping, "decided", lambda _, slot, known, room: (None, known))
    scenario = Scenario(spark, tmp_path, **SCHEMAS)
    feed(scenario, 8, far="ab")
    feed(scenario, 6, far="bc", seed=8)
    query = scenario.run(joined(scenario, kind="auto"), **HOW["moving"])
    scenario.check(joined(scenario))
    seen = {tuple(slot["shape"] for slot in entry["slots"]) for entry in query.recentProgress}
    assert seen == {shapes}
    assert happened(query, GroupsReactivated)


@pytest.mark.full
@pytest.mark.usefixtures("apart")
def test_a_state_that_the_receiver_does_not_have_is_not_fetched(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, set[int]]] = []
    carried = Mover._carry

    def noted(self, move, batch, load, *rest):
        # The name of a run has its batch, slot and stream.
        sent.append((move.receiver, {int(one.run.name.split("-")[2]) for one in load}))
        return carried(self, move, batch, load, *rest)

    def divided(state, _shaping):
        """A tree in the first slot, and the n-way join in the others."""
        others = range(1, state.routing.slots)
        return (parse("((a b) c)"), *(flat("abc") for _ in others))

    monkeypatch.setattr(Mover, "_carry", noted)
    monkeypatch.setattr("spillway.coordinator.coordinator.shapes_of", divided)
    scenario = Scenario(spark, tmp_path, **SCHEMAS)
    feed(scenario, 8, far="ab")
    query = scenario.run(joined(scenario, kind="auto"), **HOW["moving"])
    scenario.check(joined(scenario))
    assert happened(query, GroupsReactivated)
    to_others = [streams for receiver, streams in sent if receiver > 0]
    assert to_others
    assert all(max(streams) < 3 for streams in to_others)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are taken to have memory tiers of their own, so that the receiver fetches state."""
    monkeypatch.setattr("spillway.coordinator.coordinator.in_one_place", lambda *_: False)


@pytest.mark.full
def test_a_checkpoint_goes_on_under_another_plan(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, **SCHEMAS)
    plans: list[dict[str, Any]] = [
        {"kind": "nway"}, {"shape": "((a b) c)"}, {"kind": "auto"}, {"shape": "(a (b c))"},
        {"kind": "nway"},
    ]  # fmt: skip
    seen = []
    for number, plan in enumerate(plans):
        feed(scenario, 3, far="ac", seed=number)
        query = scenario.run(joined(scenario, None, **plan), slots=1 + number % 3)
        seen.append({s.get("shape") for s in query.lastProgress["slots"]})
    scenario.check(joined(scenario, None))
    assert seen[0] == seen[4] == {None}
    assert seen[1] == {"((a b) c)"}
    assert seen[3] == {"(a (b c))"}
    assert "made" not in query.describe()


@pytest.mark.full
def test_attempts_that_die_while_shapes_change_leave_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, **SCHEMAS)
    feed(scenario, 3, far="ac")
    scenario.run(joined(scenario, shape="((b c) a)"))
    feed(scenario, 3, far="ac", seed=9)
    faults = tuple(
        Fault(point, batch, slot, str(tmp_path / f"{point}-{batch}-{slot}"))
        for point in ("after-runs", "after-manifest")
        for batch in (3, 4, 5)
        for slot in (0, 1)
    )
    for _ in range(2 * len(faults)):
        query = scenario.start(joined(scenario, shape="((a b) c)"), faults=faults)
        try:
            query.awaitTermination(60)
        except Exception:
            continue
        break
    scenario.check(joined(scenario))
    scenario.check_files(slots=2)


@pytest.mark.full
def test_slots_come_and_go_under_any_plan(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, **SCHEMAS)
    feed(scenario, 3, far="ac")
    trigger = {"processingTime": "0 seconds"}
    query = scenario.start(joined(scenario, None, kind="auto"), trigger=trigger)
    query.processAllAvailable()
    for times, slots in enumerate((4, 1), start=1):
        query.scale(slots=slots)
        feed(scenario, 6, far="bc", seed=slots)
        until(query, lambda times=times: len(happened(query, Scaled)) == times)
    query.processAllAvailable()
    query.stop()
    scenario.check(joined(scenario, None))
    scenario.check_files(slots=1)


@pytest.mark.full
def test_a_state_that_is_missing_is_made_while_the_stream_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, **SCHEMAS)
    feed(scenario, 6, far="bc")
    scenario.run(joined(scenario, None))
    feed(scenario, 3, far="bc", seed=9)
    query = scenario.run(joined(scenario, None, shape="((a b) c)"))
    scenario.check(joined(scenario, None))
    last = query.lastProgress["slots"]
    assert all(slot["lacking"] == [] for slot in last)
    assert all(slot["stateRows"]["a+b"] > 0 for slot in last)


def test_explain_and_inspect_tell_shapes_and_costs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario(spark, tmp_path, **SCHEMAS)
    feed(scenario, 4, far="ac")
    query = scenario.run(joined(scenario, shape="((a c) b)"))
    text = query.describe()
    assert 'plan   shape "((a c) b)" in every slot' in text
    assert "slot 0 ((a c) b), cost " in text
    assert "a+c " in text
    assert "selectivity a~b " in text
    assert "((b c) a)" in text or "(a (b c))" in text
    with pytest.raises(SystemExit):
        app(["inspect", str(scenario.checkpoint), "--json"])
    found = json.loads(capsys.readouterr().out)["slots"][0]["plan"]
    assert found["shape"] == "((a c) b)"
    assert found["costs"]["((a c) b)"]["work"] > 0
    assert set(found["costs"]) == {"((a c) b)", "((a b) c)", "(a (b c))", "(a b c)"}
    assert found["made"].keys() == {"a+c"}
    assert found["gaps"] == {"a+c": 0.0}
    assert [one["name"] for one in found["streams"]] == ["a", "b", "c"]
    assert {tuple(one["streams"]) for one in found["selectivities"]} == {
        ("a", "b"), ("a", "c"), ("b", "c"),
    }  # fmt: skip


@pytest.mark.full
def test_rates_are_per_second_of_the_stream_whatever_batches_take(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    scenario = Scenario(spark, tmp_path, **SCHEMAS)
    feed(scenario, 7, far="ac")
    query = scenario.start(joined(scenario, kind="auto"), trigger={"processingTime": "3 seconds"})
    until(query, lambda: len(query.recentProgress) >= 7, seconds=180)
    query.stop()
    began = [datetime.fromisoformat(entry["timestamp"]) for entry in query.recentProgress]
    came = [ROWS / (now - before).total_seconds() for before, now in pairwise(began)]
    expected = reduce(lambda older, newer: (older + newer) / 2, came)
    for at in range(3):
        rates = [known.rates.streams[at].rate for known in query._loop.state.shapes if known.rates]
        assert sum(rates) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"kind": "bushy"}, "'bushy' is not a valid plan"),
        (
            {"shape": "((a b) d)"},
            r"plan\(shape='\(\(a b\) d\)'\) names d, which is not one of the joined streams",
        ),
        ({"shape": "(a b)"}, r"plan\(shape='\(a b\)'\) leaves out the stream c"),
        ({"shape": "((a b) (c a))"}, "stream a is in a shape twice"),
        ({"shape": "((a b) c"}, "is not a valid join shape"),
        ({"kind": "auto", "shape": "((a b) c)"}, r'plan\("auto"\) does not take a shape'),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    spark: SparkSession, tmp_path: Path, plan: dict[str, Any], message: str
) -> None:
    scenario = Scenario(spark, tmp_path, **SCHEMAS)
    with pytest.raises(PlanError, match=message):
        scenario.join().plan(**plan)
