"""Messages for the page, made by hand where a simulation would take too long."""

from __future__ import annotations

import math
from typing import Any

from spillway.dashboard.feed.feed import Feed
from spillway.dashboard.feed.news import (
    About,
    Happening,
    Heat,
    Moving,
    News,
    Point,
    Slots,
    StageAbout,
)
from spillway.metrics.events import STEPS


def about(run: str = "run-1", groups: int = 64, **more: Any) -> About:
    stage = StageAbout("n-way join", ("orders", "payments"), groups, ("id",), "lazy-disk")
    values = {"title": "orders and payments", "source": "query", "clock": "virtual", "query": "q"}
    return About(run=run, stages=(stage,), **{**values, **more})


def heat(batch: int, slots: int, groups: int, disk: tuple[int, ...] = (), **moved: int) -> Heat:
    """Groups in equal shares; `disk` are on disk, `moved` maps g<group> to another slot."""
    where = [group * slots // groups for group in range(groups)]
    for name, slot in moved.items():
        where[int(name[1:])] = slot
    size = [1000 * (1 + group % 7) for group in range(groups)]
    on_disk = set(disk)
    return Heat(
        0,
        batch,
        float(batch),
        where,
        [0 if group in on_disk else size[group] for group in range(groups)],
        [size[group] if group in on_disk else 0 for group in range(groups)],
        [round(10 * abs(math.sin(group)), 2) for group in range(groups)],
        [round(5 * abs(math.cos(group)), 2) for group in range(groups)],
    )


def slots(batch: int, count: int, moves: tuple[Moving, ...] = (), **more: Any) -> Slots:
    return Slots(
        0,
        batch,
        tuple(1000 * (slot + 1) for slot in range(count)),
        (1000 * count,) * count,
        (0,) * count,
        (10,) * count,
        (5,) * count,
        (2,) * count,
        tuple(round(0.9 * (slot + 1) / count, 3) for slot in range(count)),
        moves=moves,
        **more,
    )


def point(batch: int, **more: Any) -> Point:
    values: dict[str, Any] = {
        "seconds": 0.5,
        "rows_in": (100 + batch, 50),
        "rows_late": (0, 0),
        "rows_out": 20,
        "phases_s": (0.05, 0.2, 0.2, 0.05),
        "memory_bytes": 10_000 + batch,
        "disk_bytes": 0,
        "busy": (0.2, 0.5, 0.9),
        "reached_s": (8.0, 5.0),
        "watermark_s": 5.0,
    }
    return Point(at_s=float(batch), stage=0, batch=batch, **{**values, **more})


def start(feed: Feed, batches: int = 3, count: int = 4, groups: int = 64, **more: Any) -> None:
    """Publishes a query that has run some batches."""
    feed.publish(News(whole=True, about=about(groups=groups, **more), status="running", now_s=0.0))
    for batch in range(1, batches + 1):
        feed.publish(step(batch, count, groups))


def step(batch: int, count: int = 4, groups: int = 64, **more: Any) -> News:
    """One batch."""
    values: dict[str, Any] = {
        "points": (point(batch),),
        "slots": (slots(batch, count),),
        "heats": (heat(batch, count, groups),),
    }
    return News(now_s=float(batch), **{**values, **more})


def spilled(batch: int, number: int = 1, groups: tuple[int, ...] = (0, 1, 2)) -> Happening:
    return Happening(
        number,
        float(batch),
        0,
        batch,
        "spilled",
        "4100 bytes in memory, limit 4000",
        slot=0,
        groups=len(groups),
        some=groups,
        bytes=6000,
        seconds=0.12,
    )


def moving(batch: int, groups: tuple[int, ...] = (3, 4)) -> Moving:
    return Moving(
        7, 0, 3, "mslb", "sending", len(groups), groups, 9000, "M_least/M_max = 0.61 < 0.80"
    )


def move_steps(batch: int, first: int, upto: int = 8) -> tuple[Happening, ...]:
    return tuple(
        Happening(
            first + at,
            batch + at / 10,
            0,
            batch,
            kind.kind,
            "M_least/M_max = 0.61 < 0.80",
            slot=0,
            receiver=3,
            move=7,
            groups=2 if at else 0,
            some=(3, 4) if at else (),
            bytes=9000,
            seconds=0.1 * (at + 1),
            message=kind.message,
        )
        for at, kind in enumerate(STEPS[:upto])
    )
