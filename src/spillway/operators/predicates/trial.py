"""Predicates tried on a few rows: what a pair costs, and how many pass, before a join has begun.

Pairs are drawn from samples of the streams, in blocks: one pair, then two, four and so on while the
next block is sure to be cheap, so that a slow predicate is called for few pairs and a quick one for
thousands. All blocks tell how many pairs pass. The last one alone tells what a pair costs, since a call
has a cost of its own that the pairs of a large block share. Time decides on speed, never on results.

Known limitation: pairs are drawn whatever their times are, so a predicate that time itself makes likely
looks less so. And bands are judged pair by pair, though a sliced join answers them from a sorted order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from spillway.errors import SpillwayError
from spillway.metrics.counts import Judged, Key, Spent
from spillway.operators.predicates.columns import Rows
from spillway.operators.predicates.predicate import Positions, Predicate, judged
from spillway.operators.predicates.probing import Measured
from spillway.operators.stats import OperatorStats

#: Pairs of the largest block.
MOST_PAIRS = 8192
#: Seconds that all predicates together may take, but for one pair of each.
BUDGET_S = 1.0


def tried(
    predicates: Sequence[Predicate], samples: Mapping[str, pa.RecordBatch], seed: int = 0
) -> Measured:
    """What is measured of predicates on pairs of sampled rows; every sample has a row at least.

    A predicate that fails is not measured: where it must not, the join itself will say so.
    """
    counts: dict[Key, tuple[float, float]] = {}
    for predicate in predicates:
        with contextlib.suppress(SpillwayError):
            counts |= _tried(
                predicate, samples, np.random.default_rng(seed), BUDGET_S / len(predicates)
            )
    return Measured(counts)


def _tried(
    predicate: Predicate,
    samples: Mapping[str, pa.RecordBatch],
    random: np.random.Generator,
    budget_s: float,
) -> dict[Key, tuple[float, float]]:
    # What a predicate does once, such as to compile itself, is no part of what a pair costs.
    _judge(predicate, samples, 1, random)
    pairs, passed, took_s = 1, 0.0, 0.0
    judged_pairs, spent_s = 0, 0.0
    while True:
        found = _judge(predicate, samples, pairs, random).selectivity
        judged_pairs += pairs
        passed += found[Judged(predicate.label)][1]
        took_s = found[Spent(predicate.label)][1]
        spent_s += took_s
        if 2 * pairs > MOST_PAIRS or spent_s + 2 * took_s > budget_s:
            break
        pairs *= 2
    return {
        Judged(predicate.label): (judged_pairs, passed),
        Spent(predicate.label): (pairs, took_s),
    }


def _judge(
    predicate: Predicate,
    samples: Mapping[str, pa.RecordBatch],
    pairs: int,
    random: np.random.Generator,
) -> OperatorStats:
    """Judges so many pairs, drawn anew."""
    stats = OperatorStats(1)
    drawn = {
        stream: random.integers(samples[stream].num_rows, size=pairs)
        for stream in predicate.streams
    }

    def rows(some: Positions | None) -> tuple[dict[str, Rows], int]:
        count = pairs if some is None else len(some)
        found = {
            stream: Rows(
                stream,
                samples[stream].schema.names,
                samples[stream].column,
                at if some is None else at.take(some),
                count,
            )
            for stream, at in drawn.items()
        }
        return found, count

    judged(predicate, rows, pairs, pairs, stats)
    return stats
