"""Drivers that share a checkpoint: they start, pause, come back and die in any order.

A driver writes runs and manifests, and commits them. While one is inside any operation of the store,
another may take a step. Whatever happens, every acknowledged commit follows the one before it, the
newest record names only files that survive a loss of power, and who is too late is told so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from lazy import LazyDisk, LazyStore, PowerLost

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.host import CheckpointHost
from spillway.checkpoint.log import Log
from spillway.checkpoint.record import record_path
from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import new_note
from spillway.coordinator.effects import DiscardFiles
from spillway.errors import QueryError, SpillwayError, StateError
from spillway.ids import HASH_END, SlotId, Version
from spillway.routing.routing import HashRange, Routing
from spillway.state.layout.layers import Layer
from spillway.state.manifest.manifest import Manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.run import Run, Slice
from tier import examples

TOO_LATE = "another start has taken over the checkpoint at lazy"
SLOTS = 2
ROUTING = Routing.even(4, SLOTS)


def _unclear(error: SpillwayError) -> bool:
    """Whether an error of the log does not say that another start has taken over."""
    return isinstance(error, QueryError) and TOO_LATE not in error.message


@dataclass
class Driver:
    """A start of the query, and how far it is with its next batch."""

    host: CheckpointHost
    state: Committed
    began: bool = False
    #: The manifests of the next batch, and the runs that they name.
    made: tuple[tuple[str, ...], tuple[str, ...]] | None = None


class Ownership(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = LazyDisk()
        self.drivers: list[Driver] = []
        #: What drivers believe to have committed: sequence, epoch and batch, in order of their belief.
        self.told: list[tuple[int, int, int]] = []

    # What a driver does

    def _start(self) -> Driver:
        checkpoint = Checkpoint("lazy", LazyStore(self.disk))
        state, _ = checkpoint.recover(1, ROUTING)
        return Driver(CheckpointHost(checkpoint, 1), state)

    def _step(self, driver: Driver) -> None:
        """One step: note, then files, then commit. A late driver leaves."""
        try:
            if not driver.began:
                driver.host.write_note(Mark(driver.state.batch + 1), new_note(driver.state, {}))
                driver.began = True
            elif driver.made is None:
                driver.made = self._files(driver)
            else:
                self._commit(driver, *driver.made)
        except (QueryError, StateError) as error:
            # Files that a late driver wants to read may be gone.
            if driver.host.checkpoint.log.is_owner or _unclear(error):
                raise
            if driver in self.drivers:
                self.drivers.remove(driver)

    def _files(self, driver: Driver) -> tuple[tuple[str, ...], tuple[str, ...]]:
        checkpoint, batch = driver.host.checkpoint, driver.state.batch + 1
        manifests, runs = [], []
        for slot in range(SLOTS):
            attempt = checkpoint.new_attempt()
            run = Run(f"{batch:09d}-{slot}-0-0-{attempt}.arrow", 1, 1, 0, None, None)
            layer = Layer(0, (Slice(run, HashRange(0, HASH_END)),))
            manifest = Manifest(Version(batch), SlotId(slot), ((layer,),))
            name = f"manifests/{batch:09d}-{slot}-{attempt}.json"
            checkpoint.durable.write(f"runs/{run.name}", b"x")
            checkpoint.durable.write(name, manifest.encode())
            manifests.append(name)
            runs.append(run.name)
        checkpoint.durable.sync()
        return tuple(manifests), tuple(runs)

    def _commit(self, driver: Driver, manifests: tuple[str, ...], runs: tuple[str, ...]) -> None:
        checkpoint, before = driver.host.checkpoint, driver.state
        old = [name for name in before.manifests if name]
        dropped = [run for name in old for run in checkpoint.manifest(name).runs()]
        after = replace(before, batch=before.batch + 1, manifests=manifests)
        driver.host.append(after)
        owned = checkpoint.log.owned
        self.told.append((owned.sequence, owned.epoch, after.batch))
        driver.host.discard(DiscardFiles(tuple(dropped), tuple(old)))
        driver.state, driver.began, driver.made = after, False, None

    # What happens

    def _interrupted(self, after: int, newer: bool, work: Callable[[], Driver]) -> Driver:
        """Lets the others commit after a number of operations of this one, and perhaps a newer one."""
        left = after

        def before() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.disk.before = lambda: None
                if newer:
                    self.drivers.append(self._start())
                for other in list(self.drivers):
                    for _ in range(3):
                        if other in self.drivers:
                            self._step(other)

        self.disk.before = before
        try:
            return work()
        finally:
            self.disk.before = lambda: None

    @rule(after=st.integers(0, 30), newer=st.booleans())
    def start(self, after: int, newer: bool) -> None:
        """Another start, while the others run; they are as if paused before and after."""
        try:
            self.drivers.append(self._interrupted(after, newer, self._start))
        except QueryError as error:
            if _unclear(error):
                raise
        del self.drivers[:-3]

    @rule(after=st.integers(1, 30))
    def start_that_dies(self, after: int) -> None:
        left = after

        def before() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise PowerLost

        self.disk.before = before
        try:
            self._start()
        except PowerLost:
            pass
        finally:
            self.disk.before = lambda: None

    @precondition(lambda self: self.drivers)
    @rule(which=st.integers(0, 2), steps=st.integers(1, 4))
    def work(self, which: int, steps: int) -> None:
        driver = self.drivers[which % len(self.drivers)]
        for _ in range(steps):
            if driver in self.drivers:
                self._step(driver)

    @precondition(lambda self: self.drivers)
    @rule(which=st.integers(0, 2), after=st.integers(1, 6))
    def start_inside_a_step(self, which: int, after: int) -> None:
        """A driver is in the middle of a step when another start takes over."""
        driver, left = self.drivers[which % len(self.drivers)], after

        def before() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.disk.before = lambda: None
                self.drivers.append(self._start())

        self.disk.before = before
        try:
            self._step(driver)
        finally:
            self.disk.before = lambda: None
        del self.drivers[3:]

    @precondition(lambda self: self.drivers)
    @rule(which=st.integers(0, 2))
    def die(self, which: int) -> None:
        del self.drivers[which % len(self.drivers)]

    @rule()
    def lose_power(self) -> None:
        self.drivers.clear()
        self.disk.lose_power()

    # What is always true

    @invariant()
    def commits_follow_each_other(self) -> None:
        assert [batch for *_, batch in self.told] == list(range(len(self.told)))
        assert self.told == sorted(self.told)
        newest = Log(LazyStore(self.disk)).latest()
        assert (-1 if newest is None else newest.batch) == len(self.told) - 1

    @invariant()
    def the_newest_record_names_what_survives(self) -> None:
        disk = LazyDisk()
        disk.seen = dict(self.disk.durable)
        store = LazyStore(disk)
        newest = Log(store).latest()
        for name in newest.manifests if newest else ():
            for run in read_manifest(store, name).runs():
                assert f"runs/{run}" in disk.seen

    @invariant()
    def one_owner_at_most(self) -> None:
        owners = [one for one in self.drivers if one.host.checkpoint.log.is_owner]
        assert len(owners) <= 1

    @invariant()
    def log_files_stay_few(self) -> None:
        assert len([name for name in self.disk.seen if name.startswith("log/")]) < 500


Ownership.TestCase.settings = settings(
    max_examples=examples(400), stateful_step_count=40, deadline=None
)
TestOwnership = Ownership.TestCase


def test_the_machine_finds_a_record_that_is_not_published_exclusively() -> None:
    """What it checks can fail: a store that overwrites lets two drivers commit."""

    class Overwriting(LazyStore):
        def publish(self, name: str, data: bytes) -> bool:
            self.replace(name, data)
            return True

    machine = Ownership()
    first = machine._start()
    machine.drivers.append(first)
    checkpoint = Checkpoint("lazy", Overwriting(machine.disk))
    state, _ = checkpoint.recover(1, ROUTING)
    second = Driver(CheckpointHost(checkpoint, 1), state)
    machine.drivers.append(second)
    first.host.checkpoint.log._durable = Overwriting(machine.disk)
    for driver in (first, second):
        driver.began, driver.made = True, machine._files(driver)
        machine._step(driver)
    assert record_path(2) in machine.disk.seen
    assert [batch for *_, batch in machine.told] == [0, 0]
