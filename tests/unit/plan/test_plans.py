"""Plans as a checkpoint remembers them: what may not change, and how it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.errors import QueryError
from spillway.plan.dedup import DedupPlan
from spillway.plan.difference import refuse_other_query, refuse_other_sources
from spillway.plan.groupby import AggregatePlan, GroupByPlan
from spillway.plan.join import JoinPlan, Plan, StreamPlan, WindowPlan
from spillway.plan.sliced import MatchedPlan, SlicedPlan

STREAM = StreamPlan("trades", (("symbol", "string"), ("price", "double")), ("symbol",))
JOIN = JoinPlan((STREAM, replace(STREAM, name="quotes")), ("string",))
MEAN = AggregatePlan("mean", "avg", "avg(price)")
GROUPED = GroupByPlan(STREAM, ("string",), (MEAN,))
ONCE = DedupPlan(STREAM, ("string",))
SLICED = SlicedPlan(JOIN.streams, ("0:alike", "1:a.x < b.x"))
MATCHED = MatchedPlan(JOIN.streams, ("string",), ("0:alike",))


@pytest.mark.parametrize("plan", [JOIN, GROUPED, ONCE, SLICED, MATCHED])
def test_same_query_may_go_on(plan: Plan) -> None:
    refuse_other_query("ck", [plan.fingerprint()], [plan.fingerprint()])


def test_checkpoint_that_does_not_count_copies_has_one() -> None:
    written = SLICED.fingerprint()
    del written["copies"]
    refuse_other_query("ck", [written], [SLICED.fingerprint()])


def test_what_a_plan_says_of_itself_is_compared_whatever_it_is() -> None:
    with pytest.raises(QueryError, match="its 'colour' was None, now red"):
        refuse_other_query("ck", [JOIN.fingerprint()], [{**JOIN.fingerprint(), "colour": "red"}])


def test_checkpoint_of_a_join_that_does_not_name_its_operator_may_go_on() -> None:
    written = JOIN.fingerprint()
    written.pop("operator", None)
    refuse_other_query("ck", [written], [JOIN.fingerprint()])


@pytest.mark.parametrize(
    ("written", "asked", "said"),
    [
        (JOIN, GROUPED, "its operator is n-way join, this query's is group-by"),
        (GROUPED, ONCE, "its operator is group-by, this query's is dedup"),
        (
            GROUPED,
            replace(GROUPED, aggregates=(replace(MEAN, text="avg(price * 2)"),)),
            "its aggregates were (mean=avg(price)), now (mean=avg(price * 2))",
        ),
        (
            GROUPED,
            replace(GROUPED, aggregates=(replace(MEAN, name="average"),)),
            "its aggregates were (mean=avg(price)), now (average=avg(price))",
        ),
        (GROUPED, replace(GROUPED, last=(5, "price")), "its 'last' was None, now [5, 'price']"),
        (ONCE, replace(ONCE, by="price"), "its 'by' was None, now price"),
        (
            GROUPED,
            replace(GROUPED, stream=replace(STREAM, keys=("price",))),
            "the keys of stream trades were (symbol), now (price)",
        ),
        (
            MATCHED,
            replace(MATCHED, streams=(replace(STREAM, keys=("price",)), *JOIN.streams[1:])),
            "the keys of stream trades were (symbol), now (price)",
        ),
        (
            SLICED,
            replace(SLICED, conditions=("0:alike",)),
            "its conditions were (alike, a.x < b.x), now (alike)",
        ),
        (SLICED, replace(SLICED, copies=2), 'it was distribute="psp", now "ctr"'),
        (
            replace(SLICED, copies=4),
            replace(SLICED, copies=2),
            "it stored every row 4 times, now 2 times: see distribute= and copies=",
        ),
        (
            MATCHED,
            replace(MATCHED, segment=(3_000_000, "trades")),
            "it had no segments, now segments of 3 s of trades",
        ),
        (
            ONCE,
            replace(ONCE, stream=replace(STREAM, window=WindowPlan("at", 5_000_000, 0))),
            "the window of stream trades was unbounded, now 5 s on at with lateness 0 s",
        ),
        (
            replace(ONCE, stream=replace(STREAM, window=WindowPlan("at", 5_000_000, 0))),
            replace(ONCE, stream=replace(STREAM, window=WindowPlan("at", 5_000_000, 0, True))),
            "the window of stream trades was 5 s on at with lateness 0 s, "
            "now every 5 s on at with lateness 0 s",
        ),
    ],
)
def test_another_query_is_refused_and_the_difference_is_named(
    written: Plan, asked: Plan, said: str
) -> None:
    with pytest.raises(QueryError) as problem:
        refuse_other_query("ck", [written.fingerprint()], [asked.fingerprint()])
    assert said in str(problem.value)


def shaped(*steps: str, meaning: str = "") -> dict[str, object]:
    """A group-by behind a join whose results pass these steps."""
    return {
        **GROUPED.fingerprint(),
        "shaped": {"text": [*steps], "meaning": [meaning or str(steps)]},
    }


def test_same_chain_may_go_on_also_in_other_words() -> None:
    joined, grouped = JOIN.fingerprint(), shaped("where(a.x < 3)", meaning="Filter(a.x < 3)")
    refuse_other_query("ck", [joined, grouped], [joined, grouped])
    # Another version of Spark, and another way to write it.
    newer = shaped("where(a.x < 3)", meaning="Filter(`a`.`x` < 3)")
    refuse_other_query("ck", [joined, grouped], [joined, newer])
    spaced = shaped("where(a.x<3)", meaning="Filter(a.x < 3)")
    refuse_other_query("ck", [joined, grouped], [joined, spaced])


@pytest.mark.parametrize(
    ("written", "asked", "said"),
    [
        (
            [JOIN.fingerprint()],
            [JOIN.fingerprint(), shaped()],
            "its stages are (n-way join), this query's are (n-way join, group-by)",
        ),
        (
            [JOIN.fingerprint(), shaped()],
            [JOIN.fingerprint()],
            "its stages are (n-way join, group-by), this query's are (n-way join)",
        ),
        (
            [JOIN.fingerprint(), shaped()],
            [GROUPED.fingerprint(), JOIN.fingerprint()],
            "its stages are (n-way join, group-by), this query's are (group-by, n-way join)",
        ),
        (
            [JOIN.fingerprint(), shaped()],
            [JOIN.fingerprint(), {**shaped(), "key_types": ["int"]}],
            "in stage 2 (group-by), the key types were (string), now (int)",
        ),
        (
            [JOIN.fingerprint(), shaped("where(a.x < 3)")],
            [JOIN.fingerprint(), shaped("where(a.x < 4)", "select(a.x)")],
            "in stage 2 (group-by), its rows passed where(a.x < 3), now where(a.x < 4).select(a.x)",
        ),
        (
            [JOIN.fingerprint(), shaped("where(a.x < 3)")],
            [JOIN.fingerprint(), shaped()],
            "in stage 2 (group-by), its rows passed where(a.x < 3), now unchanged",
        ),
    ],
)
def test_another_chain_is_refused_and_the_difference_is_named(
    written: list[dict[str, object]], asked: list[dict[str, object]], said: str
) -> None:
    with pytest.raises(QueryError) as problem:
        refuse_other_query("ck", written, asked)
    assert problem.value.message == f"the checkpoint at ck belongs to another query: {said}"
    assert problem.value.hint


OFFERS = {"a": [["parquet", "/in/a", True]], "b": [["parquet", "/in/b", True]]}
TOPICS = {"a": [["kafka", "one", False]], "b": [["kafka", "two", False]]}


@pytest.mark.parametrize(
    ("written", "asked", "said"),
    [
        (
            OFFERS,
            {"a": OFFERS["b"], "b": OFFERS["a"]},
            "stream a was read from parquet /in/a, now from parquet /in/b",
        ),
        (
            OFFERS,
            OFFERS | {"b": [["parquet", "/in/c", True]]},
            "stream b was read from parquet /in/b, now from parquet /in/c",
        ),
        (
            OFFERS,
            OFFERS | {"b": [["kafka", "b", False]]},
            "stream b was read from parquet /in/b, now from kafka b",
        ),
        (
            TOPICS,
            {"a": TOPICS["b"], "b": TOPICS["a"]},
            "stream a was read from kafka one, now from kafka two",
        ),
        (
            {"a": [*TOPICS["a"], *TOPICS["b"]]},
            {"a": [*TOPICS["b"], *TOPICS["a"]]},
            "stream a was read from kafka one and kafka two, now from kafka two and kafka one",
        ),
        (
            TOPICS,
            TOPICS | {"b": [*TOPICS["b"], *TOPICS["b"]]},
            "stream b was read from kafka two, now from kafka two and kafka two",
        ),
    ],
)
def test_other_sources_are_refused(
    written: dict[str, list[list[object]]], asked: dict[str, list[list[object]]], said: str
) -> None:
    with pytest.raises(QueryError) as problem:
        refuse_other_sources("ck", written, asked)
    assert problem.value.message == f"the checkpoint at ck belongs to another query: {said}"


def test_same_sources_and_a_renamed_topic_may_go_on() -> None:
    refuse_other_sources("ck", OFFERS, OFFERS)
    refuse_other_sources("ck", TOPICS, TOPICS | {"b": [["kafka", "three", False]]})
