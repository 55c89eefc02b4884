"""Groups that move to and from a slot, and the rows that wait for them.

`Transit` carries out the orders of one batch on a state (slot/orders.py). The slot processes rows
that waited before the state expires and before any row of the batch. So they find what they would
have found when they arrived, and are never late. For a cumulative operator they become rows of this
batch, and the state keeps what they need until then. The slot processes spooled rows
(slot/admission.py) before their group leaves.

While two slots serve groups (state/slot/tracks.py), the sender's rows are copies. The slot that the
routing names counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from spillway.metrics.record import Chosen, SlotRecord
from spillway.operators.operator import Made
from spillway.routing.routing import group_ranges
from spillway.slot.controller import Controller
from spillway.slot.intake import Intake
from spillway.slot.job import SlotJob
from spillway.slot.orders import (
    Arrive,
    Choose,
    Delete,
    Depart,
    Duplicate,
    Leave,
    Order,
    Park,
    Rejoin,
    Shadow,
    TakeBack,
)
from spillway.state.layout.moving import Parked, of_move
from spillway.state.layout.shelf import slices
from spillway.state.manifest.manifest import Manifest
from spillway.state.slot.state import SlotState


class Transit:
    """Carries out the orders of one batch on one state."""

    def __init__(
        self,
        state: SlotState,
        orders: Sequence[Order],
        read: Callable[[str], Manifest],
        *,
        whole: bool = False,
    ) -> None:
        self._state = state
        self._orders = orders
        #: Reads a manifest by name.
        self._read = read
        #: Whether groups leave with nothing on disk, because the receiver must have no parts.
        self._whole = whole
        self._away = {
            group
            for order in orders
            if isinstance(order, Park | Depart | Duplicate | Shadow)
            for group in order.groups
        }
        doubled = [
            group for order in orders if isinstance(order, Duplicate) for group in order.groups
        ]
        #: The hashes whose rows another slot counts.
        self.copied = group_ranges(doubled, state.groups)

    def before_batch(self, intake: Intake) -> Made:
        """Moves groups in and out; yields the results of the rows that waited."""
        for order in self._orders:
            match order:
                case Depart():
                    # Spooled rows do not move. No batch has both arriving and departing groups, so
                    # nothing else is staged yet.
                    if self._whole:
                        self._bring_back(order.groups)
                    yield from intake.process(intake.take_spooled(order.groups))
                    yield from intake.process(intake.take_staged())
                    self._state.depart(order.move, order.groups)
                case Arrive():
                    self._state.install(self._read(order.part))
                    parked = of_move(self._state.manifest.parked, order.move)
                    yield from self._flush(order.move, parked, intake)
                case TakeBack():
                    self._state.take_back(order.move)
                    elsewhere = self._read(order.parked_in).parked if order.parked_in else ()
                    parked = of_move(elsewhere, order.move)
                    yield from self._flush(order.move, parked, intake)
                case Leave():
                    self._state.leave(order.move)
                case Duplicate():
                    yield from self._begin_track(order, intake)
                case Rejoin():
                    # Spooled rows have met the other new rows elsewhere.
                    yield from intake.process(intake.catch_up(self._state.tracked))
                    self._state.rejoin()
                case Delete():
                    yield from intake.process(intake.catch_up(order.groups))
                    self._state.delete(order.groups)
                case _:
                    pass

    def in_record(self, record: SlotRecord, job: SlotJob, controller: Controller) -> SlotRecord:
        """Returns the record with the answers about moving groups."""
        return replace(
            record,
            chosen=self.chosen(job.owned, controller),
            purged=self._purged(job.watermark_us),
            parked_bytes=self._state.parked_bytes,
            leaving_bytes=self._state.leaving_bytes,
            demoted_bytes=self._state.demoted_bytes,
        )

    def chosen(self, owned: Collection[int], controller: Controller) -> tuple[Chosen, ...]:
        """Chooses the groups to send, for each `Choose` order."""
        answers = []
        for order in self._orders:
            if isinstance(order, Choose):
                table, left = self._state.table(), sorted(set(owned) - self._away)
                if order.in_memory:
                    on_disk = self._state.parts.deferred
                    left = [group for group in left if not on_disk[group]]
                choice = controller.movers(
                    table,
                    left,
                    order.bytes,
                    least_groups=order.groups,
                    everything=order.everything,
                    pick=order.pick,
                )
                size = int(table.size[list(choice.groups)].sum())
                answers.append(Chosen(order.move, choice.groups, size, choice.reason))
        return tuple(answers)

    def _purged(self, watermark_us: int | None) -> tuple[int, ...]:
        """Returns the parallel tracks whose old rows are gone for rows after this batch."""
        state, track = self._state, self._state.tracker.track
        # Rows that wait, or waited when this batch gave final results, have results to give here.
        if track is None or (state.spooler.groups | state.withheld)[list(track.groups)].any():
            return ()
        return (track.move,) if track.over(watermark_us) else ()

    def _begin_track(self, order: Duplicate, intake: Intake) -> Made:
        """Begins a track, unless it exists: rows that wait came before it, so they are old."""
        if self._state.tracker.track is None:
            yield from intake.process(intake.catch_up(order.groups))
            self._state.begin_track(order.move, order.groups)

    def _bring_back(self, groups: Collection[int]) -> None:
        deferred = set(self._state.parts.deferred.nonzero()[0].tolist())
        self._state.parts.settle(
            sorted(deferred & set(groups) - self._state.parts.pending), in_memory=True
        )

    def _flush(self, move: int, parked: Parked | None, intake: Intake) -> Made:
        if parked is not None:
            yield from intake.process(intake.take([slices(layers) for layers in parked.streams]))
        self._state.leave(move)
