"""This machine in the terms of a scenario: measured, and stored as a small JSON document.

Batches of synthetic rows of two streams go through `run_slot` with the join, in this process, without
Spark. A row's processor time is the median over the batches that do not compile kernels. Disk and memory
tier are timed with their own files.

Known limitation: Spark's part of a row (exchange, Arrow) is missing. A simulated slot is as busy as a
real one, but a real batch takes longer than its slots are busy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

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
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier, default_memory_root
from spillway_lab.simulator.cluster.scenario import Machine

_GROUPS = 256
_STREAMS = tuple(StreamColumns(name, ("k", "v"), (0, 1), (0,)) for name in ("a", "b"))
#: Batches that compile kernels and do not count.
_FIRST = 2
#: Size of the files that time disk and memory.
_FILE_BYTES = 32 << 20


@dataclass(frozen=True)
class Calibration:
    """What was measured."""

    #: Processor seconds of a row, and of moving a row into another slot's state.
    row_s: float
    install_s: float
    #: Bytes of state per row.
    row_bytes: float
    disk_bytes_per_s: float
    memory_bytes_per_s: float
    #: Rows and batches that were counted.
    rows: int
    batches: int

    def machine(self, base: Machine | None = None) -> Machine:
        """A machine like this one; memory and network are the given machine's."""
        return replace(
            base or Machine(),
            row_s=self.row_s,
            produce_s=0.0,
            install_s=self.install_s,
            disk_bytes_per_s=self.disk_bytes_per_s,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data: the measurements, and the machine of a scenario that follows from them."""
        return {"measured": asdict(self), "machine": asdict(self.machine())}


def calibrate(
    *, rows: int = 100_000, batches: int = 10, seed: int = 0, tell: Callable[[str], None] = print
) -> Calibration:
    """Measures this machine; takes some seconds."""
    rng = np.random.default_rng(seed)
    with (
        TemporaryDirectory(prefix="spillway-calibrate-") as folder,
        TemporaryDirectory(prefix="spillway-calibrate-", dir=default_memory_root()) as memory,
    ):
        tell("disk and memory")
        disk = _bytes_per_s(Path(folder) / "disk", synced=True)
        shared = _bytes_per_s(Path(memory) / "memory", synced=False)
        tell("operator")
        records = list(_ran(Path(folder), Path(memory), rng, rows, batches + _FIRST))[_FIRST:]
    size = sum(records[-1].state_bytes) / max(1, sum(records[-1].state_rows))
    return Calibration(
        row_s=round(median(one.cpu_s / sum(one.rows_in) for one in records), 12),
        # Moved state is copied and checked at the speed of memory, once on each side.
        install_s=round(size / shared, 12),
        row_bytes=round(size, 2),
        disk_bytes_per_s=round(disk),
        memory_bytes_per_s=round(shared),
        rows=sum(sum(one.rows_in) for one in records),
        batches=len(records),
    )


def _ran(
    folder: Path, memory: Path, rng: np.random.Generator, rows: int, batches: int
) -> Iterator[SlotRecord]:
    """The records of some batches of one slot."""
    operator, opened = JoinOperator(_STREAMS), OpenRuns()
    manifest = empty_manifest(SlotId(0), len(_STREAMS))
    durable = open_durable(str(folder / "durable"))
    for batch in range(batches):
        store = Store(
            LocalTier("memory", memory / "runs"),
            LocalTier("disk", folder / "runs"),
            durable,
            opened,
            batch,
        )
        job = SlotJob(batch, SlotId(0), _GROUPS, _STREAMS, None, 1 << 28, f"c{batch}", "calibrate")
        found: list[SlotRecord] = []
        rows_in = [_exchanged(rng, rows, batch)]
        attempt = Attempt(job, manifest, operator, LocalController(), store, found.append)
        results = run_slot(rows_in, attempt)
        for _ in results:
            pass
        manifest = read_manifest(durable, found[0].manifest)
        yield found[0]


def _exchanged(rng: np.random.Generator, rows: int, batch: int) -> pa.RecordBatch:
    """Rows of both streams as the exchange delivers them: every key once in each, in random order."""
    keys = np.concatenate([rng.permutation(rows // 2), rng.permutation(rows // 2)])
    keys = keys + batch * rows
    hashes = ((keys.astype(np.uint64) * 2654435761) & 0xFFFFFFFF).astype(np.uint32)
    streams = np.repeat(np.arange(2, dtype=np.int16), rows // 2)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(streams),
            pa.array(hashes.view(np.int32)),
            pa.array(keys),
            pa.array(rng.integers(0, 1 << 40, len(keys))),
        ],
        names=["_stream", "_h", "lane0", "lane1"],
    )


def _bytes_per_s(path: Path, *, synced: bool) -> float:
    """How fast a file is written; with a sync, to the disk itself."""
    data = np.random.default_rng(0).bytes(_FILE_BYTES)
    since = time.perf_counter()
    with path.open("wb") as file:
        file.write(data)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    return _FILE_BYTES / (time.perf_counter() - since)
