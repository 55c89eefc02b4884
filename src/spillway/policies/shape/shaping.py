"""The shape of one slot's join from batch to batch: permitted, measured and chosen shapes.

`Shaping` holds what `plan(...)` of a join says. A *fixed* shape applies to every slot from the next
batch on. A "tree" starts left-deep, and gets the cheapest binary tree at the first evaluation with
measurements. "auto" starts with the n-way join, and may return to it. Afterwards both change with
hysteresis (policies/shape/proposal.py).

In the average of rates, each batch counts twice as much as the one before, so streams whose rows
alternate between batches look alike. operators/stats.py blends selectivities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

from spillway.errors import PlanError, QueryError
from spillway.metrics.counts import Sampled
from spillway.metrics.record import SlotRecord
from spillway.plan.shape import Shape, binary_shapes, flat, left_deep, parse
from spillway.policies.shape.costs import (
    MOST_STREAMS,
    Estimate,
    JoinRates,
    ShapeCost,
    cheapest,
    join_rates,
)
from spillway.policies.shape.proposal import Proposal, Reshape, ShapeRules, propose

NWAY, TREE, AUTO = "nway", "tree", "auto"
PLANS = (NWAY, TREE, AUTO)
#: Streams up to which `explain` lists the costs of all binary trees: 15 for four.
_TOLD_STREAMS = 4
#: Characters not allowed in the name of a stream in a shape.
_MARKS = frozenset("()+")


@dataclass(frozen=True)
class SlotShape:
    """The shape of one slot's join, and the state for the next decision."""

    shape: Shape
    proposal: Proposal = field(default_factory=Proposal)
    #: The last measurements; None before the first.
    rates: JoinRates | None = None
    #: Whether measurements have chosen it; otherwise it is only the initial shape.
    chosen: bool = False

    def costs(self) -> dict[Shape, ShapeCost]:
        """Returns the cost of the current shape, then of the others, cheapest first.

        With more than four streams, the others are the cheapest and the n-way join; if shapes are
        not compared, only the n-way join.
        """
        if self.rates is None:
            return {}
        estimate, names = Estimate(self.rates), self.rates.names
        others = {flat(names)}
        if len(names) <= MOST_STREAMS:
            others.add(cheapest(self.rates))
        if len(names) <= _TOLD_STREAMS:
            others |= {one for one in binary_shapes(names) if isinstance(one, Shape)}
        found = {shape: estimate.cost(shape) for shape in (self.shape, *others)}
        order = sorted(found, key=lambda one: (one != self.shape, found[one].work, str(one)))
        return {shape: found[shape] for shape in order}


@dataclass(frozen=True)
class Shaping:
    """The shapes that the slots of a join may have."""

    #: The streams, in their given order.
    names: tuple[str, ...]
    kind: str = NWAY
    #: The shape of all slots, if it is given.
    given: Shape | None = None

    def __post_init__(self) -> None:
        if self.kind not in PLANS:
            raise PlanError(
                f"{self.kind!r} is not a valid plan",
                hint='use plan("nway"), plan("tree") or plan("auto"), or plan(shape="((a b) c)")',
            )
        if self.given is not None:
            self._check_given(self.given)
        if self.kind == NWAY:
            return
        if odd := [name for name in self.names if _MARKS & set(name) or name.split() != [name]]:
            raise PlanError(
                f"stream {odd[0]!r} cannot be named in a shape",
                hint='use a name without spaces, brackets and plus signs, or plan("nway")',
            )
        if self.given is None and len(self.names) > MOST_STREAMS:
            raise PlanError(
                f'plan("{self.kind}") compares shapes of up to {MOST_STREAMS} streams, '
                f"not {len(self.names)}",
                hint='use plan("nway"), or give the shape: plan(shape="((a b) c ...)")',
            )

    def _check_given(self, given: Shape) -> None:
        if self.kind != TREE:
            raise PlanError(
                f'plan("{self.kind}") does not take a shape',
                hint=f'use plan(shape="{given}") for this shape in every slot',
            )
        unknown = [name for name in given.streams if name not in self.names]
        missing = [name for name in self.names if name not in given.streams]
        if unknown or missing:
            what = (
                f"names {unknown[0]}, which is not one of the joined streams"
                if unknown
                else (f"leaves out the stream {missing[0]}")
            )
            raise PlanError(
                f"plan(shape={str(given)!r}) {what}",
                hint=f"the streams are {', '.join(self.names)}; use each of them once",
            )

    @classmethod
    def asked(cls, names: Sequence[str], kind: str | None, shape: str | None) -> Shaping:
        """Checks what a user asks for."""
        if shape is None:
            return cls(tuple(names), NWAY if kind is None else kind)
        hint = 'write streams in brackets, two or more in each, for example "((a b) c)"'
        if not isinstance(shape, str):
            raise PlanError(f"plan(shape={shape!r}): a shape must be a string", hint=hint)
        try:
            return cls(tuple(names), TREE if kind is None else kind, parse(shape))
        except QueryError as problem:
            raise PlanError(problem.message, hint=problem.hint or hint) from None

    @cached_property
    def fixed(self) -> Shape | None:
        """The fixed shape of all slots; None: it is chosen."""
        return flat(self.names) if self.kind == NWAY else self.given

    @cached_property
    def first(self) -> Shape:
        """The initial shape of a slot."""
        if self.fixed is not None:
            return self.fixed
        return left_deep(self.names) if self.kind == TREE else flat(self.names)

    def observed(self, known: SlotShape, record: SlotRecord, seconds: float) -> SlotShape:
        """Returns what is known about a slot after a batch whose rows came in `seconds`."""
        if seconds <= 0 or not _measured(len(self.names), record):
            return known
        rates = join_rates(self.names, record, seconds)
        return replace(known, rates=rates if known.rates is None else _averaged(known.rates, rates))

    def decided(
        self, slot: int, known: SlotShape, room_bytes: float | None
    ) -> tuple[Reshape | None, SlotShape]:
        """Decides whether a slot changes its shape now; also returns the next state."""
        if self.fixed is not None:
            change = None
            if known.shape != self.fixed:
                change = Reshape(slot, self.fixed, "the query asks for it")
            return change, replace(known, proposal=Proposal())
        if known.rates is None:
            return None, known
        rules = ShapeRules(room_bytes=room_bytes, binary=self.kind == TREE)
        if not known.chosen and self.kind == TREE:
            rules = replace(rules, margin=0.0, evaluations=1)
        change, proposal = propose(slot, known.rates, known.shape, known.proposal, rules)
        return change, replace(known, proposal=proposal, chosen=True)


def _measured(streams: int, record: SlotRecord) -> bool:
    """Whether all pairs of streams have measurements."""
    sampled = {key for key, (pairs, _) in record.sampled.items() if pairs}
    return all(
        Sampled(str(i), str(j)) in sampled or Sampled(str(j), str(i)) in sampled
        for i, j in combinations(range(streams), 2)
    )


def _averaged(older: JoinRates, newer: JoinRates) -> JoinRates:
    streams = tuple(
        replace(now, rate=(before.rate + now.rate) / 2)
        for before, now in zip(older.streams, newer.streams, strict=True)
    )
    results = ((older.results or 0.0) + (newer.results or 0.0)) / 2
    return replace(newer, streams=streams, results=results)
