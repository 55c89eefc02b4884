"""Events: what a query did to its own state, one typed record each.

They travel in the slot records, and are kept in the query's log, its progress and its `events`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Event:
    """Something that was done to groups of one slot in one batch."""

    kind: ClassVar[str] = "event"

    batch: int
    slot: int
    #: The groups, and their bytes.
    groups: tuple[int, ...]
    bytes: int
    seconds: float
    #: Why, in words for people.
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the kind of event in it."""
        return {"event": self.kind, **asdict(self), "groups": list(self.groups)}


@dataclass(frozen=True)
class Spilled(Event):
    """Groups were moved out of memory, as a new generation."""

    kind: ClassVar[str] = "spilled"


@dataclass(frozen=True)
class CleanedUp(Event):
    """The missing results of groups were produced; their rows are one part again."""

    kind: ClassVar[str] = "cleaned-up"

    rows_out: int = 0


@dataclass(frozen=True)
class Reloaded(CleanedUp):
    """The same, and the groups are in memory again."""

    kind: ClassVar[str] = "reloaded"


_KINDS = {kind.kind: kind for kind in (Spilled, CleanedUp, Reloaded)}


def event_from_json(found: dict[str, Any]) -> Event:
    """The inverse of `Event.to_json`."""
    values = {name: value for name, value in found.items() if name != "event"}
    return _KINDS[found["event"]](**{**values, "groups": tuple(found["groups"])})
