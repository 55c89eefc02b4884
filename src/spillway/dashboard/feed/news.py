"""The one message of the feed: what is new since the message before.

Three producers make it: a running query (`watching.py`), the log of a checkpoint (`past.py`) and a
simulator (`spillway_lab.simulator.cluster.showing`). One page shows it. A *whole* message replaces all
that the page had; `history.py` says how messages add up.

Times are seconds: since 1970 (`clock="wall"`), of the query's own clock (`"query"`), or of a
simulation (`"virtual"`). Every sequence has a bound that `history.py` names.
"""

from __future__ import annotations

import msgspec

WALL, QUERY, VIRTUAL = "wall", "query", "virtual"
RUNNING, ENDED, FAILED = "running", "ended", "failed"


class StageAbout(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a stage of the query is; it does not change while the query runs."""

    operator: str
    streams: tuple[str, ...]
    groups: int
    keys: tuple[str, ...] = ()
    strategy: str = ""
    #: How a join without equal keys uses its slots: psp, ctr or atr; empty for all others.
    distribute: str = ""
    window_s: float | None = None


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is shown."""

    title: str
    #: "query", "checkpoint" or "simulation".
    source: str
    #: Different for every start, so that the page can tell a restart from a lost connection.
    run: str
    clock: str
    stages: tuple[StageAbout, ...]
    #: The name of the query in its checkpoint, equal after a restart.
    query: str = ""
    started_s: float | None = None
    epoch: int | None = None
    sink: str = ""
    #: The commands that the page may offer; empty without a token.
    controls: tuple[str, ...] = ()


class Point(msgspec.Struct, frozen=True, omit_defaults=True):
    """One batch or round of one stage."""

    at_s: float
    stage: int
    batch: int
    round: int = 0
    seconds: float = 0.0
    #: Per stream.
    rows_in: tuple[int, ...] = ()
    rows_late: tuple[int, ...] = ()
    rows_null: tuple[int, ...] = ()
    rows_out: int = 0
    rows_cleaned: int = 0
    rows_expired: int = 0
    #: Planning, exchange and sink, operator, commit; empty if not known.
    phases_s: tuple[float, ...] = ()
    watermark_s: float | None = None
    #: Per stream, the watermark that it alone would allow; the least is the watermark.
    reached_s: tuple[float | None, ...] = ()
    state_rows: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    #: Rows that wait in slots or before them, and groups that miss results.
    waiting_rows: int = 0
    pending_groups: int = 0
    #: The utilisation of the least busy, the mean and the busiest slot; empty if not known.
    busy: tuple[float, ...] = ()


class Happening(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that the query, or somebody, did: a line of the timeline."""

    number: int
    at_s: float
    stage: int
    batch: int
    #: The kind of an event (metrics/events.py), or one of `history.MARKS`.
    kind: str
    #: Why, with the numbers that led to it.
    reason: str
    slot: int | None = None
    receiver: int | None = None
    move: int | None = None
    #: The number of groups, and some of them.
    groups: int = 0
    some: tuple[int, ...] = ()
    bytes: int = 0
    seconds: float = 0.0
    rows_out: int = 0
    #: The name of the message in the paper, for a step of a protocol.
    message: str = ""
    shapes: tuple[str, ...] = ()


class Moving(msgspec.Struct, frozen=True, omit_defaults=True):
    """A move in progress."""

    move: int
    sender: int
    receiver: int
    protocol: str
    phase: str
    groups: int
    some: tuple[int, ...]
    bytes: int
    reason: str


class Slots(msgspec.Struct, frozen=True, omit_defaults=True):
    """The slots of one stage after its last batch: one entry per slot in each column."""

    stage: int
    batch: int
    memory_bytes: tuple[int, ...]
    limit_bytes: tuple[int | None, ...]
    disk_bytes: tuple[int, ...]
    rows: tuple[int, ...]
    rows_in: tuple[int, ...]
    rows_out: tuple[int, ...]
    busy: tuple[float, ...]
    waiting_rows: tuple[int, ...] = ()
    shapes: tuple[str, ...] = ()
    moves: tuple[Moving, ...] = ()
    #: The slot count that the query changes to, if it does.
    scaling_to: int | None = None


class Heat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The groups of one stage: one entry per group in each column."""

    stage: int
    batch: int
    at_s: float
    #: The slot of each group; in memory and on disk, in bytes.
    slot: list[int]
    memory_bytes: list[int]
    disk_bytes: list[int]
    #: Mean rows in and out per batch; and results per megabyte in memory.
    load: list[float]
    productivity: list[float]


class News(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new: one message of the feed."""

    #: Grows with every message of a feed.
    sequence: int = 0
    whole: bool = False
    about: About | None = None
    #: "running", "ended" or "failed", and what to say about it.
    status: str = ""
    told: str = ""
    #: The producer's time of this message.
    now_s: float | None = None
    points: tuple[Point, ...] = ()
    happenings: tuple[Happening, ...] = ()
    slots: tuple[Slots, ...] = ()
    heats: tuple[Heat, ...] = ()


def encode(news: News) -> bytes:
    """One message as JSON on one line.

    Example:
        >>> encode(News(sequence=1, status="running"))
        b'{"sequence":1,"status":"running"}'
    """
    return msgspec.json.encode(news)
