"""Policies that decide what a history tells them, in the places of those of the product.

They go through the same code as the product's: `adapt`, `reshape`, `hear`. A decision that the product
would refuse, because a slot is busy or a track cannot begin, is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway.coordinator.decisions.adaptation import Rules
from spillway.metrics.record import SlotRecord
from spillway.metrics.view import NORMAL, ClusterView
from spillway.plan.shape import Shape
from spillway.policies.cluster.decision import Decision, ForceSpill, Move
from spillway.policies.cluster.protocols import Protocols
from spillway.policies.cluster.strategy import Strategy
from spillway.policies.local.skew import Skew
from spillway.policies.shape.proposal import Reshape
from spillway.policies.shape.shaping import TREE, Shaping, SlotShape
from spillway.slot.limits import Budget


@dataclass
class Script:
    """What a history has told and nobody has done yet."""

    decisions: list[Decision] = field(default_factory=list)
    shapes: dict[int, Shape] = field(default_factory=dict)
    #: Whether parallel tracks are given up before the next batch.
    impatient: bool = False
    #: What a slot may process in a batch; None: everything.
    budget: Budget | None = None


@dataclass(frozen=True, eq=False)
class ToldStrategy(Strategy):
    """Begins what the script says, where slots are free."""

    script: Script = field(default_factory=Script)

    def decide(self, view: ClusterView) -> tuple[Decision, ...]:
        """What the script says, where slots are free."""
        free = {slot.slot for slot in view.slots if slot.mode == NORMAL}
        taken: set[int] = set()
        chosen: list[Decision] = []
        for one in self.script.decisions:
            slots = {one.slot} if isinstance(one, ForceSpill) else {one.sender, one.receiver}
            alone = isinstance(one, Move) and len(slots) == 1
            if slots <= free - taken and not alone:
                taken |= slots
                chosen.append(one)
        self.script.decisions.clear()
        return tuple(chosen)


@dataclass(frozen=True, eq=False)
class ToldProtocols(Protocols):
    """Takes the protocol that the script names, where the product could."""

    script: Script = field(default_factory=Script)

    def of(self, move: Move, view: ClusterView) -> Move:
        """The move, by its own protocol if that is possible."""
        return Protocols(move.protocol, self.life_s).of(move, view)

    def impatience(self, lasted_s: float, batch_s: float) -> str:
        """Why a track is given up now; "" if it is not."""
        return "a test" if self.script.impatient else super().impatience(lasted_s, batch_s)


@dataclass(frozen=True, eq=False)
class ToldShaping(Shaping):
    """Gives slots the shapes that the script says, whatever they measure."""

    script: Script = field(default_factory=Script)

    @classmethod
    def of(cls, names: tuple[str, ...], first: Shape, script: Script) -> ToldShaping:
        """Shapes over these streams, beginning with one."""
        return cls(names, TREE, first, script=script)

    @property
    def fixed(self) -> None:
        """No shape is fixed."""
        return None

    @property
    def first(self) -> Shape:
        """The shape to begin with."""
        assert self.given is not None
        return self.given

    def decided(
        self, slot: int, known: SlotShape, room_bytes: float | None
    ) -> tuple[Reshape | None, SlotShape]:
        """The shape that the script says, if it is another."""
        shape = self.script.shapes.get(slot)
        if shape is None or shape == known.shape:
            return None, known
        return Reshape(slot, shape, "a test"), known


@dataclass(frozen=True, eq=False)
class ToldSkew(Skew):
    """Gives every slot the budget that the script says."""

    script: Script = field(default_factory=Script)

    def observed(self, records: Mapping[int, SlotRecord], *, is_round: bool = False) -> Skew:
        """The same: nothing is measured."""
        return self

    def budgets(self) -> dict[int, Budget]:
        """What the script says, for every slot."""
        budget = self.script.budget
        return {} if budget is None else dict.fromkeys(range(64), budget)


def told_rules(script: Script, life_s: float | None) -> Rules:
    """Rules under which slots are compared after every batch, and the script decides."""
    strategy = ToldStrategy("lazy-disk", script=script)
    protocols = ToldProtocols("auto", life_s, script=script)
    return Rules(strategy, interval_batches=1, protocols=protocols)
