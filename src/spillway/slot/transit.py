"""Groups that come to a slot and go from it, and the rows that wait for them.

`Transit` carries out the orders of one batch on a state (slot/orders.py). Rows that waited are
processed before the state expires and before any row of the batch, so they find what they would have
found in the batch that they came with; they are not late, however far the watermark has gone since.
Where a batch is processed whole they become rows of this one, and what they need is kept till then.
Rows that wait for a later batch (slot/gate.py) are processed before their group goes.

While two slots serve groups (state/slot/tracks.py), the rows of the sender are copies: they are counted
where the groups are routed to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from spillway.metrics.record import Chosen
from spillway.operators.base import Made, empty_rows
from spillway.operators.intake import Intake, rows_inside
from spillway.routing.routing import HashRange, group_ranges, outside
from spillway.slot.control import Controller
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
from spillway.state.manifest.manifest import Manifest
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState


class Transit:
    """What the orders of one batch do to one state."""

    def __init__(
        self,
        state: SlotState,
        orders: Sequence[Order],
        read: Callable[[str], Manifest],
        *,
        whole: bool = False,
        shadow: Callable[[Sequence[Segment], RunData], RunData] | None = None,
    ) -> None:
        """`shadow` says what a cumulative operator keeps of rows that another slot answers for.

        It is given what it has kept of such rows before.
        """
        self._state = state
        self._orders = orders
        #: Reads a manifest by name.
        self._read = read
        #: Whether groups go with nothing of them on disk: there are to be no parts where they arrive.
        self._whole = whole
        self._parks = [
            (order.move, group_ranges(order.groups, state.groups))
            for order in orders
            if isinstance(order, Park)
        ]
        self._away = {
            group
            for order in orders
            if isinstance(order, Park | Depart | Duplicate | Shadow)
            for group in order.groups
        }
        self._shadow = shadow
        #: The hashes of a cumulative operator that another slot answers for.
        self._shadowed = () if shadow is None else self._ranges_of(Shadow)
        #: The hashes whose rows another slot counts.
        self.copied = self._ranges_of(Duplicate)

    def before_batch(self, intake: Intake) -> Made:
        """Groups come and go; yields the results of the rows that waited."""
        for order in self._orders:
            match order:
                case Depart():
                    # What waits does not move. Groups that come and groups that go are never in
                    # one batch, so nothing else is staged yet.
                    if self._whole:
                        self._brought_back(order.groups)
                    yield from intake.processed(intake.waited(order.groups))
                    yield from intake.processed(intake.rest())
                    self._state.depart(order.move, order.groups)
                case Arrive():
                    self._state.install(self._read(order.part))
                    parked = of_move(self._state.manifest.parked, order.move)
                    yield from self._flushed(order.move, parked, intake)
                case TakeBack():
                    self._state.take_back(order.move)
                    elsewhere = self._read(order.parked_in).parked if order.parked_in else ()
                    parked = of_move(elsewhere, order.move)
                    yield from self._flushed(order.move, parked, intake)
                case Leave():
                    self._state.leave(order.move)
                case Duplicate():
                    yield from self._tracked(order, intake)
                case Rejoin():
                    # What waits has met the other new rows elsewhere.
                    yield from intake.processed(intake.caught_up(self._state.tracked))
                    self._state.rejoin()
                case Delete():
                    yield from intake.processed(intake.caught_up(order.groups))
                    self._state.delete(order.groups)
                case _:
                    pass

    def without_parked(self, deltas: Sequence[RunData]) -> tuple[RunData, ...]:
        """New rows without those whose groups are on their way here, which are kept for later."""
        if not self._parks and not self._shadowed:
            return tuple(deltas)
        for stream, delta in enumerate(deltas):
            for move, ranges in self._parks:
                self._state.park(move, stream, rows_inside(delta, ranges))
            if self._shadow is not None:
                # The slot that has rows from before answers for these.
                mine = rows_inside(delta, self._shadowed)
                self._state.add(stream, self._shadow(self._state.segments(stream), mine))
        kept = outside(sorted((*_all_ranges(self._parks), *self._shadowed), key=lambda one: one.lo))
        return tuple(rows_inside(delta, kept) for delta in deltas)

    def purged(self, watermark_us: int | None) -> tuple[int, ...]:
        """The parallel tracks whose old rows are gone, for rows that come after this batch."""
        track = self._state.tracker.track
        if track is None or self._state.spooler.groups[list(track.groups)].any():
            return ()
        return (track.move,) if track.over(watermark_us) else ()

    def chosen(self, owned: Collection[int], controller: Controller) -> tuple[Chosen, ...]:
        """The groups to send, for each order that asks for some."""
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

    def _ranges_of(self, kind: type[Duplicate] | type[Shadow]) -> tuple[HashRange, ...]:
        found = [group for one in self._orders if isinstance(one, kind) for group in one.groups]
        return group_ranges(found, self._state.groups)

    def _tracked(self, order: Duplicate, intake: Intake) -> Made:
        """A track begins, unless it has: what waits came before, so it is old."""
        if self._state.tracker.track is None:
            yield from intake.processed(intake.caught_up(order.groups))
            self._state.begin_track(order.move, order.groups)

    def _brought_back(self, groups: Collection[int]) -> None:
        deferred = set(self._state.parts.deferred.nonzero()[0].tolist())
        self._state.parts.settle(
            sorted(deferred & set(groups) - self._state.parts.pending), in_memory=True
        )

    def _flushed(self, move: int, parked: Parked | None, intake: Intake) -> Made:
        if parked is not None:
            found = self._state.waiting(parked)
            waited = [empty_rows() if rows is None else rows for rows in found]
            yield from intake.processed(intake.ready(waited))
        self._state.leave(move)


def _all_ranges(parks: Sequence[tuple[int, tuple[HashRange, ...]]]) -> list[HashRange]:
    return sorted((one for _, ranges in parks for one in ranges), key=lambda one: one.lo)
