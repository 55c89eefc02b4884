"""The order of durability: runs and manifest of a slot are durable when it reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.equi.join import JoinOperator
from spillway.operators.input import StreamColumns
from spillway.policies.local.controller import LocalController
from spillway.slot.job import SlotJob
from spillway.slot.run import Attempt, run_slot
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.runs.durable.local import LocalDurable
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier

STREAMS = tuple(StreamColumns(name, ("k",), (0,), (0,)) for name in ("a", "b"))


class Told(LocalDurable):
    """Tells what it is asked to do."""

    def __init__(self, root: str, told: list[str]) -> None:
        super().__init__(root, root)
        self._told = told

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        self._told.append(name.partition("/")[0])
        super().write(name, data)

    def sync(self) -> None:
        self._told.append("sync")
        super().sync()


def test_a_slot_reports_when_its_runs_and_manifest_are_durable(tmp_path: Path) -> None:
    told: list[str] = []
    tiers = [LocalTier(kind, tmp_path / kind) for kind in ("memory", "disk")]
    store = Store(*tiers, Told(str(tmp_path / "durable"), told), OpenRuns(), 0)
    job = SlotJob(0, SlotId(0), 4, STREAMS, None, 1 << 20, "x", "w")
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([0, 1], pa.int16()),
            pa.array(np.array([7, 7], np.int32)),
            pa.array([1, 1], pa.int64()),
        ],
        names=["_stream", "_h", "lane0"],
    )

    def report(record: SlotRecord) -> None:
        assert record.manifest
        told.append("report")

    operator = JoinOperator(STREAMS, 100)
    manifest = empty_manifest(SlotId(0), 2)
    attempt = Attempt(job, manifest, operator, LocalController(), store, report)
    list(run_slot([rows], attempt))
    assert told == ["runs", "runs", "manifests", "sync", "report"]
