"""The coordinator's host on Spark: the checkpoint, the janitor, and the mover."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.host import CheckpointHost
from spillway.checkpoint.janitor import Janitor
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.effects import SendGroups, StepReached
from spillway.faults import Faults
from spillway.metrics.record import SlotRecord
from spillway.protocols.messages import Message
from spillway.spark.runtime.exchange.placement import Placement
from spillway.spark.runtime.moves.mover import Mover


class SparkHost(CheckpointHost):
    """Carries out what the coordinator of one stage decides."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        streams: int,
        mover: Mover,
        placement: Placement,
        faults: Faults,
        last: Callable[[], Mapping[int, SlotRecord]],
    ) -> None:
        """`last` gives the records of the last commit, by slot."""
        super().__init__(checkpoint, streams)
        self.mover = mover
        self._placement = placement
        self._janitor = Janitor(checkpoint)
        self._faults = faults
        self._last = last

    def append(self, state: Committed) -> None:
        """Commits; tests may place a fault before and after it."""
        self._faults.reach_commit("before-commit", state.batch)
        super().append(state)
        self._faults.reach_commit("after-commit", state.batch)

    def delete(self, names: Sequence[str]) -> None:
        """Deletes files while batches run."""
        self._janitor.discard(names)

    def sweep(self, state: Committed, before: Committed) -> None:
        """Lists and deletes while batches run."""
        self._janitor.sweep(lambda: self.checkpoint.orphans(state, before))

    def send(self, groups: SendGroups) -> None:
        """Starts to send, in a separate thread."""
        self.mover.send(groups, None if groups.by_name else self._placement.to_one)

    def messages(self) -> Sequence[tuple[Message, float]]:
        """The messages about moves since the last call."""
        return self.mover.messages()

    def finish_sending(self) -> None:
        """Waits until the mover has sent everything."""
        self.mover.finish()

    def prepare_moves(self) -> None:
        """Starts the workers that send and receive."""
        self.mover.warm_up()

    def reach(self, step: StepReached) -> None:
        """Triggers a fault that a test placed at this step."""
        if not self._faults.steps:
            return
        pids, last = {"driver": os.getpid()}, self._last()
        for who, slot in (("sender", step.move.sender), ("receiver", step.move.receiver)):
            if slot in last:
                pids[who] = int(last[slot].worker.split("/")[1])
        self._faults.reach_step(step.move.move, step.step, pids)

    def close(self) -> None:
        """Ends the work between the batches."""
        try:
            self.mover.close()
            # The last record is durable, and no batch follows.
            self.delete(self._leaving)
        finally:
            self._janitor.close()
