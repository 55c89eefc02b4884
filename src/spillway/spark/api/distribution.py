"""`distribute="auto"`: how a join without equal keys is distributed, chosen when it first starts.

Before the start nothing is known of rates, selectivities and costs, and how a join is distributed
decides where its rows are stored. So the first start of a checkpoint looks at the first rows of every
stream (spark/api/sampling.py), tries the predicates on them (operators/predicates/trial.py), and takes
what the cost model says (policies/ring/slicing.py). What it took is in the plan that the checkpoint's
metadata has, and every later start with "auto" takes it from there.

Known limitation: the choice is as good as the first rows are typical, and is not made again. What an
exchange of Spark costs is guessed.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.duration import duration_us
from spillway.errors import SettingsError
from spillway.operators.predicates.trial import tried
from spillway.operators.theta.sliced import SlicedJoin
from spillway.plan.sliced import MatchedPlan, SlicedPlan
from spillway.policies.ring.model import HopCosts
from spillway.policies.ring.probing import Stream, sources_of
from spillway.policies.ring.slicing import ATR, CTR, PSP, SEGMENT_WINDOWS, Terms, distribution
from spillway.settings import AUTO, DISTRIBUTIONS, Adapt
from spillway.spark.api.sampling import PATIENCE_S, FirstRows, first_rows
from spillway.spark.api.session import default_slots

if TYPE_CHECKING:
    from spillway.spark.api.result import Planned

#: Seconds that an exchange of Spark takes beside the work of slots, those of a row that it brings to a
#: slot, and those of storing a row. Guesses: on 2 cores a batch that passes rows through took 0.17 s and
#: 0.9 µs a row. What a running join measures is in `query.explain()`. One exchange brings rows to all
#: slots, so it is a hop of the cost model.
EXCHANGE_S = 0.15
SEND_S = 1e-6
INSERT_S = 1e-6

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """What "auto" has come to."""

    adapt: Adapt
    reason: str


def settled(
    planned: Planned, adapt: Adapt, checkpoint: Checkpoint, location: str, *, finite: bool
) -> Choice | None:
    """The settings of a join with what "auto" stands for, and why; None where it says nothing.

    `planned` is the join as it is without a choice; `location` is where Spark keeps its own checkpoint.
    """
    join = planned.operator
    if adapt.distribute != AUTO or not isinstance(join, SlicedJoin):
        return None
    if (metadata := checkpoint.metadata()) is not None:
        return kept(adapt, metadata["query"], [stream.name for stream in join.streams])
    for name in OF_RINGS:
        if (asked := getattr(adapt, name)) != getattr(Adapt(), name):
            return Choice(adapt.changed(distribute=PSP), f"{PSP}: {name}={asked!r} is for it alone")
    times = {s.name: s.window.time for s in planned.plan.streams if s.window is not None}
    first = first_rows(planned.frames, times, location, finite=finite)
    spark = next(iter(planned.frames.values())).sparkSession
    choice = chosen(join, first, adapt, adapt.slots or default_slots(spark), finite=finite)
    _LOG.info("distribute=%r: %s", AUTO, choice.reason)
    return choice


def kept(adapt: Adapt, query: Mapping[str, Any], streams: list[str]) -> Choice:
    """What the first start of a checkpoint took, by the plan in its metadata."""
    changes: dict[str, object] = {"distribute": PSP}
    if (segment := query.get("segment")) and segment[1] in streams:
        length = timedelta(microseconds=segment[0])
        changes = {"distribute": ATR, "segment": length, "master": segment[1]}
    elif (copies := query.get("copies", 1)) > 1:
        changes = {"distribute": CTR, "copies": copies}
    return Choice(
        adapt.changed(**changes), f"{changes['distribute']}: the checkpoint's first start chose it"
    )


def chosen(
    join: SlicedJoin,
    first: Mapping[str, FirstRows],
    adapt: Adapt,
    slots: int,
    *,
    finite: bool = False,
) -> Choice:
    """What the cost model says of the first rows of the streams; warns where some are missing."""
    windows_us = {stream.name: stream.window_us or 0 for stream in join.streams}
    if missing := [name for name in windows_us if name not in first]:
        when = "at the first start" if finite else f"for {PATIENCE_S:g} s"
        reason = f"{PSP}: stream {missing[0]} had no row {when}, so nothing is known of it"
        warnings.warn(
            f'distribute="auto" is {reason}; the checkpoint keeps it. Start with rows in every stream, '
            "or say how the join is to be distributed",
            stacklevel=4,
        )
        return Choice(adapt.changed(distribute=PSP), reason)
    streams = [
        Stream.sampled(name, first[name].rows, first[name].span_us, window_us)
        for name, window_us in windows_us.items()
    ]
    measured = tried(join.predicates, {name: one.sample for name, one in first.items()})
    longest_us = max(windows_us.values())
    offer, reason = distribution(
        sources_of(streams, join.predicates, measured),
        HopCosts(SEND_S, EXCHANGE_S, INSERT_S),
        slots,
        longest_us / 1e6,
        _terms(adapt, longest_us),
    )
    changes: dict[str, object] = {"distribute": offer.distribution}
    if offer.distribution == ATR:
        changes["master"] = offer.master
        reason += f", and {offer.master} is cut"
    return Choice(adapt.changed(**changes), reason)


def _terms(adapt: Adapt, longest_us: int) -> Terms:
    segment = SEGMENT_WINDOWS * longest_us
    if adapt.segment is not None:
        segment = duration_us("segment", adapt.segment)
    # Copies are of whole slices, so groups must be a multiple of them.
    fits = adapt.copies > 1 and adapt.groups % adapt.copies == 0
    copies = adapt.copies if fits else None
    return Terms(True, segment / longest_us, copies, adapt.master)


#: Settings of a join without equal keys, and the distributions that each is for.
_FOR: dict[str, tuple[str, ...]] = {
    "distribute": DISTRIBUTIONS,
    "adjustment": (PSP,),
    "ring": (PSP,),
    "copies": (CTR,),
    "segment": (ATR,),
    "master": (ATR,),
    "interleave": (PSP, CTR),
}


#: Those of them that no distribution takes for itself but the one they are for.
OF_RINGS = ("adjustment", "ring")


def check_spread(
    planned: Sequence[Planned], adapt: Adapt, names: Sequence[str] = tuple(_FOR)
) -> None:
    """Refuses settings of joins without equal keys where there is none, or another distribution."""
    default = Adapt()
    spread = any(_without_keys(one) for one in planned)
    for name in names:
        asked, distributions = getattr(adapt, name), _FOR[name]
        if asked == getattr(default, name) or (
            spread and adapt.distribute in (*distributions, AUTO)
        ):
            continue
        which = " or ".join(f'distribute="{one}"' for one in distributions)
        more = "" if name == "distribute" else f", and {which}"
        raise SettingsError(
            f"{name}={asked!r} is not possible for the {_told(planned, adapt, spread=spread)}",
            detail=_NO_RING if name in OF_RINGS else None,
            hint=f"leave {name} out; it is for .within(...).match(...) without .on(...){more}",
        )


_NO_RING = (
    "slots come and go without moves only where every row is stored once and visits all slots; "
    "elsewhere state must be where the routing has it"
)


def _told(planned: Sequence[Planned], adapt: Adapt, *, spread: bool) -> str:
    operator = planned[0].plan.OPERATOR
    return f'{operator} with distribute="{adapt.distribute}"' if spread else operator


def _without_keys(planned: Planned) -> bool:
    plan = planned.plan
    return isinstance(plan, SlicedPlan) or (isinstance(plan, MatchedPlan) and bool(plan.segment))
