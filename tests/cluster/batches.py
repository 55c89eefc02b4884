"""Which files Spark has read in which batch, from its own checkpoint.

A batch takes one file of each stream as a rule. If a driver dies after the file source has logged a
file and before Spark has logged the batch, the next batch takes that file and one more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def batches_of_files(checkpoint: Path) -> dict[Path, int]:
    """The batch of every file that the query on a checkpoint of Spark has read."""
    ends = _ends(checkpoint)
    found: dict[Path, int] = {}
    for source in (checkpoint / "sources").iterdir():
        for path, offset in _files(source):
            reads = [batch for batch, end in ends if end[int(source.name)] >= offset]
            if reads:
                found[path] = min(reads)
    return found


def _ends(checkpoint: Path) -> list[tuple[int, list[int]]]:
    """The offsets of all sources at the end of each batch."""
    logged = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()]
    return [(int(path.name), [_offset(text) for text in _lines(path)[1:]]) for path in logged]


def _offset(text: str) -> int:
    return -1 if text == "-" else json.loads(text)["logOffset"]


def _files(source: Path) -> Iterator[tuple[Path, int]]:
    """The files of a source, each with its offset; compacted logs have them a second time."""
    for log in source.iterdir():
        if log.name.split(".")[0].isdigit():
            entries: list[dict[str, Any]] = [json.loads(text) for text in _lines(log)]
            yield from (
                (Path(one["path"].removeprefix("file:")), one["batchId"]) for one in entries
            )


def _lines(path: Path) -> list[str]:
    """The lines of a log behind the one with its version."""
    return path.read_text().splitlines()[1:]
