"""Windows made from bounds on times never change a result: they and what they do not imply are exact."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from spillway.plan.sql.expression import Column
from spillway.plan.sql.query.bounds import Difference, is_implied, windows_of
from tier import examples

#: Times of rows in the brute-force check.
TIMES = range(5)


@st.composite
def bounded(draw: st.DrawFn) -> tuple[list[str], list[Difference]]:
    """Some streams, and bounds on differences between them."""
    streams = list("abcd"[: draw(st.integers(2, 4))])
    pairs = st.sampled_from([(a, b) for a in streams for b in streams if a != b])
    drawn = draw(st.lists(st.tuples(pairs, st.integers(-3, 4)), min_size=1, max_size=8))
    return streams, [Difference(Column(a, "ts"), Column(b, "ts"), c) for (a, b), c in drawn]


@example_settings(max_examples=examples(400))
@given(bounded())
def test_windows_and_the_conditions_that_they_do_not_imply_are_the_bounds(
    case: tuple[list[str], list[Difference]],
) -> None:
    streams, differences = case
    windows = windows_of(streams, differences)
    if windows is None:
        return
    left = [one for one in differences if not is_implied([one], windows)]
    for moment in product(TIMES, repeat=len(streams)):
        times = dict(zip(streams, moment, strict=True))

        def holds(some: list[Difference], times: dict[str, int] = times) -> bool:
            return all(times[d.later.stream] - times[d.earlier.stream] <= d.most_us for d in some)

        latest = max(moment)
        inside = all(latest - times[stream] < windows[stream] for stream in streams)
        assert holds(differences) == (inside and holds(left))


@example_settings(max_examples=examples(200))
@given(bounded())
def test_no_window_can_be_shorter(case: tuple[list[str], list[Difference]]) -> None:
    """Some allowed combination is at the edge of each window, unless nothing is allowed at all."""
    streams, differences = case
    windows = windows_of(streams, differences)
    if windows is None:
        return
    wide = range(-16, 17)
    for stream in streams:
        others = [one for one in streams if one != stream]
        longest = -1
        for moment in product(wide, repeat=len(others)) if len(others) < 3 else ():
            times = {stream: 0, **dict(zip(others, moment, strict=True))}
            if all(
                times[d.later.stream] - times[d.earlier.stream] <= d.most_us for d in differences
            ):
                longest = max(longest, *times.values())
        if longest >= 0:
            assert windows[stream] == longest + 1
