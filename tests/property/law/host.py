"""The coordinator's host under a law: a real checkpoint, state that travels when a history says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.host import CheckpointHost
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.effects import SendGroups, StepReached
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
from spillway.state.slot.shipping import laid_out, pack, parcels, unpack

ATTEMPTS = itertools.count()


class Crash(Exception):
    """The process dies here."""


class LawHost(CheckpointHost):
    """Carries effects out; dies where a history says so."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        streams: int,
        store: Callable[[int], Store],
        times: Callable[[Sequence[str]], Sequence[int | None]],
    ) -> None:
        super().__init__(checkpoint, streams)
        self._store = store
        #: Where the event times of streams are, the made ones of these names included.
        self._times = times
        #: What is being sent, with the manifest that has it.
        self._due: dict[int, tuple[SendGroups, Manifest]] = {}
        self._said: list[tuple[Message, float]] = []
        #: Whether the next commit is lost.
        self.dies = False
        #: Told of every commit.
        self.committed: Callable[[Committed], None] = lambda _: None
        self.steps: list[int] = []

    def append(self, state: Committed) -> None:
        if self.dies:
            raise Crash
        super().append(state)
        self.committed(state)

    def send(self, groups: SendGroups) -> None:
        assert groups.move.move not in self._due
        manifest = matched(self.checkpoint.manifest(groups.manifest), groups.made)
        self._due[groups.move.move] = groups, manifest
        self._said.append((SendPartitions(groups.move.move), 0.0))

    def messages(self) -> list[tuple[Message, float]]:
        said, self._said = self._said, []
        return said

    def finish_sending(self) -> None:
        self.arrive(fails=False)

    def arrive(self, *, fails: bool) -> None:
        """All that is being sent arrives, or none of it does."""
        for number, sent in list(self._due.items()):
            if fails:
                self._said.append((SendFailed(number, "a test"), 0.5))
            else:
                self._said.append((ReceivePartitions(number), 0.5))
                self._said.append((Received(number, self._carried(*sent), 0), 0.5))
            del self._due[number]

    def prepare_moves(self) -> None:
        pass

    def reach(self, step: StepReached) -> None:
        self.steps.append(step.step)

    def _carried(self, groups: SendGroups, manifest: Manifest) -> str:
        departure = of_move(manifest.departures, groups.move.move)
        assert departure is not None
        times, store = self._times(departure.made), self._store(manifest.version)
        received = []
        for parcel in [] if groups.by_name else parcels(departure, len(manifest.groups)):
            time = times[parcel.stream]
            name = f"{manifest.version:09d}-m{groups.move.move}-{next(ATTEMPTS)}.arrow"
            received.append((parcel, unpack(pack(parcel, time, store), name, time, store)))
        layers = departure.streams
        if not groups.by_name:
            layers = laid_out(received, len(departure.streams))
        part = part_manifest(SlotId(groups.move.receiver), departure, layers, manifest.groups)
        name = f"manifests/part-{next(ATTEMPTS)}.json"
        self.checkpoint.durable.write(name, part.encode())
        return name
