"""Small limits: a few hundred rows cross all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from unittest import mock

from spillway.checkpoint import log
from spillway.coordinator.batch import plan
from spillway.operators.equi import ascent, tree
from spillway.operators.grouping import groupby, windowed, windows
from spillway.operators.theta import sliced, visit
from spillway.policies.local import spare
from spillway.rows import bounds
from spillway.slot import cleanup, keeper, limits, uniting
from spillway.slot import visits as rounds
from spillway.state.layout import compaction, shelf
from spillway.state.slot import memory, parts, staging

#: Records that a log keeps. An owner that sleeps through more takeovers gets no promise.
KEEP_RECORDS = 6
#: Batches between two sweeps of the local tiers.
SWEEP_BATCHES = 2

#: Module, name and small value of every limit.
SMALL: list[tuple[ModuleType, str, int]] = [
    (compaction, "FAN", 2),
    (compaction, "COMBINING_FAN", 2),
    (compaction, "LEAST_FUEL_ROWS", 3),
    (compaction, "CROWDED_LAYERS", 4),
    (cleanup, "CLEAN_STEP_BYTES", 150),
    (keeper, "EXPIRY_BYTES", 200),
    (keeper, "RELOAD_BYTES", 1500),
    (log, "KEEP_RECORDS", KEEP_RECORDS),
    (plan, "SWEEP_BATCHES", SWEEP_BATCHES),
    (spare, "LEAST_BYTES", 50),
    (limits, "LEAST_MADE_BYTES", 120),
    (groupby, "STEP_KEYS", 2),
    (windowed, "BLOCK_ROWS", 5),
    (windows, "SPELLED_ROWS", 4),
    (bounds, "JOINED_BYTES", 1500),
    (bounds, "STEP_BYTES", 1200),
    (bounds, "BLOCK_BYTES", 800),
    (shelf, "MOVE_BYTES", 100),
    (shelf, "FRESH_BYTES", 400),
    (shelf, "COUNTED_LAYERS", 20),
    (memory, "LEAST_WASTE_BYTES", 100),
    (parts, "CROWDED_GENERATION", 3),
    (staging, "STAGED_BYTES", 300),
    (ascent, "PIECE_BYTES", 120),
    (tree, "FILL_ROWS", 8),
    (visit, "FEW_PAIRS", 0),
    (sliced, "VISITING_ROWS", 5),
    (rounds, "HELD_BYTES", 300),
    (uniting, "FAN", 2),
    (uniting, "UNITE_BYTES", 100),
]


@contextmanager
def small_sizes() -> Iterator[None]:
    """Makes all limits small inside a `with` block."""
    with ExitStack() as patches:
        for module, name, value in SMALL:
            patches.enter_context(mock.patch.object(module, name, value))
        yield
