"""The coordinator's strategies: who moves how much to whom, and who is told to spill."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.metrics.view import CLASSES, NORMAL, RELOCATING, RESHAPING, ClusterView, SlotView
from spillway.policies.cluster.decision import ForceSpill, Move
from spillway.policies.cluster.strategy import Strategy
from spillway.settings import STRATEGIES

MB = 10**6
RELOCATING_STRATEGIES = ["relocate-only", "lazy-disk", "active-disk", "global-disk"]
FLUX = ["flux-load", "flux-memory", "flux-hybrid"]


def slots(*memory: int, **columns: list) -> tuple[SlotView, ...]:
    made = [SlotView(at, held, 0, None, 10, 0) for at, held in enumerate(memory)]
    for name, values in columns.items():
        made = [replace(slot, **{name: value}) for slot, value in zip(made, values, strict=True)]
    return tuple(made)


def pairs(decisions: tuple) -> list[tuple[int, int, int]]:
    return [(move.sender, move.receiver, move.bytes) for move in decisions]


def productivity(**bytes_by_class: int) -> tuple[int, ...]:
    return tuple(bytes_by_class.get(f"c{at}", 0) for at in range(CLASSES))


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_decides_nothing_about_a_query_that_has_not_begun(name: str) -> None:
    assert Strategy(name).decide(ClusterView(slots(0, 0, 0, groups=[5, 5, 0]))) == ()
    assert Strategy(name).decide(ClusterView(())) == ()


def test_a_strategy_says_what_slots_may_do() -> None:
    relocating = [name for name in STRATEGIES if Strategy(name).relocates]
    assert relocating == [*RELOCATING_STRATEGIES, *FLUX]
    spilling = ["spill-only", "lazy-disk", "active-disk", "global-disk", *FLUX]
    assert [name for name in STRATEGIES if Strategy(name).spills] == spilling
    assert [name for name in STRATEGIES if Strategy(name).collects] == FLUX


@pytest.mark.parametrize("name", ["none", "spill-only"])
def test_without_relocation_nothing_is_ever_decided(name: str) -> None:
    view = ClusterView(slots(100 * MB, 1, rows_out=[0, 100], limit_bytes=[10, 10]))
    assert Strategy(name, max_forced_spill=10**9).decide(view) == ()


@pytest.mark.parametrize("name", RELOCATING_STRATEGIES)
def test_half_the_difference_moves_from_the_fullest_to_the_emptiest(name: str) -> None:
    view = ClusterView(slots(61, 100))
    assert Strategy(name).decide(view) == (Move(1, 0, 19, "M_least/M_max = 0.61 < 0.80"),)


@pytest.mark.parametrize(
    ("least", "most", "threshold", "moved"),
    [
        (80, 100, 0.8, []),
        (79, 100, 0.8, [(1, 0, 10)]),
        (89, 100, 0.9, [(1, 0, 5)]),
        (90, 100, 0.9, []),
        (0, 100, 0.8, [(1, 0, 50)]),
        (0, 1, 0.8, []),
        (99, 100, 1.0, []),
    ],
)
def test_state_moves_strictly_below_the_threshold(least, most, threshold, moved) -> None:
    view = ClusterView(slots(least, most))
    assert pairs(Strategy("lazy-disk", threshold).decide(view)) == moved


def test_room_that_lazy_disk_got_by_spilling_draws_no_state() -> None:
    spilled = ClusterView(slots(100, 70, disk_bytes=[0, 30], limit_bytes=[100, 100]))
    assert Strategy("lazy-disk").decide(spilled) == ()
    assert pairs(Strategy("active-disk").decide(spilled)) == [(0, 1, 15)]
    # What it spilled takes no more than it has room for, and a slot without a limit has no less.
    long_ago = ClusterView(slots(100, 70, disk_bytes=[0, 900], limit_bytes=[None, 100]))
    assert Strategy("lazy-disk").decide(long_ago) == ()
    emptied = ClusterView(slots(100, 30, disk_bytes=[0, 20], limit_bytes=[100, 100]))
    assert pairs(Strategy("lazy-disk").decide(emptied)) == [(0, 1, 25)]


def test_three_slots_are_one_pair_as_in_the_paper() -> None:
    assert pairs(Strategy("lazy-disk").decide(ClusterView(slots(60, 20, 20)))) == [(0, 1, 20)]


def test_four_slots_are_two_pairs() -> None:
    decided = Strategy("lazy-disk").decide(ClusterView(slots(100, 10, 80, 20)))
    assert pairs(decided) == [(0, 1, 45), (2, 3, 30)]


def test_a_pair_that_is_level_does_not_move_with_the_others() -> None:
    decided = Strategy("lazy-disk").decide(ClusterView(slots(100, 10, 50, 45)))
    assert pairs(decided) == [(0, 1, 45)]


def test_ties_are_broken_by_slot_number() -> None:
    decided = Strategy("lazy-disk").decide(ClusterView(slots(50, 0, 50, 0)))
    assert pairs(decided) == [(2, 1, 25), (0, 3, 25)]
    backwards = ClusterView(slots(50, 0, 50, 0)[::-1])
    assert Strategy("lazy-disk").decide(backwards) == decided


@pytest.mark.parametrize("mode", [RELOCATING, RESHAPING])
def test_slots_that_are_adapting_are_left_alone(mode: str) -> None:
    modes = [mode, NORMAL, NORMAL, mode]
    decided = Strategy("lazy-disk").decide(ClusterView(slots(1000, 40, 80, 0, mode=modes)))
    assert pairs(decided) == [(2, 1, 20)]


def level(*rows_out: int, memory: int = 100 * MB, limit: int | None = None, **more) -> ClusterView:
    """Slots that have the same memory, so that none of it moves."""
    count = len(rows_out)
    made = slots(*[memory] * count, rows_out=list(rows_out), limit_bytes=[limit] * count)
    return ClusterView(made, **more)


def test_active_disk_moves_first_and_spills_only_where_slots_are_alike() -> None:
    strategy = Strategy("active-disk", max_forced_spill=10**9)
    unlike = ClusterView(slots(100, 10, rows_out=[0, 100]))
    assert pairs(strategy.decide(unlike)) == [(0, 1, 45)]


def test_active_disk_spills_a_part_of_the_least_productive_slot() -> None:
    strategy = Strategy("active-disk", max_forced_spill=100 * MB)
    reason = "R_max/R_min = 4.2 > 2.0, forced 30 MB of at most 100 MB"
    assert strategy.decide(level(420, 200, 100)) == (ForceSpill(2, 30 * MB, reason),)


def test_lazy_disk_never_forces_a_spill() -> None:
    assert Strategy("lazy-disk", max_forced_spill=100 * MB).decide(level(420, 100)) == ()


@pytest.mark.parametrize(
    ("rows_out", "spilling"),
    [((200, 100), []), ((201, 100), [1]), ((100, 0), [1]), ((0, 0), []), ((7,), [])],
)
def test_active_disk_spills_strictly_above_the_ratio(rows_out, spilling) -> None:
    decided = Strategy("active-disk", max_forced_spill=10**9).decide(level(*rows_out))
    assert [spill.slot for spill in decided] == spilling


def test_a_slot_without_results_is_infinitely_less_productive() -> None:
    [spill] = Strategy("active-disk", max_forced_spill=10**9).decide(level(5, 0))
    assert spill.reason.startswith("R_max/R_min = inf > 2.0")


def test_the_rate_is_by_group_and_slots_without_groups_have_none() -> None:
    view = ClusterView(slots(*[MB] * 3, rows_out=[100, 100, 0], groups=[10, 30, 0]))
    [spill] = Strategy("active-disk", max_forced_spill=10**9).decide(view)
    assert (spill.slot, spill.bytes) == (1, 300_000)


def test_of_equally_unproductive_slots_the_one_with_more_memory_spills() -> None:
    view = ClusterView(slots(MB, MB, MB + 9, MB, rows_out=[90, 1, 1, 1]))
    [spill] = Strategy("active-disk", max_forced_spill=10**9).decide(view)
    assert spill.slot == 2
    [spill] = Strategy("active-disk", max_forced_spill=10**9).decide(level(90, 1, 1))
    assert spill.slot == 1


@pytest.mark.parametrize("name", ["active-disk", "global-disk"])
@pytest.mark.parametrize("mode", [RELOCATING, RESHAPING])
def test_a_slot_that_is_adapting_is_not_told_to_spill(name: str, mode: str) -> None:
    held = [productivity(c0=100)] * 3
    made = slots(*[100] * 3, rows_out=[9, 3, 1], mode=[NORMAL, NORMAL, mode], profile=held)
    made = tuple(replace(slot, limit_bytes=90) for slot in made)
    decided = Strategy(name, max_forced_spill=10**9).decide(ClusterView(made))
    assert decided
    assert {spill.slot for spill in decided} <= {0, 1}


CAPS = [
    # explicit cap, limit of each of the two slots, growth, forced before -> bytes that may go
    (10 * MB, None, 0, 0, 10 * MB),
    (10 * MB, None, 0, 7 * MB, 3 * MB),
    (10 * MB, None, 0, 10 * MB, 0),
    (0, 80 * MB, 0, 0, 0),
    (10 * MB, 80 * MB, 0, 0, 10 * MB),
    (10 * MB, 100 * MB, 0, 0, 0),
    (10 * MB, 100 * MB, 1, 0, 10 * MB),
    (None, None, 50 * MB, 0, 0),
    (None, 100 * MB, 0, 0, 0),
    (None, 100 * MB, 4 * MB, 0, 4 * MB),
    (None, 95 * MB, 0, 0, 10 * MB),
    (None, 95 * MB, -6 * MB, 0, 4 * MB),
    (None, 95 * MB, 5 * MB, 12 * MB, 3 * MB),
    (None, 95 * MB, 5 * MB, 40 * MB, 0),
]


@pytest.mark.parametrize(("cap", "limit", "growth", "forced", "allowed"), CAPS)
def test_no_more_is_forced_out_than_will_not_fit(cap, limit, growth, forced, allowed) -> None:
    view = level(900, 1, limit=limit, growth_bytes=growth, forced_bytes=forced)
    decided = Strategy("active-disk", max_forced_spill=cap).decide(view)
    assert [spill.bytes for spill in decided] == ([allowed] if allowed else [])


@pytest.mark.parametrize(("cap", "limit", "growth", "forced", "allowed"), CAPS)
def test_global_disk_has_the_same_cap_once_memory_is_short(
    cap, limit, growth, forced, allowed
) -> None:
    view = level(900, 1, limit=limit, growth_bytes=growth, forced_bytes=forced)
    held = tuple(replace(slot, profile=productivity(c3=100 * MB)) for slot in view.slots)
    decided = Strategy("global-disk", max_forced_spill=cap).decide(replace(view, slots=held))
    short = limit is not None and 200 * MB + growth > 2 * limit
    assert sum(spill.bytes for spill in decided) == (allowed if short else 0)


def test_state_on_disk_counts_as_what_the_query_needs() -> None:
    made = slots(*[100 * MB] * 2, rows_out=[9, 1], limit_bytes=[100 * MB] * 2)
    made = tuple(replace(slot, disk_bytes=2 * MB) for slot in made)
    [spill] = Strategy("active-disk").decide(ClusterView(made, forced_bytes=3 * MB))
    assert spill.bytes == MB
    assert spill.reason == "R_max/R_min = 9.0 > 2.0, forced 4 MB of at most 4 MB"


def profiled(*profiles: tuple[int, ...]) -> ClusterView:
    """Slots that are over their limits."""
    held = [sum(one) for one in profiles]
    return ClusterView(slots(*held, profile=list(profiles), limit_bytes=[1] * len(profiles)))


def test_global_disk_takes_the_least_productive_class_of_all_slots_first() -> None:
    view = profiled(productivity(c2=30, c9=70), productivity(c5=20, c9=80), productivity(c9=100))
    decided = Strategy("global-disk", spill_fraction=0.1, max_forced_spill=10**9).decide(view)
    assert [(s.slot, s.bytes, s.below) for s in decided] == [(0, 30, 2)]
    decided = Strategy("global-disk", spill_fraction=0.15, max_forced_spill=10**9).decide(view)
    assert [(s.slot, s.bytes, s.below) for s in decided] == [(0, 30, 5), (1, 15, 5)]


def test_global_disk_shares_the_last_class_in_proportion() -> None:
    view = profiled(productivity(c2=10, c9=30), productivity(c9=40), productivity(c9=10, c20=30))
    strategy = Strategy("global-disk", spill_fraction=1.0, max_forced_spill=50)
    decided = strategy.decide(view)
    assert [(s.slot, s.bytes, s.below) for s in decided] == [(0, 25, 9), (1, 20, 9), (2, 5, 9)]
    expected = "least productive of all slots, class 9 and below, forced 0 MB of at most 0 MB"
    assert decided[0].reason == expected


def test_global_disk_moves_first() -> None:
    view = profiled(productivity(c2=100), productivity(c9=10))
    decided = Strategy("global-disk", max_forced_spill=10**9).decide(view)
    assert pairs(decided) == [(0, 1, 45)]


def test_global_disk_without_profiles_does_nothing() -> None:
    assert Strategy("global-disk", max_forced_spill=10**9).decide(level(9, 1)) == ()


SLOTS = st.lists(
    st.builds(
        lambda counts, groups, rows, mode: SlotView(
            0, sum(counts), 0, None, groups, rows, mode, tuple(counts)
        ),
        st.lists(st.integers(0, 2**40), min_size=CLASSES, max_size=CLASSES),
        st.integers(0, 5),
        st.integers(0, 100),
        st.sampled_from([NORMAL, NORMAL, NORMAL, RELOCATING, RESHAPING]),
    ),
    max_size=9,
).map(lambda made: tuple(replace(slot, slot=at) for at, slot in enumerate(made)))


@settings(max_examples=100, deadline=None)
@given(SLOTS, st.sampled_from(STRATEGIES), st.floats(0.1, 1.0))
def test_a_decision_names_a_slot_once_and_never_moves_more_than_half(made, name, threshold) -> None:
    view = ClusterView(made)
    decided = Strategy(name, threshold, max_forced_spill=2**42).decide(view)
    named = [
        s
        for d in decided
        for s in ([d.slot] if isinstance(d, ForceSpill) else [d.sender, d.receiver])
    ]
    assert len(named) == len(set(named))
    assert all(made[slot].mode == NORMAL for slot in named)
    for move in decided:
        if isinstance(move, Move):
            apart = made[move.sender].memory_bytes - made[move.receiver].memory_bytes
            assert 0 < move.bytes <= apart / 2


@settings(max_examples=100, deadline=None)
@given(SLOTS, st.integers(0, 2**45), st.floats(0.01, 1.0))
def test_global_disk_asks_for_what_there_is_and_for_exactly_what_is_allowed(
    made, cap, part
) -> None:
    # A threshold of 0 keeps everything where it is, and no slot has room.
    view = ClusterView(tuple(replace(slot, limit_bytes=0) for slot in made))
    decided = Strategy("global-disk", 0.0, spill_fraction=part, max_forced_spill=cap).decide(view)
    for spill in decided:
        assert 0 < spill.bytes <= sum(made[spill.slot].profile[: spill.below + 1])
    there = sum(slot.memory_bytes for slot in view.normal)
    assert sum(s.bytes for s in decided) == min(cap, int(view.memory_bytes * part), there)
