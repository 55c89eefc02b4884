"""What the user asked for (`SinkSpec`), and what every sink can do (`Sink`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType


@dataclass(frozen=True)
class SinkSpec:
    """What the verbs of the writer said."""

    #: "parquet", "console", …; None is Spark's default source.
    format: str | None
    #: The user's options without checkpointLocation; keys count without regard to case.
    options: Mapping[str, str]
    partition_by: tuple[str, ...] = ()
    query_name: str | None = None
    foreach_batch: Callable[[DataFrame, int], None] | None = None
    #: From start(path) or option("path").
    path: str | None = None
    #: From toTable(name).
    table: str | None = None
    #: Who writes, the same after a restart. It keeps apart the files of two queries, or of a query
    #: and its successor with a new checkpoint, that write batches of the same ids to one directory.
    writer: str = ""

    def option(self, name: str) -> str | None:
        """The value of an option, whatever the case of its name."""
        return next((v for k, v in self.options.items() if k.lower() == name.lower()), None)

    def options_without(self, *names: str) -> dict[str, str]:
        """The options but for `names`."""
        dropped = {name.lower() for name in names}
        return {k: v for k, v in self.options.items() if k.lower() not in dropped}


class Sink(Protocol):
    """Where the rows of each batch go."""

    def open(self, schema: StructType) -> None:
        """Check the schema of the result and make what must be there before the first batch.

        Called once, before the stream starts; a sink that cannot hold the schema says so here.
        """

    def write(self, df: DataFrame, batch_id: int, *, replay: bool) -> None:
        """Write the rows of one batch.

        `replay` is True when this batch id may have been written before, wholly or in part: for
        the first batch after a start or restart. `df` may be evaluated any number of times.
        """
