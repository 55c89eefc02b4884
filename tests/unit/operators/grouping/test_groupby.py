"""Group-by as one slot runs it: what is kept, what is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.groupby import GroupByOperator
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.policies.local.controller import LocalController
from spillway.routing.routing import HashRange
from spillway.slot.job import SlotJob
from spillway.slot.run import Attempt, run_slot
from spillway.state.layout import compaction
from spillway.state.layout.layers import Layer
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.run import Run, Slice
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier

KEYED = StreamColumns("s", ("k", "v"), (0, 1), (0,))


class Slot:
    """One slot over some batches of rows (key, value)."""

    def __init__(self, folder: Path, operator: Operator) -> None:
        self.operator = operator
        self.manifest = empty_manifest(SlotId(0), 1)
        self.batches = 0
        self._folder, self._opened = folder, OpenRuns()

    def batch(self, keys: pa.Array, values: pa.Array) -> tuple[list[dict], SlotRecord]:
        numbers = np.array([0 if k is None else hash(k) for k in keys.to_pylist()], np.int64)
        h = (numbers * 2654435761 % 2**32).astype(np.uint32).view(np.int32)
        rows = pa.RecordBatch.from_arrays(
            [pa.array(np.zeros(len(keys), np.int16)), pa.array(h), keys, values],
            ["_stream", "_h", "lane0", "lane1"],
        )
        tiers = [LocalTier(kind, self._folder / kind) for kind in ("memory", "disk")]
        durable = open_durable(str(self._folder / "durable"))
        store = Store(*tiers, durable, self._opened, self.batches)
        job = SlotJob(
            batch=self.batches,
            slot=SlotId(0),
            groups=8,
            streams=(KEYED,),
            watermark_us=None,
            piece_bytes=1 << 20,
            attempt="a",
            worker="test",
        )
        records: list[SlotRecord] = []
        attempt = Attempt(
            job, self.manifest, self.operator, LocalController(), store, records.append
        )
        found = run_slot([rows], attempt)
        results = [row for batch in found for row in batch.to_pylist()]
        self.manifest = read_manifest(durable, records[0].manifest)
        self.batches += 1
        return results, records[0]


def test_state_of_keys_that_come_again_is_little_more_than_a_row_per_key(tmp_path: Path) -> None:
    slot = Slot(tmp_path, GroupByOperator(KEYED, ["k"], [Aggregate("n", "count")]))
    keys = pa.array(np.arange(500))
    for batch in range(64):
        results, record = slot.batch(keys, keys)
        assert {row["n"] for row in results} == {batch + 1}
        assert record.state_rows[0] <= 500 * 4


def test_keys_of_any_type_are_compared_as_they_are(tmp_path: Path) -> None:
    slot = Slot(tmp_path, GroupByOperator(KEYED, ["k"], [Aggregate("n", "count", 1, pa.int64())]))
    for times in (1, 2):
        results, _ = slot.batch(
            pa.array(["a", None, "", "a", "b"]), pa.array([1, 2, 3, None, 5], pa.int64())
        )
        assert {row["k"]: row["n"] for row in results} == {
            "a": times,
            None: times,
            "": times,
            "b": times,
        }


def layer(level: int, rows: int) -> Layer:
    run = Run(f"{level}-{rows}", rows, 0, 0, None, None)
    return Layer(level, (Slice(run, HashRange(0, 2**32)),))


def test_merge_takes_small_layers_of_higher_levels_along_where_rows_combine() -> None:
    few = [layer(0, 100)] * compaction.COMBINING_FAN
    layers = [layer(2, 101), layer(1, 200), *few]
    assert compaction.begin_merges(layers, None) == tuple(layers)
    taken = compaction.begin_merges(
        [layer(3, 300), layer(2, 101), layer(1, 199), *few], None, combining=True
    )
    assert [x.role for x in taken[:4]] == ["settled", "target", "source", "source"]
    [merge] = compaction.merges(taken)
    assert len(merge.sources) == compaction.COMBINING_FAN + 2


def test_merge_takes_no_layer_along_that_is_as_large_as_what_is_merged() -> None:
    few = [layer(0, 100)] * compaction.COMBINING_FAN
    layers = [layer(1, 100 * compaction.COMBINING_FAN), *few]
    [merge] = compaction.merges(compaction.begin_merges(layers, None, combining=True))
    assert len(merge.sources) == compaction.COMBINING_FAN
