"""ATR on simulated slots: whole intervals of time, one slot each, slave rows copied (PSP section 7).

The first stream is the master: its interval q goes to slot q mod slots. A row of another stream goes to
its own interval, and to those within a window before and after, where master rows of its window are or
may come. It probes the master first, so no pair is compared twice; a copy for future rows only waits.

Slots work independently, in order of arrival, so their times are running maxima. Processed rows purge
older ones (cross-purge): a slot without new rows keeps its state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spillway.metrics.groups import Floats, Ints
from spillway_lab.simulator.ring.scenario import RingScenario


@dataclass(frozen=True)
class Jobs:
    """The work of the slots: copies of rows, in order of arrival."""

    comes_s: Floats
    stream: Ints
    #: The number of the row in its stream.
    number: Ints
    interval: Ints
    slot: Ints
    work_s: Floats
    #: Expected results; pairs compared with the next stream, by step; and combinations that reach it.
    results: Floats
    pairs: Ints
    coming: Ints


def copied(scenario: RingScenario, times: Sequence[Floats]) -> tuple[Floats, Ints, Ints, Ints]:
    """Time, stream, number and interval of every copy, by time."""
    length, window = scenario.interval_s, scenario.window_s
    # Intervals of the window before and after; there may be more than one.
    most = math.ceil(window / length)
    parts = []
    for stream, at in enumerate(times):
        own = interval_of(at, length)
        for shift in (0,) if stream == 0 else range(-most, most + 1):
            to = own + shift
            # Within a window of the interval: at - window < its end, at + window > its begin.
            near = (at - window < (to + 1) * length) & (at + window > to * length) & (to >= 0)
            which = np.flatnonzero(near)
            parts.append((at[which], np.full(len(which), stream), which, to[which]))
    comes, streams, numbers, intervals = (np.concatenate(one) for one in zip(*parts, strict=True))
    by_time = np.lexsort((intervals, streams, comes))
    return comes[by_time], streams[by_time], numbers[by_time], intervals[by_time]


def jobs(scenario: RingScenario, times: Sequence[Floats], rng: np.random.Generator) -> Jobs:
    """All copies, and their work."""
    comes, stream, number, interval = copied(scenario, times)
    steps = scenario.streams - 1
    pairs = np.zeros((len(comes), steps), np.int64)
    coming = np.zeros((len(comes), steps), np.int64)
    count = np.ones(len(comes), np.int64)
    for step in range(steps):
        coming[:, step] = count
        pairs[:, step] = count * _met(scenario, times, comes, stream, interval, step)
        if step < steps - 1:
            count = rng.binomial(pairs[:, step], scenario.part)
    work_s = (
        scenario.send_s + scenario.insert_s + scenario.purge_s + pairs.sum(axis=1) * scenario.pair_s
    )
    return Jobs(
        comes,
        stream,
        number,
        interval,
        interval % scenario.slots,
        work_s,
        np.asarray(pairs[:, -1] * scenario.part, np.float64),
        pairs,
        coming,
    )


def _met(
    scenario: RingScenario,
    times: Sequence[Floats],
    comes: Floats,
    stream: Ints,
    interval: Ints,
    step: int,
) -> Ints:
    """Rows of the next stream that each copy meets in its interval, in its window."""
    met = np.zeros(len(comes), np.int64)
    for source in range(scenario.streams):
        mine = np.flatnonzero(stream == source)
        target = [other for other in range(scenario.streams) if other != source][step]
        low, high = window(times[target], comes[mine], scenario.window_s)
        if target == 0:
            owner = interval_of(times[0], scenario.interval_s)
            low = np.maximum(low, np.searchsorted(owner, interval[mine], side="left"))
            high = np.minimum(high, np.searchsorted(owner, interval[mine], side="right"))
        met[mine] = np.maximum(0, high - low)
    return met


def window(times: Floats, at: Floats, window_s: float) -> tuple[Ints, Ints]:
    """The rows in a window before each time: the first, and one after the last."""
    low = np.searchsorted(times, at - window_s, side="right")
    return low, np.searchsorted(times, at, side="left")


def interval_of(times: Floats, length_s: float) -> Ints:
    """The interval of each time."""
    return np.floor(times / length_s).astype(np.int64)


def finished(todo: Jobs, slots: int) -> Floats:
    """When each copy is done; a slot processes copies one after the other.

    With c_k the work up to k, done_k = c_k + max over i <= k of (comes_i - c_{i-1}).
    """
    done = np.zeros(len(todo.comes_s))
    for slot in range(slots):
        mine = np.flatnonzero(todo.slot == slot)
        worked = np.cumsum(todo.work_s[mine])
        waited = np.maximum.accumulate(todo.comes_s[mine] - (worked - todo.work_s[mine]))
        done[mine] = worked + waited
    return done


def kept(todo: Jobs, done_s: Floats, slot: int, window_s: float, samples: Floats) -> Ints:
    """Rows in the state of a slot at the given times."""
    mine = np.flatnonzero(todo.slot == slot)
    if not len(mine):
        return np.zeros(len(samples), np.int64)
    last = np.searchsorted(done_s[mine], samples, side="right") - 1
    at = todo.comes_s[mine]
    first = np.searchsorted(at, at[np.maximum(last, 0)] - window_s, side="right")
    return np.where(last >= 0, last + 1 - first, 0)


def lost(todo: Jobs, met: Ints) -> tuple[str, ...]:
    """Violations: pairs of first steps not compared exactly once; `met` is by row and step."""
    missing = int(met[:, 0].sum() - todo.pairs[:, 0].sum())
    return (f"{missing} pairs of first steps were not compared exactly once",) if missing else ()
