"""Exactly once in a place with transactions: `prepare`, `commit`, and "was it committed?".

    prepare   makes the rows of a batch durable at the place, where no reader sees them; may run again
    commit    shows them and stores the batch's number, in one transaction; does neither if the place
              already has that number
    last      the newest number that the place has

The number grows by one with every batch and round, and a replay has the same rows under the same number
(`SinkBatch`). So three cases exist when a batch comes:

    number > last            prepare and commit
    number = last, replay    the driver died between this commit and its own record: nothing to do
    otherwise                the checkpoint is older than the place: the query stops

**Invariant: the place has exactly the rows of the batches 0 to `last`.** The commit itself checks the
number, so a driver that slept while another took over cannot add its batch a second time.

The sink asks for `last` only in a replay and in the first batch of a start.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spillway.errors import SpillwayError, StateError
from spillway.spark.sinks.spec import SinkBatch

#: What `prepare` returns for `commit`.
Prepared = TypeVar("Prepared")


class TransactionalTarget(Protocol[Prepared]):
    """A place that stores rows and a number in one transaction.

    Each query has numbers of its own there, under the name of its writer.
    """

    def open(self, schema: StructType) -> None:
        """Checks what can be checked before the stream starts; makes what is missing."""
        ...

    def last(self) -> int | None:
        """The newest number that the place has of this query; None: it has none."""
        ...

    def prepare(self, rows: DataFrame, number: int) -> Prepared:
        """Reads all rows and makes them durable, where no reader sees them.

        A place whose writer can only do both at once does this in `commit`.
        """
        ...

    def commit(self, prepared: Prepared, number: int) -> None:
        """Shows the prepared rows and stores the number; does nothing if the number is there."""
        ...

    def discard(self, prepared: Prepared) -> None:
        """Releases what `prepare` acquired, after a commit or a failure."""
        ...

    def sweep(self) -> None:
        """Removes what attempts that died have prepared."""
        ...


class TransactionalSink(Generic[Prepared]):
    """Writes each batch once to a place with transactions."""

    def __init__(
        self,
        target: TransactionalTarget[Prepared],
        name: str,
        check_owner: Callable[[], None] = lambda: None,
    ) -> None:
        self._target = target
        self._name = name
        self._check_owner = check_owner
        #: Whether this start knows what the place has.
        self._knows = False

    def open(self, schema: StructType) -> None:
        """Prepares the place."""
        self._target.open(schema)

    def write(self, batch: SinkBatch) -> None:
        """Writes the batch, unless it is a replay that the place already has."""
        if (not self._knows or batch.replay) and self._has(batch):
            return
        self._check_owner()
        try:
            prepared = self._target.prepare(batch.rows, batch.number)
        except BaseException:
            with suppress(SpillwayError):
                self._target.sweep()
            raise
        try:
            self._check_owner()
            self._target.commit(prepared, batch.number)
        finally:
            self._target.discard(prepared)

    def _has(self, batch: SinkBatch) -> bool:
        last = self._target.last()
        self._target.sweep()
        self._knows = True
        if last is None or batch.number > last:
            return False
        if batch.replay and batch.number == last:
            return True
        raise StateError(
            f"{self._name} is ahead of the checkpoint: it has the batches up to {last} of this query, "
            f"and the checkpoint continues with batch {batch.number}",
            detail="the checkpoint is an older copy, or the place has rows of a newer start",
            hint=f"bring {self._name} back to its state after batch {batch.number - 1}, or restore the "
            "newest checkpoint; with a new checkpoint the query writes all rows again",
        )
