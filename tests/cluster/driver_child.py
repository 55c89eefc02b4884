"""A driver that is made to be killed: joins what is there on one checkpoint, and ends.

Its session is made ahead; the query starts when a line comes on standard input, which keeps the time
between two lives of the query short. `ready` appears when the query runs, `done` when it has ended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from inputs import Input

from spillway.spark.api.session import local_session
from spillway.spark.runtime import loop

#: Short lives gain nothing from the JVM's second compiler.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir=."


def main(given: str, root: str, ready: str, adapt: str = "{}") -> None:
    """Runs one life; `adapt` are more settings, as JSON, the bytes of a round of cleanup, and a plan."""
    settings = json.loads(adapt)
    plan = settings.pop("plan", {})
    loop.ROUND_BYTES = settings.pop("round_bytes", loop.ROUND_BYTES)
    conf = {"spark.driver.extraJavaOptions": JAVA, "spark.sql.session.timeZone": "UTC"}
    spark = local_session("killed", "local[2]", conf)
    sys.stdin.readline()
    query = (
        Input(**json.loads(given))
        .join(spark)
        .plan(**plan)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{root}/checkpoint")
        .adapt(slots=2, groups=16, **settings)
        .trigger(availableNow=True)
        .start(f"{root}/out")
    )
    Path(ready).touch()
    query.awaitTermination()
    Path(f"{root}/done").touch()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
