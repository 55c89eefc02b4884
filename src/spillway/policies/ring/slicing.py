"""Where time slices go, and how to distribute a join without equal keys (PSP sections 6 and 7).

A slice is a group: the slot that the routing names builds it, and it stays there until it expires.

    smoothing    future slices, which are still empty, go to the slots with the least work
    passive      the same over another slot count: a new slot gets future slices, a retiring one gets
                 none and is empty after a window; nothing moves
    aggressive   slices move at once, like groups at any change of the slot count
                 (policies/cluster/scaling.py); the paper stops the ring for them, here only rows of
                 the moving slices wait

The paper's slots are neighbours on a ring: slices shift from each to the next, and a count limits
what a slot keeps. Here the policy uses the count when it places a slice, and moves a slice between
any two slots.

Known limitation: a group has a slice of every stream, and is empty only if all of them are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spillway.policies.ring.model import (
    HopCosts,
    Source,
    best_length,
    central_s,
    least_length,
    over_sources,
    response_s,
    utilisation,
)

#: A group keeps its route if that slot has at most this fraction of a slice more than the least.
_SLACK = 0.5


@dataclass(frozen=True)
class SliceRoutes:
    """Groups without rows that will be built in other slots."""

    to: Mapping[int, int]
    reason: str


def smoothed(
    table: Sequence[int],
    rows: Sequence[float],
    ahead: Iterable[int],
    expected: float,
    slots: int,
    behind: Sequence[int] = (),
    slowness: Sequence[float] | None = None,
) -> SliceRoutes | None:
    """Routes future slices to the slots with the least work; None if no change is needed.

    Args:
        table: The slot of every group.
        rows: Rows of every group now.
        ahead: Groups in the order in which they will be built; those with rows stay.
        expected: Expected rows of a future slice.
        slots: Only slots below this number get slices.
        behind: Groups in the order in which they will expire, one for each that is built; their
            rows do not count for later slices.
        slowness: Seconds per row in each slot, if they differ.

    Example:
        >>> smoothed((0, 1, 0, 1), (9.0, 2.0, 0.0, 0.0), [2, 3], 2.0, 2).to
        {2: 1}
    """
    cost = [1.0] * slots if slowness is None else list(slowness)
    work = [0.0] * slots
    for slot, count in zip(table, rows, strict=True):
        if slot < slots:
            work[slot] += count * cost[slot]
    to: dict[int, int] = {}
    for number, group in enumerate(ahead):
        if number < len(behind) and table[gone := behind[number]] < slots:
            work[table[gone]] -= rows[gone] * cost[table[gone]]
        if rows[group] > 0:
            continue
        now = table[group]
        best = min(range(slots), key=lambda slot: (work[slot] + expected * cost[slot], slot))
        after = work[best] + expected * cost[best]
        stays = now < slots and work[now] + expected * cost[now] * (1 - _SLACK) <= after
        taker = now if stays else best
        if taker != now:
            to[group] = taker
        work[taker] += expected * cost[taker]
    if not to:
        return None
    spread = f"slots will have {min(work):.3g} to {max(work):.3g} work each"
    return SliceRoutes(to, f"{len(to)} future slices, {expected:.3g} rows each: {spread}")


def emptied(table: Sequence[int], slots: int) -> bool:
    """Whether passive adjustment is complete: no group is in a retiring slot.

    `smoothed` leaves a group with rows in its slot until they have expired, and then reroutes it.

    Example:
        >>> emptied((0, 1, 2), slots=2), emptied((0, 1, 1), slots=2)
        (False, True)
    """
    return all(slot < slots for slot in table)


@dataclass(frozen=True)
class Resize:
    """A change of the ring length."""

    slots: int
    #: Slices move at once; otherwise only future slices get new slots.
    aggressive: bool
    reason: str


@dataclass(frozen=True)
class RingRules:
    """When the length of a ring changes."""

    #: Available slots.
    most: int
    #: Above this utilisation slots are too busy; then the new length brings them back to it.
    busy: float = 0.8
    aim: float = 0.7
    #: Fraction of the response that another length must save if slots are not too busy.
    margin: float = 0.2
    #: Whether slices may move: "passive" never, "aggressive" always, "auto" if a slot falls behind.
    adjustment: str = "auto"
    #: Above this utilisation a slot is behind.
    behind: float = 1.0

    def moves(self, busy: float) -> bool:
        """Whether slices should move at once, at this utilisation."""
        return self.adjustment == "aggressive" or (self.adjustment == "auto" and busy > self.behind)


def resize(
    sources: Sequence[Source], costs: HopCosts, slots: int, rules: RingRules
) -> Resize | None:
    """Returns the length that the cost model wants, if it is worth a change.

    Example:
        >>> from spillway.policies.ring.model import ProbeStep
        >>> rows = Source("a", 300.0, (ProbeStep("b", 1000.0, 0.0002, 30e-6),))
        >>> resize([rows], HopCosts(10e-6, 70e-6), 9, RingRules(most=19)).slots
        15
    """
    wanted = max(best_length(sources, costs, rules.most), _enough(sources, costs, rules))
    busy = utilisation(sources, costs, slots)
    if wanted == slots or (busy <= rules.busy and not _saves(sources, costs, slots, wanted, rules)):
        return None
    reason = f"{slots} slots are {busy:.0%} busy, the best length is {wanted}"
    return Resize(wanted, rules.moves(busy), reason)


def _enough(sources: Sequence[Source], costs: HopCosts, rules: RingRules) -> int:
    return least_length(sources, costs, rules.aim, rules.most)


def _saves(
    sources: Sequence[Source], costs: HopCosts, slots: int, wanted: int, rules: RingRules
) -> bool:
    def response(length: int) -> float:
        return over_sources(sources, lambda source: response_s(source, costs, length))

    return response(wanted) < response(slots) * (1 - rules.margin)


PSP, ATR, CTR = "psp", "atr", "ctr"
#: ATR's segment in windows: it keeps 1 + 2/this copies of every slave row on average.
SEGMENT_WINDOWS = 3
#: CTR's copies, as in its paper.
COPIES = 2
#: Distributions within this factor of the fastest compare by the rows they keep.
_ALIKE = 1.1
#: Above this utilisation a distribution falls behind sooner or later.
_BUSIEST = 0.9
#: More slots do not help ATR. If it is chosen permanently, rates may grow by this factor.
ROOM = 3


@dataclass(frozen=True)
class Offer:
    """What the cost model says about one way to distribute a join."""

    distribution: str
    slots: int
    response_s: float
    #: Fraction of their time that the slots work.
    utilisation: float
    #: Rows that all slots keep together, including copies.
    rows: float
    #: The stream that ATR cuts.
    master: str | None = None


@dataclass(frozen=True)
class DistributionTerms:
    """The conditions for each way to distribute a join."""

    #: Whether a row visits all slots of PSP at once, one hop per step, and not one after the other.
    at_once: bool = False
    #: ATR's segment, in windows.
    segment_windows: float = SEGMENT_WINDOWS
    #: How often CTR stores a row; None: CTR is not available.
    copies: int | None = COPIES
    #: The stream that ATR cuts; None: the one with the highest rate.
    master: str | None = None


def offers(
    sources: Sequence[Source],
    costs: HopCosts,
    slots: int,
    window_s: float,
    terms: DistributionTerms = DistributionTerms(),  # noqa: B008 - frozen
) -> tuple[Offer, ...]:
    """Returns what the model says about PSP, ATR and CTR."""
    copies = terms.copies
    return (
        _psp_at_once(sources, costs, slots) if terms.at_once else _psp(sources, costs, slots),
        _atr(sources, costs, slots, window_s, terms),
        *((_ctr(sources, costs, slots, copies),) if copies and slots >= 2 * copies else ()),
    )


def distribution(
    sources: Sequence[Source],
    costs: HopCosts,
    slots: int,
    window_s: float,
    terms: DistributionTerms = DistributionTerms(),  # noqa: B008 - frozen
) -> tuple[Offer, str]:
    """`distribute="auto"`: returns the chosen way, and the reason.

    The least response of those that keep up; among those about as fast, the fewest rows.
    """
    known = offers(sources, costs, slots, window_s, terms)
    able = [one for one in known if one.utilisation <= _BUSIEST]
    if not able:
        best = min(known, key=lambda one: one.utilisation)
        return best, f"no distribution keeps up; {best.distribution} is {best.utilisation:.0%} busy"
    least_s = min(one.response_s for one in able)
    best = min(
        (one for one in able if one.response_s <= _ALIKE * least_s),
        key=lambda one: (one.rows, one.response_s),
    )
    told = (f"{one.distribution} {one.response_s * 1e3:.3g} ms" for one in known)
    return best, f"{best.distribution}: {', '.join(told)}; it keeps {best.rows:.0f} rows"


def _rows(sources: Sequence[Source]) -> dict[str, float]:
    return {step.stream: step.rows for source in sources for step in source.steps}


def _psp(sources: Sequence[Source], costs: HopCosts, slots: int) -> Offer:
    length = max(best_length(sources, costs, slots), least_length(sources, costs, most=slots))
    took_s = over_sources(sources, lambda source: response_s(source, costs, length))
    busy = utilisation(sources, costs, length)
    return Offer(PSP, length, took_s, busy, sum(_rows(sources).values()))


def _psp_at_once(sources: Sequence[Source], costs: HopCosts, slots: int) -> Offer:
    """Equation 5 without waiting for other slots to be visited; so there is no best length."""

    def took_s(source: Source) -> float:
        steps = zip(source.coming, source.steps, strict=False)
        return sum(costs.hop_s + n * (step.work_s / slots + costs.send_s) for n, step in steps)

    busy = utilisation(sources, costs, slots)
    return Offer(PSP, slots, over_sources(sources, took_s), busy, sum(_rows(sources).values()))


def _atr(
    sources: Sequence[Source],
    costs: HopCosts,
    slots: int,
    window_s: float,
    terms: DistributionTerms,
) -> Offer:
    """Models ATR: one slot has all rows of a segment; work beyond that time waits."""
    work_s = over_sources(sources, lambda source: central_s(source, costs))
    load = sum(source.rate for source in sources) * work_s
    behind_s = max(0.0, load - 1.0) * terms.segment_windows * window_s / 2
    master = terms.master or max(sources, key=lambda source: source.rate).name
    rows = {
        name: count * (1 if name == master else 1 + 2 / terms.segment_windows)
        for name, count in _rows(sources).items()
    }
    response = costs.hop_s + costs.send_s + work_s + behind_s
    busy = ROOM * load if terms.at_once else load / slots
    return Offer(ATR, slots, response, busy, sum(rows.values()), master)


def _ctr(sources: Sequence[Source], costs: HopCosts, slots: int, copies: int) -> Offer:
    """Models CTR: each step goes to some of the slots and waits for them; one row at a time."""
    part = slots // copies

    def took_s(source: Source) -> float:
        steps = zip(source.coming, source.steps, strict=False)
        return sum(
            2 * costs.hop_s + n * (part * costs.send_s + step.work_s / part) for n, step in steps
        )

    response = over_sources(sources, took_s)
    busy = sum(source.rate for source in sources) * response
    return Offer(CTR, slots, response, busy, copies * sum(_rows(sources).values()))
