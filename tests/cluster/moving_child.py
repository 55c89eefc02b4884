"""A query of three slots whose groups move all the time, with deaths placed at steps of the moves.

The slots are on an executor each, unless all are in the driver, as it is where only the driver dies.

Moves are scripted: whenever no slot takes part in one, the slot with the most state sends a third of it
to the one with the least. Slots may have different plans. A row that waits fills the buffer, so a move
takes few batches however fast they are. The session is made ahead; the query starts when a line comes on
standard input. `report.json` appears when the query has ended.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from cluster_child import Report
from inputs import Input
from lives import SHORT_LIVED

from spillway.checkpoint.log import Log
from spillway.codec import plain
from spillway.coordinator import coordinator
from spillway.plan.shape import parse
from spillway.policies.cluster.protocols import Protocols
from spillway.policies.shape.shaping import Shaping
from spillway.protocols.move import GroupMove
from spillway.spark.api.session import local_session
from spillway.spark.runtime.moves.mover import Mover
from spillway.state.runs.durable import open_durable
from spillway.testing import Fault, Faults, StepFault, steer

SLOTS = 3


def _plan_by_slot(plans: Sequence[str]) -> None:
    """Every slot joins in a shape of its own, and keeps it; without plans all do the n-way join."""
    if plans:
        shapes = tuple(parse(plan) for plan in plans)
        coordinator.shapes_of = lambda *_: shapes
        Shaping.decided = lambda _, slot, known, room: (None, known)


def _lose_in_transit(moves: Sequence[int] | Literal["all"]) -> None:
    """What some moves send never arrives, so that they are taken back."""
    carried = Mover._carry

    def lost(self: Mover, move: GroupMove, *rest: Any) -> Any:
        if moves == "all" or move.move in moves:
            raise RuntimeError("lost in transit")
        return carried(self, move, *rest)

    Mover._carry = lost


def main(given: str, root: str, placed: str) -> None:
    """Runs one life; `placed` are the faults, as JSON."""
    found: dict[str, Any] = json.loads(placed)
    spark = local_session(
        "moving",
        found.get("master", f"local-cluster[{SLOTS},1,1024]"),
        {
            **SHORT_LIVED,
            "spark.sql.parquet.compression.codec": "uncompressed",
            # A fetch from a dead executor gives up soon, and executors may die often.
            "spark.shuffle.io.maxRetries": "1",
            "spark.shuffle.io.retryWait": "1s",
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.task.maxFailures": "10",
            "spark.stage.maxConsecutiveAttempts": "10",
            "spark.locality.wait.process": "3s",
        },
    )
    with Path(root, "applications").open("a") as names:
        names.write(spark.sparkContext.applicationId + "\n")
    faults = tuple(Fault(**fault) for fault in found["tasks"])
    steps = tuple(StepFault(**fault) for fault in found["steps"])
    writer = (
        Input(**json.loads(given))
        .join(spark)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{root}/checkpoint")
        .adapt(
            slots=SLOTS,
            groups=32,
            share=found.get("share", "executor"),
            strategy="relocate-only",
            moves=found.get("moves", "mslb"),
            buffer=1,
        )
        .trigger(availableNow=True)
    )
    # Slots that have lost their executors may come to one place, where nothing would be sent.
    apart = found.get("share", "executor") == "executor"
    writer.faults(Faults(faults, steps, always_send=apart, always_move=True))
    _plan_by_slot(found.get("plans", ()))
    _lose_in_transit(found.get("lost", ()))
    sys.stdin.readline()
    query = writer.start(f"{root}/out")
    protocols = Protocols(found.get("moves", "mslb"), life_s=1.0)
    steer(query, lambda rules: replace(rules, protocols=protocols))
    query.awaitTermination()
    report = Report(Path(root, "report.json"))
    report["events"] = [plain(event) for event in query.events]
    report["progress"] = query.recentProgress
    log = Log(open_durable(f"{root}/checkpoint/spillway"))
    report["tables"] = {one.batch: one.routing.table for one in log.commits()}
    report.write()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
