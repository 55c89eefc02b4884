"""Effects: what the coordinator wants done, as values.

A method of the coordinator returns the next coordinator and the effects, in the order to carry them
out. A host (coordinator/host.py) carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import Note
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
    """Bring the departed groups of a move to the receiver, and report when they are there."""

    move: GroupMove
    #: The sender's manifest, which has them.
    manifest: str
    #: The made streams that the receiver has; others do not move.
    made: tuple[str, ...] = ()
    #: Whether both slots share a memory tier, so that there is nothing to fetch.
    by_name: bool = False
    #: The most bytes that the receiver fetches in advance; None: all.
    room_bytes: int | None = None


@dataclass(frozen=True)
class Reroute:
    """Rewrite the state under another routing; nothing moves meanwhile."""

    routing: Routing


@dataclass(frozen=True)
class DiscardFiles:
    """Delete files that no commit names any more."""

    runs: tuple[str, ...]
    manifests: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The files by their names in the checkpoint."""
        return [*(f"runs/{name}" for name in self.runs), *self.manifests]


@dataclass(frozen=True)
class PrepareMoves:
    """Moves are likely soon: start the sending and receiving services."""


@dataclass(frozen=True)
class StepReached:
    """A move takes a step (DCAPE-TR 5.1, PLANS 3.2); tests inject faults here."""

    move: GroupMove
    step: int


Effect = WriteNote | AppendRecord | SendGroups | Reroute | DiscardFiles | PrepareMoves | StepReached
Effects = tuple[Effect, ...]
