"""The feed of a running query.

The driver keeps recent progress anyway, so following it costs a look at a list. Group numbers are in the
slots' manifests, not in the records. `Watching` reads them only while a page is open, at most every
`HEAT_EVERY_S`, and never for more than `HEAT_SHARE` of a core: an expensive look waits longer for the
next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spillway.dashboard.feed.batches import ended_s, point_of, slots_of
from spillway.dashboard.feed.happenings import happenings_of
from spillway.dashboard.feed.heat import heat_of
from spillway.dashboard.feed.history import STARTED, STOPPED, safe
from spillway.dashboard.feed.news import About, Happening, Heat, News, Point, Slots
from spillway.metrics.groups import GroupTable

#: Seconds between two looks at the groups, and the fraction of a core that they may take.
HEAT_EVERY_S = 2.0
HEAT_SHARE = 0.01
#: Batches at the first look above which earlier ones of the same start may be forgotten.
MANY = 100


@dataclass(frozen=True)
class Groups:
    """The committed groups of one stage."""

    batch: int
    #: The slot of each group, and the manifest of each slot.
    routing: Sequence[int]
    manifests: Sequence[str | None]


class WatchedStage(Protocol):
    """One stage of a running query."""

    @property
    def lateness_us(self) -> Sequence[int | None]:
        """How late rows of each stream may come."""

    @property
    def limits(self) -> Mapping[int, int | None]:
        """The bytes at which each slot spills."""

    @property
    def scaling_to(self) -> int | None:
        """The slot count that the stage changes to, if it does."""

    @property
    def groups(self) -> Groups:
        """The committed groups."""

    def table(self, manifest: str) -> GroupTable:
        """Reads the statistics of the groups in a manifest."""


class Watched(Protocol):
    """A running query, as the feed sees it."""

    @property
    def about(self) -> About:
        """What it is."""

    @property
    def stages(self) -> Sequence[WatchedStage]:
        """Its stages."""

    @property
    def recent(self) -> Sequence[Mapping[str, Any]]:
        """The last entries of its progress, oldest first."""

    @property
    def status(self) -> tuple[str, str]:
        """Whether it runs, and what to say about it."""


@dataclass(frozen=True)
class Clocks:
    """The clocks of the producer: wall time, time that only grows, and its own processor time."""

    wall: Callable[[], float]
    steady: Callable[[], float]
    busy: Callable[[], float]


class Watching:
    """Makes the messages of one query; `look` is called by one thread, again and again."""

    def __init__(self, query: Watched, clocks: Clocks) -> None:
        self._query = query
        self._clocks = clocks
        self._seen: Mapping[str, Any] | None = None
        self._number = 0
        self._status = ""
        self._heat_after_s = 0.0
        self._heated: dict[int, Sequence[str | None]] = {}

    def look(self, *, watched: bool) -> News | None:
        """Returns what is new, or None."""
        first = self._status == ""
        points, happenings, slots = self._news()
        status, told = self._query.status
        changed = status != self._status
        self._status = status
        heats = self._heats() if watched else ()
        if first:
            happenings = [self._mark(STARTED, self._beginning(points)), *happenings]
        elif changed:
            happenings.append(self._mark(STOPPED, told))
        if not (first or changed or points or heats):
            return None
        return News(
            about=self._query.about if first else None,
            whole=first,
            status=status if changed else "",
            told=safe(told),
            now_s=round(self._clocks.wall(), 3),
            points=tuple(points),
            happenings=tuple(happenings),
            slots=tuple(slots.values()),
            heats=heats,
        )

    def _beginning(self, points: Sequence[Point]) -> str:
        about = self._query.about
        owner = f"epoch {about.epoch}: " if about.epoch is not None else ""
        # Without a batch of this start, the committed one is of the start before.
        first = points[0].batch if points else self._query.stages[0].groups.batch + 1
        if len(points) >= MANY:
            return f"{owner}the query started before the batches that are kept"
        if first > 0:
            return f"{owner}the start continues with batch {first}"
        return f"{owner}the query started"

    def _mark(self, kind: str, told: str) -> Happening:
        self._number += 1
        at_s = self._clocks.wall()
        if kind == STARTED and self._query.about.started_s is not None:
            at_s = self._query.about.started_s
        last = -1 if self._seen is None else int(self._seen["batchId"])
        return Happening(self._number, round(at_s, 3), 0, last, kind, safe(told))

    def _news(self) -> tuple[list[Point], list[Happening], dict[int, Slots]]:
        points: list[Point] = []
        happenings: list[Happening] = []
        slots: dict[int, Slots] = {}
        for entry in self._fresh():
            for at, one in enumerate((entry, *entry.get("then", ()))):
                # A round of a later stage has no entry of the stages before it.
                stage = self._stage_of(entry, at)
                watched = self._query.stages[stage]
                points.append(point_of(one, stage, watched.lateness_us))
                slots[stage] = slots_of(one, stage, watched.limits, watched.scaling_to)
                lines = happenings_of(
                    one["events"], stage=stage, at_s=ended_s(one), first=self._number + 1
                )
                self._number += len(lines)
                happenings.extend(lines)
        return points, happenings, slots

    def _stage_of(self, entry: Mapping[str, Any], at: int) -> int:
        stages = len(self._query.stages)
        return min(stages - 1, stages - 1 - len(entry.get("then", ())) + at)

    def _fresh(self) -> list[Mapping[str, Any]]:
        """The entries since the last look."""
        recent = list(self._query.recent)
        known = [at for at, entry in enumerate(recent, start=1) if entry is self._seen]
        if recent:
            self._seen = recent[-1]
        return recent[known[-1] if known else 0 :]

    def _heats(self) -> tuple[Heat, ...]:
        if self._clocks.steady() < self._heat_after_s:
            return ()
        began = self._clocks.busy()
        found = [self._heat(at, stage) for at, stage in enumerate(self._query.stages)]
        took = self._clocks.busy() - began
        self._heat_after_s = self._clocks.steady() + max(HEAT_EVERY_S, took / HEAT_SHARE)
        return tuple(one for one in found if one is not None)

    def _heat(self, at: int, stage: WatchedStage) -> Heat | None:
        groups = stage.groups
        if self._heated.get(at) == groups.manifests:
            return None
        table = GroupTable.empty(0)
        for name in filter(None, groups.manifests):
            try:
                # One table at a time: each is as long as the query has groups.
                table = table.merged(stage.table(name))
            except Exception:
                # A newer commit may have deleted it; the next look finds that commit.
                return None
        self._heated[at] = groups.manifests
        return heat_of(
            table, groups.routing, stage=at, batch=groups.batch, at_s=self._clocks.wall()
        )
