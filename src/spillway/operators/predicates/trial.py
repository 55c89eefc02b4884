"""Predicates measured on a few rows before a join begins: the cost of a pair, and how many pass.

The trial draws pairs from samples of the streams in blocks of one, two, four and so on, while the
next block is sure to be cheap: a slow predicate runs on few pairs, a quick one on thousands. All
blocks count how many pairs pass. Only the last gives the cost of a pair, because a large block
spreads the cost of a call. Time decides speed, never results.

Known limitation: the draw ignores the times of rows, so a predicate that correlates with time looks
less likely. It tests bands pair by pair, though a sliced join uses a sorted order.
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
from spillway.operators.predicates.tiles import Tiles
from spillway.operators.stats import OperatorStats

#: Pairs of the largest block.
MOST_PAIRS = 8192
#: Seconds that all predicates together may take, except for one pair of each.
BUDGET_S = 1.0


def tried(
    predicates: Sequence[Predicate], samples: Mapping[str, pa.RecordBatch], seed: int = 0
) -> Measured:
    """Measures predicates on pairs of sampled rows; every sample has at least one row.

    A predicate that fails is not measured: if the failure matters, the join itself will raise it.
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
    # One-time work of a predicate, such as compiling itself, does not count as the cost of a pair.
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
    """Tests this many pairs, newly drawn."""
    stats = OperatorStats(1)
    drawn = {
        stream: random.integers(samples[stream].num_rows, size=pairs)
        for stream in predicate.streams
    }
    if isinstance(predicate.test, Tiles):
        # In a join, the pairs fill tiles.
        one, other = predicate.streams
        side = int(np.sqrt(pairs))
        drawn[one] = drawn[one][np.arange(pairs) // side]
        drawn[other] = drawn[other][np.arange(pairs) % side]

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
