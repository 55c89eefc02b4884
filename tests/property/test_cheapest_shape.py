"""The dynamic programme over sets of streams finds what trying every shape finds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.plan.shape import Shape, flat, left_deep
from spillway.policies.shape import costs as plans
from spillway.policies.shape.costs import Costs, Estimate, JoinRates, StreamRates, cheapest
from tier import examples


def family(streams: tuple[str, ...]) -> Iterator[Shape | str]:
    """Every shape whose nodes have two children, or join streams at once."""
    if len(streams) == 1:
        yield streams[0]
        return
    if len(streams) > 2:
        yield flat(streams)
    first, *others = streams
    for size in range(len(others)):
        for more in itertools.combinations(others, size):
            rest = tuple(one for one in others if one not in more)
            for pair in itertools.product(family((first, *more)), family(rest)):
                yield Shape(pair)


positive = st.floats(0.01, 1e4)


@st.composite
def measured(draw) -> JoinRates:
    names = tuple("ABCDE"[: draw(st.integers(2, 5))])
    streams = tuple(StreamRates(n, draw(positive), draw(positive), draw(positive)) for n in names)
    pairs = itertools.combinations(names, 2)
    return JoinRates(streams, {pair: draw(st.floats(1e-6, 1.0)) for pair in pairs})


@settings(max_examples=examples(150), deadline=None)
@given(measured(), st.builds(Costs, *([st.floats(0.01, 100.0)] * 4), st.floats(0, 1e-3)))
def test_no_shape_is_cheaper_than_the_one_found(rates: JoinRates, costs: Costs) -> None:
    estimate = Estimate(rates, costs)
    found = estimate.cost(cheapest(rates, costs)).work
    least = min(estimate.cost(shape).work for shape in family(rates.names))
    assert found == pytest.approx(least, rel=1e-9)


@settings(max_examples=examples(60), deadline=None)
@given(measured(), st.floats(0, 1e9))
def test_states_of_the_shape_found_fit_into_the_room(rates: JoinRates, room: float) -> None:
    shape = cheapest(rates, room_bytes=room)
    assert Estimate(rates).cost(shape).memory_bytes <= room


@settings(max_examples=examples(60), deadline=None)
@given(measured(), st.floats(1, 1e9), st.booleans())
def test_the_price_of_memory_is_raised_no_further_than_it_must_be(
    rates: JoinRates, room: float, binary: bool
) -> None:
    estimate, costs = Estimate(rates), Costs()
    for _ in range(64):
        expected = cheapest(rates, costs, binary=binary)
        if estimate.cost(expected).memory_bytes <= room:
            break
        costs = replace(costs, byte=2 * costs.byte)
    assert cheapest(rates, room_bytes=room, binary=binary) == expected


def test_few_prices_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    names, tried = "ABCDE", []
    streams = tuple(StreamRates(n, 10.0, 1e4) for n in names)
    rates = JoinRates(streams, dict.fromkeys(itertools.combinations(names, 2), 0.01))
    search = plans._cheapest
    monkeypatch.setattr(plans, "_cheapest", lambda *a, **k: tried.append(a) or search(*a, **k))
    for binary, room in itertools.product((False, True), (0.0, 1e6, 1e12)):
        tried.clear()
        cheapest(rates, room_bytes=room, binary=binary)
        assert len(tried) * 3**5 * plans._KNOWN_STEP <= plans.search_steps(5, limited=True)


def any_tree(streams: list[str], rng: np.random.Generator) -> Shape:
    """Two things that are there become one, until there is one."""
    nodes: list[Shape | str] = list(streams)
    while len(nodes) > 1:
        one, other = (nodes.pop(int(rng.integers(len(nodes)))) for _ in range(2))
        nodes.append(Shape((one, other)))
    [tree] = nodes
    assert isinstance(tree, Shape)
    return tree


def test_of_eight_streams_no_order_and_no_random_tree_is_cheaper_than_the_one_found() -> None:
    names, rng = list("ABCDEFGH"), np.random.default_rng(3)
    for _ in range(3):
        drawn = 10 ** rng.uniform(0, 2, (2, 8))
        streams = tuple(StreamRates(n, *drawn[:, at].tolist()) for at, n in enumerate(names))
        chances = iter((10 ** rng.uniform(-3, -1, 28)).tolist())
        pairs = {pair: next(chances) for pair in itertools.combinations(names, 2)}
        rates = JoinRates(streams, pairs)
        estimate = Estimate(rates)
        found = estimate.cost(cheapest(rates, binary=True)).work
        others = [left_deep(rng.permutation(names).tolist()) for _ in range(300)]
        others += [any_tree(names, rng) for _ in range(300)]
        assert found <= min(estimate.cost(shape).work for shape in others) * (1 + 1e-9)
        assert estimate.cost(cheapest(rates)).work <= found * (1 + 1e-9)
