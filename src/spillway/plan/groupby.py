"""The plan of a group-by: keys and aggregates, with nothing of Spark's objects in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from spillway.plan.join import StreamPlan, streams_fingerprint


@dataclass(frozen=True)
class AggregatePlan:
    """One aggregate: what it is called, what it is, and what it is taken of."""

    name: str
    function: str
    #: The whole of it in the user's words.
    text: str


@dataclass(frozen=True)
class GroupByPlan:
    """Aggregates of one stream by key."""

    OPERATOR: ClassVar[str] = "group-by"

    stream: StreamPlan
    key_types: tuple[str, ...]
    aggregates: tuple[AggregatePlan, ...]
    #: The number of last rows that aggregates are over, and what orders those of a batch; None: all
    #: rows, or those in the window of the stream.
    last: tuple[int, str | None] | None = None

    @property
    def streams(self) -> tuple[StreamPlan, ...]:
        """The one stream that comes in."""
        return (self.stream,)

    def fingerprint(self) -> dict[str, Any]:
        """The plan as plain data, for the checkpoint's metadata."""
        aggregates = [[one.name, one.function, one.text] for one in self.aggregates]
        return {
            **streams_fingerprint(self),
            "operator": self.OPERATOR,
            "aggregates": aggregates,
            "last": None if self.last is None else list(self.last),
        }
