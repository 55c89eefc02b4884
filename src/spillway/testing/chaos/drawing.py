"""Draws a schedule from a seed. The same seed gives the same schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from spillway.plan.kind import KINDS, LEFT, SEMI
from spillway.policies.shape.shaping import AUTO, TREE
from spillway.settings import ADJUSTMENTS, STRATEGIES, VICTIMS
from spillway.testing.chaos.query import LATER, SHAPES, WINDOWS_LATER, shapes, subjects
from spillway.testing.chaos.schedule import (
    AT_CALLS,
    AT_LOCAL,
    AT_SINKS,
    AT_TASKS,
    Schedule,
    ScheduledEvent,
    ScheduledQuery,
    Settings,
    Strike,
)
from spillway.testing.simulated.rows import Row
from spillway.testing.simulated.sliced import PAIRED

#: Kinds of queries; joins are most of what users run.
_QUERIES = (
    *("join", "join", "join", "tree", "tree", "match", "atr", "sliced", "sliced"),
    *("group-by", "last-rows", "within", "dedup", "dedup"),
)
#: Limits of one slot, from none to one that a single row exceeds.
_MEMORIES = (None, 4000, 2000, 600, 200, 10)
_BETWEEN = (
    *("round", "round", "send", "send", "send", "send", "restart", "lose", "damage", "place"),
    *("memory", "scale", "move", "move", "move", "force", "reshape", "give_up", "wake"),
)


def draw(seed: int) -> Schedule:
    """The schedule of a seed."""
    chance = Random(seed)
    # Generators of their own, so that seeds of other queries stay as they are.
    query = _kind_of_join(Random(-1 - seed), _query(chance))
    query = _with_windows(Random(f"windows of {seed}"), query)
    starts = tuple(_settings(chance, query) for _ in range(chance.randint(1, 4)))
    return Schedule(
        seed,
        query,
        chance.choice(("disk", "disk", "claims", "objects", "objects")),
        chance.choice((1, 1, 2, 3)),
        chance.choice(("ids", "replace")),
        starts,
        tuple(_events(chance, query)),
    )


# Queries


def _query(chance: Random) -> ScheduledQuery:
    kind = chance.choice(_QUERIES)
    windows, options = _OPTIONS[kind](chance)
    then: tuple[str, ...] = ()
    # Joins of many streams without a window have too many results for another stage.
    few = len(windows) < (3 if windows[0] is None else 4)
    if few and chance.random() < 0.4:
        then = tuple(chance.choice(LATER) for _ in range(chance.choice((1, 1, 2))))
    return ScheduledQuery(kind, windows, chance.randint(0, 5), options, then)


def _kind_of_join(chance: Random, query: ScheduledQuery) -> ScheduledQuery:
    """Draws another kind for some of the joins."""
    if query.kind not in ("join", "match") or chance.random() < 0.6:
        return query
    others = [f"s{at}" for at in range(1, len(query.windows))]
    optional = sorted(chance.sample(others, chance.randint(1, len(others))))
    how = chance.choice(KINDS[1:]) if len(others) == 1 else LEFT
    windows = query.windows
    if how != SEMI or chance.random() < 0.5:
        windows = tuple(w or chance.randint(1, 12) for w in windows)
    filtered = query.kind == "match"
    options = {"how": how, "optional": optional if how == LEFT else [], "filtered": filtered}
    return replace(query, kind="outer", windows=windows, options=options)


def _with_windows(chance: Random, query: ScheduledQuery) -> ScheduledQuery:
    """Draws windows for aggregates; other seeds keep their queries."""
    drawn = chance.random()
    if drawn < 0.15:
        length = chance.randint(1, 9)
        slide = chance.choice((None, length, chance.randint(1, length)))
        gives = ("append", "append", "lasting", "final") if slide is None else ("append", "update")
        options = {"slide": slide, "start": chance.randint(-3, 9), "gives": chance.choice(gives)}
        return replace(query, kind="windows", windows=(length,), options=options)
    if drawn < 0.3 and query.then:
        return replace(query, then=(*query.then[:-1], chance.choice(WINDOWS_LATER)))
    return query


def _windows(chance: Random, streams: int, *, always: bool = False) -> tuple[int | None, ...]:
    if not always and chance.random() < 0.4:
        return (None,) * streams
    return tuple(chance.randint(1, 12) for _ in range(streams))


def _join(chance: Random) -> tuple[tuple[int | None, ...], dict[str, Any]]:
    return _windows(chance, chance.randint(2, 4)), {}


def _tree(chance: Random) -> tuple[tuple[int | None, ...], dict[str, Any]]:
    streams = chance.randint(2, 4)
    if chance.random() < 0.3:
        return _windows(chance, streams), {"plan": chance.choice((TREE, AUTO))}
    return _windows(chance, streams), {"shape": chance.randrange(len(SHAPES[streams]))}


def _match(chance: Random) -> tuple[tuple[int | None, ...], dict[str, Any]]:
    return _windows(chance, chance.randint(2, 3)), {"whole": chance.random() < 0.5}


def _atr(chance: Random) -> tuple[tuple[int | None, ...], dict[str, Any]]:
    streams = chance.randint(2, 3)
    windows = tuple(chance.randint(1, 6) for _ in range(streams))
    how = {"length": chance.randint(1, 9), "master": chance.randrange(streams)}
    return windows, {**how, "whole": chance.random() < 0.5}


def _sliced(chance: Random) -> tuple[tuple[int | None, ...], dict[str, Any]]:
    streams = chance.randint(2, 3)
    pairs = [
        [chance.choice(sorted(PAIRED)), *sorted((at, chance.randrange(at)))]
        for at in range(1, streams)
    ]
    options = {
        "pairs": pairs,
        "whole": chance.random() < 0.5,
        "widths": [chance.choice((1, 2, 3, 7)) for _ in range(streams)],
        "copies": chance.choice((1, 1, 2, 4)),
        "interleave": chance.choice((1, 3, 1000)),
    }
    return tuple(chance.randint(1, 8) for _ in range(streams)), options


def _last_rows(chance: Random) -> tuple[tuple[int | None, ...], dict[str, Any]]:
    return (None,), {"per_row": chance.random() < 0.5, "rows": chance.randint(1, 4)}


def _within(chance: Random) -> tuple[tuple[int | None, ...], dict[str, Any]]:
    return (chance.randint(1, 9),), {"per_row": chance.random() < 0.5}


def _dedup(chance: Random) -> tuple[tuple[int | None, ...], dict[str, Any]]:
    window = chance.choice((None, chance.randint(1, 9)))
    return (window,), {"tumbling": window is not None and chance.random() < 0.5}


_OPTIONS = {
    "join": _join,
    "tree": _tree,
    "match": _match,
    "atr": _atr,
    "sliced": _sliced,
    "group-by": lambda _: ((None,), {}),
    "last-rows": _last_rows,
    "within": _within,
    "dedup": _dedup,
}


# Settings


def _settings(chance: Random, query: ScheduledQuery) -> Settings:
    told, slots = chance.random() < 0.5, chance.randint(1, 5)
    adapt: dict[str, Any] = {
        "memory": _memory(chance, slots),
        "memory_threshold": chance.choice((1.0, 1.0, 0.5)),
        "strategy": chance.choice(STRATEGIES),
        "relocation_threshold": chance.choice((0.8, 0.99, 0.3)),
        "productivity_ratio": chance.choice((2.0, 1.01)),
        "max_forced_spill": chance.choice((None, 1, 300)),
        "utilisation_threshold": chance.choice((0.9, 0.1)),
        "share": chance.choice(("host", "host", "executor")),
        "moves": _moves(chance, query),
        "relocation_batches": chance.randint(1, 3),
        "relocation_bytes": chance.choice((100, 500, 1 << 20)),
        "victims": chance.choice(VICTIMS),
        "spill_fraction": chance.choice((0.1, 0.3, 1.0)),
        "low_water": chance.choice((0.1, 0.5, 0.9)),
        "calm_batches": chance.randint(1, 3),
        "amortised": chance.random() < 0.5,
        "buffer": chance.choice((1, 500, 1 << 20)),
        "block_rows": chance.choice((1, 7, 1000)),
        "piece_bytes": chance.choice((60, 200, 10_000)),
        "delta_min": chance.choice(("1 second", "auto")),
        "imbalance_threshold": chance.choice((1.2, "auto")),
        "seed": chance.randrange(100),
    }
    if query.kind == "sliced":
        adapt["moves"] = "mslb"
        if query.options["copies"] == 1:
            adapt["adjustment"] = chance.choice(ADJUSTMENTS)
            adapt["ring"] = chance.choice(("fixed", "auto"))
    else:
        adapt["spill_mode"] = chance.choice(("generations", "generations", "rotation"))
        adapt["t_gap"] = chance.choice(("auto", "1 second"))
        adapt["skew_buffer"] = chance.choice((None, None, 1, 1 << 20))
        adapt["batch_target"] = chance.choice(("auto", "10 milliseconds"))
        if chance.random() < 0.2:
            adapt["shares"] = [chance.choice((1, 1, 3)) for _ in range(slots)]
    spare = chance.choice((None, 800, 4000)) if adapt["memory"] is None else None
    return Settings(slots, told, adapt, spare)


def _memory(chance: Random, slots: int) -> int | dict[str, int] | None:
    """Draws one limit, or one for each of some slots."""
    if chance.random() < 0.8:
        return chance.choice(_MEMORIES)
    limits = [limit for limit in _MEMORIES if limit is not None]
    return {str(slot): chance.choice(limits) for slot in range(chance.randint(1, slots))}


def _moves(chance: Random, query: ScheduledQuery) -> str:
    """Draws how groups move; parallel tracks need a window in every stage."""
    untracked = any(subject.operator(7).untracked for subject in subjects(query))
    return "mslb" if untracked else chance.choice(("mslb", "ptlb", "auto"))


# Events


def _events(chance: Random, query: ScheduledQuery) -> list[ScheduledEvent]:
    clock, value, found = 0, 0, []
    calm = chance.random() < 0.2
    for _ in range(chance.randint(4, 14)):
        clock += chance.choice((0, 1, 1, 2, 4))
        count = chance.choice((0, 3, 6, 10, 16))
        rows = _rows(chance, query, clock, value, count)
        value += count
        strikes = () if calm else _strikes(chance)
        found.append(ScheduledEvent("batch", rows, _how(chance, query), strikes))
        for _ in range(chance.choice((0, 0, 1, 2))):
            found.append(_between(chance, query, calm=calm))
        if query.kind == "outer" and chance.random() < 0.4:
            # Rows without partners come out only if the watermark comes far.
            clock += chance.randint(5, 25)
            streams = len(query.windows)
            ahead = tuple(Row(at, at % 3, clock, value + at) for at in range(streams))
            value += streams
            found.append(ScheduledEvent("batch", ahead, _how(chance, query)))
    return found


def _how(chance: Random, query: ScheduledQuery) -> tuple[int, ...]:
    """The slow slot of a batch, and the budget of slots."""
    slow = chance.choice((-1, -1, 0, 1))
    if query.kind == "sliced" or chance.random() < 0.7:
        return (slow, -1, 0)
    return (slow, chance.choice((0, 1, 3, 8)), chance.choice((1, 300, 1 << 20)))


def _rows(
    chance: Random, query: ScheduledQuery, clock: int, value: int, count: int
) -> tuple[Row, ...]:
    first = subjects(query)[0]
    streams, keys = first.streams, chance.choice((2, 5, 12))
    timed = streams[0].time is not None and query.kind != "atr"
    found = []
    for at in range(count):
        key: int | None = min(int(chance.expovariate(3 / keys)), 2 * keys)
        time: int | None = clock - chance.choice((0, 0, 1, 2, 3, 6))
        if query.kind not in ("sliced", "atr") and chance.random() < 0.05:
            key = None
        if timed and chance.random() < 0.05:
            time = None
        found.append(Row(chance.randrange(len(streams)), key, time, value + at))
    return tuple(found)


def _strikes(chance: Random) -> tuple[Strike, ...]:
    found = []
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        kinds = chance.choice((AT_CALLS, AT_CALLS, AT_TASKS, AT_SINKS, AT_LOCAL))
        kind = chance.choice(kinds)
        if kind in AT_CALLS:
            found += _at_calls(chance, kind)
        elif kind in AT_LOCAL:
            # Local writes are few; often as many fail as make Spark give up the job.
            found.append(Strike(kind, chance.randrange(12), chance.choice((0, 1, 3, 20))))
        elif kind in AT_TASKS:
            found.append(Strike(kind, chance.randrange(6), chance.randrange(3)))
        else:
            found.append(Strike(kind, chance.choice((0, 0, 0, 1)), _sink_arg(chance, kind)))
    # A sink that fails ends the step, but not always the driver.
    often = 0.7 if any(strike.kind == "fails" for strike in found) else 0.3
    if found and chance.random() < often:
        found.append(Strike("stay", 0, chance.randrange(8)))
    return tuple(found)


def _at_calls(chance: Random, kind: str) -> list[Strike]:
    """Draws a disaster at a store call; makes a paused driver wake up more often than by chance."""
    at = int(chance.expovariate(1 / 25))
    if kind == "wake":
        return [Strike(kind, at, chance.choice((1, 5, 20, 100)))]
    found = [Strike(kind, at, chance.randrange(2))]
    while kind == "pause" and chance.random() < 0.6:
        at += int(chance.expovariate(1 / 15))
        found.append(Strike("wake", at, chance.choice((1, 5, 20, 100))))
    return found


def _sink_arg(chance: Random, kind: str) -> int:
    return chance.randint(2, 5) if kind == "coalesce" else chance.randrange(2)


def _between(chance: Random, query: ScheduledQuery, *, calm: bool) -> ScheduledEvent:
    kind = chance.choice(_BETWEEN)
    if kind == "reshape" and not shapes(query):
        kind = "move"
    strikes = _strikes(chance) if kind in ("round", "send") and not calm else ()
    return ScheduledEvent(kind, (), _args(chance, kind), strikes)


def _args(chance: Random, kind: str) -> tuple[int, ...]:
    ranges: dict[str, Sequence[int]] = {
        "round": (3, 600),
        "lose": (3,),
        "damage": (3, 50, 2),
        "place": (3,),
        "move": (5, 5, 900, 3, 2, 2, 3),
        "force": (5, 500, 3),
        "reshape": (5, 4),
    }
    if kind == "memory":
        return (chance.choice(_MEMORIES) or 0,)
    if kind == "scale":
        return (chance.randint(1, 5),)
    if kind == "send":
        return (int(chance.random() < 0.25),)
    return tuple(chance.randrange(most) for most in ranges.get(kind, ()))
