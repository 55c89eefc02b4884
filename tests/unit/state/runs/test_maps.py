"""A process without memory maps left reads copies of its runs, and says how many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.equi.join import JoinOperator
from spillway.operators.input import StreamColumns
from spillway.policies.local.controller import LocalController
from spillway.slot.job import SlotJob
from spillway.slot.run import Attempt, run_slot
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier

STREAMS = tuple(StreamColumns(name, ("k",), (0,), (0,)) for name in ("a", "b"))


def no_map_left(path: str) -> None:
    if not Path(path).exists():
        raise FileNotFoundError(path)
    raise OSError(12, "Cannot allocate memory")


def rows(stream: int, count: int) -> pa.RecordBatch:
    h = np.arange(count, dtype=np.int32)
    columns = [pa.array([stream] * count, pa.int16()), pa.array(h), pa.array(h.astype(np.int64))]
    return pa.RecordBatch.from_arrays(columns, names=["_stream", "_h", "lane0"])


def test_runs_that_cannot_be_mapped_are_copied_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable = open_durable(str(tmp_path / "durable"), fsync=False)
    manifest, told = empty_manifest(SlotId(0), 2), list[SlotRecord]()
    found = []
    for batch, stream in enumerate([0, 1, 0]):
        # A process of its own each time: nothing is open.
        tiers = [LocalTier(kind, tmp_path / kind) for kind in ("memory", "disk")]
        store = Store(*tiers, durable, OpenRuns(), batch)
        job = SlotJob(batch, SlotId(0), 4, STREAMS, None, 1 << 20, f"t{batch}", "w")
        operator = JoinOperator(STREAMS, 100)
        attempt = Attempt(job, manifest, operator, LocalController(), store, told.append)
        found.append(sum(block.num_rows for block in run_slot([rows(stream, 9)], attempt)))
        manifest = read_manifest(durable, told[-1].manifest)
        monkeypatch.setattr(pa, "memory_map", no_map_left)
    assert found == [0, 9, 9]
    # The second batch opens the run of the first, the third those of both.
    assert [record.copied for record in told] == [0, 1, 2]
    assert not any(record.restored for record in told)


def test_missing_file_is_not_a_copy(tmp_path: Path) -> None:
    tier = LocalTier("memory", tmp_path / "memory")
    tier.write("r", pa.py_buffer(b"abc"), 1)
    assert tier.map("other") is None
    assert bytes(tier.map("r") or b"") == b"abc"
    assert tier.copies == 0
