"""One test's streams, checkpoint and output, and the comparison with the batch join."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spillway import Join, Query, join
from spillway.checkpoint.checkpoint import Checkpoint
from spillway.testing import Fault, Faults, FileStream, assert_same_rows, oracle
from tier import LONGEST_S


class Scenario:
    """Named streams below one directory, joined into one output."""

    def __init__(self, spark: SparkSession, root: Path, **schemas: str) -> None:
        self.spark = spark
        self.root = root
        self.checkpoint = root / "checkpoint"
        self.out = root / "out"
        self.streams = {
            name: FileStream(spark, root / "in" / name, schema) for name, schema in schemas.items()
        }

    def add(self, **rows: Any) -> None:
        """One trigger: one file for each stream, without rows where none are given."""
        for name, stream in self.streams.items():
            stream.add(rows.get(name, ()))

    def join(self, max_files_per_trigger: int = 1) -> Join:
        """The streams, read anew."""
        return join(**{n: s.stream(max_files_per_trigger) for n, s in self.streams.items()})

    def start(
        self,
        joined: Join,
        *,
        faults: tuple[Fault, ...] = (),
        sink: Callable[[DataFrame, int], None] | None = None,
        trigger: Mapping[str, Any] | None = None,
        **adapt: object,
    ) -> Query:
        """The query on the checkpoint of the scenario."""
        writer = joined.writeStream.option("checkpointLocation", str(self.checkpoint))
        writer = writer.adapt(**({"slots": 2, "groups": 16} | adapt))
        writer = writer.trigger(**(trigger or {"availableNow": True}))
        writer = writer.faults(Faults(faults))
        if sink is not None:
            return writer.foreachBatch(sink).start()
        return writer.format("parquet").start(str(self.out))

    def run(self, joined: Join, **how: Any) -> Query:
        """The query over everything that is there, to its end."""
        query = self.start(joined, **how)
        assert query.awaitTermination(LONGEST_S), "the query hangs"
        return query

    def expected(self, joined: Join) -> DataFrame:
        """What Spark's own batch join gives, before where and select."""
        assert joined.keys is not None
        windows = joined.windows and {
            name: (window.time, window.window_us) for name, window in joined.windows.items()
        }
        frames = {name: stream.batch() for name, stream in self.streams.items()}
        return oracle(frames, joined.keys, windows)

    def output(self, joined: Join) -> DataFrame:
        """What the query has written."""
        return self.spark.read.schema(joined.schema).parquet(str(self.out))

    def check(self, joined: Join) -> None:
        """The output equals the batch join, row for row."""
        assert_same_rows(self.output(joined), self.expected(joined))

    def check_files(self, slots: int) -> None:
        """The durable tier has the files that the last committed batch names, and no other."""
        checkpoint = Checkpoint(str(self.checkpoint / "spillway"))
        state = checkpoint.log.latest()
        assert state is not None
        named = [name for name in state.manifests if name]
        runs = {run for name in named for run in checkpoint.manifest(name).runs()}
        found = set(checkpoint.durable.names("runs"))
        assert found == runs, f"unnamed {sorted(found - runs)}, missing {sorted(runs - found)}"
        assert [f"manifests/{name}" for name in checkpoint.durable.names("manifests")] == sorted(
            named
        )
        assert len(named) == slots
