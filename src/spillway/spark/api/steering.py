"""For tests: another coordinator for a running query."""

from __future__ import annotations

from collections.abc import Callable

from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.wishes import Steer
from spillway.spark.api.query import Query


def steer(query: Query, change: Callable[[Coordinator], Coordinator], *, stage: int = 0) -> None:
    """Changes what decides for a running query, from its next batch on.

    A test gives the query a strategy of its own, or has state sent where naming it would be enough:

        steer(query, lambda c: replace(c, always_sends=True))
    """
    query._loop.stages[stage].conductor.wish(Steer(change))
