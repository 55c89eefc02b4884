"""The feed of a checkpoint: what its log says about the past, and about commits that follow.

The log keeps the last hundred records: rows and time of each batch, events with their reasons, moves in
progress, takeovers. The newest manifests say where the state is now. The log has no wall time, so times
are those of the query's own clock, which runs while batches run. Sizes of earlier batches, and the
phases of a batch, are not in the log.

Nothing is locked or written, so the query may be running.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.record import Record
from spillway.codec import plain
from spillway.coordinator.batch.committed import Committed
from spillway.dashboard.feed.happenings import happenings_of, moving_of
from spillway.dashboard.feed.heat import heat_of
from spillway.dashboard.feed.history import STARTED, safe
from spillway.dashboard.feed.news import (
    ENDED,
    QUERY,
    RUNNING,
    About,
    Happening,
    Heat,
    News,
    Point,
    Slots,
    StageAbout,
)
from spillway.errors import StateError
from spillway.inspect.inspection import Inspection
from spillway.metrics.groups import GroupTable
from spillway.plan.join import JoinPlan, window_from
from spillway.state.manifest.reading import Held, read_held

#: Seconds without a commit after which a query is shown as ended.
SILENT_S = 30.0
#: The fraction of a core that reading the log may take, and the shortest pause.
SHARE = 0.01
PAUSE_S = 1.0


def about_of(found: Sequence[Inspection]) -> About:
    """What the checkpoint of these stages holds."""
    first = found[0]
    stages = tuple(_stage_about(one) for one in found)
    record = first.record
    return About(
        title=safe(first.location),
        source="checkpoint",
        run=f"checkpoint {first.metadata['query_id']}",
        clock=QUERY,
        stages=stages,
        query=first.metadata["query_id"],
        epoch=None if record is None else record.epoch,
    )


def _stage_about(found: Inspection) -> StageAbout:
    query = found.metadata["query"]
    windows = [window_from(s["window"]).window_us for s in query["streams"] if s["window"]]
    return StageAbout(
        operator=query.get("operator", JoinPlan.OPERATOR),
        streams=tuple(found.streams),
        groups=found.metadata["groups"],
        keys=tuple(query["streams"][0]["keys"]),
        window_s=max(windows) / 1e6 if windows else None,
    )


@dataclass
class _StageLog:
    """How far the log of one stage has been read."""

    checkpoint: Checkpoint
    sequence: int = -1
    state: Committed | None = None
    record: Record | None = None


class Past:
    """Makes the messages of a checkpoint; `look` is called by one thread, again and again."""

    def __init__(self, about: About, locations: Sequence[str]) -> None:
        self._about = about
        self._logs = [_StageLog(Checkpoint(location)) for location in locations]
        self._number = 0
        self._first = True
        self._status = ""
        self._moved_at = time.monotonic()
        self._after_s = 0.0

    def look(self, *, watched: bool) -> News | None:
        """Returns what is new in the log, or None; reads nothing while nobody looks."""
        if not (watched or self._first) or time.monotonic() < self._after_s:
            return None
        began = time.thread_time()
        news = self._look()
        took = time.thread_time() - began
        self._after_s = time.monotonic() + max(PAUSE_S, took / SHARE)
        return news

    def _look(self) -> News | None:
        points: list[Point] = []
        happenings: list[Happening] = []
        changed = []
        for stage, log in enumerate(self._logs):
            fresh = self._fresh(log)
            for record in fresh:
                self._add(stage, log, record, points, happenings)
            if fresh and log.state is not None:
                changed.append(stage)
        first, self._first = self._first, False
        status = self._now_status(moved=bool(changed) and not first)
        if not (first or changed or status != self._status):
            return None
        self._status = status
        tables = [self._tables(stage) for stage in changed]
        return News(
            whole=first,
            about=self._about if first else None,
            status=status,
            told="the log of the checkpoint" if status == ENDED else "following the log",
            now_s=max((log.state.clock_s for log in self._logs if log.state), default=0.0),
            points=tuple(points),
            happenings=tuple(happenings),
            slots=tuple(slots for slots, _ in tables),
            heats=tuple(heat for _, heat in tables),
        )

    def _now_status(self, *, moved: bool) -> str:
        """Whether commits come in; the log alone does not tell whether a silent query runs."""
        now = time.monotonic()
        if moved:
            self._moved_at = now
        silent = now - self._moved_at >= SILENT_S
        return RUNNING if moved or (self._status == RUNNING and not silent) else ENDED

    def _fresh(self, log: _StageLog) -> list[Record]:
        found = []
        for sequence in log.checkpoint.log.sequences():
            if sequence > log.sequence:
                try:
                    found.append(log.checkpoint.log.read(sequence))
                except StateError:
                    # Only claimed, damaged, or deleted meanwhile: the others still tell their part.
                    continue
        if found:
            log.sequence = found[-1].sequence
        return found

    def _add(
        self,
        stage: int,
        log: _StageLog,
        record: Record,
        points: list[Point],
        happenings: list[Happening],
    ) -> None:
        """Adds what one record says, compared with the one before."""
        before, state = log.state, record.state
        if record.takes_over:
            if stage == 0:
                happenings.append(self._takeover(record))
            log.record = record
            log.state = state or before
            return
        assert state is not None
        point = point_between(before, state, stage)
        if point is not None:
            points.append(point)
        events = [plain(event) for event in state.events]
        lines = happenings_of(events, stage=stage, at_s=state.clock_s, first=self._number + 1)
        self._number += len(lines)
        happenings.extend(lines)
        log.state, log.record = state, record

    def _takeover(self, record: Record) -> Happening:
        self._number += 1
        state = record.state
        what = "the query started" if state is None else f"continues after batch {state.batch}"
        return Happening(
            self._number,
            0.0 if state is None else state.clock_s,
            0,
            -1 if state is None else state.batch,
            STARTED,
            safe(f"epoch {record.epoch}: {what} ({record.owner})"),
        )

    def _tables(self, stage: int) -> tuple[Slots, Heat]:
        log = self._logs[stage]
        state = log.state
        assert state is not None
        table, sizes = GroupTable.empty(0), []
        for name in state.manifests:
            held = Held()
            with suppress(StateError):
                held = read_held(log.checkpoint.durable, name) if name else held
            # One table at a time: each is as long as the query has groups.
            table = table.merged(held.groups)
            sizes.append(replace(held, groups=GroupTable.empty(0)))
        heat = heat_of(
            table, state.routing.table, stage=stage, batch=state.batch, at_s=state.clock_s
        )
        return _slots(stage, state, sizes), heat


def point_between(before: Committed | None, state: Committed, stage: int) -> Point | None:
    """Returns what a commit added to the one before; None if that is not known."""
    if before is None:
        if state.batch > 0 or state.round > 0:
            return None
        zero = (0,) * len(state.rows_in)
        before = replace(
            state, rows_in=zero, rows_late=zero, rows_null=(), rows_out=0, rows_cleaned=0,
            clock_s=0.0,
        )  # fmt: skip
    old_nulls = before.rows_null or (0,) * len(before.rows_in)
    nulls = state.rows_null or old_nulls
    return Point(
        at_s=round(state.clock_s, 3),
        stage=stage,
        batch=state.batch,
        round=state.round,
        seconds=round(max(0.0, state.clock_s - before.clock_s), 4),
        rows_in=_added(state.rows_in, before.rows_in),
        rows_late=_added(state.rows_late, before.rows_late),
        rows_null=_added(nulls, old_nulls),
        rows_out=state.rows_out - before.rows_out,
        rows_cleaned=state.rows_cleaned - before.rows_cleaned,
        watermark_s=None if state.watermark_us is None else state.watermark_us / 1e6,
        waiting_rows=state.spooled_rows,
        pending_groups=len(state.pending),
    )


def _added(now: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(now, before, strict=True))


def _slots(stage: int, state: Committed, sizes: Sequence[Held]) -> Slots:
    shapes = tuple(str(one.shape) for one in state.shapes)
    none = (0,) * len(sizes)
    return Slots(
        stage=stage,
        batch=state.batch,
        memory_bytes=tuple(sum(one.state_bytes) for one in sizes),
        limit_bytes=(None,) * len(sizes),
        disk_bytes=tuple(sum(one.disk_bytes) for one in sizes),
        rows=tuple(sum(one.state_rows) + sum(one.disk_rows) for one in sizes),
        rows_in=none,
        rows_out=none,
        busy=(),
        shapes=shapes,
        moves=moving_of([plain(move) for move in state.moves]),
        scaling_to=None if state.scaling is None else state.scaling.slots,
    )
