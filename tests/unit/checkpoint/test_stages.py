"""Checkpoints of several stages: what a start takes as one query, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.stages import AskedStage, open_stages
from spillway.coordinator.batch.committed import initial
from spillway.errors import QueryError
from spillway.plan.groupby import AggregatePlan, GroupByPlan
from spillway.plan.join import JoinPlan, StreamPlan
from spillway.routing.routing import Routing

GROUPS = 4
STREAM = StreamPlan("a", (("k", "bigint"),), ("k",))
SOURCES = {name: [["parquet", f"/in/{name}", True]] for name in ("a", "b")}
JOIN = AskedStage(
    JoinPlan((STREAM, replace(STREAM, name="b")), ("bigint",)).fingerprint(), GROUPS, SOURCES
)
GROUPED = AskedStage(
    GroupByPlan(STREAM, ("bigint",), (AggregatePlan("n", "count", "count(*)"),)).fingerprint(),
    GROUPS,
)
WHOLE = "restore the whole checkpoint directory from one backup, or start with a new one"


@pytest.fixture
def places(tmp_path: Path) -> list[Checkpoint]:
    return [Checkpoint(str(tmp_path / name)) for name in ("spillway", "spillway-2")]


def commit(checkpoint: Checkpoint, batch: int, rounds: int = 0) -> None:
    state = initial(Routing.even(GROUPS, 1), 2)
    checkpoint.log.take_over()
    checkpoint.log.append(replace(state, batch=batch, rounds=rounds))


def refusal(places: list[Checkpoint], asked: list[AskedStage]) -> QueryError:
    with pytest.raises(QueryError) as refused:
        open_stages(places, asked, "0")
    assert refused.value.hint
    return refused.value


def test_start_after_a_start_finds_the_same_ids(places: list[Checkpoint]) -> None:
    first, second = (open_stages(places, [JOIN, GROUPED], "0") for _ in range(2))
    assert [one["query_id"] for one in first] == [one["query_id"] for one in second]
    assert first[0]["then"] == [GROUPED.query]


def test_stage_added_to_a_query_is_refused(places: list[Checkpoint]) -> None:
    open_stages(places[:1], [JOIN], "0")
    said = "its stages are (n-way join), this query's are (n-way join, group-by)"
    assert said in refusal(places, [JOIN, GROUPED]).message
    assert places[1].metadata() is None


def test_stage_removed_from_a_query_is_refused(places: list[Checkpoint]) -> None:
    open_stages(places, [JOIN, GROUPED], "0")
    said = "its stages are (n-way join, group-by), this query's are (n-way join)"
    assert said in refusal(places[:1], [JOIN]).message


def test_other_sources_are_refused(places: list[Checkpoint]) -> None:
    open_stages(places, [JOIN, GROUPED], "0")
    swapped = replace(JOIN, sources={"a": SOURCES["b"], "b": SOURCES["a"]})
    said = "stream a was read from parquet /in/a, now from parquet /in/b"
    assert said in refusal(places, [swapped, GROUPED]).message


@pytest.mark.parametrize(
    ("rounds", "later", "said"),
    [
        (0, 0, "it is behind: it has taken 1 steps, the stage before it 3"),
        (0, None, "it is behind: it has taken 0 steps, the stage before it 3"),
        (2, 2, "it is behind: it has taken 3 steps, the stage before it 5"),
        (0, 4, "it is ahead: it has taken 5 steps, the stage before it 3"),
    ],
)
def test_stage_with_other_steps_is_refused(
    places: list[Checkpoint], rounds: int, later: int | None, said: str
) -> None:
    open_stages(places, [JOIN, GROUPED], "0")
    commit(places[0], 2, rounds)
    if later is not None:
        commit(places[1], later)
    error = refusal(places, [JOIN, GROUPED])
    assert error.message == (
        f"the checkpoint at {places[1].location} does not fit the stage before it"
    )
    assert (error.detail, error.hint) == (said, WHOLE)


@pytest.mark.parametrize("later", [4, 5])
def test_stage_with_the_same_steps_or_one_more_goes_on(
    places: list[Checkpoint], later: int
) -> None:
    open_stages(places, [JOIN, GROUPED], "0")
    commit(places[0], 2, rounds=2)
    commit(places[1], later)
    open_stages(places, [JOIN, GROUPED], "0")


def test_start_that_died_before_it_made_all_stages_goes_on(places: list[Checkpoint]) -> None:
    open_stages(places, [JOIN, GROUPED], "0")
    (Path(places[1].location) / "metadata.json").unlink()
    open_stages(places, [JOIN, GROUPED], "0")


def test_later_stage_without_its_first_is_refused(places: list[Checkpoint]) -> None:
    open_stages(places, [JOIN, GROUPED], "0")
    (Path(places[0].location) / "metadata.json").unlink()
    error = refusal(places, [JOIN, GROUPED])
    assert error.message == (
        f"the checkpoint at {places[1].location} belongs to a query whose first stage is missing"
    )
    assert error.detail == f"{places[0].location} has no metadata.json"
