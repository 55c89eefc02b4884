"""Runs a coordinator in its host: calls it, carries out its effects, keeps the newest value.

This is the whole driver between two batches, for every host; coordinator/coordinator.py decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from spillway.coordinator.batch.committed import Committed, Mark, next_round_of
from spillway.coordinator.batch.plan import BatchPlan, Note, refuse_other_input
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.effects import (
    AppendRecord,
    DiscardFiles,
    Effect,
    Effects,
    PrepareMoves,
    Reroute,
    SendGroups,
    StepReached,
    WriteNote,
)
from spillway.coordinator.host import Host
from spillway.coordinator.took import Took
from spillway.coordinator.wishes import Wish
from spillway.metrics.record import SlotRecord


class Conductor:
    """Conducts one stage."""

    def __init__(self, coordinator: Coordinator, host: Host) -> None:
        self.coordinator = coordinator
        self.host = host
        #: User requests, from any thread, until the next batch or round begins.
        self._wishes: deque[Wish] = deque()
        if coordinator.rules.strategy.relocates:
            host.prepare_moves()

    @property
    def state(self) -> Committed:
        """The committed state, with the messages since."""
        return self.coordinator.state

    @property
    def ahead(self) -> Coordinator:
        """The coordinator as the next batch or round begins, with all requests."""
        found = self.coordinator
        for wish in tuple(self._wishes):
            found, _ = found.take(wish)
        return found

    def wish(self, wish: Wish) -> None:
        """Takes a request for the next batch or round; rejects one that cannot be granted."""
        self.coordinator.take(wish)
        self._wishes.append(wish)

    def take(self, wish: Wish) -> None:
        """Grants a request at once; only for the thread that runs batches, between two of them."""
        self._take(self.coordinator.take(wish))

    def catch_up(self) -> None:
        """Takes the messages between the batches, and the user's requests."""
        while self._wishes:
            self.take(self._wishes.popleft())
        if self.coordinator.crowded:
            self.host.finish_sending()
        self._take(self.coordinator.hear(self.host.messages()))
        self._take(self.coordinator.settle())
        self.coordinator = self.coordinator.grant_wish()

    @property
    def replays(self) -> bool:
        """Whether the next batch has already begun, so that it is repeated first."""
        return self._note(Mark(self.state.batch + 1)) is not None

    def begin_batch(self, batch: int, input_digest: str | None = None) -> BatchPlan:
        """Returns the plan of the next batch, whose rows have this digest.

        A batch that has already begun, in this start or an earlier one, gets the same plan: a sink or a
        later stage may have its results. It must have the same rows, too.
        """
        note = self._note(Mark(batch))
        if note is None:
            self.catch_up()
        else:
            refuse_other_input(batch, note.input_digest, input_digest)
        plan, effects = self.coordinator.plan_batch(batch, note, input_digest)
        self._take((self.coordinator, effects))
        return plan

    def begin_round(self, wanted_bytes: int, among: Collection[int]) -> BatchPlan | None:
        """Returns the plan of a round that cleans up some of the groups; None: nothing to do."""
        self.catch_up()
        cleanup = self.coordinator.due_cleanup(wanted_bytes, among)
        if (planned := self.coordinator.plan_round(cleanup)) is None:
            return None
        plan, effects = planned
        self._take((self.coordinator, effects))
        return plan

    def open_round(self) -> BatchPlan | None:
        """Returns the plan of a round that began and has not ended."""
        note = self._note(next_round_of(self.state))
        return None if note is None else self.coordinator.repeat_round(note)

    def commit(
        self,
        plan: BatchPlan,
        records: Mapping[int, SlotRecord],
        took: Took,
        attempts: Iterable[SlotRecord] = (),
    ) -> None:
        """Commits a batch or round."""
        self._take(self.coordinator.commit(plan, records, took, attempts))

    def _note(self, mark: Mark) -> Note | None:
        return self.host.note(mark)

    def _take(self, decided: tuple[Coordinator, Effects]) -> None:
        """Carries out effects; if the host fails on one, the coordinator stays as it was.

        After a commit it stays as it is on record, also if the host fails on a later effect: the batch
        must not run again.
        """
        after, effects = decided
        for effect in effects:
            after = self._carry_out(effect, after)
            if isinstance(effect, AppendRecord):
                self.coordinator = after
        self.coordinator = after

    def _carry_out(self, effect: Effect, after: Coordinator) -> Coordinator:
        """Carries out one effect; returns the coordinator after it."""
        match effect:
            case WriteNote(mark, note):
                self.host.write_note(mark, note)
            case AppendRecord(state):
                self.host.append(state)
            case SendGroups():
                self.host.send(effect)
            case DiscardFiles():
                self.host.discard(effect)
            case PrepareMoves():
                self.host.prepare_moves()
            case StepReached():
                self.host.reach(effect)
            case Reroute(routing):
                return after.rerouted(*self.host.reroute(after.state, routing))
        return after
