"""A life of a query: all that one process of its driver is told, as plain data.

The session of a life is made ahead; its query starts when a line comes on standard input, which keeps
the time between two lives short. `ready` appears when the query runs, `done` when it has ended. Several
queries can share a driver: a JVM is the dear part of a life.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inputs import Input
from processes import Child

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir=."
#: Spark starts a Python daemon for each environment that it wants, and gives this variable to tasks of
#: DataFrames alone. A daemon takes two seconds of processor time, in every executor.
ONE_DAEMON = {"spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1"}
#: A session that lives for a minute gains nothing from the JVM's second compiler, nor from compiled
#: expressions.
SHORT_LIVED = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    **ONE_DAEMON,
}


@dataclass(frozen=True)
class Life:
    """One start of a query on the checkpoint below `root`."""

    root: str
    number: int
    given: Input
    kind: str = "three streams"
    sink: str = "parquet"
    #: Settings of `adapt` and of `plan`, and the bytes of a round of cleanup.
    adapt: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, str] = field(default_factory=dict)
    round_bytes: int | None = None
    master: str = "local[2]"
    conf: dict[str, str] = field(default_factory=dict)
    #: Whether groups move all the time, and what a foreachBatch does with an id that it knows.
    always_move: bool = False
    replays: str = "skip"

    @staticmethod
    def parsed(text: str) -> Life:
        """The life that `born` has described."""
        fields = json.loads(text)
        return Life(**{**fields, "given": Input(**fields["given"])})

    @property
    def ready(self) -> Path:
        """The file that appears when the query runs."""
        return Path(self.root, f"ready-{self.number}")

    @property
    def done(self) -> Path:
        """The file that appears when the query of any life has come to its end."""
        return Path(self.root, "done")

    def born(self, stack: ExitStack) -> Child:
        """The process, waiting to be told to go; the stack ends it."""
        return born(stack, [self], Path(self.root, "scratch"))


def born(stack: ExitStack, lives: Sequence[Life], scratch: Path) -> Child:
    """One driver for the lives of several queries, with the session of the first."""
    texts = [json.dumps(dataclasses.asdict(life)) for life in lives]
    child = Child("driver_child.py", texts, scratch)
    stack.callback(child.close)
    return child


def commits(root: Path) -> int:
    """How many batches and rounds the checkpoint has committed."""
    log = root / "checkpoint/spillway/log"
    if not log.exists():
        # State that is not local: Spark's commits are.
        log = root / "checkpoint/spark/commits"
        return sum(path.name.isdigit() for path in log.glob("*"))
    return sum(1 for _ in log.glob("*.json"))
