"""`distribute="auto"`: chooses how to distribute a join without equal keys, at its first start.

The distribution decides where rows are stored, so the choice cannot wait for measurements of the
running query. The first start of a checkpoint reads the first rows of every stream
(spark/api/start/sampling.py), tries the predicates on them (operators/predicates/trial.py) and asks
the cost model (policies/ring/slicing.py). The metadata of the checkpoint keeps the choice, and
later starts with "auto" read it there.

Known limitation: the choice assumes that the first rows are typical, and is never repeated. The cost of
a Spark exchange is a guess.
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
from spillway.policies.ring.probing import MeasuredStream, sources_of
from spillway.policies.ring.slicing import (
    ATR,
    CTR,
    PSP,
    SEGMENT_WINDOWS,
    DistributionTerms,
    distribution,
)
from spillway.settings import AUTO, DISTRIBUTIONS, Adapt
from spillway.spark.api.session import default_slots
from spillway.spark.api.start.sampling import PATIENCE_S, FirstRows, first_rows

if TYPE_CHECKING:
    from spillway.spark.api.result import Planned

#: Seconds for a Spark exchange without the work of the slots, for sending one row to a slot, and for
#: storing one row. These are guesses: on 2 cores a batch that passes rows through took 0.17 s and 0.9 µs
#: a row. `query.explain()` shows what a running join measures. One exchange brings rows to all slots, so
#: it is one hop of the cost model.
EXCHANGE_S = 0.15
SEND_S = 1e-6
INSERT_S = 1e-6

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """What "auto" chose, and why."""

    adapt: Adapt
    reason: str


def settle(
    planned: Planned, adapt: Adapt, checkpoint: Checkpoint, location: str, *, finite: bool
) -> Choice | None:
    """Resolves "auto": the settings, and why; None if "auto" does not apply.

    `planned` is the join before the choice; `location` is where Spark keeps its own checkpoint.
    """
    join = planned.operator
    if adapt.distribute != AUTO or not isinstance(join, SlicedJoin):
        return None
    if (metadata := checkpoint.metadata()) is not None:
        return kept(adapt, metadata["query"], [stream.name for stream in join.streams])
    for name in OF_RINGS:
        if (asked := getattr(adapt, name)) != getattr(Adapt(), name):
            return Choice(adapt.changed(distribute=PSP), f"{PSP}: {name}={asked!r} requires it")
    times = {s.name: s.window.time for s in planned.plan.streams if s.window is not None}
    first = first_rows(planned.frames, times, location, finite=finite)
    spark = next(iter(planned.frames.values())).sparkSession
    choice = choose(join, first, adapt, adapt.slots or default_slots(spark), finite=finite)
    _LOG.info("distribute=%r: %s", AUTO, choice.reason)
    return choice


def kept(adapt: Adapt, query: Mapping[str, Any], streams: list[str]) -> Choice:
    """What the first start of a checkpoint chose, read from the plan in its metadata."""
    changes: dict[str, object] = {"distribute": PSP}
    if (segment := query.get("segment")) and segment[1] in streams:
        length = timedelta(microseconds=segment[0])
        changes = {"distribute": ATR, "segment": length, "master": segment[1]}
    elif (copies := query.get("copies", 1)) > 1:
        changes = {"distribute": CTR, "copies": copies}
    return Choice(
        adapt.changed(**changes), f"{changes['distribute']}: the checkpoint's first start chose it"
    )


def choose(
    join: SlicedJoin,
    first: Mapping[str, FirstRows],
    adapt: Adapt,
    slots: int,
    *,
    finite: bool = False,
) -> Choice:
    """Chooses by the cost model, from the first rows of the streams; warns if a stream has none."""
    windows_us = {stream.name: stream.window_us or 0 for stream in join.streams}
    if missing := [name for name in windows_us if name not in first]:
        when = "at the first start" if finite else f"for {PATIENCE_S:g} s"
        reason = f"{PSP}: stream {missing[0]} had no row {when}, so it could not be measured"
        warnings.warn(
            f'distribute="auto" chose {reason}; the checkpoint keeps it. Start with rows in every '
            'stream, or set distribute to "psp", "ctr" or "atr"',
            stacklevel=4,
        )
        return Choice(adapt.changed(distribute=PSP), reason)
    streams = [
        MeasuredStream.sampled(name, first[name].rows, first[name].span_us, window_us)
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
        reason += f", with segments of {offer.master}"
    return Choice(adapt.changed(**changes), reason)


def _terms(adapt: Adapt, longest_us: int) -> DistributionTerms:
    segment = SEGMENT_WINDOWS * longest_us
    if adapt.segment is not None:
        segment = duration_us("segment", adapt.segment)
    # A copy has all slices, so the number of groups must be a multiple of the number of copies.
    fits = adapt.copies > 1 and adapt.groups % adapt.copies == 0
    copies = adapt.copies if fits else None
    return DistributionTerms(True, segment / longest_us, copies, adapt.master)


#: Settings of a join without equal keys, and the distributions that use each.
_FOR: dict[str, tuple[str, ...]] = {
    "distribute": DISTRIBUTIONS,
    "adjustment": (PSP,),
    "ring": (PSP,),
    "copies": (CTR,),
    "segment": (ATR,),
    "master": (ATR,),
    "interleave": (PSP, CTR),
}


#: Settings that only "psp" accepts, so they also decide "auto".
OF_RINGS = ("adjustment", "ring")


def check_spread(
    planned: Sequence[Planned], adapt: Adapt, names: Sequence[str] = tuple(_FOR)
) -> None:
    """Rejects settings that need a join without equal keys, or another distribution of it."""
    default = Adapt()
    spread = any(_without_keys(one) for one in planned)
    for name in names:
        asked, distributions = getattr(adapt, name), _FOR[name]
        if asked == getattr(default, name) or (
            spread and adapt.distribute in (*distributions, AUTO)
        ):
            continue
        which = " or ".join(f'distribute="{one}"' for one in distributions)
        more = "" if name == "distribute" else f", with {which}"
        raise SettingsError(
            f"{name}={asked!r} does not work with the {_told(planned, adapt, spread=spread)}",
            detail=_NO_RING if name in OF_RINGS else None,
            hint=f"leave {name} out; it is only for .within(...).match(...) without .on(...){more}",
        )


_NO_RING = (
    "the slot count can change without moves only if one slot stores each row and the row visits "
    "all slots; otherwise state must be where the routing says"
)


def _told(planned: Sequence[Planned], adapt: Adapt, *, spread: bool) -> str:
    operator = planned[0].plan.OPERATOR
    return f'{operator} with distribute="{adapt.distribute}"' if spread else operator


def _without_keys(planned: Planned) -> bool:
    plan = planned.plan
    return isinstance(plan, SlicedPlan) or (isinstance(plan, MatchedPlan) and bool(plan.segment))
