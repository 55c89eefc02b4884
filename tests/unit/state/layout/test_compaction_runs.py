"""How many runs a large state has, and how much a batch merges: a model of thousands of batches.

The decisions are the product's; only rows are numbers instead of data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from spillway.routing.routing import HashRange
from spillway.rows import bounds
from spillway.state.layout.compaction import (
    FAN,
    SOURCE,
    begin_merges,
    due_rows,
    finish_merges,
    fuel_rows,
    merges,
)
from spillway.state.layout.layers import Layer
from spillway.state.runs.run import Run, Slice

ROWS = 100_000
ROW_BYTES = 40


def piece(rows: int, row_bytes: int = ROW_BYTES) -> Slice:
    return Slice(Run("run", rows, rows * row_bytes, 0, None, None, "memory"), HashRange(0, 1))


def rows_of(layers: Iterable[Layer]) -> int:
    return sum(one.run.rows for layer in layers for one in layer.slices)


def merge_batch(layers: Sequence[Layer], rows: int, turn: int, row_bytes: int) -> tuple:
    """The layers after a batch, and the rows of each step."""
    layers = list(begin_merges([*layers, Layer(0, (piece(rows, row_bytes),))], None))
    steps = []
    for merge in merges(layers):
        fuel = due_rows(merge, layers, fuel_rows(rows), turn)
        left = rows_of(layers[at] for at in merge.sources)
        taken = min(fuel, left)
        if not taken:
            continue
        steps.append(taken)
        target = layers[merge.target]
        layers[merge.target] = replace(target, slices=(*target.slices, piece(taken, row_bytes)))
        rest = (piece(left - taken, row_bytes),) if left > taken else ()
        for at in merge.sources:
            layers[at] = replace(layers[at], slices=())
        layers[merge.sources[0]] = replace(layers[merge.sources[0]], slices=rest)
    return finish_merges(layers), steps


def run(batches: int, rows=lambda _: ROWS, row_bytes: int = ROW_BYTES):
    layers: Sequence[Layer] = ()
    work, most_layers = [], 0
    for batch in range(batches):
        layers, steps = merge_batch(layers, rows(batch), batch, row_bytes)
        work.append(sum(steps))
        most_layers = max(most_layers, sum(layer.role != SOURCE for layer in layers))
    assert rows_of(layers) == sum(map(rows, range(batches)))
    return layers, work, most_layers


def test_a_billion_rows_are_a_run_for_every_32_mib_or_so() -> None:
    """Steps of one size would leave a run for nearly every batch."""
    layers, _, _ = run(10_000)
    runs = sum(len(layer.slices) for layer in layers)
    assert runs < 1.1 * 10_000 * ROWS * ROW_BYTES / (bounds.STEP_BYTES / 2)
    assert runs < 10_000 / 8


def test_layers_stay_logarithmic_and_a_batch_merges_a_bounded_part() -> None:
    _, work, most_layers = run(5_000)
    assert most_layers < 2 * FAN * 6
    assert max(work) * ROW_BYTES <= 2 * bounds.STEP_BYTES
    assert sum(work) / len(work) < 6 * 1.3 * ROWS


@pytest.mark.parametrize("row_bytes", [1_000, 20_000])
def test_wide_rows_take_small_steps(row_bytes: int) -> None:
    """Their steps have the bytes of one batch already."""
    _, work, _ = run(1_000, lambda _: 5_000, row_bytes)
    assert max(work) * row_bytes <= max(
        4 * 1.25 * 5_000 * row_bytes, 2 * bounds.STEP_BYTES, 4 * 32_768 * row_bytes
    )


def test_batches_that_come_large_between_turns_do_not_pile_up() -> None:
    """Only every second batch has rows, and the higher levels have their turns in the others."""
    for odd in (0, 1):
        _, _, most_layers = run(4_000, lambda batch, odd=odd: 2 * ROWS if batch % 2 == odd else 1)
        assert most_layers < 2 * FAN * 6
