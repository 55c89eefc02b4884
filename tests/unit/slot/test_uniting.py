"""A group that spills again and again has few parts on disk, and misses no result in the end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spillway.ids import HASH_END, SlotId
from spillway.metrics.events import CleanedUp
from spillway.metrics.record import SlotRecord
from spillway.operators.equi.join import JoinOperator
from spillway.operators.equi.tree import TreeOperator
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.groupby import GroupByOperator
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.plan.shape import parse
from spillway.policies.local.controller import LocalController
from spillway.slot import uniting
from spillway.slot.job import SlotJob
from spillway.slot.limits import Limits
from spillway.slot.run import Attempt, run_slot
from spillway.slot.uniting import alike
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier

GROUPS = 4
STREAMS = tuple(StreamColumns(name, ("k", "n"), (0, 1), (0,)) for name in ("a", "b", "c"))
COUNTS = [Aggregate("n", "count"), Aggregate("sum", "sum", 1, pa.int64())]


class Spilling:
    """A slot in which every batch leaves memory."""

    def __init__(self, folder: Path, operator: Operator, streams: int) -> None:
        self._tiers = [LocalTier(kind, folder / kind) for kind in ("memory", "disk")]
        self._durable = open_durable(str(folder / "durable"), fsync=False)
        self._opened = OpenRuns()
        self._operator = operator
        limits = Limits(memory_bytes=1, spill_fraction=1.0)
        self._job = SlotJob(
            0, SlotId(0), GROUPS, STREAMS[:streams], None, 1 << 20, "t", "w", limits
        )
        self.manifest: Manifest = empty_manifest(SlotId(0), streams)
        self.records: list[SlotRecord] = []

    def batch(self, rows: pa.RecordBatch | None, **changes: Any) -> list[dict[str, Any]]:
        job = replace(self._job, **changes)
        store = Store(*self._tiers, self._durable, self._opened, job.batch)
        attempt = Attempt(
            job, self.manifest, self._operator, LocalController(), store, self.records.append
        )
        given = [] if rows is None else [rows]
        found = [row for block in run_slot(given, attempt) for row in block.to_pylist()]
        self.manifest = read_manifest(self._durable, self.records[-1].manifest)
        for name in self.records[-1].dropped:
            store.forget(name)
        self._job = replace(self._job, batch=job.batch + 1)
        return found

    @property
    def parts(self) -> int:
        return int(self.manifest.groups.generations.max())

    @property
    def united(self) -> int:
        events = [event for record in self.records for event in record.events]
        return sum(isinstance(one, CleanedUp) and "parts" in one.reason for one in events)


def rows(streams: Iterable[int], number: int) -> pa.RecordBatch:
    """One row for each stream and group."""
    some = [(stream, group) for stream in streams for group in range(GROUPS)]
    h = np.array([group * (HASH_END // GROUPS) for _, group in some], np.uint32).view(np.int32)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([stream for stream, _ in some], pa.int16()),
            pa.array(h),
            pa.array([group for _, group in some], pa.int64()),
            pa.array([number] * len(some), pa.int64()),
        ],
        names=["_stream", "_h", "lane0", "lane1"],
    )


def combinations(found: Sequence[dict[str, Any]]) -> Counter[tuple[int, ...]]:
    values = [[row[name] for name in row] for row in found]
    return Counter((one[0]["k"], *(side["n"] for side in one)) for one in values)


def test_parts_of_similar_size_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uniting, "FAN", 4)
    assert alike([20, 17, 30]) == ()
    assert alike([20, 17, 4000, 30, 63]) == (0, 1, 3, 4)
    # The lowest class first.
    assert alike([1, 1, 1, 1, 20, 20, 20, 20]) == (0, 1, 2, 3)
    # Parts of any class, united, are of a higher one.
    for size in range(1, 300):
        assert uniting._class_of(4 * size, 4) > uniting._class_of(size, 4)


def test_parts_grow_with_the_logarithm_of_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model: a part of 100 bytes in every batch, for a long time."""
    sizes: list[int] = []
    rewritten = 0
    for batch in range(1, 20_001):
        sizes.append(100)
        while chosen := alike(sizes):
            whole = sum(sizes[at] for at in chosen)
            rewritten += whole
            sizes = [*(s for at, s in enumerate(sizes) if at not in chosen), whole]
        assert len(sizes) <= (uniting.FAN - 1) * (1 + math.log(batch, uniting.FAN))
    assert rewritten <= 100 * 20_000 * math.log(20_000, uniting.FAN)


@pytest.mark.parametrize("kind", ["nway", "tree"])
@pytest.mark.parametrize("budget", [1 << 20, 0], ids=["at once", "a group at a time"])
def test_joined_group_that_spills_every_batch_has_few_parts(
    tmp_path: Path, kind: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uniting, "FAN", 3)
    monkeypatch.setattr(uniting, "UNITE_BYTES", budget)
    count = 2 if kind == "nway" else 3
    operator = JoinOperator(STREAMS[:2])
    if kind == "tree":
        operator = TreeOperator(STREAMS, parse("((a b) c)"))
    slot = Spilling(tmp_path, operator, count)
    batches = 24 if kind == "nway" else 12
    found, most = [], 0
    for batch in range(batches):
        # Streams take turns, so a part alone has no results.
        found += slot.batch(rows([batch % count], batch))
        most = max(most, slot.parts)
    assert found, "uniting gives the results between the parts that it unites"
    assert slot.united
    assert most <= 8
    assert sum(record.rows_cleaned for record in slot.records) == len(found)
    found += slot.batch(None, cleanup=tuple(range(GROUPS)))
    wanted = Counter(
        (group, *numbers)
        for group in range(GROUPS)
        for numbers in np.ndindex(*[batches] * count)
        if all(number % count == stream for stream, number in enumerate(numbers))
    )
    assert combinations(found) == wanted


def test_grouped_rows_that_wait_are_united_without_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uniting, "FAN", 3)
    slot = Spilling(tmp_path, GroupByOperator(STREAMS[0], ["k"], COUNTS), 1)
    batches, most = 30, 0
    first = slot.batch(rows([0], 0))
    assert len(first) == GROUPS
    for batch in range(1, batches):
        assert slot.batch(rows([0], batch)) == []
        most = max(most, slot.parts)
    assert slot.united
    assert most <= 8
    found = slot.batch(None, cleanup=tuple(range(GROUPS)))
    assert found == [
        {"k": group, "n": batches, "sum": sum(range(batches))} for group in range(GROUPS)
    ]


def test_files_of_a_group_that_spills_every_batch_do_not_pile_up(tmp_path: Path) -> None:
    """The real limits: 100 batches that spill leave few generations and runs."""
    slot = Spilling(tmp_path, JoinOperator(STREAMS[:2]), 2)
    for batch in range(100):
        slot.batch(rows([batch % 2], batch))
    assert slot.parts <= 21
    assert len(slot.manifest.generations) <= 30
    assert len(slot.manifest.runs()) <= 100
