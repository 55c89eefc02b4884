"""A thread that follows a query from its start until it has released all resources.

While the query runs, the watcher runs a round if something waits for a batch and none comes. When a
finite input has ended, it finishes moves and buffered rows, and cleans up. However the query ends, the
watcher stops the work between the batches, removes the local state and releases the checkpoint.

Failures go to one of three places. Spark keeps a failure of a batch, and `Query` shows it. `failure`
keeps a failure of the watcher's own work, and `Query` shows that too. If Spark itself is gone, because
the program ends or the JVM died, the watcher only logs a line, because nobody can ask the query any
more.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spillway.errors import without_secrets
from spillway.spark.runtime.cleanup import clean_up, show_bar
from spillway.spark.runtime.home import LocalFolders
from spillway.spark.runtime.loop import BatchLoop, named_failure
from spillway.spark.runtime.session import is_local
from spillway.spark.runtime.stage import Stage
from spillway.state.runs.reaping import release

#: Poll interval, and how long something may wait for a batch before a round replaces it.
_POLL_S = 0.5
_PATIENCE_S = 2.0

_LOG = logging.getLogger(__name__)


class Watcher:
    """Follows one query; starts at once."""

    def __init__(
        self,
        spark: SparkSession,
        streaming: StreamingQuery,
        loop: BatchLoop,
        on_end: Callable[[], None],
        *,
        finite: bool,
    ) -> None:
        self._spark = spark
        self._streaming = streaming
        self._loop = loop
        self._on_end = on_end
        #: Whether the input ends; then the watcher finishes the remaining work.
        self._finite = finite
        #: The failure outside the batches, if any.
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="spillway-watch", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the query, or the work after its last batch, still runs."""
        return self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Waits until the query has released everything."""
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            try:
                self._follow()
            finally:
                self._tidy()
        except StreamingQueryException as problem:
            why = without_secrets(problem)
            _LOG.debug("a batch failed; Spark keeps the failure", exc_info=why)
        except (Py4JNetworkError, ConnectionError) as problem:
            _LOG.info("Spark ended before the query did", exc_info=without_secrets(problem))
        except Exception as problem:
            self._keep(problem)

    def _follow(self) -> None:
        """Returns when the query has ended; raises Spark's error if a batch failed."""
        while not self._streaming.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # floats too
            waiting = self._loop.stuck and self._loop.idle_s > _PATIENCE_S
            if waiting and not self._succeeds(self._loop.advance):
                self._streaming.stop()
        if self._finite and not self._loop.stopping:
            self._succeeds(self._finish)

    def _succeeds(self, work: Callable[[], object]) -> bool:
        try:
            work()
        except Exception as problem:
            self._keep(problem)
            return False
        return True

    def _finish(self) -> None:
        """After the last batch of a finite input: moves, buffered rows, and missing results."""
        if self._loop.stage.spec.adapt.cleanup == "auto":
            clean_up(self._loop, show_bar, self._finish_stage)
            return
        for at in range(len(self._loop.stages)):
            self._finish_stage(at)

    def _finish_stage(self, at: int) -> None:
        self._loop.finish_moves(at, ended=True)
        self._loop.finish_waiting(at)
        self._loop.finish_deciding(at)

    def _keep(self, problem: Exception) -> None:
        """Remembers the first failure; the user sees it as if a batch had failed."""
        named = named_failure(problem)
        if self.failure is None:
            self.failure = named if isinstance(named, Exception) else problem
        else:
            why = without_secrets(problem)
            _LOG.warning("another failure of a query that had failed", exc_info=why)

    def _tidy(self) -> None:
        """Releases everything; if one step fails, the others still run."""
        with ExitStack() as steps:
            # The stack runs them in reverse order.
            steps.callback(self._on_end)
            for stage in reversed(self._loop.stages):
                steps.callback(self._remove_local, stage)
            steps.callback(self._loop.close)

    def _remove_local(self, stage: Stage) -> None:
        """Removes memory and disk tiers; the durable tier has everything.

        A start that has taken over may use them already.
        """
        if not stage.checkpoint.log.is_owner:
            return
        query_id, adapt = stage.spec.query_id, stage.spec.adapt
        _remove(LocalFolders.roots(query_id, adapt))
        context = self._spark.sparkContext
        # A stopped context has no executors and no Java context.
        if is_local(self._spark) or context._jsc is None:
            return
        try:
            # Best effort: a few tasks per core reach every executor that is up.
            count = 4 * context.defaultParallelism
            context.parallelize(range(count), count).foreachPartition(
                lambda _: _remove(LocalFolders.roots(query_id, adapt))
            )
        except (Py4JError, PySparkException, ConnectionError) as problem:
            # Executors die, and the context may stop meanwhile. They only have scratch files.
            why = without_secrets(problem)
            _LOG.warning("local state of query %s may remain on executors", query_id, exc_info=why)


def _remove(roots: tuple[Path, Path]) -> None:
    for root in roots:
        release(root)
        shutil.rmtree(root, ignore_errors=True)
        if root.parent.name.startswith("spillway-"):
            with contextlib.suppress(OSError):
                root.parent.rmdir()
