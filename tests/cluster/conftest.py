"""One run of a query on three executors, which all tests of executors and anchors look at."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cluster_child
import pyspark
import pytest
from inputs import Input, assert_same_rows, written
from moves import MovingPlace
from processes import Child, local_roots, wait_until

from tier import LONGEST_S


@dataclass(frozen=True)
class Batch:
    """One batch of the run, as its progress tells it."""

    number: int
    #: Process ids for each slot: the executor's JVM and the Python worker.
    executors: tuple[int, ...]
    workers: tuple[int, ...]
    #: Runs that each slot had to fetch from the durable tier.
    restored: tuple[int, ...]


@dataclass(frozen=True)
class ClusterRun:
    """Where the run was, what it read, and what it reports."""

    root: Path
    input: Input
    report: dict[str, Any]

    def batches(self, start: str) -> list[Batch]:
        """The batches of the first or of the second start."""
        return [_batch(entry) for entry in self.report[start]]

    def assert_exact(self, last_batch: int | None = None) -> None:
        """Whether the output, up to a batch of the first start, is what pandas makes of the input."""
        files = None if last_batch is None else last_batch + 1
        assert_same_rows(written(self.root / "out", last_batch), self.input.expected(files))


def _batch(entry: dict[str, Any]) -> Batch:
    pids = [slot["worker"].split("/")[1:] for slot in entry["slots"]]
    executors, workers = (tuple(map(int, side)) for side in zip(*pids, strict=True))
    restored = tuple(slot["restored"] for slot in entry["slots"])
    return Batch(entry["batchId"], executors, workers, restored)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRun]:
    """The run of `cluster_child`, once for all tests."""
    root = tmp_path_factory.mktemp("cluster")
    given = Input(str(root / "in"), files=cluster_child.FILES, rows=100, keys=300, seed=11)
    given.write()
    child = Child(
        "cluster_child.py", [json.dumps(dataclasses.asdict(given)), str(root)], root / "scratch"
    )
    try:
        if not wait_until((root / "report.json").exists, LONGEST_S, step=0.1, child=child):
            pytest.fail(f"the run on three executors did not end well\n{child.told()}")
        wait_until(lambda: not child.running, 30, step=0.1)
        yield ClusterRun(root, given, json.loads((root / "report.json").read_text()))
    finally:
        child.close()
        _tidy(root)


def _tidy(root: Path) -> None:
    for left in local_roots(root):
        shutil.rmtree(left, ignore_errors=True)
    application = root / "application"
    if application.exists():
        # Spark's local cluster keeps the logs of executors below its own installation.
        home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
        shutil.rmtree(home / "work" / application.read_text(), ignore_errors=True)
        if (home / "work").is_dir() and not any((home / "work").iterdir()):
            (home / "work").rmdir()


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[MovingPlace]:
    """Where a query whose groups move has everything."""
    place = MovingPlace(tmp_path)
    yield place
    place.tidy()
