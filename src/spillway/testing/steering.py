"""For tests and benchmarks: other rules for a running query."""

from __future__ import annotations

from collections.abc import Callable

from spillway.coordinator.decisions.adaptation import Rules
from spillway.coordinator.wishes import FollowRules
from spillway.spark.api.query import Query


def steer(query: Query, change: Callable[[Rules], Rules], *, stage: int = 0) -> None:
    """Changes the rules of a running query, from its next batch on.

    A test can give the query its own strategy, or send state that could also move by name:

        steer(query, lambda rules: replace(rules, always_sends=True))
    """
    conductor = query._loop.stages[stage].conductor
    conductor.wish(FollowRules(change(conductor.ahead.rules)))
