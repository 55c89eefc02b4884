"""By which protocol a move is made: estimated seconds of work on both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.coordinator.adaptation import Rules, adapt, begin, give_up
from spillway.coordinator.coordinator import initial
from spillway.errors import SettingsError
from spillway.metrics.events import TrackGivenUp
from spillway.metrics.record import SlotRecord
from spillway.metrics.view import ClusterView, SlotView
from spillway.policies.decision import Move
from spillway.policies.protocols import LEAST_SENT_S, SENT_BYTES_S, Protocols, sending_s
from spillway.policies.strategy import Strategy
from spillway.protocols.move import Phase
from spillway.protocols.parallel_track import ParallelTrack
from spillway.protocols.relocation import Relocation
from spillway.routing.routing import Routing
from spillway.settings import Adapt

MB = 10**6
#: A tenth of what the sender has.
MOVE = Move(0, 1, 40 * MB, "M_least/M_max = 0.40 < 0.80")


def slot(number: int, held: int, **more: object) -> SlotView:
    return SlotView(number, held, 0, None, 8, 0, place=f"host{number}", **more)  # type: ignore[arg-type]


def view(busy_s: float, **more: object) -> ClusterView:
    return ClusterView((slot(0, 400 * MB, busy_s=busy_s, **more), slot(1, 40 * MB)), span_s=10.0)


def test_auto_takes_a_track_where_little_is_done_with_much_state() -> None:
    auto = Protocols("auto", life_s=60.0)
    busy, idle = (auto.of(MOVE, view(busy_s)) for busy_s in (9.0, 0.5))
    assert (busy.protocol, idle.protocol) == ("mslb", "ptlb")
    why = "M_least/M_max = 0.40 < 0.80; parallel track"
    assert busy.reason == f"{why} 5.40 s >= moving state 3.17 s"
    assert idle.reason == f"{why} 0.30 s < moving state 3.17 s"


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


@pytest.mark.parametrize("name", ["mslb", "ptlb", "auto"])
def test_state_is_sent_where_a_track_cannot_be(name: str) -> None:
    assert Protocols(name, None).of(MOVE, view(0.0)).protocol == "mslb"
    on_disk = ClusterView((replace(slot(0, 400 * MB), disk_bytes=1), slot(1, 0)), span_s=10.0)
    assert Protocols(name, 60.0).of(MOVE, on_disk).protocol == "mslb"


def test_settings_say_how_groups_move() -> None:
    assert Adapt().moves_name == "mslb"
    assert Adapt(moves="ptlb").moves_name == "ptlb"
    assert (Adapt(strategy="auto").strategy_name, Adapt(strategy="auto").moves_name) == (
        "lazy-disk",
        "auto",
    )
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
