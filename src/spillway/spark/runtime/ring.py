"""The slots of a join on predicates while it runs: how many there are to be, and how they come and go.

With `ring="auto"` every batch is an evaluation (policies/ring/length.py), and what is decided becomes a
wish for another number of slots, as `query.scale()` is one. A ring begins with all its slots: before
anything is measured, that is what the user said. What was measured is not kept over a restart; the
length is, in the log.
"""

from __future__ import annotations

from collections.abc import Mapping

from spillway.coordinator.coordinator import Committed, Scaling
from spillway.metrics.record import SlotRecord
from spillway.operators.operator import Operator
from spillway.operators.theta.sliced import SlicedJoin
from spillway.policies.ring.length import BEHIND, Length
from spillway.policies.ring.model import utilisation
from spillway.policies.ring.slicing import RingRules
from spillway.settings import AUTO, Adapt
from spillway.spark.runtime.visits import Model


def adjusts(operator: Operator) -> bool:
    """Whether slots may come and go with slices to come: of a join whose slices are stored once."""
    return isinstance(operator, SlicedJoin) and operator.slicing.copies == 1


class Ring:
    """The number of slots of one join."""

    def __init__(self, adapt: Adapt, most: int) -> None:
        self._adapt = adapt
        self._most = most
        self._length = Length(RingRules(most, adjustment=adapt.adjustment, behind=BEHIND))

    @property
    def automatic(self) -> bool:
        """Whether measurements decide."""
        return self._adapt.ring == AUTO

    def asked(self, state: Committed) -> int | None:
        """The slots that a start must have; None: those that it finds."""
        if not self.automatic or state.batch < 0:
            return self._most
        found = state.routing.slots if state.scaling is None else state.scaling.slots
        return None if found <= self._most else self._most

    def passive(self, model: Model | None, slots: int) -> bool:
        """Whether slots come and go without moves, as things are now."""
        busy = 0.0 if model is None else utilisation(*model, slots)
        return not self._length.rules.moves(busy)

    def observed(
        self,
        state: Committed,
        records: Mapping[int, SlotRecord],
        model: Model | None,
        *,
        changing: bool,
    ) -> Scaling | None:
        """Takes what a batch of an automatic ring has measured; the change that is due now, if one is.

        While slots change, and until those that are new have rows, nothing that is measured counts.
        """
        if state.round:
            return None
        held = [sum(one.held_rows) for one in records.values()]
        settled = len(held) == state.routing.slots and all(held)
        if changing or state.moves or state.scaling is not None or not settled:
            self._length = self._length.rested()
        elif model is not None:
            self._length = self._length.observed(*model, state.routing.slots)
        if (due := self._length.decided) is None:
            return None
        self._length = self._length.rested()
        return Scaling(due.slots, passive=not due.aggressive, reason=due.reason)

    def lines(self, state: Committed, wished: Scaling | None) -> list[str]:
        """What `explain` tells of it."""
        slots = state.routing.slots
        told = self._length.told(slots) if self.automatic else f"{slots} slots in use"
        lines = [f"ring {self._adapt.ring}, adjustment {self._adapt.adjustment}: {told}"]
        if (change := state.scaling or wished) is not None:
            how = "as rows come and expire" if change.passive else "by moves"
            why = f": {change.reason}" if change.reason else ""
            lines.append(f"ring of {slots} becomes one of {change.slots}, {how}{why}")
        return lines
