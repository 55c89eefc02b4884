"""When the ring of a join gets another length by what its batches have measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from spillway.policies.ring.length import BEHIND, PATIENCE, Length
from spillway.policies.ring.model import (
    HopCosts,
    ProbeStep,
    Source,
    best_length,
    fitted,
    in_batches,
    over_sources,
    response_s,
    utilisation,
)
from spillway.policies.ring.slicing import RingRules

COSTS = HopCosts(send_s=1e-6, hop_s=0.01)
RULES = RingRules(most=3, behind=BEHIND)


def join(pair_s: float, rate: float = 1.0) -> tuple[Source, ...]:
    step = ProbeStep("b", 100.0, 0.01, pair_s)
    return (Source("a", rate, (step,)), Source("b", rate, (replace(step, stream="a"),)))


HEAVY, LIGHT = join(3e-3), join(1e-9)


def observed(length: Length, slots: int, *measured: tuple[Source, ...]) -> Length:
    for sources in measured:
        length = length.observed(sources, COSTS, slots)
    return length


def test_ring_changes_when_it_was_wanted_several_times() -> None:
    length = Length(RULES)
    for _ in range(PATIENCE - 1):
        length = observed(length, 1, HEAVY)
        assert length.decided is None
    due = observed(length, 1, HEAVY).decided
    assert due is not None
    assert (due.slots, due.aggressive) == (3, False)
    assert due.reason == "1 slots are 60% busy, the best length is 3"


def test_ring_that_is_too_long_gets_shorter() -> None:
    due = observed(Length(RULES), 3, LIGHT, LIGHT, LIGHT).decided
    assert due is not None
    assert due.slots == 1


def test_evaluations_that_disagree_decide_nothing() -> None:
    assert observed(Length(RULES), 2, HEAVY, HEAVY, LIGHT, HEAVY, HEAVY).decided is None


def test_evaluation_that_wants_nothing_begins_anew() -> None:
    length = observed(Length(RULES), 3, HEAVY)
    assert (length.wanted, length.times) == (None, 0)
    assert length.reason == "3 slots are 20% busy, so they fit"
    mixed = replace(observed(Length(RULES), 1, HEAVY, HEAVY).rested(), reason="")
    assert observed(mixed, 1, HEAVY).decided is None


def test_ring_has_never_more_slots_than_there_are() -> None:
    due = observed(Length(RULES), 2, *[join(1.0)] * 3).decided
    assert due is not None
    assert due.slots == 3


@pytest.mark.parametrize(
    ("adjustment", "rate", "moves"),
    [
        ("passive", 9.0, False),
        ("aggressive", 1.0, True),
        ("auto", 1.0, False),
        ("auto", 9.0, True),
    ],
)
def test_slices_move_where_slots_are_behind(adjustment: str, rate: float, moves: bool) -> None:
    length = Length(replace(RULES, adjustment=adjustment))
    due = observed(length, 1, *[join(3e-3, rate)] * PATIENCE).decided
    assert due is not None
    assert due.aggressive == moves


def test_length_is_told_in_words() -> None:
    assert Length(RULES).told(2) == (
        "2 of 3 slots in use, no change wanted; last: not evaluated yet"
    )
    assert observed(Length(RULES), 1, HEAVY, HEAVY).told(1) == (
        "1 of 3 slots in use, 3 slots were better in 2 of 3 evaluations; "
        "last: 1 slots are 60% busy, the best length is 3"
    )


def test_model_has_the_work_that_was_measured() -> None:
    for slots in (1, 3):
        sources = fitted(HEAVY, COSTS, slots, work_s=0.05)
        assert utilisation(sources, COSTS, slots) == pytest.approx(2 * 0.05 / slots)
    # Work that is less than passing on leaves nothing for pairs, and nothing below it.
    assert 0 < fitted(HEAVY, HopCosts(1.0, 0.01), 3, work_s=0.05)[0].probing_s < 1e-8


def test_batch_is_the_row_of_the_model() -> None:
    rows, slots = 1000, 3
    one = join(1e-6, rate=500.0)
    many, costs = in_batches(one, COSTS, rows)
    assert many[0].rate == 0.5
    assert utilisation(many, costs, slots) == pytest.approx(utilisation(one, COSTS, slots))
    assert costs.hop_s == COSTS.hop_s
    assert over_sources(many, lambda source: source.probing_s) == pytest.approx(0.1)
    # Rows that go alone are not worth a hop; together they are.
    assert best_length(one, COSTS) == 1
    assert best_length(many, costs) > 1
    took = [response_s(many[0], costs, n) for n in (1, 2)]
    assert took[1] < took[0]


@pytest.mark.parametrize("first", [1, 4, 8])
@pytest.mark.parametrize("work_s", [0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("idle_s", [0.0, 2.0])
def test_ring_of_a_batch_engine_comes_to_rest(first: int, work_s: float, idle_s: float) -> None:
    """A batch takes a time of its own, and its work shared by the slots; so many seconds lie between."""
    own_s, streams, used = 0.4, 2, [first]
    length = Length(replace(RULES, most=8))
    for _ in range(60):
        slots = used[-1]
        seconds = own_s + work_s / slots
        costs = HopCosts(1e-9, own_s / (slots * streams + (slots - 1) / 2))
        length = length.observed(join(work_s / 100, 0.5 / (seconds + idle_s)), costs, slots)
        if (due := length.decided) is not None:
            length, slots = length.rested(), due.slots
        used.append(slots)
    assert len(set(used[-20:])) == 1
    assert sum(a != b for a, b in pairwise(used)) <= 3
    if work_s >= 10:
        assert used[-1] >= 4
    if work_s <= 0.1:
        assert used[-1] == 1
