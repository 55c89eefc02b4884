"""The coordinator's host without Spark: a checkpoint, and state that travels when `arrive` is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.host import CheckpointHost
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.effects import SendGroups, StepReached
from spillway.errors import SpillwayError
from spillway.ids import SlotId
from spillway.protocols.messages import (
    Message,
    Received,
    ReceivePartitions,
    SendFailed,
    SendPartitions,
)
from spillway.state.layout.moving import of_move
from spillway.state.manifest.combining import part_manifest
from spillway.state.manifest.manifest import Manifest
from spillway.state.manifest.matching import matched
from spillway.state.runs.store import Store
from spillway.state.slot.fetching import fetch_all, fetches


class Crash(Exception):
    """The process dies here."""


class SimulatedHost(CheckpointHost):
    """Carries out effects; dies where a history says so. Sweeps after every commit."""

    sweep_batches = 1

    def __init__(
        self,
        checkpoint: Checkpoint,
        streams: int,
        store: Callable[[int, int], Store],
    ) -> None:
        """`store` returns the store of a batch and slot."""
        super().__init__(checkpoint, streams)
        self._store = store
        #: The moves in transit, each with its sender's manifest.
        self._due: dict[int, tuple[SendGroups, Manifest]] = {}
        self._said: list[tuple[Message, float]] = []
        #: Whether the next commit is lost.
        self.dies = False
        #: Whether a deletion failed.
        self.undeleted = False
        #: Called before every record.
        self.before_record: Callable[[], None] = lambda: None
        #: Called after every commit.
        self.committed: Callable[[Committed], None] = lambda _: None
        self.steps: list[int] = []

    def append(self, state: Committed) -> None:
        """Commits, unless the process dies first."""
        if self.dies:
            raise Crash
        self.before_record()
        super().append(state)
        self.committed(state)

    def send(self, groups: SendGroups) -> None:
        """Takes departed groups; `arrive` delivers them."""
        number = groups.move.move
        assert number not in self._due
        self._said.append((SendPartitions(number), 0.0))
        try:
            manifest = matched(self.checkpoint.manifest(groups.manifest), groups.made)
        except (OSError, SpillwayError) as failure:
            self._said.append((SendFailed(number, str(failure)), 0.0))
        else:
            self._due[number] = groups, manifest

    def messages(self) -> list[tuple[Message, float]]:
        """The messages about moves since the last call."""
        said, self._said = self._said, []
        return said

    def finish_sending(self) -> None:
        """Delivers everything in transit."""
        self.arrive(fails=False)

    def arrive(self, *, fails: bool) -> None:
        """Delivers everything in transit, or fails all of it."""
        for number, sent in list(self._due.items()):
            del self._due[number]
            problem = "a test" if fails else ""
            try:
                part = "" if fails else self._carry(*sent)
            except (OSError, SpillwayError) as failure:
                problem = str(failure)
            if problem:
                self._said.append((SendFailed(number, problem), 0.5))
            else:
                self._said.append((ReceivePartitions(number), 0.5))
                self._said.append((Received(number, part, 0), 0.5))

    def sweep(self, state: Committed, before: Committed) -> None:
        """Deletes files of attempts that died; like the janitor, leaves failures to the next sweep."""
        try:
            super().sweep(state, before)
        except (OSError, SpillwayError):
            self.undeleted = True

    def delete(self, names: Sequence[str]) -> None:
        """Deletes files at once; like the janitor, leaves failures to a sweep."""
        try:
            super().delete(names)
        except (OSError, SpillwayError):
            self.undeleted = True

    def prepare_moves(self) -> None:
        """Does nothing: sending needs no workers here."""

    def reach(self, step: StepReached) -> None:
        """Remembers the step."""
        self.steps.append(step.step)

    def _carry(self, groups: SendGroups, manifest: Manifest) -> str:
        """Carries a departure to its receiver; returns the name of the part's manifest."""
        departure = of_move(manifest.departures, groups.move.move)
        assert departure is not None
        if not groups.by_name:
            fetch_all(fetches(departure), self._store(manifest.version, groups.move.receiver))
        part = part_manifest(
            SlotId(groups.move.receiver), departure, departure.streams, manifest.groups
        )
        attempt = self.checkpoint.new_attempt()
        name = f"manifests/{manifest.version:09d}-{groups.move.receiver}-{attempt}.json"
        self.checkpoint.durable.write(name, part.encode())
        self.checkpoint.durable.sync()
        return name
