"""A query without Spark: the product's chain, conductor and coordinator over stages under a law.

A crash is real: the commit is refused, everything in the process is forgotten, and another start, with
other settings, finds the checkpoint and repeats what was begun. The sink keeps what it was given by id,
and a repeated id must bring the same rows.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from law.stages import Held, Ran
from spillway.coordinator.chain import Chain
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.decisions.adaptation import Rules
from spillway.coordinator.wishes import EndInput, LimitMemory, ScaleTo
from spillway.plan.shape import Shape
from spillway.policies.cluster.decision import ForceSpill, Move
from spillway.policies.local.rotation import TurnGaps
from spillway.settings import Adapt
from spillway.slot.limits import Budget
from spillway.testing.simulated.engine import LazyRows, Partition, SimulatedEngine, Written
from spillway.testing.simulated.host import Crash
from spillway.testing.simulated.rows import GROUPS, Row, Subject
from spillway.testing.simulated.stages import TaskReport
from spillway.testing.simulated.told import ToldSkew, told_rules

#: Settings of the laws, where a history does not say otherwise.
SETTINGS = {
    "groups": GROUPS,
    "piece_bytes": 200,
    "spill_fraction": 0.3,
    "calm_batches": 2,
    "inactive_batches": 2,
}
#: Rounds after which a cleanup does not end.
MOST_ROUNDS = 300


class DyingTasks:
    """Runs every task once; before it, slots in `dies` are attempted and lost before they report."""

    def __init__(self) -> None:
        self.dies: Sequence[int] = ()

    def run(self, at: int, partitions: Sequence[Partition]) -> list[pa.RecordBatch]:
        for one in partitions:
            if one.number in self.dies:
                next(one.read(lambda _: None), None)
        return [batch for one in partitions for batch in self._finished(one)]

    def _finished(self, one: Partition) -> list[pa.RecordBatch]:
        said: list[TaskReport] = []
        read = list(one.read(said.append))
        one.arrive(said)
        return read


class KeptSink:
    """Keeps what it was given by id; a repeated id must bring the same rows."""

    def __init__(self) -> None:
        self.kept: dict[int, Counter[Hashable]] = {}

    def write(self, step: Written, sink_id: int, *, replay: bool) -> None:
        read = step.engine.read_all(step.results)
        output = Counter(step.values(read))
        if sink_id in self.kept:
            assert replay
            assert self.kept[sink_id] == output
        self.kept[sink_id] = output


class LawEngine(SimulatedEngine):
    """Tells stages what they gave."""

    def read_all(self, results: LazyRows) -> list[pa.RecordBatch]:
        read = super().read_all(results)
        stage = self.stages[results.at]
        assert all(b.num_rows <= max(stage.adapt.block_rows, 1) for b in read)
        records = {slot: stage.answered(said) for slot, said in results.reports.items()}
        output = Counter(self.values(results.at, read))
        stage.ran(Ran(results.plan, results.rows, records, output))
        return read


class Cluster:
    """Stages in a row, driven as a query drives them."""

    #: What runs the slots of a stage.
    held: type[Held] = Held

    def __init__(
        self,
        root: Path,
        subject: Subject,
        lateness: int,
        slots: int,
        memory_bytes: int | None = None,
        *,
        t_gap_s: float | None = None,
        block_rows: int = 7,
        hosts: int = 1,
        skew_bytes: int | None = None,
        rules: Rules | None = None,
        then: Sequence[tuple[Subject, Callable[[Hashable], Row]]] = (),
        **settings: object,
    ) -> None:
        """`then` are later stages, each with what makes a row of a result of the stage before it.

        With `skew_bytes` the skew buffer decides who waits, else the history does.
        """
        self.root = root
        self.subject = subject
        self.lateness = lateness
        self.t_gap_s = t_gap_s
        self.skew_bytes = skew_bytes
        self.rules = rules
        how = {**SETTINGS, "block_rows": block_rows, "skew_buffer": skew_bytes, **settings}
        self.adapt = Adapt(**how)
        self._memory_bytes = memory_bytes
        subjects = [subject, *(one for one, _ in then)]
        self.stages = [self.held(root, one, at, hosts) for at, one in enumerate(subjects)]
        self.tasks, self.sink = DyingTasks(), KeptSink()
        rows_of = [None, *(made for _, made in then)]
        self.engine = LawEngine(self.stages, rows_of, self.tasks, self.sink)
        self.slots = slots
        self.start(slots)

    # Starts and crashes

    def start(self, slots: int) -> None:
        """Another start of the query, with this number of slots."""
        self.slots = slots
        self._ticks = itertools.count(0.0, 0.5)
        conductors = [self._started(stage, slots) for stage in self.stages]
        self.chain = Chain(conductors, self.engine, lambda: next(self._ticks))

    def _started(self, stage: Held, slots: int) -> Conductor:
        stage.adapt = self.adapt
        stage.hosts[0].restart_worker()
        # What a history had told is forgotten, too.
        stage.script.decisions.clear()
        coordinator, host = stage.coordinator_at_start(slots, self.lateness), stage.new_host()
        host.committed = stage.committed
        life_us = coordinator.terms.life_us
        life_s = None if life_us is None else life_us / 1e6
        stage.conductor = Conductor(
            replace(
                coordinator,
                rules=self.rules or told_rules(stage.script, life_s),
                memory=self._limits,
                gaps=None if self.t_gap_s is None else TurnGaps(self.t_gap_s),
                skew=coordinator.skew if self.skew_bytes else ToldSkew(0, script=stage.script),
            ),
            host,
        )
        return stage.conductor

    def lose_host(self) -> None:
        for stage in self.stages:
            shutil.rmtree(stage.root / "memory", ignore_errors=True)
            stage.lose_host()

    def change_settings(self) -> None:
        """The next start has other settings."""
        self._memory_bytes = None if self._memory_bytes else 600
        self.t_gap_s = 1.0 if self.t_gap_s is None else None
        eager = self.adapt.calm_batches > 1
        self.adapt = self.adapt.changed(
            calm_batches=1 if eager else 5,
            low_water=0.9 if eager else 0.1,
            victims="largest" if eager else "least-productive",
        )

    # What a history tells

    @property
    def memory_bytes(self) -> int | None:
        return self._memory_bytes

    @memory_bytes.setter
    def memory_bytes(self, limit: int | None) -> None:
        self._memory_bytes = limit
        for stage in self.stages:
            stage.conductor.wish(LimitMemory(self._limits))

    @property
    def _limits(self) -> dict[int, int | None]:
        return dict.fromkeys(range(GROUPS), self._memory_bytes)

    def batch(
        self,
        rows: list[Row],
        dies: Sequence[int] = (),
        lost: int | bool = False,
        budget: Budget | None = None,
        slow: Sequence[int] = (),
    ) -> None:
        """One batch; the slots in `dies` are first attempted and lost before they report.

        `lost` is how many stages, from the first, lose their commit because the process dies: the sink
        has seen the batch, and the next start, with other settings, must bring the same.
        """
        number, self.tasks.dies = self.stages[0].state.batch + 1, dies
        for stage in self.stages:
            stage.script.budget = budget
            stage.row_s = dict.fromkeys(slow, 1.0)
        if lost:
            for stage in self.stages[: int(lost)]:
                stage.conductor.host.dies = True
            try:
                self.chain.batch(LazyRows(rows), number)
            except Crash:
                self.change_settings()
                self.start(self.slots % 3 + 1)
        self.chain.batch(LazyRows(rows), number)
        self._after()

    def round(self, cleanup_bytes: int, dies: Sequence[int] = (), at: int = 0) -> int:
        """A round that cleans up some groups; returns how many groups still miss results."""
        stage = self.stages[at]
        self.tasks.dies = dies
        among = [group for group, _ in stage.state.pending] if cleanup_bytes else ()
        self.chain.round(at, cleanup_bytes, among)
        self._after()
        return len(stage.state.pending)

    def clean_up(self) -> None:
        """The end of the input: rounds until nothing is missing, nothing waits and nothing moves."""
        for at, stage in enumerate(self.stages):
            stage.conductor.wish(EndInput())
            for _ in range(MOST_ROUNDS):
                state = stage.state
                left = state.pending or state.spooled_rows or state.moves
                if state.batch < 0 or not (left or stage.conductor.coordinator.due):
                    break
                stage.conductor.host.finish_sending()
                self.round(1, at=at)
            else:
                raise AssertionError("cleanup does not end")
        assert sum(self.sink.kept.values(), Counter()) == self.stages[-1].results

    def give_up(self) -> None:
        """Parallel tracks end without waiting for their old rows."""
        for stage in self.stages:
            stage.script.impatient = True

    def move(
        self,
        sender: int,
        receiver: int,
        size: int,
        groups: int,
        everything: bool,
        protocol: str = "mslb",
    ) -> None:
        """A move begins with the next commit, if both slots are there and free."""
        slots = self.state.routing.slots
        order = Move(sender % slots, receiver % slots, size, "a test", groups, everything)
        self.stages[0].script.decisions.append(replace(order, protocol=protocol))

    def force(self, slot: int, size: int) -> None:
        """A slot spills in the batch after the next commit, if it is free."""
        self.stages[0].script.decisions.append(ForceSpill(slot, size, "a test"))

    def scale(self, slots: int) -> None:
        """The user wishes for another number of slots."""
        for stage in self.stages:
            stage.conductor.wish(ScaleTo(slots))
        self.slots = slots

    def reshape(self, slot: int, shape: Shape) -> None:
        """The join of a slot gets another shape with the next commit, or when its moves have ended."""
        self.stages[0].script.shapes[slot % self.state.routing.slots] = shape

    def send(self, fails: bool = False) -> None:
        """Everything that has departed is received, or sending it fails."""
        for stage in self.stages:
            stage.conductor.host.arrive(fails=fails)

    def _after(self) -> None:
        for stage in self.stages:
            stage.script.impatient = False
            stage.check_files()

    # The first stage, which most laws are about

    @property
    def state(self):
        return self.stages[0].state

    @property
    def coordinator(self) -> Coordinator:
        return self.stages[0].conductor.coordinator

    def __getattr__(self, name: str) -> object:
        # What a stage gave: results, accepted, events, checkpoint, store and the like.
        if name == "stages":
            raise AttributeError(name)
        return getattr(self.stages[0], name)
