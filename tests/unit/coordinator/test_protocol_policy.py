"""By which protocol a move is made: estimated seconds of work on both sides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spillway.checkpoint.log import Log
from spillway.coordinator.batch.commit import commit_batch
from spillway.coordinator.batch.committed import Committed, GivenUpTrack, initial
from spillway.coordinator.batch.plan import plan_batch
from spillway.coordinator.decisions.adaptation import Rules, adapt, begin, give_up, rescale, tire
from spillway.errors import SettingsError
from spillway.metrics.events import TrackGivenUp
from spillway.metrics.record import SlotRecord
from spillway.metrics.view import ClusterView, SlotView
from spillway.policies.cluster.decision import Move
from spillway.policies.cluster.flux import Thresholds, load_moves
from spillway.policies.cluster.protocols import (
    LEAST_SENT_S,
    MADE_BYTES_S,
    SENT_BYTES_S,
    Protocols,
    sending_s,
)
from spillway.policies.cluster.strategy import Strategy
from spillway.protocols.move import Phase
from spillway.protocols.parallel_track import ParallelTrack
from spillway.protocols.relocation import Relocation
from spillway.routing.routing import Routing
from spillway.settings import Adapt
from spillway.slot.orders import LOAD, SIZE, Pick
from spillway.state.runs.durable import open_durable

MB = 10**6
#: A tenth of what the sender has.
MOVE = Move(0, 1, 40 * MB, "M_least/M_max = 0.40 < 0.80")


def slot(number: int, held: int, **more: object) -> SlotView:
    return SlotView(number, held, 0, None, 8, 0, place=f"host{number}", **more)


def view(busy_s: float, **more: object) -> ClusterView:
    return ClusterView((slot(0, 400 * MB, busy_s=busy_s, **more), slot(1, 40 * MB)), span_s=10.0)


def test_auto_takes_a_track_where_little_is_done_with_much_state() -> None:
    auto = Protocols("auto", life_s=60.0)
    busy, idle = (auto.of(MOVE, view(busy_s)) for busy_s in (9.0, 0.5))
    assert (busy.protocol, idle.protocol) == ("mslb", "ptlb")
    why = "M_least/M_max = 0.40 < 0.80; parallel track"
    assert busy.reason == f"{why} 5.40 s >= sending state 3.17 s"
    assert idle.reason == f"{why} 0.30 s < sending state 3.17 s"


def test_longer_windows_make_tracks_dearer() -> None:
    chosen = [
        Protocols("auto", life_s).of(MOVE, view(5.0)).protocol for life_s in (10.0, 60.0, 3600.0)
    ]
    assert chosen == ["ptlb", "ptlb", "mslb"]


def test_state_that_moves_by_name_costs_nothing() -> None:
    here = ClusterView(tuple(replace(one, place="host") for one in view(0.5).slots), span_s=10.0)
    assert Protocols("auto", 60.0).of(MOVE, here).protocol == "mslb"
    assert sending_s(MOVE, *here.slots) == 0.0


def test_states_of_another_plan_are_not_sent_but_made() -> None:
    sender = slot(0, 400 * MB, made_bytes=(("A+B", 100 * MB),))
    alike = slot(1, 40 * MB, made_bytes=(("A+B", 10 * MB),))
    other = slot(1, 40 * MB, made_bytes=(("B+C", 200 * MB),))
    assert sending_s(MOVE, sender, alike) == LEAST_SENT_S + 40 * MB / SENT_BYTES_S
    assert sending_s(MOVE, sender, other) == LEAST_SENT_S + 30 * MB / SENT_BYTES_S + 0.1


@pytest.mark.parametrize(("groups", "made_s"), [(8, 0.1), (1, 0.8), (32, 0.025)])
def test_what_is_made_is_as_large_as_it_is_for_the_groups_of_the_receiver(
    groups: int, made_s: float
) -> None:
    """Of the eight groups of the sender a tenth moves; the receiver has 200 MB for its own."""
    sender = slot(0, 400 * MB)
    receiver = replace(slot(1, 240 * MB, made_bytes=(("B+C", 200 * MB),)), groups=groups)
    sent_s = LEAST_SENT_S + 40 * MB / SENT_BYTES_S
    assert sending_s(MOVE, sender, receiver) == pytest.approx(sent_s + made_s)


@pytest.mark.parametrize(("groups", "size"), [(0, 0), (8, 0), (0, 7 * MB)])
def test_making_states_is_not_free_where_the_receiver_has_none_yet(groups: int, size: int) -> None:
    lacking = (("B+C", size), ("B+C+D", size))
    receiver = replace(slot(1, 0, made_bytes=lacking), groups=groups, place="host")
    with_states = slot(0, 400 * MB, made_bytes=(("A+B", 100 * MB), ("A+B+C", 60 * MB)))
    without = slot(0, 400 * MB)
    for sender, usual in ((with_states, 80 * MB), (without, 400 * MB)):
        together = replace(sender, place="host")
        made_s = 2 * 0.1 * usual / MADE_BYTES_S
        assert sending_s(MOVE, together, receiver) == pytest.approx(made_s)


@pytest.mark.parametrize("spilled", [0, 1])
@pytest.mark.parametrize("name", ["mslb", "ptlb", "auto"])
def test_state_is_sent_where_a_track_cannot_be(name: str, spilled: int) -> None:
    assert Protocols(name, None).of(MOVE, view(0.0)).protocol == "mslb"
    slots = [slot(0, 400 * MB), slot(1, 0)]
    slots[spilled] = replace(slots[spilled], disk_bytes=1)
    sent = Protocols(name, 60.0).of(MOVE, ClusterView(tuple(slots), span_s=10.0))
    why = "" if name == "mslb" else f"; the slot sends its state: slot {spilled} has rows on disk"
    assert (sent.protocol, sent.reason) == ("mslb", f"{MOVE.reason}{why}")


def test_settings_say_how_groups_move() -> None:
    assert Adapt().moves_name == "mslb"
    assert Adapt(moves="ptlb").moves_name == "ptlb"
    assert (Adapt(strategy="auto").strategy_name, Adapt(strategy="auto").moves_name) == (
        "lazy-disk",
        "auto",
    )
    for name in ("mslb", "ptlb"):
        assert Adapt(strategy="auto", moves=name).moves_name == name
    rules = Rules.of(Adapt(moves="ptlb", share="executor"), 90 * MB)
    assert (rules.protocols, rules.place_names) == (Protocols("ptlb", 90.0), 2)
    with pytest.raises(SettingsError, match="moves='fast' is not one of 'mslb', 'ptlb', 'auto'"):
        Adapt(moves="fast")


def test_track_goes_in_one_part_and_state_in_many() -> None:
    state = initial(Routing.even(8, 2), 2)
    for protocol, parts in (("mslb", (10 * MB, 30 * MB)), ("ptlb", (40 * MB, 0))):
        [move] = begin(state, [replace(MOVE, protocol=protocol)], 10 * MB).moves
        assert (move.protocol, move.wanted_bytes, move.left_bytes) == (protocol, *parts)


def test_slots_that_differ_begin_a_track() -> None:
    rules = Rules(Strategy("relocate-only"), interval_batches=1, protocols=Protocols("ptlb", 60.0))
    state = replace(initial(Routing.even(8, 2), 2), batch=3)
    none = (0, 0)
    records = {
        at: SlotRecord(
            *(3, at, "m", none, none, 0, (None, None), none, (held, 0), none, f"host{at}/1/2")
        )
        for at, held in enumerate((100, 10))
    }
    [move] = adapt(state, records, {}, rules).moves
    assert isinstance(move, ParallelTrack)


def test_only_tracks_that_duplicate_are_given_up() -> None:
    tracks = [
        ParallelTrack(at, 2 * at, 2 * at + 1, 1, 0, False, "a test", phase, groups=(at,))
        for at, phase in enumerate([Phase.COMPUTING, Phase.DUPLICATING, Phase.DELETING])
    ]
    sent = Relocation(3, 6, 7, 1, 0, False, "a test", Phase.SENDING, groups=(3,))
    state = replace(initial(Routing.even(8, 8), 2), moves=(*tracks, sent))
    after, [event] = give_up(state, "the input has ended")
    assert [move.phase for move in after.moves] == [
        Phase.COMPUTING,
        Phase.ROLLING_BACK,
        Phase.DELETING,
        Phase.SENDING,
    ]
    assert (type(event), event.reason) == (TrackGivenUp, "the input has ended")


def test_track_of_one_group_picked_by_load_costs_its_share_of_the_load() -> None:
    busy = slot(0, 400 * MB, busy_s=9.5, rows_in=10**6)
    idle = slot(1, 100 * MB, busy_s=2.0, rows_in=2 * 10**5)
    slots = ClusterView((busy, idle), span_s=10.0, peak_s=10.0)
    [move] = load_moves(slots, Thresholds())
    assert move.pick is not None
    share = move.pick.share
    chosen = Protocols("auto", life_s=600.0).of(move, slots)
    assert chosen.protocol == "mslb"
    assert chosen.reason.startswith(f"{move.reason}; parallel track {share * 0.95 * 600:.2f} s")
    sent_s = LEAST_SENT_S + share * 400 * MB / SENT_BYTES_S
    assert sending_s(move, busy, idle) == pytest.approx(sent_s)


def test_what_is_picked_is_one_group_at_least() -> None:
    sender, receiver = slot(0, 400 * MB), slot(1, 0)
    for pick in (Pick(LOAD, share=0.01), Pick(SIZE)):
        one = Move(0, 1, 0, "a test", pick=pick)
        assert sending_s(one, sender, receiver) == LEAST_SENT_S + 50 * MB / SENT_BYTES_S


@pytest.mark.parametrize("strategy", ["none", "spill-only", "lazy-disk"])
def test_what_a_track_costs_does_not_follow_the_age_of_the_query(strategy: str) -> None:
    rules = Rules.of(Adapt(slots=2, moves="auto", strategy=strategy), 600 * MB)
    rules = replace(rules, interval_s=50.0)
    reasons = []
    for age in (10, 1000):
        state = initial(Routing.even(8, 2), 2)
        for _ in range(2):
            for _ in range(age):
                state = _next(state, rules)
            state = _next(rescale(state, 1), rules)
            [move] = state.moves
            reasons.append(move.reason)
            # It has ended, and another begins later.
            state = replace(state, moves=(), scaling=None)
    assert {reason.partition("parallel track")[2] for reason in reasons} == {
        " 570.00 s >= sending state 3.17 s"
    }


def _next(state: Committed, rules: Rules, period_s: float = 0.0) -> Committed:
    """The state after one more batch of a second in which both slots worked for nearly all of it."""
    answers = {
        at: SlotRecord(
            *(0, at, f"m{at}", (9, 9), (0, 0), 0, (None, None), (9, 9), (20 * MB, 20 * MB), (1, 1)),
            worker=f"host{at}/1/2",
            busy_s=0.95,
        )
        for at in range(state.routing.slots)
    }
    plan = plan_batch(state, state.batch + 1)
    after = commit_batch(state, plan, answers, (None, None), 1.0)
    return adapt(after, answers, {}, rules, period_s)


def test_pauses_between_batches_are_no_work_of_a_track() -> None:
    """A slot that works for half a second every ten works for a twentieth of a life."""
    without = view(5.0)
    paused = replace(without, elapsed_s=200.0)
    reasons = [Protocols("auto", 600.0).of(MOVE, one).reason for one in (without, paused)]
    assert "parallel track 30.00 s >= sending state 3.17 s" in reasons[0]
    assert "parallel track 1.50 s < sending state 3.17 s" in reasons[1]


def test_time_from_batch_to_batch_is_measured_with_the_load() -> None:
    rules = Rules(Strategy("relocate-only"), interval_s=50.0, protocols=Protocols("auto", 600.0))
    state = initial(Routing.even(8, 2), 2)
    for _ in range(5):
        state = _next(state, rules, period_s=10.0)
    assert (state.clock_s, state.sample.elapsed_s) == (5.0, 50.0)
    # The second slot is to go with 20 MB; it works for 0.95 s in every ten.
    [move] = _next(rescale(state, 1), rules, period_s=10.0).moves
    assert f"parallel track {0.095 * 600:.2f} s" in move.reason


def tracked(since_s: float, now_s: float) -> Committed:
    """A query of eight groups and three slots, with a track between two of them."""
    track = ParallelTrack(
        *(0, 2, 0, 1, 0, True, "a test", Phase.DUPLICATING),
        groups=(4, 5, 6, 7),
        since_s=since_s,
    )
    state = initial(Routing(0, 3, (0, 0, 1, 1, 2, 2, 2, 2)), 2)
    return replace(state, batch=5, clock_s=now_s, watermark_us=70 * MB, moves=(track,))


@pytest.mark.parametrize(
    ("life_s", "batch_s", "lasted_s", "longest_s"),
    [(100.0, 1.0, 301.0, 300.0), (5.0, 1.0, 61.0, 60.0), (5.0, 40.0, 121.0, 120.0)],
)
def test_track_is_given_up_when_it_has_lasted_too_long(
    life_s: float, batch_s: float, lasted_s: float, longest_s: float
) -> None:
    rules = Rules(Strategy("none"), protocols=Protocols("ptlb", life_s))
    waits, none = tire(tracked(1000.0, 1000.0 + longest_s), rules, batch_s)
    assert (waits.moves[0].phase, none) == (Phase.DUPLICATING, ())
    after, [event] = tire(tracked(1000.0, 1000.0 + lasted_s), rules, batch_s)
    assert after.moves[0].phase is Phase.ROLLING_BACK
    why = f"it has lasted {lasted_s:g} s, more than 3 times the {life_s:g} s that an old row counts"
    assert (type(event), event.reason) == (TrackGivenUp, why)


def test_state_is_moved_after_a_track_was_given_up_until_the_watermark_has_moved(
    tmp_path: Path,
) -> None:
    rules = Rules(Strategy("none"), protocols=Protocols("ptlb", 100.0))
    state, _ = tire(rescale(tracked(0.0, 301.0), 2), rules, 1.0)
    state = _next(state, rules)
    assert state.given_up == GivenUpTrack(70 * MB)
    [move] = state.moves
    assert isinstance(move, Relocation)
    assert move.reason.endswith(
        "; the slot sends its state: the query gave up a parallel track recently"
    )
    # The log keeps it, and later it does not count any more.
    log = Log(open_durable(str(tmp_path)))
    log.take_over()
    log.append(state)
    assert log.latest() == state
    for moved_us, kind in ((99 * MB, Relocation), (100 * MB, ParallelTrack)):
        later = replace(state, moves=(), watermark_us=70 * MB + moved_us)
        [move] = _next(later, rules).moves
        assert type(move) is kind


def test_watermark_that_never_came_lets_no_other_track_begin() -> None:
    protocols = Protocols("ptlb", 100.0)
    assert protocols.waits(None, None)
    assert not protocols.waits(5, None)
