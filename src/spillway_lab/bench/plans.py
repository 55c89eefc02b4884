"""A join under one plan while a selectivity changes, in its own process: an order in, times out.

    python -m spillway_lab.bench.plans ORDER.json RESULT.json

Three streams are joined within windows (spillway_lab/workloads/drift.py). At first a and b match
rarely: the best plan joins all at once, and rows of a probe b first. From batch `CHANGE` on they
match twenty times as often: the best plan stores the matches of b and c. The engines are all fixed
shapes, and `auto`, which slots choose themselves.

Processes differ more than steady shapes do. So the process of `auto` also runs all shapes in turns;
a disturbance hits all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from spillway.codec import plain
from spillway.metrics.events import Reshaped
from spillway.spark.api.join import join
from spillway_lab.bench.engine import SpillwayRun, answer, await_batches, session
from spillway_lab.bench.spec import AUTO, CORES, PLANS, EngineOrder
from spillway_lab.workloads.drift import Drift

#: The batch in which the selectivity changes, and the number of batches. The window is full after 4
#: batches, and `auto` decides a few batches later.
CHANGE = 26
BATCHES = 42
#: The warm-up, in which the selectivity changes too: the batch of the change, and the least batches.
_WARM_CHANGE = 8
_LEAST_WARM_BATCHES = 16

#: Turns of each shape in the steady phase, after one that fills the window; the batches of a turn; and
#: its first batches, which restart the query and do not count.
TURNS, TURN_BATCHES, STARTING = 6, 8, 2
_NEVER = 1 << 30
#: Shapes slower than this multiple of the best one get no further turns.
_FAR = 1.5

Say = Callable[[dict[str, Any]], None]


def measure(order: EngineOrder, say: Say) -> dict[str, Any]:
    """Warms up, runs the batches, and returns their times and the changes of shape."""
    spark = session(replace(order, batches=BATCHES))
    try:
        rows = order.rows
        if order.warmup_s > 0:
            warm = Drift(max(1, rows // 4), _WARM_CHANGE)
            _run(spark, order, warm, "warm-up", say, order.warmup_s, _LEAST_WARM_BATCHES)
        found = _run(spark, order, Drift(rows, CHANGE), "measured", say, 0.0, BATCHES)
        turns = {"turns": _in_turns(spark, order, say)} if order.engine == AUTO else {}
        return {"engine": order.engine, "spark": pyspark.__version__, **found, **turns}
    finally:
        spark.stop()


def _in_turns(spark: SparkSession, order: EngineOrder, say: Say) -> dict[str, list[dict[str, Any]]]:
    """Steady batches by shape: those of `auto`, and of all shapes that may be the best."""

    def turn(plan: str) -> list[dict[str, Any]]:
        mine, steady = replace(order, engine=plan), Drift(order.rows, _NEVER)
        found = _run(spark, mine, steady, f"steady-{plan}", say, 0.0, TURN_BATCHES)
        batches: list[dict[str, Any]] = found["batches"]
        return batches[STARTING:]

    took = {plan: median(batch["seconds"] for batch in turn(plan)[-3:]) for plan in PLANS}
    plans = [plan for plan in PLANS if plan == AUTO or took[plan] <= _FAR * min(took.values())]
    batches: dict[str, list[dict[str, Any]]] = {plan: [] for plan in plans}
    for number in range(TURNS):
        for plan in plans if number % 2 == 0 else reversed(plans):
            batches[plan] += turn(plan)
    return batches


def _run(
    spark: SparkSession,
    order: EngineOrder,
    drift: Drift,
    phase: str,
    say: Say,
    least_s: float,
    least_batches: int,
) -> dict[str, Any]:
    """Runs at least `least_batches` batches and at least `least_s` seconds."""
    joined = join(**drift.stream(spark)).on("k")
    window = f"{drift.window_batches * drift.advance_ms} milliseconds"
    query = (
        joined.within(window, time="ts").plan(**PLANS[order.engine])
        .writeStream.format("noop")
        .option("checkpointLocation", f"{order.directory}/checkpoint-{phase}")
        .adapt(slots=CORES).start()
    )  # fmt: skip
    run = SpillwayRun(query)
    try:
        batches = await_batches(run, phase, say, least_s, least_batches)
        changes = [event for event in query.events if isinstance(event, Reshaped)]
        return {
            "change": drift.change,
            "batches": batches[:least_batches],
            "reshaped": [plain(event) for event in changes],
        }
    finally:
        run.stop()


if __name__ == "__main__":
    answer(measure, *sys.argv[1:])
