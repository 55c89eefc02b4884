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

from law.host import Crash
from law.rows import GROUPS, Row, Subject
from law.stages import Held, Results
from law.told import ToldSkew, told_rules
from spillway.coordinator.batch.plan import BatchPlan
from spillway.coordinator.chain import Answers, Chain
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.decisions.adaptation import Rules
from spillway.coordinator.terms import Terms
from spillway.coordinator.wishes import EndInput, LimitMemory, ScaleTo
from spillway.operators.theta.sliced import SlicedJoin
from spillway.plan.shape import Shape
from spillway.policies.cluster.decision import ForceSpill, Move
from spillway.policies.local.rotation import Gaps
from spillway.routing.routing import Routing
from spillway.settings import Adapt
from spillway.slot.limits import Budget

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


class Engine:
    """Runs stages at once, and keeps what the sink was given."""

    def __init__(
        self, stages: Sequence[Held], rows_of: Sequence[Callable[[Hashable], Row] | None]
    ) -> None:
        self._stages = stages
        self._rows_of = rows_of
        #: What the sink has, by id.
        self.sink: dict[int, Counter[Hashable]] = {}

    def no_rows(self, at: int) -> list[Row]:
        return []

    def results(self, at: int, rows: list[Row], plan: BatchPlan) -> Results:
        return self._stages[at].results_of(rows, plan)

    def feed(self, at: int, results: Results) -> list[Row]:
        row_of = self._rows_of[at]
        assert row_of is not None
        return [row_of(one) for one in results.output.elements()]

    def write(self, results: Results, sink_id: int, *, replay: bool) -> None:
        if sink_id in self.sink:
            assert replay
            assert self.sink[sink_id] == results.output
        self.sink[sink_id] = results.output

    def answers(self, at: int, results: Results, plan: BatchPlan) -> Answers:
        return Answers(results.records, tuple(results.records.values()))


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
        self.stages = [self.held(root, one, at) for at, one in enumerate(subjects)]
        for stage in self.stages:
            stage.hosts = hosts
        self.engine = Engine(self.stages, [None, *(made for _, made in then)])
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
        stage.adapt, stage.opened = self.adapt, type(stage.opened)()
        # What a history had told is forgotten, too.
        stage.script.decisions.clear()
        operator = stage.first_operator()
        life_s = None if operator.untracked else self._life_s(stage)
        lateness = tuple(None if s.time is None else self.lateness for s in stage.streams)
        join = operator if isinstance(operator, SlicedJoin) else None
        terms = Terms(lateness, self.adapt, shaping=stage.shaping, join=join)
        new = Routing.even(GROUPS, slots)
        state, references = stage.checkpoint.recover(len(stage.streams), new)
        marks = stage.checkpoint.log.marks()
        coordinator = Coordinator.at_start(terms, state, references, slots, marks)
        stage.conductor = Conductor(
            replace(
                coordinator,
                rules=self.rules or told_rules(stage.script, life_s),
                memory=self._limits,
                gaps=None if self.t_gap_s is None else Gaps(self.t_gap_s),
                skew=coordinator.skew if self.skew_bytes else ToldSkew(0, script=stage.script),
            ),
            stage.host(),
        )
        return stage.conductor

    def _life_s(self, stage: Held) -> float:
        return (max(s.window_us or 0 for s in stage.streams) + self.lateness) / 1e6

    def lose_host(self) -> None:
        for stage in self.stages:
            shutil.rmtree(stage.root / "memory", ignore_errors=True)
            stage.lose_host()

    def change_settings(self) -> None:
        """The next start has other settings."""
        self._memory_bytes = None if self._memory_bytes else 600
        self.t_gap_s = 1.0 if self.t_gap_s is None else None

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
        number = self.stages[0].state.batch + 1
        for stage in self.stages:
            stage.dies, stage.script.budget = dies, budget
            stage.row_s = dict.fromkeys(slow, 1.0)
        if lost:
            for stage in self.stages[: int(lost)]:
                stage.conductor.host.dies = True
            try:
                self.chain.batch(rows, number)
            except Crash:
                self.change_settings()
                self.start(self.slots % 3 + 1)
        self.chain.batch(rows, number)
        self._after()

    def round(self, cleanup_bytes: int, dies: Sequence[int] = (), at: int = 0) -> int:
        """A round that cleans up some groups; returns how many groups still miss results."""
        stage = self.stages[at]
        for one in self.stages:
            one.dies = dies
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
                if state.batch < 0 or not (state.pending or state.spooled_rows or state.moves):
                    break
                stage.conductor.host.finish_sending()
                self.round(1, at=at)
            else:
                raise AssertionError("cleanup does not end")
        assert sum(self.engine.sink.values(), Counter()) == self.stages[-1].results

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
