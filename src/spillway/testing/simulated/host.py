"""The coordinator's host without Spark: a checkpoint, and state that travels when somebody says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.host import CheckpointHost
from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import Note
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
from spillway.state.layout.layers import Layer
from spillway.state.layout.moving import Departure, of_move
from spillway.state.manifest.combining import part_manifest
from spillway.state.manifest.manifest import Manifest
from spillway.state.manifest.matching import matched
from spillway.state.runs.store import Store
from spillway.state.slot.shipping import laid_out, pack, parcels, unpack


class Crash(Exception):
    """The process dies here."""


class SimulatedCarrier(CheckpointHost):
    """Carries effects out; dies where a history says so. Sweeps after every commit."""

    sweep_batches = 1

    def __init__(
        self,
        checkpoint: Checkpoint,
        streams: int,
        store: Callable[[int, int], Store],
        times: Callable[[Sequence[str]], Sequence[int | None]],
    ) -> None:
        """`store` gives the store of a batch and slot."""
        super().__init__(checkpoint, streams)
        self._store = store
        #: Where the event times of streams are, the made ones of these names included.
        self._times = times
        #: What is being sent, with the manifest that has it.
        self._due: dict[int, tuple[SendGroups, Manifest]] = {}
        self._said: list[tuple[Message, float]] = []
        #: Whether the next commit is lost.
        self.dies = False
        #: Whether files could not be deleted.
        self.undeleted = False
        #: Called before a note, and before a record.
        self.before_note: Callable[[], None] = lambda: None
        self.before_record: Callable[[], None] = lambda: None
        #: Told of every commit.
        self.committed: Callable[[Committed], None] = lambda _: None
        self.steps: list[int] = []

    def write_note(self, mark: Mark, note: Note) -> None:
        """Saves a note for a later start."""
        self.before_note()
        super().write_note(mark, note)

    def append(self, state: Committed) -> None:
        """Commits, unless the process dies first."""
        if self.dies:
            raise Crash
        self.before_record()
        super().append(state)
        self.committed(state)

    def send(self, groups: SendGroups) -> None:
        """Takes what has departed; it arrives when `arrive` says so."""
        assert groups.move.move not in self._due
        manifest = matched(self.checkpoint.manifest(groups.manifest), groups.made)
        self._due[groups.move.move] = groups, manifest
        self._said.append((SendPartitions(groups.move.move), 0.0))

    def messages(self) -> list[tuple[Message, float]]:
        """The messages about moves since the last call."""
        said, self._said = self._said, []
        return said

    def finish_sending(self) -> None:
        """Everything that is being sent arrives."""
        self.arrive(fails=False)

    def arrive(self, *, fails: bool) -> None:
        """All that is being sent arrives, or none of it does."""
        for number, sent in list(self._due.items()):
            del self._due[number]
            problem = "a test" if fails else ""
            try:
                part = "" if fails else self._carried(*sent)
            except (OSError, SpillwayError) as failure:
                problem = str(failure)
            if problem:
                self._said.append((SendFailed(number, problem), 0.5))
            else:
                self._said.append((ReceivePartitions(number), 0.5))
                self._said.append((Received(number, part, 0), 0.5))

    def sweep(self, state: Committed, before: Committed) -> None:
        """Deletes files of attempts that died; like the janitor, it leaves what fails to the next."""
        try:
            super().sweep(state, before)
        except (OSError, SpillwayError):
            self.undeleted = True

    def delete(self, names: Sequence[str]) -> None:
        """Deletes files at once; like the janitor, it leaves what fails to a sweep."""
        try:
            super().delete(names)
        except (OSError, SpillwayError):
            self.undeleted = True

    def prepare_moves(self) -> None:
        """Does nothing: sending needs no workers here."""

    def reach(self, step: StepReached) -> None:
        """Remembers the step."""
        self.steps.append(step.step)

    def _carried(self, groups: SendGroups, manifest: Manifest) -> str:
        """Brings a departure to its receiver; returns the name of the part's manifest."""
        departure = of_move(manifest.departures, groups.move.move)
        assert departure is not None
        layers = departure.streams
        if not groups.by_name:
            layers = self._shipped(groups, manifest, departure)
        part = part_manifest(SlotId(groups.move.receiver), departure, layers, manifest.groups)
        attempt = self.checkpoint.new_attempt()
        name = f"manifests/{manifest.version:09d}-{groups.move.receiver}-{attempt}.json"
        self.checkpoint.durable.write(name, part.encode())
        self.checkpoint.durable.sync()
        return name

    def _shipped(
        self, groups: SendGroups, manifest: Manifest, departure: Departure
    ) -> tuple[tuple[Layer, ...], ...]:
        times, move = self._times(departure.made), groups.move
        here = self._store(manifest.version, move.sender)
        there = self._store(manifest.version, move.receiver)
        received = []
        for parcel in parcels(departure, len(manifest.groups)):
            time = times[parcel.stream]
            attempt = self.checkpoint.new_attempt()
            name = f"{manifest.version:09d}-m{move.move}-{attempt}.arrow"
            runs = unpack(pack(parcel, time, here), name, time, there)
            received += [(parcel, run) for run in runs]
        # A manifest names these runs as soon as the driver hears of them.
        there.durable.sync()
        return laid_out(received, len(departure.streams))
