"""The oracles read from Spark's checkpoint which files a batch had."""

from __future__ import annotations

import json
from pathlib import Path

from batches import batches_of_files


def test_file_that_was_logged_without_its_batch_is_in_the_next_one(tmp_path: Path) -> None:
    """A driver died after the source had logged offset 1, and before Spark logged batch 1."""
    for number, offset in enumerate([0, 2, 3]):
        _write(tmp_path / "offsets" / str(number), "{}", json.dumps({"logOffset": offset}))
    entries = [
        json.dumps({"path": f"file:/in/{offset}", "timestamp": 0, "batchId": offset})
        for offset in range(5)
    ]
    for offset in (1, 3, 4):
        _write(tmp_path / "sources/0" / str(offset), entries[offset])
    _write(tmp_path / "sources/0/2.compact", *entries[:3])
    # The file at offset 4 is logged, but no batch has read it yet.
    found = batches_of_files(tmp_path)
    assert found == {Path("/in/0"): 0, Path("/in/1"): 1, Path("/in/2"): 1, Path("/in/3"): 2}


def _write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", *lines]))
