"""Made streams by name: what matches is kept, what is missing is a gap, and both survive a manifest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spillway.ids import HASH_END, NO_VERSION, SlotId
from spillway.metrics.groups import GroupTable
from spillway.routing.routing import HashRange, Routing, group_ranges
from spillway.state.layout.gaps import all_gaps, both, either, patched, without
from spillway.state.layout.generations import Generation, united
from spillway.state.layout.layers import Layer
from spillway.state.layout.moving import Departure
from spillway.state.layout.spool import Spool
from spillway.state.layout.track import Track
from spillway.state.manifest.combining import combine, part_manifest
from spillway.state.manifest.manifest import Manifest
from spillway.state.manifest.matching import arranged, matched
from spillway.state.manifest.reading import decode_manifest
from spillway.state.runs.merging import WHOLE
from spillway.state.runs.run import Run, Slice
from spillway.state.slot.fetching import fetches

GROUPS = 4
LOW, HIGH = HashRange(0, HASH_END // 2), HashRange(HASH_END // 2, HASH_END)


def layer(name: str, within: HashRange = WHOLE) -> tuple[Layer, ...]:
    return (Layer(0, (Slice(Run(name, 1, 8, 1, None, None), within),)),)


def table(groups: range, streams: int) -> GroupTable:
    found = GroupTable.empty(GROUPS, streams)
    found.rows[:, list(groups)] = 1
    return found


def manifest(
    made: tuple[str, ...], *, slot: int = 0, groups: range = range(GROUPS), name: str = "r"
) -> Manifest:
    """Two input streams and made ones, with rows in some groups; each has one layer."""
    streams = tuple(layer(f"{name}{at}", WHOLE) for at in range(2 + len(made)))
    return Manifest(
        NO_VERSION,
        SlotId(slot),
        streams,
        groups=table(groups, len(streams)),
        made=made,
        gaps=((),) * len(made),
    )


def test_the_hash_domain_is_divided_by_what_is_not_there() -> None:
    gaps = ((HashRange(2, 6), HashRange(8, 9)), (HashRange(4, 8),), ())
    found = {here: ranges for ranges, here in patched(gaps)}
    assert found == {
        frozenset(): (HashRange(0, 2), HashRange(9, HASH_END)),
        frozenset({0}): (HashRange(2, 4), HashRange(8, 9)),
        frozenset({0, 1}): (HashRange(4, 6),),
        frozenset({1}): (HashRange(6, 8),),
    }
    assert patched(()) == [((WHOLE,), frozenset())]
    assert patched(((WHOLE,),)) == [((WHOLE,), frozenset({0}))]


def lines_run(work: Callable[[], object]) -> int:
    """The lines of Python that run, which are the same on any machine."""
    count = 0

    def trace(_frame: object, event: str, _arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_dividing_thousands_of_gaps_takes_few_steps() -> None:
    """Groups that move are scattered; the work is linear in the gaps, not quadratic."""
    odd = group_ranges(range(0, 4096, 2), 4096)
    found = patched((odd,) * 6)
    assert sorted(len(ranges) for ranges, _ in found) == [2048, 2048]
    assert both(odd, odd) == odd
    assert lines_run(lambda: patched((odd,) * 6)) < 30 * 6 * len(odd)
    assert lines_run(lambda: both(odd, odd)) < 30 * len(odd)


def test_ranges_are_sets_of_hashes() -> None:
    a, b = (HashRange(0, 4), HashRange(8, 12)), (HashRange(2, 9),)
    sets = [{h for r in ranges for h in range(r.lo, r.hi)} for ranges in (a, b)]
    for found, wanted in (
        (both(a, b), sets[0] & sets[1]),
        (either(a, b), sets[0] | sets[1]),
        (without(a, b), sets[0] - sets[1]),
        (without(a, ()), sets[0]),
    ):
        assert {h for r in found for h in range(r.lo, r.hi)} == wanted
    assert all_gaps([(), (a, ()), ((), b)]) == (a, b)


def test_streams_that_match_by_name_are_kept_and_missing_ones_are_gaps() -> None:
    old = manifest(("A+B", "C+D"), groups=range(2))
    new = arranged(old, ("B+C", "A+B"))
    assert new.made == ("B+C", "A+B")
    assert new.streams == (*old.streams[:2], (), old.streams[2])
    assert new.gaps == (group_ranges(range(2), GROUPS), ())
    assert new.groups.rows.tolist()[2:] == [[0, 0, 0, 0], [1, 1, 0, 0]]
    assert arranged(old, old.made) is old


def test_what_is_on_disk_and_what_departs_is_matched_too() -> None:
    frozen = Generation(3, (1,), tuple(layer(f"g{at}") for at in range(3)), ((),))
    sizes = ((5,), (6,), (7,))
    gone = Departure(9, (0,), frozen.streams, sizes, (frozen,), ("A+B",), ((HIGH,),))
    old = Manifest(
        NO_VERSION,
        SlotId(0),
        ((), (), ()),
        groups=table(range(2), 3),
        generations=(frozen,),
        departures=(gone,),
        made=("A+B",),
        gaps=((LOW,),),
    )
    new = arranged(old, ("X", "A+B"))
    assert new.gaps == (group_ranges(range(2), GROUPS), (LOW,))
    assert new.generations[0].streams == (*frozen.streams[:2], (), frozen.streams[2])
    assert new.generations[0].gaps == (group_ranges([1], GROUPS), ())
    [departure] = new.departures
    assert departure.made == ("X", "A+B")
    assert departure.sizes == ((5,), (6,), (0,), (7,))
    assert departure.gaps == (group_ranges([0], GROUPS), (HIGH,))
    assert departure.generations[0].gaps == (group_ranges([1], GROUPS), ())
    assert decode_manifest(new.encode(), "m").departures == new.departures
    assert decode_manifest(new.encode(), "m").generations == new.generations
    assert decode_manifest(new.encode(), "m").gaps == new.gaps


def test_what_a_track_has_is_matched_too() -> None:
    old = replace(
        manifest(("A+B", "C+D"), groups=range(2)),
        track=Track(9, (1,), 70, tuple(layer(f"t{at}") for at in range(4))),
    )
    new = arranged(old, ("B+C", "A+B"))
    assert new.track == Track(9, (1,), 70, (*old.track.streams[:2], (), old.track.streams[2]))
    assert new.gaps == (group_ranges(range(2), GROUPS), ())
    assert decode_manifest(new.encode(), "m").track == new.track
    assert "t3" in old.runs()
    assert "t3" not in new.runs()
    assert arranged(new, ()).track.streams == old.track.streams[:2]


def test_states_that_the_receiver_does_not_have_are_not_sent() -> None:
    """Neither in what the receiver fetches, nor in what it takes over, nor in what is on disk."""
    layers = tuple(layer(name) for name in ("a", "b", "ab", "bc"))
    frozen = Generation(3, (1,), layers, ((), ()))
    gone = Departure(
        9, (1,), layers, ((5,), (6,), (7,), (8,)), (frozen,), ("A+B", "B+C"), ((), (LOW,))
    )
    sender = Manifest(
        NO_VERSION,
        SlotId(0),
        ((),) * 4,
        groups=table(range(2), 4),
        departures=(gone,),
        made=gone.made,
        gaps=((), ()),
    )
    less = matched(sender, ("B+C", "A+B+C"))
    [departure] = less.departures
    assert [one.run.name for one in fetches(departure)] == ["a", "b", "bc"]
    part = part_manifest(SlotId(1), departure, departure.streams, less.groups)
    assert (part.made, part.gaps) == (("B+C",), ((LOW,),))
    assert set(part.runs()) == {"a", "b", "bc"}
    here = arranged(part, ("A+B+C", "B+C"))
    assert here.gaps == (group_ranges([1], GROUPS), (LOW,))
    assert matched(sender, gone.made) is sender
    assert [one.run.name for one in fetches(matched(sender, ()).departures[0])] == ["a", "b"]


def test_a_manifest_without_rows_lacks_nothing() -> None:
    nothing = Manifest(NO_VERSION, SlotId(0), ((), ()))
    assert arranged(nothing, ("A+B",)).gaps == ((),)
    unknown = Manifest(NO_VERSION, SlotId(0), (layer("r"), ()))
    assert arranged(unknown, ("A+B",)).gaps == ((WHOLE,),)


def test_slots_with_different_plans_are_put_together() -> None:
    olds = [
        manifest(("A+B",), slot=0, groups=range(2), name="x"),
        manifest(("B+C",), slot=1, groups=range(2, 4), name="y"),
    ]
    whole = combine(olds, SlotId(0), Routing.even(GROUPS, 1), 2)
    assert whole.made == ("A+B", "B+C")
    assert whole.gaps == ((HIGH,), (LOW,))
    assert len(whole.groups.rows) == 4


def test_rows_that_wait_are_put_together_whatever_the_plans_store() -> None:
    olds = [
        replace(
            manifest(made, slot=slot, groups=groups, name="x"),
            spool=Spool((layer(f"w{slot}", half), ()), {slot * 2: 1.0}, 1, 8),
        )
        for slot, made, groups, half in ((0, ("A+B",), range(2), LOW), (1, (), range(2, 4), HIGH))
    ]
    whole = combine(olds, SlotId(0), Routing.even(GROUPS, 1), 2)
    assert whole.spool.streams == ((layer("w0", LOW)[0].next_to(layer("w1", HIGH)[0]),), ())
    assert whole.spool.since_s == {0: 1.0, 2: 1.0}
    assert arranged(whole, ("B+C", "A+B")).spool == whole.spool


def test_parts_that_become_one_have_the_gaps_of_both_and_no_rows_in_them() -> None:
    one = Generation(0, (0,), (layer("a"), layer("ab")), ((),))
    other = Generation(1, (0,), (layer("b"), ()), ((LOW,),))
    whole = united(1, [one, other])
    assert whole.gaps == ((LOW,),)
    assert len(whole.streams[0]) == 2
    assert [piece.range for piece in whole.streams[1][0].slices] == [HIGH]
