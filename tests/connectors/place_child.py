"""A driver that is made to be killed: one life of a query that writes to a place with transactions."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from places import DELETES, PLACES, Life
from queries import KINDS

from spillway.spark.api.session import local_session
from spillway.spark.runtime import loop
from spillway.spark.sinks.transactions.target import TransactionalSink

#: Some time inside a call.
_INSIDE_S = 0.3
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir=."


def die(life: Life) -> None:
    """Kills the driver and its JVM at once."""
    life.file("dead").touch()
    os.killpg(os.getpgid(0), signal.SIGKILL)


@dataclass
class Death:
    """The end of a life at one point of one of its writes."""

    life: Life
    point: str
    wanted: int
    writes: int = 0

    def around(self, call: Callable[..., Any], name: str, after: str) -> Callable[..., Any]:
        """The call, with the points before, inside and after it."""

        def called(*given: Any) -> Any:
            inside = self._here(f"in {name}")
            if self._here(name):
                die(self.life)
            if inside:
                threading.Timer(_INSIDE_S, die, [self.life]).start()
            made = call(*given)
            if inside:
                # The call was faster.
                time.sleep(2 * _INSIDE_S)
            if self._here(after):
                die(self.life)
            return made

        return called

    def _here(self, point: str) -> bool:
        return self.writes == self.wanted and self.point == point


def dying(life: Life) -> None:
    """Places the death of this life around the target's calls."""
    if life.dies is None:
        return
    death, write = Death(life, *life.dies), TransactionalSink.write

    def counted(self: Any, batch: Any) -> None:
        death.writes += 1
        if death.writes == 1:
            target = self._target
            target.prepare = death.around(target.prepare, "prepare", "prepared")
            target.commit = death.around(target.commit, "commit", "committed")
        write(self, batch)

    TransactionalSink.write = counted  # type: ignore[method-assign]


def main(text: str) -> None:
    """Runs one life."""
    life = Life.parsed(text)
    place = PLACES[life.place]
    loop.ROUND_BYTES = 4_000
    options = {"spark.driver.extraJavaOptions": JAVA, "spark.sql.shuffle.partitions": "2"}
    conf = {"spark.sql.session.timeZone": "UTC", **options, **place.conf(life.root), **life.conf}
    spark = local_session("killed", "local[2]", conf)
    sys.stdin.readline()
    dying(life)
    result = KINDS["group-by" if life.merge else "three streams"].build(life.given, spark)
    writer = (
        result.writeStream.option("checkpointLocation", f"{life.root}/checkpoint")
        # So little that groups spill and rounds of cleanup lie between the batches.
        .adapt(slots=2, groups=16, memory=1_500 if life.merge else 12_000)
        .trigger(availableNow=True)
    )
    if life.merge:
        writer = writer.options(mergeKeys="item", deleteWhen=DELETES)
    query = place.start(writer, life)
    query.awaitTermination()
    if place.read is not None:
        place.read(spark, life).write.mode("overwrite").parquet(f"{life.root}/out")
    life.file("done").touch()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
