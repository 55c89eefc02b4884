"""The kinds of joins: who decides, and along which chain."""

from __future__ import annotations

import pytest

from spillway.errors import QueryError
from spillway.plan.difference import refuse_other_query
from spillway.plan.join import JoinPlan, StreamPlan
from spillway.plan.kind import ALIASES, ANTI, FULL, INNER_JOIN, KINDS, LEFT, RIGHT, SEMI, JoinKind
from spillway.plan.sliced import MatchedPlan

STREAMS = tuple(StreamPlan(name, (("k", "int"),), ("k",)) for name in "ab")


@pytest.mark.parametrize(
    ("how", "sources", "outputs"),
    [
        ("inner", [], (0, 1)),
        (LEFT, [0], (0, 1)),
        (RIGHT, [1], (0, 1)),
        (FULL, [0, 1], (0, 1)),
        (SEMI, [], (0,)),
        (ANTI, [0], (0,)),
    ],
)
def test_kind_says_whose_rows_come_out_alone(
    how: str, sources: list[int], outputs: tuple[int, ...]
) -> None:
    kind = JoinKind(how)
    assert [one.source for one in kind.decisions("ab")] == sources
    assert kind.outputs(2) == outputs
    assert kind.waits == bool(sources)


def test_chain_of_many_streams_has_the_order_of_the_streams() -> None:
    [found] = JoinKind(LEFT, ("b", "d")).decisions("abcd")
    assert found.targets == (1, 2, 3)
    assert found.optional == {1, 3}


def test_every_alias_names_a_kind() -> None:
    assert set(ALIASES.values()) <= set(KINDS)


def test_inner_join_says_nothing_so_older_checkpoints_stay_its_own() -> None:
    inner = JoinPlan(STREAMS, ("int",))
    assert "kind" not in inner.fingerprint()
    assert "kind" not in MatchedPlan(STREAMS, ("int",), ("0:x",)).fingerprint()
    refuse_other_query("here", [inner.fingerprint()], [inner.fingerprint()])


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (INNER_JOIN, JoinKind(ANTI), "its join was inner, now anti"),
        (JoinKind(LEFT, ("b",)), INNER_JOIN, r"its join was left \(b optional\), now inner"),
    ],
)
def test_another_kind_is_another_query(was: JoinKind, now: JoinKind, said: str) -> None:
    asked = [JoinPlan(STREAMS, ("int",), kind).fingerprint() for kind in (was, now)]
    with pytest.raises(QueryError, match=said):
        refuse_other_query("here", asked[:1], asked[1:])
