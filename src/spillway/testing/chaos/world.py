"""Runs a schedule: starts, kills and replaces drivers until all results are there.

Like Spark, it repeats a batch until it commits. A query may fail only if a disaster has struck; then it
starts again with the next settings.
"""

from __future__ import annotations

import itertools
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from unittest import mock

from spillway.errors import SpillwayError
from spillway.testing.chaos.baton import Baton
from spillway.testing.chaos.checkers import check_files, check_outcome, check_sweep
from spillway.testing.chaos.driver import Driver, Machines
from spillway.testing.chaos.gate import Disasters, DriverDied
from spillway.testing.chaos.ledger import Ledger
from spillway.testing.chaos.query import shapes, subjects
from spillway.testing.chaos.schedule import Schedule, ScheduledEvent
from spillway.testing.chaos.spark import JobFailed, SinkFailed
from spillway.testing.chaos.store import Medium
from spillway.testing.simulated.joins import Aligned
from spillway.testing.simulated.places import Machine
from spillway.testing.simulated.rows import Row
from spillway.testing.simulated.sizes import small_sizes

#: Most rounds of a cleanup, and most starts until an action succeeds; more are a violation.
MOST_ROUNDS, MOST_STARTS = 300, 60
#: How a query may fail when a disaster has struck.
FAILURES = (SpillwayError, OSError, JobFailed, SinkFailed)


class Violation(AssertionError):
    """Something happened that must not."""


@dataclass
class Outcome:
    """The outcome of a schedule."""

    seed: int
    differences: list[str] = field(default_factory=list)
    disasters: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    results: int = 0
    compared: int = 0
    starts: int = 0
    calls: int = 0
    batches: int = 0
    #: The traceback, if the run stopped early.
    trace: str = ""


def _drawn_name(chance: Random) -> uuid.UUID:
    return uuid.UUID(int=chance.getrandbits(128))


def run_schedule(schedule: Schedule) -> Outcome:
    """Runs a schedule, and returns what was wrong."""
    chance = Random(schedule.seed)
    # File names come from the seed too, so a listing has the same order every time.
    names = mock.patch.object(uuid, "uuid4", side_effect=lambda: _drawn_name(chance))
    with small_sizes(), names:
        world = World(schedule, Random(schedule.seed + 1))
        try:
            world.run()
        except Exception as problem:
            world.ledger.differences.append(f"{type(problem).__name__}: {problem}")
            world.trace = "".join(traceback.format_exception(problem))
        finally:
            world.close()
        return world.outcome()


class World:
    """Machines, storage, a sink, and the drivers."""

    def __init__(self, schedule: Schedule, chance: Random) -> None:
        self.schedule = schedule
        self._chance = chance
        stages = subjects(schedule.query)
        self._subject = stages[0]
        self.disasters = Disasters()
        self.ledger = Ledger(len(stages))
        self.machines = Machines(
            schedule,
            [Medium(schedule.store) for _ in stages],
            [[Machine() for _ in range(schedule.hosts)] for _ in stages],
            self.ledger,
            self.disasters,
            itertools.count(0.0, 0.5),
            itertools.count(),
        )
        self._starts = 0
        self._driver: Driver | None = None
        #: A driver that was paused.
        self._paused: tuple[Driver, Baton] | None = None
        #: The rows of every batch so far, as the first stage gets them.
        self.batches: list[tuple[Row, ...]] = []
        self.trace = ""

    @property
    def driver(self) -> Driver:
        """The driver that works now; starts one if there is none."""
        while self._driver is None:
            self._start()
        return self._driver

    def run(self) -> None:
        """Runs all events, then the cleanup without disasters, and checks everything."""
        for event in self.schedule.events:
            self.disasters.arm(event.strikes)
            self._apply(event)
            check_files(self.machines)
        self.disasters.disarm()
        self._wake(None)
        self._finish()
        self.ledger.differences += check_outcome(self.machines, self.batches)
        self._driver = None
        assert self.driver
        self.ledger.differences += check_sweep(self.machines)

    def close(self) -> None:
        """Ends a driver that is still paused."""
        if self._paused is not None:
            self._paused[1].kill()
            self._paused = None

    def outcome(self) -> Outcome:
        """The outcome so far."""
        return Outcome(
            self.schedule.seed,
            self.ledger.differences,
            self.disasters.counts,
            sum(map(len, self.batches)),
            sum(sum(output.values()) for output in self.ledger.sink.values()),
            self.ledger.compared,
            self._starts,
            self.disasters.all_calls,
            len(self.batches),
            self.trace,
        )

    # Events

    def _apply(self, event: ScheduledEvent) -> None:
        args = event.args
        match event.kind:
            case "batch":
                self._batch(event)
            case "round":
                at = args[0] % self.ledger.stages
                self._until_done(lambda: self.driver.round(at, args[1]))
            case "restart":
                self._driver = None
            case "lose" | "damage" | "place":
                self._spoil(event)
            case "send":
                self._attempt(lambda: self.driver.send(fails=bool(args[0])))
            case "wake":
                self._wake(None)
            case "reshape":
                if found := shapes(self.schedule.query):
                    self.driver.reshape(args[0], found[args[1] % len(found)])
            case _:
                self._say(event)

    def _say(self, event: ScheduledEvent) -> None:
        """Passes a request of a user or a script to the driver; starts one if there is none."""
        driver, args = self.driver, event.args
        match event.kind:
            case "memory":
                driver.limit_memory(args[0] or None)
            case "scale":
                driver.scale(args[0])
            case "move":
                driver.move(args)
            case "force":
                driver.force(*args)
            case "give_up":
                driver.give_up()

    def _batch(self, event: ScheduledEvent) -> None:
        rows, number = event.rows, len(self.batches)
        if isinstance(self._subject, Aligned):
            rows = tuple(self._subject.copied(rows))
        self.batches.append(rows)
        self._until_done(lambda: self.driver.batch(rows, number, event.args))

    def _spoil(self, event: ScheduledEvent) -> None:
        """Moves slots, loses tiers or damages files, while no task runs."""
        which, *how = event.args
        if event.kind == "place":
            self.machines.shift = which
            for stage in self.driver.stages:
                stage.shift = which
            return
        for hosts in self.machines.hosts:
            host = hosts[which % len(hosts)]
            if event.kind == "lose":
                host.lose()
                continue
            for tier in (host.memory, host.disk):
                if names := tier.names():
                    tier.damage(names[how[0] % len(names)], tear=bool(how[1]))
            host.restart_worker()

    # Failures

    def _until_done(self, action: Callable[[], None]) -> None:
        for _ in range(MOST_STARTS):
            if self._attempt(action):
                return
        raise Violation("the query does not come to an end")

    def _attempt(self, action: Callable[[], None]) -> bool:
        """Tries an action; returns whether it succeeded. If not, the driver is gone."""
        struck = self.disasters.struck
        driver = self.driver
        try:
            return self._carry_out(driver, action)
        except DriverDied as death:
            self._die(death)
        except FAILURES as problem:
            if self.disasters.struck == struck:
                raise Violation(f"the query fails without a cause: {problem}") from problem
        self._driver = None
        return False

    def _carry_out(self, driver: Driver, action: Callable[[], None]) -> bool:
        """Runs an action in this thread, or in a new one if a disaster may pause it."""
        if not self.disasters.holds("pause") or self._paused is not None:
            action()
            return True
        baton = Baton(action)
        driver.gate.baton = baton
        if not baton.start():
            self._paused = driver, baton
            self._driver = None
            return False
        driver.gate.baton = None
        if baton.failure is not None:
            raise baton.failure
        return True

    def _start(self) -> None:
        """Starts a driver; disasters strike a start, too."""
        if self._starts > MOST_STARTS * (len(self.schedule.events) + 1):
            raise Violation("the query does not start")
        settings = self.schedule.starts[self._starts % len(self.schedule.starts)]
        self._starts += 1
        struck = self.disasters.struck
        for hosts in self.machines.hosts:
            for host in hosts:
                host.restart_worker()
        try:
            self._driver = Driver(self.machines, self._starts, settings, self._wake)
        except DriverDied as death:
            self._die(death)
        except FAILURES as problem:
            if self.disasters.struck == struck:
                raise Violation(f"a start fails without a cause: {problem}") from problem

    def _die(self, death: DriverDied) -> None:
        self._driver = None
        if death.power:
            self.close()
            for medium in self.machines.media:
                medium.lose_power(self._chance)
            for hosts in self.machines.hosts:
                for host in hosts:
                    host.memory.lose()
                    self._damage_some(host)

    def _damage_some(self, host: Machine) -> None:
        """Cuts the end of some scratch files."""
        for name in host.disk.names():
            if self._chance.random() < 0.3:
                host.disk.damage(name, tear=True)

    def _wake(self, calls: int | None) -> None:
        """Lets a paused driver make some calls, or all that are left."""
        if self._paused is None or self._paused[1].here:
            return
        _, baton = self._paused
        if not baton.go_on(calls):
            return
        self._paused = None
        if baton.failure is not None and not isinstance(baton.failure, (*FAILURES, DriverDied)):
            raise Violation(f"a paused driver ends with {baton.failure!r}") from baton.failure

    # The end

    def _finish(self) -> None:
        """Ends the input; runs rounds until nothing is missing, waits or moves."""
        self.driver.end_input()
        for at in range(self.ledger.stages):
            for _ in range(MOST_ROUNDS):
                if not self.driver.unfinished(at):
                    break
                self.driver.send(fails=False)
                self.driver.round(at, 1)
            else:
                raise Violation("cleanup does not end")
