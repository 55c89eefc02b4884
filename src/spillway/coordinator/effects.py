"""Effects: what the coordinator wants done, as values.

A method of the coordinator gives the next coordinator and the effects, in the order in which they are
to be carried out. A host (coordinator/host.py) carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.coordinator.committed import Committed, Mark
from spillway.coordinator.plan import Note
from spillway.protocols.move import GroupMove
from spillway.routing.routing import Routing


@dataclass(frozen=True)
class WriteNote:
    """Write down what a batch or round is about to do, before it begins."""

    mark: Mark
    note: Note


@dataclass(frozen=True)
class AppendRecord:
    """Commit: append the record of a batch or round to the log."""

    state: Committed


@dataclass(frozen=True)
class SendGroups:
    """Send the groups of a move that have left the sender, and say when they have arrived."""

    move: GroupMove
    #: The sender's manifest, which has them.
    manifest: str
    #: The made streams that the receiver has; others stay behind.
    made: tuple[str, ...] = ()
    #: Whether both slots have one memory tier, so that naming the runs is enough.
    by_name: bool = False


@dataclass(frozen=True)
class Reroute:
    """Write the state anew under another routing; nothing moves meanwhile."""

    routing: Routing


@dataclass(frozen=True)
class DiscardFiles:
    """Delete files that no commit names any more, and log records that no restart needs."""

    runs: tuple[str, ...]
    manifests: tuple[str, ...]
    marks: tuple[Mark, ...] = ()

    @property
    def names(self) -> list[str]:
        """The files, as they are named in the checkpoint."""
        return [*(f"runs/{name}" for name in self.runs), *self.manifests]


@dataclass(frozen=True)
class PrepareMoves:
    """Moves are likely soon: start what sends and receives."""


@dataclass(frozen=True)
class StepReached:
    """A step of a move (DCAPE-TR 5.1, PLANS 3.2) is being taken; faults are placed here."""

    move: GroupMove
    step: int


Effect = WriteNote | AppendRecord | SendGroups | Reroute | DiscardFiles | PrepareMoves | StepReached
Effects = tuple[Effect, ...]
