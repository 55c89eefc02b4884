"""The dashboard of a running query: what its feed reads, and the commands that it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spillway.dashboard.feed.history import safe
from spillway.dashboard.feed.news import ENDED, FAILED, RUNNING, WALL, About, StageAbout
from spillway.dashboard.feed.watching import Clocks, Groups
from spillway.metrics.groups import GroupTable
from spillway.plan.sliced import SlicedPlan
from spillway.spark.runtime.loop import BatchLoop
from spillway.spark.runtime.stage import Stage
from spillway.state.manifest.reading import read_held

CLOCKS = Clocks(time.time, time.monotonic, time.thread_time)


class WatchedStage:
    """One stage, as the feed sees it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.lateness_us: Sequence[int | None] = stage.spec.terms.lateness_us

    @property
    def limits(self) -> Mapping[int, int | None]:
        """The bytes at which each slot spills."""
        return self._stage.coordinator.limits

    @property
    def scaling_to(self) -> int | None:
        """The slot count that the stage changes to, if it does."""
        scaling = self._stage.state.scaling
        return None if scaling is None else scaling.slots

    @property
    def groups(self) -> Groups:
        """The committed groups."""
        state = self._stage.state
        return Groups(state.batch, state.routing.table, state.manifests)

    def table(self, manifest: str) -> GroupTable:
        """Reads the statistics of the groups in a manifest."""
        return read_held(self._stage.checkpoint.durable, manifest).groups

    @property
    def about(self) -> StageAbout:
        """What it is."""
        plan, adapt = self._stage.spec.plan, self._stage.spec.adapt
        windows = [stream.window.window_us for stream in plan.streams if stream.window is not None]
        return StageAbout(
            operator=plan.OPERATOR,
            streams=tuple(safe(stream.name) for stream in plan.streams),
            groups=self._stage.state.routing.groups,
            keys=tuple(safe(key) for key in plan.streams[0].keys),
            strategy=adapt.strategy_name,
            distribute=adapt.distribute if isinstance(plan, SlicedPlan) else "",
            window_s=max(windows) / 1e6 if windows else None,
        )


class WatchedQuery:
    """A running query, as the feed sees it."""

    def __init__(
        self,
        loop: BatchLoop,
        name: str | None,
        run: str,
        alive: Callable[[], bool],
        problem: Callable[[], Exception | None],
        controls: tuple[str, ...] = (),
    ) -> None:
        self._loop = loop
        self._alive = alive
        self._problem = problem
        self.stages = [WatchedStage(stage) for stage in loop.stages]
        owned = loop.stage.checkpoint.log.owned
        abouts = tuple(stage.about for stage in self.stages)
        self.about = About(
            title=safe(name or _titled(abouts)),
            source="query",
            run=run,
            clock=WALL,
            stages=abouts,
            query=loop.stage.spec.query_id,
            started_s=round(owned.owner.started_s, 3),
            epoch=owned.epoch,
            controls=controls,
        )

    @property
    def recent(self) -> Sequence[Mapping[str, Any]]:
        """The last entries of its progress."""
        return self._loop.recent

    @property
    def status(self) -> tuple[str, str]:
        """Whether it runs, and what to say about it."""
        if self._alive():
            return RUNNING, ""
        problem = self._problem()
        if problem is None:
            return ENDED, "the query has ended"
        return FAILED, f"{type(problem).__name__}: {getattr(problem, 'message', problem)}"


def _titled(stages: Sequence[StageAbout]) -> str:
    """A title for a query without a name."""
    first = stages[0]
    said = f"{first.operator} of {', '.join(first.streams)}"
    return said if len(stages) == 1 else f"{said}, then {stages[-1].operator}"
