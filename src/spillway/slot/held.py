"""A buffer of rows that wait in a task; rows beyond a limit wait in a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa


class Held:
    """Batches of one schema, returned in arrival order."""

    def __init__(self, limit_bytes: int, folder: Path | None = None) -> None:
        """`folder` holds the file; without it, the system's temporary directory does."""
        self._limit_bytes = limit_bytes
        self._folder = folder
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds a batch."""
        if self._held_bytes + batch.nbytes <= self._limit_bytes and self._writer is None:
            self._held.append(batch)
            self._held_bytes += batch.nbytes
            return
        if self._writer is None:
            # The file has no name, so it disappears when the task ends in any way.
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed after the read
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def then(self, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the buffered batches, then the rest."""
        yield from self._held
        self._held = []
        if self._file is not None and self._writer is not None:
            self._writer.close()
            self._file.seek(0)
            with pa.ipc.open_stream(self._file) as reader:
                yield from reader
            self._file.close()
        yield from rest
