"""Plays a story: real processes, real signals; then compares what is left with the batch query."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyspark
from lives import Life, commits
from oracles import check_counts, check_output
from processes import DRIVER, JVM, Child, local_roots, wait_until
from sinks import SINKS

from disasters.stories import ALL, FREEZE, KILL, Story, Strike
from spillway.inspect.stages import inspect_stages

#: How long a life may take to start its query, to get to a strike, to die, and to come to its end.
_START_S, _REACH_S, _DIE_S, _END_S = 240, 120, 90, 400


@dataclass
class Told:
    """What has happened in a story."""

    #: Strikes that hit a process, and those that came when there was none.
    strikes: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    #: Lives that ended by a strike before the query was through.
    deaths: int = 0
    #: Lives that Spark's own log stopped, because the driver before them woke up and wrote to it.
    gave_way: int = 0
    #: Rows compared, batches that came again with the same rows, and run files that nobody names.
    rows: int = 0
    repeated: int = 0
    unnamed: int = 0
    seconds: float = 0.0


def play(story: Story) -> Told:
    """Runs all lives and checks the result; an AssertionError says what is wrong."""
    told, began = Told(), time.monotonic()
    root = Path(story.given.root).parent
    story.given.write()
    try:
        with ExitStack() as stack:
            _live(stack, story, told)
        _check(story, root, told)
    finally:
        _tidy(root)
    told.seconds = time.monotonic() - began
    return told


class GaveWay(Exception):
    """Spark's own log has stopped a driver: it does not know who is the owner."""


def _live(stack: ExitStack, story: Story, told: Told) -> None:
    """One life after the other; while one runs, the session of the next is made."""
    lives = list(story.lives)
    coming, frozen = lives[0][0].born(stack), None
    for life, strikes in lives:
        child = coming
        if life is lives[-1][0] and frozen is not None:
            lives.append((replace(life, number=len(lives)), ()))
        if life is not lives[-1][0]:
            coming = lives[life.number + 1][0].born(stack)
        child.tell("go")
        started = wait_until(life.ready.exists, _START_S, step=0.01, child=child)
        assert started, f"life {life.number} did not start its query\n{child.told()}"
        if frozen is not None:
            _thaw(*frozen)
            frozen = None
        fatal = _fate(life, child, strikes, told)
        if fatal is not None and fatal.deed == FREEZE:
            frozen = child, fatal
        if life.done.exists():
            return


def _fate(life: Life, child: Child, strikes: tuple[Strike, ...], told: Told) -> Strike | None:
    """What ends a life: its query, a fatal strike, which is returned, or Spark's log."""
    try:
        fatal = _suffer(life, child, strikes, told)
        if fatal is None:
            _finish(life, child)
            return None
    except GaveWay:
        told.gave_way += 1
        return None
    told.deaths += not life.done.exists()
    if fatal.deed != FREEZE:
        _bury(life, child, fatal)
    return fatal


def _suffer(life: Life, child: Child, strikes: tuple[Strike, ...], told: Told) -> Strike | None:
    """Strikes until one is fatal, which is returned, or none is left."""
    root = Path(life.root)
    for strike in strikes:
        target = commits(root) + strike.commits
        wait_until(
            lambda target=target: commits(root) >= target or life.done.exists(),
            _REACH_S,
            step=0.005,
            child=child,
        )
        time.sleep(strike.delay_s)
        if not child.running:
            _assert_done(life, child)
        hit = _hit(child, strike)
        told.strikes[str(strike)] += hit
        told.missed += not hit
        if strike.fatal:
            return strike
    return None


def _hit(child: Child, strike: Strike) -> bool:
    """Sends the signals of a strike; whether there was a process to get them."""
    found = child.members() if strike.role == ALL else child.processes(strike.role)
    if strike.role not in (ALL, DRIVER, JVM):
        # One of several; they are listed in an order that depends on the machine anyway.
        found = found[:1]
    if strike.deed == KILL:
        return child.send(signal.SIGKILL, found) > 0
    stopped = child.send(signal.SIGSTOP, found)
    if strike.deed == FREEZE:
        return stopped > 0
    time.sleep(strike.pause_s)
    child.send(signal.SIGCONT, found)
    return stopped > 0


def _finish(life: Life, child: Child) -> None:
    """Waits for the query of a life that nothing fatal has hit."""
    wait_until(life.done.exists, _END_S, step=0.05, child=child)
    _assert_done(life, child)
    wait_until(lambda: not child.running, _DIE_S, step=0.05)


def _assert_done(life: Life, child: Child) -> None:
    if life.done.exists():
        return
    said = child.told()
    if not child.running and "Multiple streaming jobs detected" in said:
        raise GaveWay
    raise AssertionError(f"life {life.number} did not come to its end\n{said}")


def _bury(life: Life, child: Child, fatal: Strike) -> None:
    """Waits until the driver is gone; what is left of its processes may go on.

    Without its JVM a driver in Python must end by itself. An embedded database belongs to the JVM, so
    the next life waits for that one too.
    """
    ended = wait_until(lambda: not child.running, _DIE_S, step=0.02)
    assert ended, f"the driver hangs after: {fatal}\n{child.told()}"
    if life.sink == "jdbc":
        wait_until(lambda: not child.processes(JVM), _DIE_S, step=0.05)


def _thaw(child: Child, strike: Strike) -> None:
    """Wakes a driver that another one has replaced: it must find out, say so, and end."""
    time.sleep(strike.pause_s)
    child.send(signal.SIGCONT, child.members())
    ended = wait_until(lambda: not child.running, _DIE_S, step=0.05)
    assert ended, f"a driver that was replaced goes on\n{child.told()}"
    # Where Spark had to commit a batch that Spillway had committed, Spark's own log tells it.
    said = ("has taken over the checkpoint", "Concurrent")
    assert any(words in child.told() for words in said), child.told()


def _check(story: Story, root: Path, told: Told) -> None:
    """Whole rows, all counts, nothing that waits, and files that are there and intact."""
    life = story.lives[0][0]
    sink = SINKS[life.sink]
    times = 1 if sink.exactly_once else 1 + told.deaths
    given = story.given.read_by(root / "checkpoint/spark")
    told.rows = check_output(life.kind, given, sink.read(root), times)
    differing = [path.read_text() for path in root.glob("differs-*")]
    assert not differing, f"a batch came again with other rows: {differing}"
    told.repeated = len(list(root.glob("same-*")))
    stages = inspect_stages(life.adapt.get("durable") or str(root / "checkpoint"), verify=True)
    states = [stage.committed for stage in stages]
    for stage, state in zip(stages, states, strict=True):
        assert not stage.problems, stage.problems
        assert state is not None
        assert (state.pending, state.spooled_rows) == ((), 0), (state.pending, state.spooled_rows)
        # A last round may have asked for a move that has no groups yet.
        assert not [move for move in state.moves if move.groups], state.moves
    check_counts(life.kind, given, [state for state in states if state is not None])
    told.unnamed = sum(stage.files.unnamed for stage in stages)


def _tidy(root: Path) -> None:
    """Removes what Spark and the query have left beside the story."""
    for left in local_roots(root):
        shutil.rmtree(left, ignore_errors=True)
    applications = root / "applications"
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "work"
    for name in applications.read_text().split() if applications.exists() else ():
        shutil.rmtree(home / name, ignore_errors=True)
