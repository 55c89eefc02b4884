"""For tests: another coordinator for a running query."""

from __future__ import annotations

from collections.abc import Callable

from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.wishes import Steer
from spillway.spark.api.query import Query


def steer(query: Query, change: Callable[[Coordinator], Coordinator], *, stage: int = 0) -> None:
    """Changes the coordinator of a running query, from its next batch on.

    A test can give the query its own strategy, or send state that could also move by name:

        steer(query, lambda c: replace(c, always_sends=True))
    """
    query._loop.stages[stage].conductor.wish(Steer(change))
