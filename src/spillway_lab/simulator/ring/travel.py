"""What the kernels of a ring read and write: rows, their paths, the ring, the limits, the findings.

All are named tuples, since numba cannot compile dataclasses. Kernels change only the arrays of `Found`
and `Traffic`.

Known limitation: numba's disk cache knows these classes by name. After renaming or moving one, delete
the `.nbi` files next to spillway_lab/simulator/ring/flow.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spillway.metrics.groups import Floats, Ints
from spillway_lab.simulator.ring.rows import Rows
from spillway_lab.simulator.ring.scenario import RingScenario


class WorkTimes(NamedTuple):
    """Seconds of each part of the work: T_j, T_s, T_n, T_i with T_p, and a row's bytes on a link."""

    pair_s: float
    send_s: float
    hop_s: float
    keep_s: float
    #: 0: slots pass rows on packet by packet, and bytes take no time.
    link_s: float

    @classmethod
    def of(cls, scenario: RingScenario, copies: int = 1) -> WorkTimes:
        """The costs of a scenario, where each row is stored in `copies` slots."""
        keep_s = copies * (scenario.insert_s + scenario.purge_s)
        return cls(scenario.pair_s, scenario.send_s, scenario.hop_s, keep_s, scenario.link_s)


class Ring(NamedTuple):
    """What the rows meet, and the costs."""

    #: By epoch, stream and number: how many of the first rows each slot holds.
    held: Any
    #: By stream, the streams that its rows probe.
    order: Ints
    #: The fraction of pairs that match.
    part: float
    costs: WorkTimes
    #: The link on which each slot sends.
    links: Ints


class Limits(NamedTuple):
    """When a run ends, and how it draws and samples."""

    #: Later results do not count.
    until_s: float
    sample_s: float
    #: The seed of the matches.
    seed: int
    #: The maximum of rows in the ring at a time.
    interleave: int = 1


class RingRun(NamedTuple):
    """Rows that meet a ring within limits."""

    rows: Rows
    ring: Ring
    limits: Limits


class Paths(NamedTuple):
    """By row, its path round the ring."""

    #: The earliest time at which the ring can take it.
    ready_s: Floats
    #: The slot that stores it, the length of its ring, and which epoch of `Ring.held` it sees.
    head: Ints
    slots: Ints
    epoch: Ints


class Found(NamedTuple):
    """The sums of a run, changed in place."""

    #: By row: the columns BEGUN to MOMENT (spillway_lab/simulator/ring/rows.py).
    rows: Floats
    #: By row: the pairs compared in each step, then the combinations that came to each step.
    pairs: Ints
    #: By sample: results, and the sum of their response times.
    by_sample: Floats
    #: By slot: seconds of work before the end.
    busy_s: Floats

    @classmethod
    def empty(cls, run: RingRun, slots: int, samples: int) -> Found:
        """Nothing found yet."""
        rows, steps = len(run.rows.comes_s), run.ring.order.shape[1]
        return cls(
            np.zeros((rows, 4)),
            np.zeros((rows, 2 * steps), np.int64),
            np.zeros((samples, 2)),
            np.zeros(slots),
        )


class Traveller(NamedTuple):
    """A row, partial combinations of one row and step, or the END behind them."""

    row: int
    step: int
    #: The slot in which it was made, and the one it reaches next; beyond the slots are the places
    #: where a message waits for a link.
    made: int
    slot: int
    #: Slots that it has yet to visit.
    left: int
    #: The number of combinations; -1: END.
    combinations: int


class Traffic(NamedTuple):
    """Messages on their way, and when slots and links are free."""

    #: By time of arrival, then by a serial number so that equal times have an order.
    heap: Any
    serial: Ints
    free_s: Floats
    carried_s: Floats
