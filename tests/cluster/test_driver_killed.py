"""The driver, its JVM and its workers die by SIGKILL, many times; the result is exact all the same."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from inputs import Input, assert_same_rows, batch_of, written
from lives import Life
from processes import Child, local_roots, wait_until

from spillway.checkpoint.log import Log
from spillway.metrics.events import Reshaped
from spillway.state.runs.durable import open_durable
from tier import LONGEST_S

#: Kills of the query in the quick tier, in the full one (each aim once), and where everything is tried.
KILLS, FULL_KILLS, SOAK_KILLS = 1, 4, 12
#: Kills that fall into rounds of cleanup.
SPILL_KILLS = 3
SEED = 20260115
#: When a kill falls: some time after the start, when what the life before left is taken up; some time
#: after a commit, anywhere in a batch; as soon as a file of a batch is shown, when others may not be;
#: as soon as a batch is in Spillway's log, when Spark may not have committed it.
#: The quick tier begins with the first.
AIMS = ("publishing", "committing", "starting", "running")


@dataclass(frozen=True)
class Kill:
    """What a kill was aimed at, and what was committed when it fell."""

    aim: str
    #: The newest batch of each: published by the sink, committed by Spillway, committed by Spark.
    published: int
    logged: int
    committed: int
    #: Whether the query was running: started, and not at its end.
    hit: bool

    @property
    def inside(self) -> bool:
        """Whether it fell between publishing and the two commits of a batch."""
        return self.hit and (self.published > self.logged or self.logged > self.committed)


@dataclass(frozen=True)
class Place:
    """The directories of the query that is killed."""

    root: Path

    @property
    def log(self) -> Path:
        """Spillway's log."""
        return self.root / "checkpoint/spillway/log"

    def published(self) -> int:
        """The newest batch the sink has shown a file of."""
        return _newest(batch_of(p.name) for p in (self.root / "out").glob("b*.parquet"))

    def logged(self) -> int:
        """The newest batch in Spillway's log."""
        state = Log(open_durable(str(self.log.parent))).latest()
        return -1 if state is None else state.batch

    def rounds(self) -> int:
        """The rounds of cleanup in Spillway's log, begun and committed, each counted for itself."""
        log = Log(open_durable(str(self.log.parent)))
        newest = log.newest()
        if newest is None or newest.state is None:
            return 0
        note = log.open_note(newest)
        return 2 * newest.state.rounds + (note is not None and bool(note.cleanup))

    def committed(self) -> int:
        """The newest batch that Spark has committed."""
        commits = self.root / "checkpoint/spark/commits"
        return _newest(int(p.name) for p in commits.glob("[0-9]*"))


def test_driver_killed_many_times_loses_and_repeats_nothing(
    place: Place, full: bool, soak: bool
) -> None:
    wanted = SOAK_KILLS if soak else FULL_KILLS if full else KILLS
    given = Input(
        str(place.root / "in"),
        files=30 if soak else 16 if full else 9,
        rows=100,
        keys=120,
        seed=7,
        window_minutes=8,
    )
    given.write()
    chance = random.Random(SEED)
    kills: list[Kill] = []
    with ExitStack() as stack:
        # While one life runs, the session of the next is made, so that restarts are quick.
        coming = _born(stack, given, place, 0)
        while sum(kill.hit for kill in kills) < wanted or not any(kill.inside for kill in kills):
            assert len(kills) < 2 * wanted + 1, f"too few kills fell inside a batch: {kills}"
            life, coming = coming, _born(stack, given, place, len(kills) + 1)
            kills.append(_kill_one(life, place, chance, len(kills)))
        coming.child.tell("go")
        done = place.root / "done"
        assert wait_until(done.exists, LONGEST_S, child=coming.child), coming.child.told()
    hits = [kill for kill in kills if kill.hit]
    assert len(hits) >= wanted
    assert hits[-1].logged < given.files - 1, "the query was through before the last kill"
    assert len({kill.logged for kill in hits}) >= max(1, wanted // 3), (
        f"the kills made too little progress: {kills}"
    )
    assert_same_rows(written(place.root / "out"), given.expected())
    state = Log(open_durable(str(place.log.parent))).latest()
    assert state is not None
    assert state.rows_in == given.rows_with_key(), "a row was taken twice, or never"
    assert sum(state.rows_late) == 0
    assert not any(root.exists() for root in local_roots(place.root)), (
        "local tiers were left behind"
    )


@pytest.mark.full
def test_driver_killed_with_little_memory_and_in_cleanup(place: Place) -> None:
    """Spills are under way when the first kills fall, rounds of cleanup when the others do."""
    given = Input(str(place.root / "in"), files=6, rows=150, keys=150, seed=9)
    given.write()
    chance = random.Random(SEED)
    told: dict[str, Any] = {"adapt": {"memory": 12_000}, "round_bytes": 4_000}
    in_rounds = 0
    with ExitStack() as stack:
        coming = _born(stack, given, place, 0, **told)
        for number in range(1, 3 * SPILL_KILLS):
            life, coming = coming, _born(stack, given, place, number, **told)
            before, rounds = place.logged(), place.rounds()
            life.child.tell("go")
            more = chance.randint(1, 3)
            if number == 1:
                wait_until(partial(_logged, place, before + 2), 90, step=0.001, child=life.child)
            else:
                wait_until(partial(_began, place, rounds + more), 90, step=0.001, child=life.child)
            time.sleep(chance.uniform(0.0, 0.4))
            through = (place.root / "done").exists()
            assert life.child.running or through, life.child.told()
            life.child.kill(workers=chance.random() < 0.5)
            in_rounds += place.rounds() > rounds and not through
            if through or in_rounds >= SPILL_KILLS:
                break
        coming.child.tell("go")
        done = place.root / "done"
        assert wait_until(done.exists, LONGEST_S, child=coming.child), coming.child.told()
    assert in_rounds >= SPILL_KILLS, f"only {in_rounds} kills fell into cleanup"
    assert_same_rows(written(place.root / "out"), given.expected())
    state = Log(open_durable(str(place.log.parent))).latest()
    assert state is not None
    assert state.rows_in == given.rows_with_key()
    assert state.pending == ()
    assert 0 < state.rows_cleaned <= state.rows_out


#: What one life after the other says of shapes; the last one lives to the end.
LIVES: list[dict[str, str]] = [
    {"shape": "((orders prices) stock)"},
    {"shape": "((orders stock) prices)"},
    {"kind": "nway"},
    {"kind": "auto"},
]


@pytest.mark.full
def test_driver_killed_while_shapes_change(place: Place) -> None:
    """Every life asks for another plan, so that slots change their shapes when it is killed."""
    given = Input(str(place.root / "in"), files=16, rows=80, keys=100, seed=11, window_minutes=8)
    given.write()
    chance = random.Random(SEED)
    with ExitStack() as stack:
        lives = [{"adapt": {"memory": 12_000}, "plan": plan} for plan in LIVES]
        coming = _born(stack, given, place, 0, **lives[0])
        for number, told in enumerate(lives[1:], start=1):
            life, coming = coming, _born(stack, given, place, number, **told)
            before = place.logged()
            life.child.tell("go")
            # In the first batch the shape is what it was, from the second on what it is to be.
            more = chance.randint(1, 2)
            reached = partial(_logged, place, before + more)
            assert wait_until(reached, LONGEST_S, step=0.001, child=life.child), life.child.told()
            time.sleep(chance.uniform(0.0, 0.6))
            assert life.child.running, life.child.told()
            life.child.kill(workers=chance.random() < 0.5)
        coming.child.tell("go")
        done = place.root / "done"
        assert wait_until(done.exists, LONGEST_S, child=coming.child), coming.child.told()
    assert_same_rows(written(place.root / "out"), given.expected())
    log = Log(open_durable(str(place.log.parent)))
    events = [event for state in log.commits() for event in state.events]
    asked = [one for one in events if isinstance(one, Reshaped)]
    assert len({one.shape for one in asked}) >= 2, asked
    state = log.latest()
    assert state is not None
    assert state.rows_in == given.rows_with_key()
    assert state.pending == ()


def _logged(place: Place, batch: int) -> bool:
    return place.logged() >= batch


def _began(place: Place, notes: int) -> bool:
    return place.rounds() >= notes


def _kill_one(life: _Life, place: Place, chance: random.Random, number: int) -> Kill:
    child, before = life.child, place.logged()
    child.tell("go")
    if not wait_until(life.ready.exists, LONGEST_S, step=0.002, child=child):
        pytest.fail(f"life {number} did not start its query\n{child.told()}")
    aim = AIMS[number % len(AIMS)]
    if aim == "starting":
        time.sleep(chance.uniform(0.1, 3.0))
    else:
        target = before + chance.randint(1, 2)
        where = place.published if aim == "publishing" else place.logged
        seen = lambda: where() >= target  # noqa: E731 - one line
        wait_until(seen, LONGEST_S, step=0.0005, child=child)
    if aim == "running":
        time.sleep(chance.uniform(0.0, 1.5))
    hit = child.running
    child.kill(workers=chance.random() < 0.5)
    done = (place.root / "done").exists()
    assert hit or done, f"life {number} ended by itself\n{child.told()}"
    return Kill(aim, place.published(), place.logged(), place.committed(), hit and not done)


@dataclass(frozen=True)
class _Life:
    child: Child
    ready: Path


def _born(stack: ExitStack, given: Input, place: Place, number: int, **told: Any) -> _Life:
    """A life with some fields of `Life`."""
    life = Life(str(place.root), number, given, **told)
    return _Life(life.born(stack), life.ready)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for root in local_roots(place.root):
        shutil.rmtree(root, ignore_errors=True)


def _newest(batches: Iterator[int]) -> int:
    return max(batches, default=-1)
