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
from functools import partial
from random import Random
from unittest import mock

from spillway.coordinator.batch.committed import Committed
from spillway.errors import SpillwayError
from spillway.testing.chaos.baton import Baton
from spillway.testing.chaos.checkers import (
    check_belief,
    check_commit,
    check_files,
    check_leftovers,
    check_outcome,
    check_sweep,
)
from spillway.testing.chaos.driver import Driver, Machines
from spillway.testing.chaos.gate import Disasters, DriverDied, DriverGate
from spillway.testing.chaos.ledger import Ledger
from spillway.testing.chaos.outside import Outside
from spillway.testing.chaos.query import shapes, subjects
from spillway.testing.chaos.schedule import Schedule, ScheduledEvent, Settings
from spillway.testing.chaos.spark import JobFailed, SinkFailed
from spillway.testing.chaos.store import Medium
from spillway.testing.simulated.joins import Aligned
from spillway.testing.simulated.places import Machine
from spillway.testing.simulated.rows import Row
from spillway.testing.simulated.sizes import KEEP_RECORDS, small_sizes

#: Most rounds of a cleanup, and most starts until an action succeeds; more are a violation.
MOST_ROUNDS, MOST_STARTS = 300, 60
#: Most drivers that are paused at a time, and most starts that one sleeps through: the log keeps
#: KEEP_RECORDS takeovers, and a start passes at most one claimed record.
MOST_PAUSED, MOST_SLEPT = 3, KEEP_RECORDS // 2 - 1
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
            Outside(self.ledger),
            self.disasters,
            itertools.count(0.0, 0.5),
            itertools.count(),
        )
        self._starts = 0
        self._driver: Driver | None = None
        #: Drivers that were paused, the oldest first, with the number of starts before.
        self._paused: list[tuple[Baton, int]] = []
        #: How often a paused driver continued: it may take over from the present one.
        self._woken = 0
        #: Disasters and awakenings up to the last success of the present driver.
        self._excused = 0
        #: The rows of every batch so far, as the first stage gets them.
        self.batches: list[tuple[Row, ...]] = []
        #: The last commit that a driver believes in, by driver and stage.
        self._last_commits: dict[tuple[int, int], Committed] = {}
        self._open_round = False
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
        if self.machines.outside.has_more:
            self._batch(ScheduledEvent("batch"))
        if self._paused:
            # Any of them may take over.
            self._wake(None)
            self._driver = None
        self._finish()
        self.ledger.differences += check_outcome(self.machines, self.batches)
        self._driver = None
        assert self.driver
        self.ledger.differences += check_sweep(self.machines)

    def close(self) -> None:
        """Ends the drivers that are still paused."""
        while self._paused:
            self._paused.pop()[0].kill()

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
                self._until_done(lambda: self.driver.round(at, args[1]), may_stay_open=True)
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

        def run() -> None:
            self.batches[number] = self.machines.outside.plan(number, rows)
            self.driver.batch(self.batches[number], number, event.args)

        self._until_done(run)

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
            for place in host.places():
                for tier in (place.memory, place.disk):
                    if names := tier.names():
                        tier.damage(names[how[0] % len(names)], tear=bool(how[1]))
            host.restart_worker()

    # Failures

    def _until_done(self, action: Callable[[], None], *, may_stay_open: bool = False) -> None:
        for _ in range(MOST_STARTS):
            driver = self.driver
            if self._attempt(action) or (may_stay_open and self._left_open(driver)):
                return
        raise Violation("the query does not come to an end")

    def _attempt(self, action: Callable[[], None]) -> bool:
        """Tries an action; returns whether it succeeded. If not, the driver is gone, unless it stays."""
        driver = self.driver
        try:
            done = self._carry_out(driver.gate, action)
        except DriverDied as death:
            self._die(death)
            return False
        except FAILURES as problem:
            check_belief(self.machines, driver.number, problem)
            # A start that was paused may have taken over long before this driver notices it.
            if self._troubles == self._excused and "has taken over" not in str(problem):
                raise Violation(f"the query fails without a cause: {problem}") from problem
            self._driver = None
            if (strike := self.disasters.at_failure()) is not None:
                self._stay(driver, strike.arg)
            return False
        if done:
            self._excused = self._troubles
        else:
            self._driver = None
        return done

    def _stay(self, driver: Driver, arg: int) -> None:
        """Keeps a driver after a failure; something may happen before it continues."""
        self._driver = driver
        self._open_round = arg >= 4
        # The step may have begun, even if the sink has not heard of it.
        self.ledger.offered.add(driver.chain.sink_id)
        try:
            self._meanwhile(driver, arg % 4)
        except DriverDied as death:
            self._die(death)

    def _meanwhile(self, driver: Driver, what: int) -> None:
        match what:
            case 1:
                driver.limit_memory((2000, None, 200)[self.disasters.counts["stay"] % 3])
            case 2:
                driver.scale(1 + self._starts % 4)
            case 3:
                driver.send(fails=False)

    def _left_open(self, driver: Driver) -> bool:
        """Whether a driver that stayed leaves its round to the next batch."""
        left, self._open_round = self._open_round, False
        return left and self._driver is driver

    @property
    def _troubles(self) -> int:
        return self.disasters.struck + self._woken

    def _carry_out(self, gate: DriverGate, action: Callable[[], None]) -> bool:
        """Runs an action in this thread, or in a new one if a disaster may pause it.

        Returns whether it ended; if not, it is paused.
        """
        if not self.disasters.holds("pause") or len(self._paused) >= MOST_PAUSED:
            action()
            return True
        gate.baton = baton = Baton(action)
        if not baton.start():
            self._paused.append((baton, self._starts))
            return False
        gate.baton = None
        if baton.failure is not None:
            raise baton.failure
        return True

    def _start(self) -> None:
        """Starts a driver; disasters strike a start, too."""
        if self._starts > MOST_STARTS * (len(self.schedule.events) + 1):
            raise Violation("the query does not start")
        settings = self.schedule.starts[self._starts % len(self.schedule.starts)]
        self._starts += 1
        number, before = self._starts, self._troubles
        self._end_long_sleepers()
        for hosts in self.machines.hosts:
            for host in hosts:
                host.restart_worker()
        gate = DriverGate(self.disasters, self._wake)
        started: list[Driver] = []
        try:
            if self._carry_out(gate, lambda: self._begin(number, settings, gate, started)):
                self._driver, self._excused = started[0], before
        except DriverDied as death:
            self._die(death)
        except FAILURES as problem:
            if self._troubles == before:
                raise Violation(f"a start fails without a cause: {problem}") from problem

    def _begin(
        self, number: int, settings: Settings, gate: DriverGate, started: list[Driver]
    ) -> None:
        """Starts a driver. If it was paused meanwhile, it continues with the batch from Spark."""
        started.append(driver := Driver(self.machines, number, settings, gate))
        driver.committed = partial(self._committed, driver)
        if gate.past and self.batches:
            number = len(self.batches) - 1
            self.batches[number] = self.machines.outside.plan(number, self.batches[number])
            driver.batch(self.batches[number], number)

    def _committed(self, driver: Driver, at: int, state: Committed) -> None:
        """Checks what a driver believes that it has committed."""
        self.ledger.differences += check_commit(self.machines, at, state)
        key = driver.number, at
        host = driver.stages[at].host
        undeleted, host.undeleted = host.undeleted, False
        before, self._last_commits[key] = self._last_commits.get(key), state
        # The successor of a driver that was paused may be sweeping just now.
        if before is not None and not undeleted and not driver.gate.past:
            self.ledger.differences += check_leftovers(self.machines, at, state, before)

    def _end_long_sleepers(self) -> None:
        """Ends drivers that slept through more starts than the log keeps."""
        for one in [one for one in self._paused if self._starts - one[1] > MOST_SLEPT]:
            self._paused.remove(one)
            one[0].kill()

    def _die(self, death: DriverDied) -> None:
        self._driver = None
        if death.power:
            self.close()
            self.machines.outside.lose_power(self._chance, sink_too=self.schedule.sink == "replace")
            for medium in self.machines.media:
                medium.lose_power(self._chance)
            for place in self.machines.places():
                place.memory.lose()
                self._damage_some(place)

    def _damage_some(self, host: Machine) -> None:
        """Cuts the end of some scratch files."""
        for name in host.disk.names():
            if self._chance.random() < 0.3:
                host.disk.damage(name, tear=True)

    def _wake(self, calls: int | None) -> None:
        """Lets a paused driver, each in its turn, make some calls; without a number, all make theirs."""
        for _ in range(1 if calls is not None else len(self._paused)):
            if not self._paused:
                return
            self._woken += 1
            turn = self._paused[self._woken % len(self._paused)]
            if calls is None:
                turn = self._paused[0]
            if not turn[0].go_on(calls):
                continue
            if turn in self._paused:
                self._paused.remove(turn)
            failure = turn[0].failure
            if failure is not None and not isinstance(failure, (*FAILURES, DriverDied)):
                raise Violation(f"a paused driver ends with {failure!r}") from failure

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
