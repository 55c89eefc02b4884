"""`simulate_ring`: a join without equal keys; response time and state over virtual time.

Three distributions run on the same rows. PSP: every row goes round a ring of slices (ring/flow.py). CTR:
several slots store every row, and each step goes to a cover. ATR: one slot has a whole interval of time
(ring/intervals.py). ring/batches.py runs all three in micro-batches, as a query does. A check after
each run asserts that every row met its whole window in every step, no pair twice.

Known limitation: PSP-I's StateStart and StateEnd marks take no time, and state counts once, while the
paper's is briefly in two slots. CTR's cover is the smallest possible, one of `copies` disjoint sets of
slots that each have every slice; finding it costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spillway.metrics.groups import Floats, Ints
from spillway.policies.ring.slicing import ATR, CTR
from spillway_lab.simulator.outcome import Outcome
from spillway_lab.simulator.ring.arrivals import poisson_times
from spillway_lab.simulator.ring.batches import batches
from spillway_lab.simulator.ring.flow import hops_run, ring_run
from spillway_lab.simulator.ring.intervals import finished, jobs, kept, lost
from spillway_lab.simulator.ring.rows import (
    BEGUN,
    DONE,
    RESULTS,
    Rows,
    held_by_slot,
    order_of,
    wrong_rows,
)
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.slices import Placement, fixed, placed
from spillway_lab.simulator.ring.travel import Found, Limits, Paths, Ring, RingRun, WorkTimes

NAMES = ("second", "response_s", "rows", "fullest_rows", "slots", "results")


class RingResult(Outcome[RingScenario]):
    """The outcome of a simulated ring."""


def simulate_ring(scenario: RingScenario) -> RingResult:
    """Runs a scenario in virtual time; the same seed gives the same numbers.

    Example:
        >>> found = simulate_ring(RingScenario(seconds=20.0))
        >>> found.violations, bool(found.totals["response_s"] > 0)
        ((), True)
    """
    rng = np.random.default_rng([scenario.seed, 0])
    times = [poisson_times(scenario.rates, scenario.seconds, rng) for _ in range(scenario.streams)]
    if scenario.batch_s is not None:
        return _batched(scenario, times, rng)
    if scenario.distribution == ATR:
        return _intervals(scenario, times, rng)
    return _slices(scenario, Rows.of(scenario, times), times)


def _slices(scenario: RingScenario, rows: Rows, times: list[Floats]) -> RingResult:
    """PSP and CTR."""
    ctr = scenario.distribution == CTR
    place = fixed(scenario, scenario.slots // scenario.copies) if ctr else placed(scenario, times)
    slots = int(place.ring.max())
    held, order = held_by_slot(place, times, slots), order_of(scenario)
    run = RingRun(
        rows,
        Ring(held, order, scenario.part, WorkTimes.of(scenario), _links(scenario, slots)),
        Limits(scenario.seconds, scenario.sample_s, scenario.seed, scenario.interleave),
    )
    found = Found.empty(run, slots, len(_seconds(scenario)) + 1)
    if ctr:
        hops_run(run, found)
    else:
        ring_run(run, _paths(rows, place), found)
    copies, seconds = scenario.copies if ctr else 1, _seconds(scenario)
    state, fullest, ring = _kept(rows, place, held, found.rows, seconds)
    violations = wrong_rows(rows.met(order), found.rows, found.pairs)
    return _result(
        scenario,
        found.by_sample,
        {
            "rows": state * copies,
            "fullest_rows": fullest,
            "slots": ring if not ctr else ring * copies,
        },
        {
            "results": float(found.rows[:, RESULTS].sum()),
            "pairs": float(found.pairs[:, : scenario.streams - 1].sum()),
            "moves": place.moves,
            "rows_waiting": float((found.rows[:, DONE] == 0).sum()),
            "utilisation": float(found.busy_s.max() / scenario.seconds),
        },
        violations,
    )


def _links(scenario: RingScenario, slots: int) -> Ints:
    """The link on which each slot sends: its own, or the shared one."""
    return np.arange(slots) * (scenario.network != "shared")


def _paths(rows: Rows, place: Placement) -> Paths:
    """The path of each row; it waits while slices move."""
    epoch, bucket = place.epoch(rows.comes_s), place.bucket(rows.comes_s)
    ready_s = np.maximum(rows.comes_s, place.since_s[epoch] + place.pauses_s[epoch])
    return Paths(ready_s, place.homes[epoch, bucket], place.ring[bucket], epoch)


def _seconds(scenario: RingScenario) -> Floats:
    samples = int(np.ceil(scenario.seconds / scenario.sample_s))
    return np.arange(1, samples + 1, dtype=np.float64) * scenario.sample_s


def _kept(
    rows: Rows, place: Placement, held: Ints, found: Floats, seconds: Floats
) -> tuple[Ints, Ints, Ints]:
    """At the sample times: rows of state, rows of the fullest slot, and the length of the ring.

    A row is stored from when the ring takes it until the oldest unfinished row no longer needs it.
    """
    begun = found[:, BEGUN][found[:, BEGUN] > 0]
    done = found[:, DONE][: len(begun)].copy()
    done[done == 0] = np.inf
    newest = np.maximum(np.searchsorted(begun, seconds, side="right") - 1, 0)
    # Done times rarely fall; the first unfinished row follows from their running maximum.
    oldest = np.minimum(np.searchsorted(np.maximum.accumulate(done), seconds, side="right"), newest)
    epoch = place.epoch(rows.comes_s[newest])
    by_slot = np.zeros((len(seconds), held.shape[3]), np.int64)
    for stream in range(held.shape[1]):
        high = rows.high[newest, stream] + (rows.source[newest] == stream)
        by_slot += held[epoch, stream, high] - held[epoch, stream, rows.low[oldest, stream]]
    ring = place.ring[place.bucket(rows.comes_s[newest])]
    return by_slot.sum(axis=1), by_slot.max(axis=1), ring


def _intervals(scenario: RingScenario, times: list[Floats], rng: np.random.Generator) -> RingResult:
    """ATR."""
    todo = jobs(scenario, times, rng)
    done = finished(todo, scenario.slots)
    seconds = _seconds(scenario)
    states = np.stack(
        [kept(todo, done, slot, scenario.window_s, seconds) for slot in range(scenario.slots)]
    )
    ends = done <= scenario.seconds
    sample = (done[ends] / scenario.sample_s).astype(np.int64)
    by_sample = np.zeros((len(seconds) + 1, 2))
    np.add.at(by_sample[:, 0], sample, todo.results[ends])
    late = todo.results * (done - todo.comes_s)
    np.add.at(by_sample[:, 1], sample, late[ends])
    busy = np.bincount(todo.slot[ends], todo.work_s[ends], minlength=scenario.slots)
    violations = lost(todo, Rows.of(scenario, times).met(order_of(scenario)))
    return _result(
        scenario,
        by_sample,
        {
            "rows": states.sum(axis=0),
            "fullest_rows": states.max(axis=0),
            "slots": np.full(len(seconds), scenario.slots),
        },
        {
            "results": float(todo.results[ends].sum()),
            "pairs": float(todo.pairs.sum()),
            "moves": 0,
            "rows_waiting": float((~ends).sum()),
            "utilisation": float(busy.max() / scenario.seconds),
        },
        violations,
    )


def _result(
    scenario: RingScenario,
    by_sample: Floats,
    states: Mapping[str, Ints],
    totals: Mapping[str, float],
    violations: tuple[str, ...],
) -> RingResult:
    seconds = _seconds(scenario)
    results, late_s = by_sample[: len(seconds)].T
    series = {
        "second": seconds,
        "response_s": np.where(results > 0, late_s / np.maximum(results, 1e-300), 0.0),
        **states,
        "results": results,
    }
    response = float(late_s.sum() / max(results.sum(), 1e-300))
    return RingResult(
        scenario,
        {name: tuple(round(float(v), 9) for v in series[name]) for name in NAMES},
        {
            "response_s": round(response, 9),
            "rows": round(float(states["rows"].mean()), 3),
            **{name: round(value, 6) for name, value in totals.items()},
        },
        violations,
    )


def _batched(scenario: RingScenario, times: list[Floats], rng: np.random.Generator) -> RingResult:
    """Any distribution in micro-batches: a point is a batch, and its response the batch's whole time."""
    found = batches(scenario, times, rng)
    series = {
        "second": found.until_s,
        "response_s": found.took_s,
        "rows": found.kept.sum(axis=1),
        "fullest_rows": found.kept.max(axis=1),
        "slots": np.full(len(found.until_s), scenario.slots),
        "pairs": found.pairs,
        "results": found.results,
    }
    late_s = float((found.results * found.took_s).sum())
    totals = {
        "response_s": late_s / max(float(found.results.sum()), 1e-300),
        "rows": float(series["rows"].mean()),
        "results": float(found.results.sum()),
        "pairs": float(found.pairs.sum()),
        "moves": 0.0,
        "rows_waiting": 0.0,
        "utilisation": float(found.busy_s.sum(axis=0).max() / max(found.took_s.sum(), 1e-300)),
    }
    return RingResult(
        scenario,
        {name: tuple(round(float(v), 9) for v in values) for name, values in series.items()},
        {name: round(value, 9) for name, value in totals.items()},
        found.violations,
    )
