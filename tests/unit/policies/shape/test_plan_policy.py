"""When a slot gets another shape of its join, and which."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from spillway.errors import QueryError
from spillway.metrics.counts import Sampled
from spillway.plan.shape import Shape, binary_shapes, flat, parse
from spillway.policies.cluster.decision import megabytes
from spillway.policies.shape.costs import (
    Costs,
    Estimate,
    JoinRates,
    StreamRates,
    cheapest,
    pair_selectivities,
)
from spillway.policies.shape.proposal import Proposal, ShapeRules, propose

RULES = ShapeRules(margin=0.2, evaluations=2)


def measured(rates: dict[str, float], window_s: float = 30.0, **pairs: float) -> JoinRates:
    """Streams of these rates; selectivity 0.01 but for the pairs that are named."""
    streams = tuple(StreamRates(name, rate, rate * window_s) for name, rate in rates.items())
    found = {pair: pairs.get("".join(pair), 0.01) for pair in itertools.combinations(rates, 2)}
    return JoinRates(streams, found)


#: The streams of PLANS section 5.2 before and after second 30.
BEFORE = measured({"A": 100.0, "B": 100.0, "C": 100.0}, AB=0.001)
AFTER = measured({"A": 100.0, "B": 5.0, "C": 5.0})
FIVE = measured({"A": 80.0, "B": 5.0, "C": 40.0, "D": 20.0, "E": 10.0}, AC=1e-4, BD=0.001, CE=0.05)


def test_the_join_that_gives_the_fewest_combinations_comes_first() -> None:
    assert cheapest(BEFORE) == parse("((A B) C)")
    assert cheapest(AFTER) == parse("((B C) A)")


def test_where_memory_is_dear_nothing_is_stored() -> None:
    assert cheapest(BEFORE, Costs(byte=0.0)) != flat("ABC")
    assert cheapest(BEFORE, Costs(byte=1.0)) == flat("ABC")


def test_bushy_trees_are_found() -> None:
    rates = measured(dict.fromkeys("ABCD", 100.0), AB=1e-5, CD=1e-5, AC=0.1, AD=0.1, BC=0.1, BD=0.1)
    assert cheapest(rates) == parse("((A B) (C D))")


def test_states_that_do_not_fit_are_not_stored() -> None:
    without = cheapest(BEFORE)
    needed = Estimate(BEFORE).cost(without).memory_bytes
    assert cheapest(BEFORE, room_bytes=needed) == without
    assert Estimate(BEFORE).cost(cheapest(BEFORE, room_bytes=needed / 2)).memory_bytes <= needed / 2
    assert cheapest(BEFORE, room_bytes=0) == flat("ABC")


def test_a_shape_must_be_cheaper_for_several_evaluations() -> None:
    current = parse("((A B) C)")
    first, proposal = propose(3, AFTER, current, Proposal(), RULES)
    assert first is None
    assert proposal.times == 1
    change, proposal = propose(3, AFTER, current, proposal, RULES)
    assert change is not None
    assert change.slot == 3
    assert (change.shape, proposal) == (cheapest(AFTER), Proposal())
    assert change.reason == (
        f"{change.shape} costs {_ratio(AFTER, change.shape, current)} x ((A B) C) "
        "in 2 evaluations, margin 0.2"
    )


def test_one_evaluation_of_another_mind_starts_the_count_again() -> None:
    current = cheapest(BEFORE)
    _, proposal = propose(0, AFTER, current, Proposal(), RULES)
    change, proposal = propose(0, BEFORE, current, proposal, RULES)
    assert change is None
    assert proposal == Proposal()


def test_a_slot_keeps_a_shape_that_is_nearly_the_best() -> None:
    best = cheapest(AFTER)
    worse = parse("((A B) C)")
    gain = 1 - Estimate(AFTER).cost(best).work / Estimate(AFTER).cost(worse).work
    proposal = Proposal()
    for _ in range(5):
        change, proposal = propose(0, AFTER, worse, proposal, ShapeRules(margin=gain + 0.01))
        assert change is None
    assert (
        propose(0, AFTER, worse, Proposal(best, 1), ShapeRules(margin=gain - 0.01))[0] is not None
    )


def test_a_shape_that_does_not_last_long_enough_to_pay_is_not_taken() -> None:
    rates, current = measured({"A": 100.0, "B": 5.0, "C": 5.0}), parse("((A B) C)")
    proposal = Proposal(cheapest(rates), 1)
    assert proposal.shape == parse("((B C) A)")
    assert propose(0, rates, current, proposal, RULES)[0] is not None
    assert propose(0, rates, current, proposal, ShapeRules(lasts_s=1e-6))[0] is None


FULL = ShapeRules(room_bytes=0)


def test_states_that_have_no_room_any_more_go_although_that_costs_work() -> None:
    current = cheapest(BEFORE)
    first, proposal = propose(1, BEFORE, current, Proposal(), FULL)
    assert (first, proposal) == (None, Proposal(flat("ABC"), 1))
    change, proposal = propose(1, BEFORE, current, proposal, FULL)
    assert change is not None
    assert (change.shape, proposal) == (flat("ABC"), Proposal())
    held = megabytes(Estimate(BEFORE).cost(current).memory_bytes)
    assert change.reason == (
        f"states of ((A B) C) take {held}, those of (A B C) 0 MB in 2 evaluations, limit 0 MB"
    )
    assert Estimate(BEFORE).cost(current).work < Estimate(BEFORE).cost(flat("ABC")).work


def test_states_that_lack_room_once_stay() -> None:
    current = cheapest(BEFORE)
    _, proposal = propose(1, BEFORE, current, Proposal(), FULL)
    assert propose(1, BEFORE, current, proposal, RULES) == (None, Proposal())


def test_states_that_barely_fit_are_neither_made_nor_given_up() -> None:
    tree = cheapest(AFTER)
    needed = Estimate(AFTER).cost(tree).memory_bytes
    barely, amply = (ShapeRules(room_bytes=part * needed) for part in (1.1, 1.3))
    assert propose(1, AFTER, tree, Proposal(), barely) == (None, Proposal())
    assert propose(1, AFTER, flat("ABC"), Proposal(tree, 1), barely) == (None, Proposal())
    assert propose(1, AFTER, flat("ABC"), Proposal(tree, 1), amply)[0] is not None


def test_a_wished_shape_that_does_not_fit_is_wished_no_longer() -> None:
    current, better = parse("((A B) C)"), cheapest(AFTER)
    change, proposal = propose(1, AFTER, current, Proposal(better, 1), FULL)
    assert (change, proposal) == (None, Proposal(flat("ABC"), 1))
    # Nor where the current shape stores nothing.
    assert propose(1, AFTER, flat("ABC"), Proposal(better, 1), FULL) == (None, Proposal())


def test_of_trees_that_are_all_too_large_the_smallest_is_taken_and_kept() -> None:
    rules = ShapeRules(room_bytes=0, binary=True)
    small, large = parse("((B C) A)"), parse("((A B) C)")
    assert propose(1, AFTER, large, Proposal(small, 1), rules)[0] is not None
    assert propose(1, AFTER, small, Proposal(), rules) == (None, Proposal())
    # One that is larger by less than the margin is as good.
    alike = measured({"A": 100.0, "B": 100.0, "C": 100.0}, BC=0.009, AB=0.0095)
    assert cheapest(alike, room_bytes=0, binary=True) == small
    assert propose(1, alike, large, Proposal(), rules) == (None, Proposal())


def test_a_slot_without_rows_keeps_its_shape() -> None:
    nothing = measured(dict.fromkeys("ABC", 0.0))
    change, proposal = propose(0, nothing, flat("ABC"), Proposal(), RULES)
    assert (change, proposal) == (None, Proposal())


def test_more_streams_than_can_be_compared_are_refused() -> None:
    nine = measured(dict.fromkeys("ABCDEFGHI", 1.0))
    with pytest.raises(QueryError, match="up to 8 streams, not 9"):
        cheapest(nine)


def test_estimates_are_what_random_streams_have() -> None:
    """Rows with random keys, one per stream and tick: what is stored and comes is as estimated."""
    rng, keys, window, ticks = np.random.default_rng(7), 6, [40, 60, 50], 4000
    rows = [rng.integers(0, keys, ticks) for _ in window]
    stored, new = 0.0, 0.0
    counts = [np.zeros(keys) for _ in window]
    for tick in range(ticks):
        for at, length in enumerate(window):
            counts[at][rows[at][tick]] += 1
            if tick >= length:
                counts[at][rows[at][tick - length]] -= 1
        if tick >= max(window):
            stored += float(np.prod(counts, axis=0).sum())
            before = [c - (np.arange(keys) == rows[at][tick]) for at, c in enumerate(counts)]
            new += float((np.prod(counts, axis=0) - np.prod(before, axis=0)).sum())
    steps = ticks - max(window)
    streams = tuple(StreamRates(n, 1.0, float(w)) for n, w in zip("ABC", window, strict=True))
    pairs = dict.fromkeys(itertools.combinations("ABC", 2), 1 / keys)
    estimate = Estimate(JoinRates(streams, pairs))
    assert estimate.stored(7) == pytest.approx(stored / steps, rel=0.05)
    assert estimate.flow(7, 7) == pytest.approx(new / steps, rel=0.05)


def test_selectivities_come_from_samples_of_both_directions() -> None:
    found = pair_selectivities(
        "BA", {Sampled("0", "1"): (1000.0, 20.0), Sampled("1", "0"): (6000.0, 79.5)}
    )
    assert found == {("A", "B"): 100.0 / 7000.0}
    assert pair_selectivities("AB", {}) == {("A", "B"): 1.0}


@pytest.mark.parametrize("rates", [BEFORE, AFTER, FIVE], ids=["before", "after", "five"])
def test_the_shape_proposed_is_the_cheapest_of_all_binary_trees(rates: JoinRates) -> None:
    estimate, rules = Estimate(rates), ShapeRules(margin=0.0, evaluations=1, binary=True)
    trees = [tree for tree in binary_shapes(rates.names) if isinstance(tree, Shape)]
    trees.sort(key=lambda tree: estimate.cost(tree).work)
    change, _ = propose(0, rates, trees[-1], Proposal(), rules)
    assert change is not None
    assert estimate.cost(change.shape).work == pytest.approx(estimate.cost(trees[0]).work)


def _ratio(rates: JoinRates, shape, current) -> str:
    estimate = Estimate(rates)
    return f"{estimate.cost(shape).work / estimate.cost(current).work:.2f}"
