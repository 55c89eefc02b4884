"""More than 2 GiB of text through a whole slot: every row comes out.

The scaled tests make all bounds 16,384 times smaller, so that 128 KiB are what Arrow's offsets can
count. Whatever the slot writes or yields must then stay below that, and far below in most cases.
One test has the real sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.equi.join import JoinOperator
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.dedup import DedupOperator
from spillway.operators.grouping.groupby import GroupByOperator
from spillway.operators.grouping.windowed import LastRows, WindowedOperator
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.policies.local.controller import LocalController
from spillway.rows import bounds
from spillway.rows.joining import is_wide
from spillway.slot import cleanup, keeper
from spillway.slot.job import SlotJob
from spillway.slot.limits import Budget, Limits
from spillway.slot.orders import Park, TakeBack
from spillway.slot.run import Attempt, run_slot
from spillway.state.layout import compaction, shelf
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.durable import DurableStore, open_durable
from spillway.state.runs.run import Run, RunData
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot import staging

SCALE = 1 << 14
#: What 32-bit offsets can count, at this scale.
TWO_GIB = (2 << 30) // SCALE
SIZES = [
    *((bounds, name) for name in ("JOINED_BYTES", "STEP_BYTES", "BLOCK_BYTES")),
    *((shelf, name) for name in ("MOVE_BYTES", "FRESH_BYTES")),
    *((keeper, name) for name in ("EXPIRY_BYTES", "RELOAD_BYTES")),
    (cleanup, "CLEAN_STEP_BYTES"),
    (staging, "STAGED_BYTES"),
]
#: A value of 100 MB, at this scale.
WIDE = 100_000_000 // SCALE
ROWS = 28
GROUPS = 4
STREAMS = tuple(StreamColumns(name, ("k", "n", "w"), (0, 1, 2), (0,)) for name in ("a", "b"))
JOIN = JoinOperator(STREAMS)
KEYED = STREAMS[:1]


class Checked(Store):
    """Looks at the size of everything that is written."""

    most_bytes = TWO_GIB

    def write(
        self, name: str, batch: pa.RecordBatch, time_column: int | None, **how: Any
    ) -> tuple[Run, RunData]:
        assert batch.nbytes <= self.most_bytes
        assert not is_wide(batch)
        return super().write(name, batch, time_column, **how)


class Slot:
    """One slot, batch after batch."""

    def __init__(
        self,
        folder: Path,
        operator: Operator,
        streams: tuple[StreamColumns, ...] = STREAMS,
        durable: DurableStore | None = None,
    ) -> None:
        self._tiers = [LocalTier(kind, folder / kind) for kind in ("memory", "disk")]
        self._durable = durable or open_durable(str(folder / "durable"), fsync=False)
        self._opened = OpenRuns()
        self._operator = operator
        self._job = SlotJob(0, SlotId(0), GROUPS, streams, None, 1 << 30, "t", "w")
        self.manifest: Manifest = empty_manifest(SlotId(0), len(operator.layouts))
        self.record: SlotRecord | None = None

    def batch(self, rows: Iterable[pa.RecordBatch], **changes: Any) -> Iterator[pa.RecordBatch]:
        """One batch with changes to its job; the state is that after it."""
        job = replace(self._job, **changes)
        store = Checked(*self._tiers, self._durable, self._opened, job.batch)
        told: list[SlotRecord] = []
        controller = LocalController()
        attempt = Attempt(job, self.manifest, self._operator, controller, store, told.append)
        yield from run_slot(rows, attempt)
        [self.record] = told
        self.manifest = read_manifest(self._durable, self.record.manifest)
        for name in self.record.dropped:
            store.forget(name)
        self._job = replace(self._job, batch=job.batch + 1)

    def results(self, rows: Iterable[pa.RecordBatch] = (), **changes: Any) -> list[dict[str, Any]]:
        """The same; results as values."""
        found = []
        for block in self.batch(rows, **changes):
            assert block.nbytes <= TWO_GIB
            found += block.to_pylist()
        return found


def rows(stream: int, numbers: Iterable[int], texts: pa.Array | None = None) -> pa.RecordBatch:
    """Wide rows of one key as they come to a slot, all in one Arrow batch."""
    some = list(numbers)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([stream] * len(some), pa.int16()),
            pa.array([7] * len(some), pa.int32()),
            pa.array([1] * len(some), pa.int64()),
            pa.array(some, pa.int64()),
            pa.array([text(n) for n in some]) if texts is None else texts,
        ],
        names=["_stream", "_h", "lane0", "lane1", "lane2"],
    )


def text(number: int) -> str:
    return f"{number:06d}" + "x" * WIDE


def pairs(found: Iterable[dict[str, Any]]) -> Counter[tuple[int, int]]:
    """Results of the join as numbers; their texts must be whole."""
    counted: Counter[tuple[int, int]] = Counter()
    for row in found:
        assert [row[name]["w"] for name in ("a", "b")] == [text(row[n]["n"]) for n in ("a", "b")]
        counted[row["a"]["n"], row["b"]["n"]] += 1
    return counted


def every(a: int, b: int) -> Counter[tuple[int, int]]:
    return Counter({(x, y): 1 for x in range(a) for y in range(b)})


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in SIZES:
        monkeypatch.setattr(module, name, getattr(module, name) // SCALE)
    monkeypatch.setattr(compaction, "FAN", 2)


@pytest.mark.usefixtures("scaled")
def test_spill_and_cleanup_of_more_than_two_gib(tmp_path: Path) -> None:
    slot = Slot(tmp_path, JOIN)
    limited = Limits(memory_bytes=WIDE * 4)
    found = slot.results([rows(0, range(ROWS))], limits=limited)
    assert sum(slot.manifest.disk_bytes) > TWO_GIB
    found += slot.results([rows(1, range(2))], limits=limited)
    found += slot.results(cleanup=tuple(range(GROUPS)), limits=limited)
    assert pairs(found) == every(ROWS, 2)


@pytest.mark.usefixtures("scaled")
def test_merges_of_more_than_two_gib(tmp_path: Path) -> None:
    slot = Slot(tmp_path, JOIN)
    merged = 0
    for batch in range(ROWS):
        assert slot.results([rows(0, [batch])]) == []
        assert slot.record is not None
        merged += slot.record.merged_rows
    assert merged > ROWS
    assert sum(slot.manifest.state_bytes) > TWO_GIB
    assert pairs(slot.results([rows(1, range(2))])) == every(ROWS, 2)


@pytest.mark.usefixtures("scaled")
def test_more_than_two_gib_wait_in_the_spool(tmp_path: Path) -> None:
    slot = Slot(tmp_path, JOIN)
    found = slot.results([rows(1, range(2))])
    found += slot.results([rows(0, range(ROWS))], budget=Budget(0, 1 << 40))
    assert slot.manifest.spool.bytes > TWO_GIB
    assert pairs(found) == Counter()
    assert pairs(slot.results()) == every(ROWS, 2)


@pytest.mark.usefixtures("scaled")
def test_more_than_two_gib_are_parked(tmp_path: Path) -> None:
    slot = Slot(tmp_path, JOIN)
    found = slot.results([rows(1, range(2))])
    parking = Park(3, tuple(range(GROUPS)))
    found += slot.results([rows(0, range(ROWS))], orders=(parking,))
    assert slot.manifest.parked[0].bytes > TWO_GIB
    assert pairs(found) == Counter()
    assert slot.record is not None
    again = TakeBack(3, slot.record.manifest)
    assert pairs(slot.results(orders=(again,))) == every(ROWS, 2)


@pytest.mark.usefixtures("scaled")
def test_more_than_two_gib_are_staged_and_combined(tmp_path: Path) -> None:
    counts = [Aggregate("n", "count"), Aggregate("w", "max", 2, pa.string())]
    group_by = Slot(tmp_path / "grouped", GroupByOperator(KEYED[0], ["k"], counts), KEYED)
    last = WindowedOperator(KEYED[0], [("at", 1)], counts, LastRows(5, 1), per_row=False)
    windowed = Slot(tmp_path / "last", last, KEYED)
    dedup = Slot(tmp_path / "dedup", DedupOperator(KEYED[0], 1), KEYED)
    # All rows in one batch, then one for each row: staging, then merges that combine.
    parts = [range(ROWS), *([n] for n in range(ROWS, ROWS + 6))]
    for some in parts:
        newest = some[-1]
        [grouped] = group_by.results([rows(0, some)])
        assert grouped == {"k": 1, "n": newest + 1, "w": text(newest)}
        [window] = windowed.results([rows(0, some)])
        assert window == {"at": newest, "n": 5, "w": text(newest)}
        assert [row["n"] for row in dedup.results([rows(0, some)])] == [0] * (newest == ROWS - 1)


@contextmanager
def little_disk(folder: Path) -> Iterator[DurableStore]:
    """A durable tier that keeps manifests and forgets runs: the local tiers have them all."""
    kept = open_durable(str(folder / "durable"), fsync=False)
    write = kept.write
    kept.write = lambda name, data: None if name.startswith("runs/") else write(name, data)  # type: ignore[method-assign]
    yield kept


@pytest.mark.full
def test_more_than_two_gib_of_one_key_spill_and_are_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real sizes: 22 rows of 100 MB. Only their numbers and lengths are compared."""
    width, count = 100_000_000, 22
    monkeypatch.setattr(Checked, "most_bytes", bounds.JOINED_BYTES)
    with little_disk(tmp_path) as durable:
        slot = Slot(tmp_path, JOIN, durable=durable)
        limited = Limits(memory_bytes=300_000_000)
        wide = pa.array(["x" * width])
        coming = (rows(0, [n], wide) for n in range(count))
        assert not any(block.num_rows for block in slot.batch(coming, limits=limited))
        assert sum(slot.manifest.disk_bytes) > 2 << 30
        found: Counter[tuple[int, int]] = Counter()
        meeting = slot.batch([rows(1, [0])], limits=limited)
        cleaning = slot.batch([], limits=limited, cleanup=tuple(range(GROUPS)))
        for block in chain(meeting, cleaning):
            assert block.nbytes <= bounds.JOINED_BYTES
            a = block.column("a")
            lengths = pc.binary_length(a.field("w")).to_pylist()
            found.update(zip(a.field("n").to_pylist(), lengths, strict=True))
    assert found == Counter({(n, width): 1 for n in range(count)})
