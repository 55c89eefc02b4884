"""A join without equal keys in micro-batches, as a query on Spark runs it: a batch's rows come together.

A batch begins when the previous one ends. For a fixed time no slot works; then all work until the last
one is done, and all results are there. What is simulated is how long the slots work:

    PSP   all rows of the batch are in the ring at once (spillway_lab/simulator/ring/flow.py)
    CTR   the same, but a slot answers a row only for its slices in the row's cover, which the
          query's own policy chooses (policies/ring/covering.py)
    ATR   the copies of rows in a slot's intervals, one after the other
          (spillway_lab/simulator/ring/intervals.py)

Slots without their own core wait for one, in the order of their numbers.

Known limitation: partial results travel on at once; a query waits for all slots after each step. CTR's
rows visit all slots; a query skips those that neither store nor probe. A row meets earlier rows; within
a batch, a query lets the row of the later stream meet the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spillway.metrics.groups import Floats, Ints
from spillway.policies.ring.covering import covers
from spillway.policies.ring.slicing import ATR, CTR
from spillway.routing.slices import interleaved
from spillway_lab.simulator.ring.flow import ring_run
from spillway_lab.simulator.ring.intervals import Jobs, jobs, kept, lost
from spillway_lab.simulator.ring.rows import (
    DONE,
    RESULTS,
    Rows,
    held_by_slot,
    order_of,
    wrong_rows,
)
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.slices import Placement, fixed, still
from spillway_lab.simulator.ring.travel import Found, Limits, Paths, Ring, RingRun, WorkTimes


@dataclass(frozen=True)
class Batches:
    """The measurements of each batch."""

    #: The time of its last rows, and how long it takes.
    until_s: Floats
    took_s: Floats
    results: Floats
    pairs: Floats
    #: By batch and slot: seconds of work, and rows stored at its end.
    busy_s: Floats
    kept: Ints
    violations: tuple[str, ...]


def batches(scenario: RingScenario, times: list[Floats], rng: np.random.Generator) -> Batches:
    """The batches of rows with these times, by stream."""
    if scenario.distribution == ATR:
        return _intervals(scenario, times, rng)
    return _visits(scenario, times)


def makespan(work_s: Sequence[float], cores: int) -> float:
    """How long tasks take on shared cores; a free core takes the next task.

    Example:
        >>> makespan([4.0, 3.0, 2.0], cores=2), makespan([4.0, 3.0, 2.0], cores=3)
        (5.0, 4.0)
    """
    free = [0.0] * cores
    for work in work_s:
        free[free.index(min(free))] += work
    return max(free)


def _ends(scenario: RingScenario) -> Floats:
    assert scenario.batch_s is not None
    count = int(np.ceil(scenario.seconds / scenario.batch_s))
    return np.arange(1, count + 1, dtype=np.float64) * scenario.batch_s


def _visits(scenario: RingScenario, times: list[Floats]) -> Batches:
    """PSP and CTR."""
    rows, ends, slots = Rows.of(scenario, times), _ends(scenario), scenario.slots
    place, chosen = _placed(scenario, rows, ends)
    held, order = held_by_slot(place, times, slots), order_of(scenario)
    copies = scenario.copies if scenario.distribution == CTR else 1
    ring = Ring(held, order, scenario.part, WorkTimes.of(scenario, copies), np.arange(slots))
    steps = scenario.streams - 1
    found, pairs = (
        np.zeros((len(rows.comes_s), 4)),
        np.zeros((len(rows.comes_s), 2 * steps), np.int64),
    )
    busy_s, took_s = np.zeros((len(ends), slots)), np.zeros(len(ends))
    bounds = np.searchsorted(rows.comes_s, [0.0, *ends]).tolist()
    for batch, (first, last) in enumerate(pairwise(bounds)):
        some, comes = slice(first, last), np.zeros(last - first)
        mine = Rows(comes, rows.source[some], rows.low[some], rows.high[some])
        limits = Limits(np.inf, np.inf, scenario.seed + batch, interleave=max(1, len(comes)))
        heads = place.homes[chosen[some], place.bucket(rows.comes_s[some])]
        paths = Paths(comes, heads, np.full(len(comes), slots), chosen[some])
        ring_run(
            RingRun(mine, ring, limits),
            paths,
            Found(found[some], pairs[some], np.zeros((1, 2)), busy_s[batch]),
        )
        took_s[batch] = _took(scenario, busy_s[batch], float(found[some, DONE].max(initial=0.0)))
    number = np.searchsorted(ends, rows.comes_s, side="right")
    return Batches(
        ends,
        took_s,
        _summed(number, found[:, RESULTS], len(ends)),
        _summed(number, pairs[:, :steps].sum(axis=1), len(ends)),
        busy_s,
        _stored(scenario, times, ends),
        wrong_rows(rows.met(order), found, pairs),
    )


def _took(scenario: RingScenario, busy_s: Floats, alone_s: float) -> float:
    """The seconds of a batch; `alone_s` assumes a core for every slot."""
    cores = scenario.slots if scenario.cores is None else scenario.cores
    worked = alone_s if cores >= scenario.slots else makespan(busy_s.tolist(), cores)
    return scenario.batch_fixed_s + worked


def _placed(scenario: RingScenario, rows: Rows, ends: Floats) -> tuple[Placement, Ints]:
    """The slots that answer for each slice, by cover, and the cover of each row."""
    count = len(rows.comes_s)
    if scenario.distribution != CTR:
        return fixed(scenario, scenario.slots), np.zeros(count, np.int64)
    slots, streams, copies = scenario.slots, scenario.streams, scenario.copies
    table = interleaved(scenario.groups, slots, copies)
    # Covers repeat with a period of as many batches as there are slots.
    each = [cover for batch in range(slots) for cover in covers(table, copies, streams, batch)]
    slices = np.array([[table[group] for group in cover] for cover in each])
    batch = np.searchsorted(ends, rows.comes_s, side="right")
    return still(scenario, slices, slots), (batch % slots) * streams + rows.source


def _stored(scenario: RingScenario, times: list[Floats], ends: Floats) -> Ints:
    """By batch and slot, the rows in the windows at its end."""
    ctr = scenario.distribution == CTR
    copies, slots = scenario.copies if ctr else 1, scenario.slots
    table = np.array(interleaved(scenario.groups, slots, copies))
    planes = still(scenario, table.reshape(copies, -1), slots)
    held = held_by_slot(planes, times, slots).sum(axis=0)
    found = np.zeros((len(ends), slots), np.int64)
    for stream, one in enumerate(times):
        low, high = (np.searchsorted(one, at) for at in (ends - scenario.window_s, ends))
        found += held[stream, high] - held[stream, low]
    return found


def _intervals(scenario: RingScenario, times: list[Floats], rng: np.random.Generator) -> Batches:
    """ATR."""
    todo, ends, slots = jobs(scenario, times, rng), _ends(scenario), scenario.slots
    batch = np.searchsorted(ends, todo.comes_s, side="right")
    busy_s = np.zeros((len(ends), slots))
    np.add.at(busy_s, (batch, todo.slot), todo.work_s)
    took = [_took(scenario, one, float(one.max(initial=0.0))) for one in busy_s]
    return Batches(
        ends,
        np.array(took),
        _summed(batch, todo.results, len(ends)),
        _summed(batch, todo.pairs.sum(axis=1), len(ends)),
        busy_s,
        _waiting(scenario, todo, ends, batch),
        lost(todo, Rows.of(scenario, times).met(order_of(scenario))),
    )


def _waiting(scenario: RingScenario, todo: Jobs, ends: Floats, batch: Ints) -> Ints:
    """By batch and slot, the copies stored at its end."""
    over = ends[batch]
    by_slot = [kept(todo, over, slot, scenario.window_s, ends) for slot in range(scenario.slots)]
    return np.stack(by_slot, axis=1)


def _summed(batch: Ints, values: Floats | Ints, count: int) -> Floats:
    found = np.zeros(count)
    np.add.at(found, batch, values)
    return found
