"""Spark forgets which rows a committed batch had, as after a loss of power: no row may vanish."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from scenario import Scenario

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.errors import QueryError


def test_committed_batch_whose_offsets_are_lost_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a="k int, x int", b="k int, y int")
    for batch in range(2):
        scenario.add(a=[(1, batch)], b=[(1, batch)])
    joined = scenario.join().on("k")
    scenario.run(joined)
    committed = Checkpoint(str(scenario.checkpoint / "spillway")).log.latest()
    assert (committed.batch, committed.input_digest is None) == (1, False)
    for folder in ("offsets", "commits", "sources/0", "sources/1"):
        for name in ("1", ".1.crc"):
            (scenario.checkpoint / "spark" / folder / name).unlink()
    # Spark makes a new batch 1 from more rows; as a repeated batch, it would be skipped with them.
    scenario.add(a=[(1, 7)], b=[(1, 7)])
    with pytest.raises(QueryError, match="Spark gives batch 1 other rows than it had before"):
        scenario.run(scenario.join(max_files_per_trigger=9).on("k"))
    assert Checkpoint(str(scenario.checkpoint / "spillway")).log.latest() == committed
