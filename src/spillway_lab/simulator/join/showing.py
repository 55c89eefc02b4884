"""The feed of a simulated join: plans that change, and groups that move with or without state."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

from spillway.codec import plain
from spillway.coordinator.batch.committed import Committed
from spillway.dashboard.feed.batches import spread
from spillway.dashboard.feed.happenings import happenings_of, moving_of
from spillway.dashboard.feed.heat import heat_of
from spillway.dashboard.feed.news import (
    ENDED,
    RUNNING,
    VIRTUAL,
    About,
    Heat,
    News,
    Point,
    Slots,
    StageAbout,
)
from spillway.metrics.record import SlotRecord
from spillway_lab.simulator.join.scenario import NAMES, JoinScenario
from spillway_lab.simulator.join.simulation import JoinSimulation, simulate_join

Publish = Callable[[News], None]


def show_join(scenario: JoinScenario, publish: Publish, *, samples_per_heat: int = 1) -> None:
    """Runs a scenario and publishes a message for each sample."""
    stage = StageAbout(
        "n-way join", NAMES, scenario.groups, ("key",), scenario.settings.strategy_name,
        window_s=scenario.window_s,
    )  # fmt: skip
    about = About(
        f"simulation {scenario.name}", "simulation", uuid.uuid4().hex, VIRTUAL, (stage,),
        sink="results",
    )  # fmt: skip
    publish(News(whole=True, about=about, status=RUNNING, now_s=0.0))
    told = samples = 0
    made = 0.0

    def tell(simulation: JoinSimulation, now_s: float) -> None:
        nonlocal told, samples, made
        fresh = simulation.journal[told:]
        lines = [
            line
            for at, (at_s, event) in enumerate(fresh)
            for line in happenings_of([plain(event)], stage=0, at_s=at_s, first=told + at + 1)
        ]
        told = len(simulation.journal)
        coordinator = simulation.control.conductor.coordinator
        results = simulation.series["results"][-1]
        heats: tuple[Heat, ...] = ()
        if samples % samples_per_heat == 0:
            table, state = simulation.control.table, coordinator.state
            heats = (heat_of(table, state.routing.table, stage=0, batch=state.batch, at_s=now_s),)
        samples += 1
        took_s = coordinator.took.seconds
        publish(
            News(
                now_s=now_s,
                points=(
                    _point(now_s, coordinator.state, coordinator.last, took_s, results - made),
                ),
                happenings=tuple(lines),
                slots=(slots_of_records(coordinator.state, coordinator.last, took_s),),
                heats=heats,
            )
        )
        made = results

    simulate_join(scenario, tell)
    publish(News(status=ENDED, told=f"{scenario.seconds:g} virtual seconds have passed"))


def _point(
    now_s: float, state: Committed, last: Mapping[int, SlotRecord], took_s: float, results: float
) -> Point:
    records = list(last.values())
    streams = range(len(NAMES))
    return Point(
        at_s=now_s,
        stage=0,
        batch=state.batch,
        seconds=took_s,
        rows_in=tuple(sum(one.rows_in[at] for one in records) for at in streams),
        rows_out=round(results),
        memory_bytes=sum(sum(one.state_bytes) for one in records),
        disk_bytes=sum(sum(one.disk_bytes) for one in records),
        busy=spread(_busy(records, took_s)),
    )


def _busy(records: Sequence[SlotRecord], took_s: float) -> tuple[float, ...]:
    return tuple(round(min(1.0, one.busy_s / max(took_s, 1e-9)), 3) for one in records)


def slots_of_records(state: Committed, last: Mapping[int, SlotRecord], took_s: float) -> Slots:
    """Returns the slots of any simulated host, from the records of its last batch."""
    records = [last[slot] for slot in sorted(last)]
    return Slots(
        stage=0,
        batch=state.batch,
        memory_bytes=tuple(sum(one.state_bytes) for one in records),
        limit_bytes=(None,) * len(records),
        disk_bytes=tuple(sum(one.disk_bytes) for one in records),
        rows=tuple(sum(one.state_rows) for one in records),
        rows_in=tuple(sum(one.rows_in) for one in records),
        rows_out=tuple(one.rows_out for one in records),
        busy=_busy(records, took_s),
        shapes=tuple(one.shape for one in records),
        moves=moving_of([plain(move) for move in state.moves]),
    )
