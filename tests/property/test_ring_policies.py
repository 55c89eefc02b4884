"""The policies of a ring against all there is to choose from."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.policies.ring import probing
from spillway.policies.ring.model import (
    HopCosts,
    ProbeStep,
    Source,
    best_length,
    response_s,
)
from spillway.policies.ring.probing import (
    MeasuredPredicate,
    MeasuredStream,
    next_step,
    probe_orders,
)
from spillway.policies.ring.slicing import smoothed

PARTS = st.floats(1e-4, 1.0)
SECONDS = st.floats(1e-8, 1e-3)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[MeasuredStream], list[MeasuredPredicate]]:
    names = "abcde"[: draw(st.integers(2, 5))]
    streams = [MeasuredStream(name, 10.0, draw(st.floats(1.0, 1000.0))) for name in names]
    pairs = [(i, j) for i in names for j in names if i < j]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=6))
    return streams, [MeasuredPredicate(i, j, draw(PARTS), draw(SECONDS)) for i, j in chosen]


def ordered(
    graph: tuple[list[MeasuredStream], list[MeasuredPredicate]], source: str, names: tuple[str, ...]
) -> Source:
    there, steps = frozenset([source]), []
    for name in names:
        steps.append(next_step(*graph, there, name))
        there |= {name}
    return Source(source, 1.0, tuple(steps))


def crosses(
    graph: tuple[list[MeasuredStream], list[MeasuredPredicate]], source: str, names: tuple[str, ...]
) -> bool:
    """Whether an order has a cross product while a connected stream is left."""
    there, left = frozenset([source]), set(names)
    for name in names:
        joined = {other for other in left if any(p.joins(there, other) for p in graph[1])}
        if joined and name not in joined:
            return True
        there, left = there | {name}, left - {name}
    return False


@given(graphs())
def test_probe_order_is_the_cheapest_without_a_needless_cross_product(
    graph: tuple[list[MeasuredStream], list[MeasuredPredicate]],
) -> None:
    for source in probe_orders(*graph):
        taken = tuple(one.stream for one in source.steps)
        others = [one.name for one in graph[0] if one.name != source.name]
        assert sorted(taken) == sorted(others)
        assert not crosses(graph, source.name, taken)
        allowed = [o for o in permutations(others) if not crosses(graph, source.name, o)]
        least = min(ordered(graph, source.name, order).probing_s for order in allowed)
        assert source.probing_s == pytest.approx(least)


@given(st.lists(st.tuples(st.floats(1.0, 100.0), PARTS, SECONDS), min_size=1, max_size=5))
def test_order_by_rank_is_the_cheapest_where_steps_are_independent(
    others: list[tuple[float, float, float]],
) -> None:
    streams = [MeasuredStream("s", 1.0, 1.0)]
    streams += [MeasuredStream(str(n), 1.0, rows) for n, (rows, _, _) in enumerate(others)]
    star = [MeasuredPredicate("s", str(n), part, cost) for n, (_, part, cost) in enumerate(others)]
    cheapest = probe_orders(streams, star)[0]
    ranked = Source("s", 1.0, probing._by_rank(streams, star, "s"))
    assert ranked.probing_s == pytest.approx(cheapest.probing_s)


def turning_lengths(source: Source, costs: HopCosts) -> tuple[float, float]:
    """N_1 and N_2 of PSP 5.2: where hops take as long as work, and where waiting for them does.

    The paper's best length is the smaller of the two. N_1 solves L_C/N + T_s passed = M N T_n, and
    N_2 (N - 1) T_n / 2 = L_C/N; each is the root of a parabola.
    """
    streams, sent_s = len(source.steps) + 1, costs.send_s * source.passed
    work_s, hop_s = source.probing_s, costs.hop_s
    first = (sent_s + math.sqrt(sent_s**2 + 4 * streams * hop_s * work_s)) / (2 * streams * hop_s)
    return first, (1 + math.sqrt(1 + 8 * work_s / hop_s)) / 2


@given(
    st.lists(st.tuples(st.floats(1.0, 2000.0), PARTS), min_size=1, max_size=4),
    st.floats(1e-6, 1e-4),
    st.floats(0.0, 1e-4),
    st.floats(1e-5, 1e-3),
)
def test_turning_points_are_where_the_least_response_is(
    steps: list[tuple[float, float]], pair_s: float, send_s: float, hop_s: float
) -> None:
    made = tuple(
        ProbeStep(str(n), rows, part / rows, pair_s) for n, (rows, part) in enumerate(steps)
    )
    source, costs = Source("s", 1.0, made), HopCosts(send_s, hop_s)
    near = max(1, round(min(turning_lengths(source, costs))))
    if near < 1000:
        best = best_length([source], costs)
        least = response_s(source, costs, best)
        around = [response_s(source, costs, n) for n in (max(1, near - 1), near, near + 1)]
        assert min(around) == pytest.approx(least, rel=0.02)
        assert abs(best - near) <= 1 or min(around) == pytest.approx(least, rel=1e-3)


@given(
    st.integers(2, 6).flatmap(
        lambda slots: st.tuples(
            st.just(slots),
            st.lists(
                st.tuples(st.integers(0, slots - 1), st.sampled_from([0.0, 1.0, 3.0, 7.0])),
                min_size=slots,
                max_size=24,
            ),
        )
    ),
    st.integers(1, 6),
)
def test_smoothing_moves_no_row_and_never_widens_what_slots_differ_by(
    given_slots: tuple[int, list[tuple[int, float]]], wanted: int
) -> None:
    slots, groups = given_slots
    table = [slot for slot, _ in groups]
    rows = [count for _, count in groups]
    target = min(wanted, slots)
    found = smoothed(table, rows, range(len(table)), 2.0, target)
    to = {} if found is None else dict(found.to)
    assert all(rows[group] == 0 and 0 <= slot < target for group, slot in to.items())
    after = [to.get(group, slot) for group, slot in enumerate(table)]
    assert all(slot < target for slot, count in zip(after, rows, strict=True) if count == 0)
    held = [0.0] * slots
    for slot, count in zip(table, rows, strict=True):
        held[slot] += count
    work = list(held)
    for slot, count in zip(after, rows, strict=True):
        work[slot] += 2.0 if count == 0 else 0.0
    least, most = min(work[:target]), max(work[:target])
    assert most <= max(*held[:target], least + 2 * 2.0)
