"""In which order a row probes the other streams."""

from __future__ import annotations

import pytest

from spillway.policies.ring import probing
from spillway.policies.ring.probing import (
    MOST_STREAMS,
    MeasuredPredicate,
    MeasuredStream,
    next_step,
    probe_orders,
)


def orders(streams: list[MeasuredStream], predicates: list[MeasuredPredicate]) -> list[str]:
    return [
        "".join((source.name, *(one.stream for one in source.steps)))
        for source in probe_orders(streams, predicates)
    ]


def equal(names: str, rows: float = 100.0) -> list[MeasuredStream]:
    return [MeasuredStream(name, 10.0, rows) for name in names]


def test_most_selective_stream_is_probed_first() -> None:
    graph = [MeasuredPredicate("a", "b", 0.5, 1e-6), MeasuredPredicate("a", "c", 0.001, 1e-6)]
    assert orders(equal("abc"), graph)[0] == "acb"


def test_cheap_predicate_goes_before_an_expensive_one() -> None:
    graph = [MeasuredPredicate("a", "b", 0.01, 1e-3), MeasuredPredicate("a", "c", 0.01, 1e-6)]
    assert orders(equal("abc", rows=50.0), graph)[0] == "acb"


def test_expensive_predicate_goes_first_where_it_keeps_few() -> None:
    graph = [MeasuredPredicate("a", "b", 1e-5, 2e-6), MeasuredPredicate("a", "c", 0.5, 1e-6)]
    assert orders(equal("abc"), graph)[0] == "abc"


def test_orders_follow_the_join_graph() -> None:
    chain = [MeasuredPredicate("a", "b", 0.1, 1e-6), MeasuredPredicate("b", "c", 0.1, 1e-6)]
    assert orders(equal("abc"), chain) == ["abc", "bac", "cba"]


def test_cross_product_comes_last_however_few_rows_it_has() -> None:
    streams = [*equal("ab"), MeasuredStream("c", 10.0, 1.0)]
    assert orders(streams, [MeasuredPredicate("a", "b", 0.9, 1e-3)]) == ["abc", "bac", "cab"]


def test_equal_streams_keep_their_order() -> None:
    graph = [MeasuredPredicate("a", name, 0.1, 1e-6) for name in "bcd"]
    assert orders(equal("abcd"), graph)[0] == "abcd"


def test_step_without_a_predicate_still_costs_its_pairs() -> None:
    found = next_step(equal("ab"), [], frozenset("a"), "b")
    assert found.selectivity == 1.0
    assert 0 < found.pair_s < 1e-6


def test_predicates_between_the_same_streams_apply_together() -> None:
    dear, cheap = MeasuredPredicate("a", "b", 0.1, 1e-4), MeasuredPredicate("b", "a", 0.5, 1e-6)
    found = next_step(equal("ab"), [dear, cheap], frozenset("a"), "b")
    assert found.selectivity == pytest.approx(0.05)
    assert found.pair_s == pytest.approx(1e-6 + 0.5 * 1e-4)


def test_many_streams_are_ordered_by_rank() -> None:
    names = [f"s{n:02}" for n in range(MOST_STREAMS + 3)]
    streams = [MeasuredStream(name, 1.0, 10.0) for name in names]
    star = [MeasuredPredicate(names[0], name, 0.9 / n, 1e-6) for n, name in enumerate(names[1:], 1)]
    taken = [one.stream for one in probe_orders(streams, star)[0].steps]
    assert taken == names[:0:-1]


def test_orders_of_many_streams_are_made_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(probing, "next_step", lambda *of: taken.append(of) or next_step(*of))
    star = [MeasuredPredicate("a", name, 0.1, 1e-6) for name in "bcdefghijkl"]
    assert len(orders(equal("abcdefghijkl"), star)) == 12
    assert len(taken) < 12**3
