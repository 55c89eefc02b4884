"""A paused query begins nothing by itself; what has begun ends, and requests work."""

from __future__ import annotations

from dataclasses import replace

from spillway.coordinator.batch.committed import Sample, initial
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.decisions.adaptation import Rules
from spillway.coordinator.terms import Terms
from spillway.coordinator.wishes import PauseAdaptation, ScaleTo
from spillway.policies.cluster.strategy import Strategy
from spillway.routing.routing import Routing
from spillway.settings import Adapt


def coordinator() -> Coordinator:
    state = initial(Routing.even(8, 2), 1)
    rules = Rules(Strategy("lazy-disk"), interval_s=1.0)
    return Coordinator(Terms((None,), Adapt(slots=2, groups=8)), state, rules)


def taken(one: Coordinator, *wishes: object) -> Coordinator:
    for wish in wishes:
        one, _ = one.take(wish)  # type: ignore[arg-type]
    return one


def test_paused_rules_compare_no_slots() -> None:
    one = coordinator()
    late = replace(one.state, clock_s=100.0, sample=Sample())
    assert one.rules.due(late)
    assert not taken(one, PauseAdaptation(True)).rules.due(late)
    assert taken(one, PauseAdaptation(True), PauseAdaptation(False)).rules == one.rules


def test_paused_query_takes_a_request_for_slots() -> None:
    one = taken(coordinator(), PauseAdaptation(True), ScaleTo(4)).grant_wish()
    assert one.state.scaling is not None
    assert one.state.scaling.slots == 4
    assert one.rules.paused


def test_pause_keeps_the_limits_at_which_slots_spill() -> None:
    one = replace(coordinator(), memory={0: 1000, 1: 2000})
    assert taken(one, PauseAdaptation(True)).limits == one.limits == {0: 1000, 1: 2000}
