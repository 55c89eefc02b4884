"""The plan of a join on predicates: streams, windows, conditions, and how slots share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from spillway.plan.join import StreamPlan, kind_fingerprint, streams_fingerprint
from spillway.plan.kind import INNER_JOIN, JoinKind


@dataclass(frozen=True)
class SlicedPlan:
    """A join of streams in slices of time (PSP, or CTR with several copies)."""

    OPERATOR: ClassVar[str] = "time-sliced join"

    streams: tuple[StreamPlan, ...]
    #: The names of the conditions.
    conditions: tuple[str, ...]
    #: How many times each row is stored.
    copies: int = 1
    key_types: tuple[str, ...] = ()

    def fingerprint(self) -> dict[str, Any]:
        """The plan as plain data, for the checkpoint's metadata."""
        return {
            "operator": self.OPERATOR,
            **streams_fingerprint(self),
            "conditions": list(self.conditions),
            "copies": self.copies,
        }


@dataclass(frozen=True)
class MatchedPlan:
    """A join on equal keys with conditions; with ATR, intervals of time are the keys."""

    OPERATOR: ClassVar[str] = "join with conditions"

    streams: tuple[StreamPlan, ...]
    key_types: tuple[str, ...]
    conditions: tuple[str, ...]
    #: Microseconds of an interval, and the stream that is cut into intervals (ATR).
    segment: tuple[int, str] | None = None
    kind: JoinKind = INNER_JOIN

    def fingerprint(self) -> dict[str, Any]:
        """The plan as plain data, for the checkpoint's metadata."""
        return {
            "operator": self.OPERATOR,
            **streams_fingerprint(self),
            "conditions": list(self.conditions),
            "segment": None if self.segment is None else list(self.segment),
            **kind_fingerprint(self.kind),
        }
