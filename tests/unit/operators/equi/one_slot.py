"""One slot that runs joins, without Spark and without a coordinator."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.policies.local.controller import LocalController
from spillway.slot.job import SlotJob
from spillway.slot.limits import Limits
from spillway.slot.orders import Order
from spillway.slot.run import Attempt, run_slot
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier

NAMES = "ABCD"

#: A row: its stream, key and time.
Rows = Sequence[tuple[int, int, int]]


def streams(windows: Sequence[int | None]) -> tuple[StreamColumns, ...]:
    """Streams with a value that is seen, and a key and a time that are not."""
    return tuple(
        StreamColumns(name, ("v",), (0, 1, 2), (1,), None if window is None else 2, window)
        for name, window in zip(NAMES, windows, strict=False)
    )


class Slot:
    """One slot that is given batches."""

    def __init__(self, folder: Path, columns: tuple[StreamColumns, ...]) -> None:
        self.columns = columns
        self.manifest: Manifest = empty_manifest(SlotId(0), len(columns))
        self.watermark: int | None = None
        self.record: SlotRecord
        self.largest = 0
        self.limits = Limits()
        self._folder, self._opened = folder, OpenRuns()
        self._durable = open_durable(str(folder / "durable"))
        self._batch, self._value = itertools.count(), itertools.count()

    def batch(
        self,
        operator: Operator,
        rows: Rows,
        cleanup: Sequence[int] = (),
        orders: Sequence[Order] = (),
    ) -> Counter:
        """The values of the results of a batch."""
        number, taken = next(self._batch), []
        local = [LocalTier(kind, self._folder / kind) for kind in ("memory", "disk")]
        store = Store(local[0], local[1], self._durable, self._opened, number)
        job = SlotJob(
            number,
            SlotId(0),
            8,
            self.columns,
            self.watermark,
            1 << 30,
            str(number),
            "test",
            limits=self.limits,
            cleanup=tuple(cleanup),
            orders=tuple(orders),
        )
        found: Counter = Counter()
        attempt = Attempt(job, self.manifest, operator, LocalController(), store, taken.append)
        for batch in run_slot([self._exchanged(rows)] if rows else [], attempt):
            self.largest = max(self.largest, batch.num_rows)
            found.update(tuple(row[s.name]["v"] for s in self.columns) for row in batch.to_pylist())
        [self.record] = taken
        self.manifest = read_manifest(self._durable, self.record.manifest)
        return found

    def _exchanged(self, rows: Rows) -> pa.RecordBatch:
        hashes = np.array([key * 2654435761 % 2**32 for _, key, _ in rows], np.uint32)
        return pa.RecordBatch.from_arrays(
            [
                pa.array([stream for stream, _, _ in rows], pa.int16()),
                pa.array(hashes.view(np.int32)),
                pa.array([next(self._value) for _ in rows], pa.int64()),
                pa.array([key for _, key, _ in rows], pa.int64()),
                pa.array([time for _, _, time in rows], pa.timestamp("us")),
            ],
            names=["_stream", "_h", "lane0", "lane1", "lane2"],
        )

    def made(self) -> dict[str, int]:
        """Rows of the intermediate states."""
        rows = self.manifest.state_rows[len(self.columns) :]
        return dict(zip(self.manifest.made, rows, strict=True))
