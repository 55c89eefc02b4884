"""Plans as a checkpoint remembers them: what may not change, and how it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.errors import QueryError
from spillway.plan.dedup import DedupPlan
from spillway.plan.difference import refuse_other_query
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
    refuse_other_query("ck", plan.fingerprint(), plan.fingerprint())


def test_checkpoint_that_does_not_count_copies_has_one() -> None:
    written = SLICED.fingerprint()
    del written["copies"]
    refuse_other_query("ck", written, SLICED.fingerprint())


def test_what_a_plan_says_of_itself_is_compared_whatever_it_is() -> None:
    with pytest.raises(QueryError, match="its 'colour' was None, now red"):
        refuse_other_query("ck", JOIN.fingerprint(), {**JOIN.fingerprint(), "colour": "red"})


def test_checkpoint_of_a_join_that_does_not_name_its_operator_may_go_on() -> None:
    written = JOIN.fingerprint()
    written.pop("operator", None)
    refuse_other_query("ck", written, JOIN.fingerprint())


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
            "stream trades was grouped by (symbol), now by (price)",
        ),
        (
            MATCHED,
            replace(MATCHED, streams=(replace(STREAM, keys=("price",)), *JOIN.streams[1:])),
            "stream trades was joined on (symbol), now on (price)",
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
            "every row was stored 4 times, now 2 times: see distribute= and copies=",
        ),
        (
            MATCHED,
            replace(MATCHED, segment=(3_000_000, "trades")),
            "it was cut into none, now into segments of 3 s of trades",
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
        refuse_other_query("ck", written.fingerprint(), asked.fingerprint())
    assert said in str(problem.value)
