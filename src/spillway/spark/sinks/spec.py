"""What the user asked for (`SinkSpec`), and what every sink does with a batch (`Sink`, `SinkBatch`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spillway.redaction import hidden, hidden_options


@dataclass(frozen=True)
class SinkSpec:
    """What the user set with the verbs of the writer."""

    #: "parquet", "console", …; None is Spark's default source.
    format: str | None
    #: The user's options without checkpointLocation; the case of keys does not matter.
    options: Mapping[str, str]
    partition_by: tuple[str, ...] = ()
    query_name: str | None = None
    foreach_batch: Callable[[DataFrame, int], None] | None = None
    #: From start(path) or option("path").
    path: str | None = None
    #: From toTable(name).
    table: str | None = None
    #: Who writes; the same after a restart. It separates the files of two queries that write batches
    #: with the same ids to one directory, also if one replaces the other with a new checkpoint.
    writer: str = ""
    #: Raises if another start of the query has taken over.
    check_owner: Callable[[], None] = lambda: None
    #: Whether files on a local filesystem must survive a loss of power before the batch is committed.
    fsync: bool = False

    def __repr__(self) -> str:
        path = None if self.path is None else hidden(self.path)
        return f"SinkSpec({self.format!r}, {hidden_options(self.options)!r}, path={path!r})"

    def option(self, name: str) -> str | None:
        """The value of an option; the case of its name does not matter."""
        return next((v for k, v in self.options.items() if k.lower() == name.lower()), None)

    def options_without(self, *names: str) -> dict[str, str]:
        """All options except `names`."""
        dropped = {name.lower() for name in names}
        return {k: v for k, v in self.options.items() if k.lower() not in dropped}


@dataclass(frozen=True)
class SinkBatch:
    """The results of one batch or round, for a sink."""

    #: The sink may evaluate them any number of times.
    rows: DataFrame
    #: Grows by one with every batch and round; the same in a replay.
    number: int
    #: Whether it had already begun: an earlier attempt may have written all or part of it.
    replay: bool = False


class Sink(Protocol):
    """Where the rows of each batch go."""

    def open(self, schema: StructType) -> None:
        """Checks the schema of the result and prepares for the first batch.

        The query calls it once, before the stream starts. A sink that cannot hold the schema raises.
        """

    def write(self, batch: SinkBatch) -> None:
        """Writes the rows of one batch."""
