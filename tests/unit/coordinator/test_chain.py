"""Stages in a row with an engine of lists: the sink has every result once, wherever a start ends.

Each stage has one slot, which adds its number to a row: the row "a" reaches the sink as "a01". A stage
may owe a result (`owes`), which a round makes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hosting import MemoryHost

from spillway.coordinator.batch.committed import Mark, initial
from spillway.coordinator.batch.plan import BatchPlan
from spillway.coordinator.chain import Answers, Chain, Ran, left_unread
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.decisions.adaptation import Rules
from spillway.coordinator.terms import Terms
from spillway.coordinator.wishes import LimitMemory
from spillway.errors import QueryError
from spillway.metrics.record import SlotRecord
from spillway.policies.cluster.strategy import Strategy
from spillway.routing.routing import Routing

GROUPS = 4


@dataclass
class ListEngine:
    """Makes the results of stages of lists; a sink that knows what it had by its id."""

    #: The groups whose results a stage owes, until a round makes them.
    owes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sink: dict[int, list[str]] = field(default_factory=dict)
    #: The id and whether it is a replay, of everything that was written.
    written: list[tuple[int, bool]] = field(default_factory=list)
    #: Whether the next writing fails, before the sink has it or after.
    fails: str = ""
    #: All plans, with the numbers of their stages.
    plans: list[tuple[int, BatchPlan]] = field(default_factory=list)
    #: Whether the sink has read what it was given.
    reads: bool = True

    def no_rows(self, at: int) -> list[str]:
        return []

    def results(self, at: int, rows: list[str], plan: BatchPlan) -> list[str]:
        self.plans.append((at, plan))
        return [f"{row}{at}" for row in (*rows, *(f"<{group}>" for group in plan.cleanup))]

    def feed(self, at: int, results: list[str]) -> list[str]:
        return results

    def write(self, results: list[str], sink_id: int, *, replay: bool) -> None:
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise QueryError("the sink is away")
        self.written.append((sink_id, replay))
        # As with any sink, only what may be a replay is looked for.
        if not (replay and sink_id in self.sink):
            assert sink_id not in self.sink
            self.sink[sink_id] = results
        if fails == "after":
            raise QueryError("the driver is gone")

    def collect_answers(
        self, at: int, results: list[str], plan: BatchPlan, *, replay: bool
    ) -> Answers:
        if at == 1 and not (self.reads or replay):
            raise left_unread(plan, [0])
        self.owes[at] = tuple(g for g in self.owes.get(at, ()) if g not in plan.cleanup)
        pending = tuple((group, 10) for group in self.owes[at])
        record = SlotRecord(
            plan.batch, 0, f"{at}-{plan.batch}", (len(results),), (0,), len(results), (None,),
            (0,), (0,), (0,), "w", pending=pending,
        )  # fmt: skip
        return Answers({0: record}, (record,))


@dataclass
class World:
    """What outlives a start: the hosts of two stages, and the engine."""

    engine: ListEngine = field(default_factory=ListEngine)
    hosts: tuple[MemoryHost, MemoryHost] = field(
        default_factory=lambda: (MemoryHost(), MemoryHost())
    )

    def start(self) -> Chain[list[str]]:
        conductors = []
        for host in self.hosts:
            state = host.log[-1] if host.log else initial(Routing.even(GROUPS, 1), 1)
            coordinator = Coordinator(Terms((None,)), state, Rules(Strategy("spill-only")))
            conductors.append(Conductor(coordinator, host))
        return Chain(conductors, self.engine, itertools.count().__next__)

    def marks(self) -> list[list[tuple[int, int]]]:
        return [[(state.batch, state.round) for state in host.log] for host in self.hosts]


@pytest.fixture
def world() -> World:
    return World()


def stages(ran: list[Ran[list[str]]]) -> list[list[int]]:
    """The stages that took part in each batch or round."""
    return [[step.at for step in one.steps] for one in ran]


def test_batch_passes_all_stages_and_is_committed_from_the_last(world: World) -> None:
    order = []
    for at, host in enumerate(world.hosts):
        host.meanwhile = lambda at=at: order.append(at)
    chain = world.start()
    [ran] = chain.batch(["a", "b"], 0)
    assert world.engine.sink == {0: ["a01", "b01"]}
    assert stages([ran]) == [[0, 1]]
    assert order == [1, 0]
    assert ran.times == (0, 1, 2, 3)
    assert [said.records[0].rows_out for said in ran.answers] == [2, 2]
    assert chain.conductors[0].state.clock_s == 2


def test_batch_that_is_committed_is_not_run_again(world: World) -> None:
    world.start().batch(["a"], 0)
    assert world.start().batch(["a"], 0) == []
    assert world.engine.written == [(0, False)]


def test_only_a_step_that_had_begun_may_be_a_replay(world: World) -> None:
    chain = world.start()
    chain.batch(["a"], 0)
    chain.batch(["b"], 1)
    world.start().batch(["c"], 2)
    world.engine.fails = "before"
    with pytest.raises(QueryError, match="the sink is away"):
        world.start().batch(["d"], 3)
    world.start().batch(["d"], 3)
    assert world.engine.written == [(0, False), (1, False), (2, False), (3, True)]


@pytest.mark.parametrize("before", [0, 1])
def test_first_batch_of_a_start_that_the_sink_did_not_read_is_not_committed(
    world: World, before: int
) -> None:
    for number in range(before):
        world.start().batch(["a"], number)
    world.engine.reads = False
    with pytest.raises(QueryError, match=f"has not read all results of batch {before}"):
        world.start().batch(["b"], before)
    assert [len(host.log) for host in world.hosts] == [before, before]


def test_step_whose_last_stage_had_not_begun_cannot_be_in_the_sink(world: World) -> None:
    world.hosts[1].refuses = "write_note"
    with pytest.raises(QueryError, match="write_note is refused"):
        world.start().batch(["a"], 0)
    world.start().batch(["a"], 0)
    assert world.engine.written == [(0, False)]


def test_batch_that_the_sink_has_and_no_stage_is_written_once(world: World) -> None:
    world.engine.fails = "after"
    with pytest.raises(QueryError, match="the driver is gone"):
        world.start().batch(["a"], 0)
    assert world.marks() == [[], []]
    world.start().batch(["a"], 0)
    assert world.engine.sink == {0: ["a01"]}
    assert world.marks() == [[(0, 0)], [(0, 0)]]


def test_crash_between_the_commits_of_two_stages_repeats_the_first_alone(world: World) -> None:
    world.start().batch(["a"], 0)
    world.hosts[0].refuses = "append"
    with pytest.raises(QueryError, match="append is refused"):
        world.start().batch(["b"], 1)
    assert world.marks() == [[(0, 0)], [(0, 0), (1, 0)]]
    chain = world.start()
    assert stages(chain.batch(["b"], 1)) == [[0]]
    assert world.marks() == [[(0, 0), (1, 0)], [(0, 0), (1, 0)]]
    assert stages(chain.batch(["c"], 2)) == [[0, 1]]
    assert world.engine.sink == {0: ["a01"], 1: ["b01"], 2: ["c01"]}


def test_stage_that_was_left_behind_has_no_round_before_its_batch(world: World) -> None:
    world.engine.owes = {0: (3,)}
    world.start().batch(["a"], 0)
    world.hosts[0].refuses = "append"
    with pytest.raises(QueryError):
        world.start().batch(["b"], 1)
    # Without its note nothing but the next stage says that the batch was begun.
    world.hosts[0].notes.clear()
    chain = world.start()
    assert not chain.conductors[0].replays
    assert chain.round(0, 100, {3}) == ((), [])
    chain.batch(["b"], 1)
    cleaned, ran = chain.round(0, 100, {3})
    assert (cleaned, stages(ran)) == ((3,), [[0, 1]])


def test_batch_that_was_begun_comes_before_a_round(world: World) -> None:
    world.engine.owes = {0: (3,)}
    world.start().batch(["a"], 0)
    world.engine.fails = "before"
    with pytest.raises(QueryError, match="the sink is away"):
        world.start().batch(["b"], 1)
    assert Mark(1) in world.hosts[0].notes
    chain = world.start()
    assert chain.round(0, 100, {3}) == ((), [])
    chain.batch(["b"], 1)
    assert chain.round(0, 100, {3})[0] == (3,)


def test_round_is_a_batch_of_later_stages(world: World) -> None:
    world.engine.owes = {0: (2, 3)}
    chain = world.start()
    assert chain.round(0, 100, {2, 3}) == ((), [])
    chain.batch(["a"], 0)
    assert chain.round(0, 10, {2, 3})[0] == (2,)
    assert chain.round(0, 10, {2, 3})[0] == (3,)
    assert chain.round(0, 10, {2, 3}) == ((), [])
    assert world.marks() == [[(0, 0), (0, 1), (0, 2)], [(0, 0), (1, 0), (2, 0)]]
    assert world.engine.sink == {0: ["a01"], 1: ["<2>01"], 2: ["<3>01"]}
    chain.batch(["b"], 1)
    assert world.engine.sink[3] == ["b01"]


def test_round_of_the_last_stage_is_its_own(world: World) -> None:
    world.engine.owes = {1: (3,)}
    chain = world.start()
    chain.batch(["a"], 0)
    cleaned, ran = chain.round(1, 100, {3})
    assert (cleaned, stages(ran)) == ((3,), [[1]])
    assert world.marks() == [[(0, 0)], [(0, 0), (0, 1)]]
    assert world.engine.sink[1] == ["<3>1"]


@pytest.mark.parametrize("fails", ["before", "after"])
def test_round_that_did_not_end_is_repeated_by_the_next_start(world: World, fails: str) -> None:
    world.engine.owes = {0: (3,)}
    chain = world.start()
    chain.batch(["a"], 0)
    world.engine.fails = fails
    with pytest.raises(QueryError):
        chain.round(0, 100, {3})
    chain = world.start()
    assert chain.unfinished_round(0)
    assert stages(chain.batch(["b"], 1)) == [[0, 1], [0, 1]]
    assert not chain.unfinished_round(0)
    assert world.engine.written[-2:] == [(1, True), (2, False)]
    assert world.engine.sink == {0: ["a01"], 1: ["<3>01"], 2: ["b01"]}


def test_round_that_failed_is_repeated_by_the_same_start(world: World) -> None:
    world.engine.owes = {0: (3,)}
    chain = world.start()
    chain.batch(["a"], 0)
    world.engine.fails = "after"
    with pytest.raises(QueryError):
        chain.round(0, 100, {3})
    # It is the round that was asked for then, whatever is asked for now.
    cleaned, ran = chain.round(0, 100, ())
    assert (cleaned, stages(ran)) == ((3,), [[0, 1]])
    assert world.engine.sink == {0: ["a01"], 1: ["<3>01"]}
    assert chain.repeat_rounds() == {}


def test_round_that_the_same_start_repeats_has_the_plans_that_it_had(world: World) -> None:
    """The sink may have it: neither a request nor a message of a move may change its rows."""
    world.engine.owes = {0: (3,)}
    chain = world.start()
    chain.batch(["a"], 0)
    world.engine.fails = "after"
    with pytest.raises(QueryError):
        chain.round(0, 100, {3})
    before = world.engine.plans[-2:]
    for one in chain.conductors:
        one.wish(LimitMemory({0: 7}))
    chain.batch(["b"], 1)
    assert world.engine.plans[-4:-2] == before
    assert [plan.memory_bytes for _, plan in world.engine.plans[-2:]] == [(7,), (7,)]


def test_round_that_only_the_next_stage_has_is_repeated_up_to_it(world: World) -> None:
    world.engine.owes = {0: (3,)}
    chain = world.start()
    chain.batch(["a"], 0)
    world.hosts[0].refuses = "append"
    with pytest.raises(QueryError):
        chain.round(0, 100, {3})
    assert world.marks() == [[(0, 0)], [(0, 0), (1, 0)]]
    chain = world.start()
    assert stages(chain.batch(["b"], 1)) == [[0], [0, 1]]
    assert world.marks() == [[(0, 0), (0, 1), (1, 0)], [(0, 0), (1, 0), (2, 0)]]
    assert world.engine.sink == {0: ["a01"], 1: ["<3>01"], 2: ["b01"]}


def test_committed_batch_that_has_other_rows_now_is_refused(world: World) -> None:
    """After a loss of power, Spark may have forgotten which rows the batch had."""
    world.start().batch(["a"], 0, input_digest="1")
    assert world.start().batch(["a"], 0, input_digest="1") == []
    assert world.start().batch(["a"], 0) == []
    with pytest.raises(QueryError) as refused:
        world.start().batch(["b"], 0, input_digest="2")
    assert refused.value.message == "Spark gives batch 0 other rows than it had before"
    assert refused.value.detail == (
        "the source offsets of the batch have the checksum 2, the log has 1; "
        "with other rows, some would be lost or come twice"
    )
    assert refused.value.hint == (
        "restore the whole checkpoint directory from one backup, or start with a new one"
    )


def test_batch_that_began_with_other_rows_is_refused(world: World) -> None:
    world.engine.fails = "after"
    with pytest.raises(QueryError, match="the driver is gone"):
        world.start().batch(["a"], 0, input_digest="1")
    with pytest.raises(QueryError, match="other rows than it had before"):
        world.start().batch(["b"], 0, input_digest="2")
    assert world.marks() == [[], []]
    world.start().batch(["a"], 0, input_digest="1")
    assert world.engine.sink == {0: ["a01"]}


def test_round_keeps_which_rows_its_batch_had(world: World) -> None:
    world.engine.owes = {0: (3,)}
    chain = world.start()
    chain.batch(["a"], 0, input_digest="1")
    chain.round(0, 100, {3})
    with pytest.raises(QueryError, match="the log has 1"):
        world.start().batch(["b"], 0, input_digest="2")
