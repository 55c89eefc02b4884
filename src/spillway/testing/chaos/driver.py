"""One start of the query: stages, conductors and a chain over the simulated store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.stages import AskedStage, open_stages
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.chain import Chain
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.wishes import EndInput, LimitMemory, ScaleTo, Wish
from spillway.plan.shape import Shape
from spillway.policies.cluster.decision import ForceSpill, Move
from spillway.policies.local.spare import Spare
from spillway.settings import Adapt
from spillway.slot.limits import Budget
from spillway.testing.chaos.gate import Disasters, DriverGate
from spillway.testing.chaos.ledger import Ledger
from spillway.testing.chaos.outside import Outside
from spillway.testing.chaos.query import rows_of, subjects
from spillway.testing.chaos.schedule import Schedule, Settings
from spillway.testing.chaos.spark import ChaosEngine, ChaosSink, ChaosTasks
from spillway.testing.chaos.store import Medium, SimulatedStore, checkpoint_on
from spillway.testing.simulated.engine import LazyRows
from spillway.testing.simulated.places import GatedTier, Machine
from spillway.testing.simulated.rows import GROUPS, Row
from spillway.testing.simulated.sliced import Sliced
from spillway.testing.simulated.stages import SimulatedStage
from spillway.testing.simulated.told import ToldSkew, told_rules
from spillway.testing.simulated.visits import VisitedStage

#: What every start has, unless its settings say otherwise.
ADAPT = {"groups": GROUPS, "piece_bytes": 200, "block_rows": 7, "inactive_batches": 2}


@dataclass
class Machines:
    """What outlives a driver: storage, hosts, the content of the sink, the clock, attempt numbers."""

    schedule: Schedule
    media: Sequence[Medium]
    hosts: Sequence[Sequence[Machine]]
    ledger: Ledger
    outside: Outside
    disasters: Disasters
    clock: Iterator[float]
    attempts: Iterator[int]
    #: Where slot 0 runs.
    shift: int = 0

    def places(self) -> list[Machine]:
        """All places with local tiers."""
        return [place for hosts in self.hosts for host in hosts for place in host.places()]


def adapt_of(settings: Settings) -> tuple[Adapt, Spare | None]:
    """The settings of a start in the form of the product, and the default memory limit."""
    given = dict(settings.adapt)
    if isinstance(limits := given.get("memory"), dict):
        # JSON has no numbers as keys.
        given["memory"] = {int(slot): limit for slot, limit in limits.items()}
    if shares := given.get("shares"):
        given.update(shares=tuple(shares), slots=settings.slots)
    adapt = Adapt(**{**ADAPT, **given})
    if settings.spare is None or not adapt.takes_spare_memory():
        return adapt, None
    spare = Spare(settings.spare, "drawn")
    return adapt.with_spare_memory(spare.limit_of(settings.slots)), spare


class Driver:
    """One process that runs the query."""

    def __init__(
        self, machines: Machines, number: int, settings: Settings, gate: DriverGate
    ) -> None:
        self.number = number
        self.settings = settings
        self.gate = gate
        #: Called with the stage and state of every commit that the driver believes in.
        self.committed: Callable[[int, Committed], None] = lambda *_: None
        self._machines = machines
        self.stages = [self._stage(at) for at in range(len(machines.media))]
        tasks = ChaosTasks(self.stages, self.gate, machines.disasters)
        sink = ChaosSink(machines.schedule.sink, machines.ledger, machines.disasters, tasks)
        self.engine = ChaosEngine(self.stages, rows_of(machines.schedule.query), tasks, sink)
        self.engine.ledger = machines.ledger
        self.engine.look = lambda at: checkpoint_on(machines.media[at])
        self._open()
        # Looked at before this start takes over and copies the notes.
        looks = [checkpoint_on(medium).log for medium in machines.media]
        sink.replays = any(log.open_note(log.newest()) is not None for log in looks)
        conductors = [self._conductor(stage) for stage in self.stages]
        self.chain: Chain[LazyRows] = Chain(conductors, self.engine, lambda: next(machines.clock))

    # A start

    def _open(self) -> None:
        """Opens the checkpoints of this query, as every start does."""
        query = self._machines.schedule.query
        kinds = (query.kind, *query.then)
        asked = [
            AskedStage({"operator": kind, "streams": [], "key_types": []}, GROUPS) for kind in kinds
        ]
        open_stages([stage.checkpoint for stage in self.stages], asked, "simulated")

    def _client(self, at: int) -> SimulatedStore:
        return SimulatedStore(
            self._machines.media[at], self.gate, f"simulated://stage{at}", self.number
        )

    def _stage(self, at: int) -> SimulatedStage:
        machines, client = self._machines, self._client(at)
        subject = subjects(machines.schedule.query)[at]
        kind = VisitedStage if isinstance(subject, Sliced) else SimulatedStage
        checkpoint = Checkpoint(client.location, durable=client)
        stage = kind(subject, checkpoint, machines.hosts[at], machines.attempts)
        stage.task_durable = lambda: self._client(at)
        stage.passed = lambda tier: GatedTier(tier, self.gate.before_local)
        if at == 0:
            stage.plan = machines.schedule.query.options.get("plan")
        stage.adapt, stage.spare = adapt_of(self.settings)
        stage.shift = machines.shift
        return stage

    def _conductor(self, stage: SimulatedStage) -> Conductor:
        coordinator = stage.coordinator_at_start(
            self.settings.slots, self._machines.schedule.query.lateness
        )
        if self.settings.told:
            life_us, skew = coordinator.terms.life_us, coordinator.skew
            rules = told_rules(stage.script, None if life_us is None else life_us / 1e6)
            if skew is None and not isinstance(stage.subject, Sliced):
                skew = ToldSkew(0, script=stage.script)
            coordinator = replace(coordinator, rules=rules, skew=skew)
        stage.conductor = Conductor(coordinator, stage.new_host())
        at = self.stages.index(stage)
        stage.host.before_record = self._machines.outside.record
        stage.host.committed = lambda state: self.committed(at, state)
        return stage.conductor

    # Work

    def batch(self, rows: Sequence[Row], number: int, how: Sequence[int] = ()) -> None:
        """Runs one batch; `how` has the slow slot, and the rows and bytes of a scripted budget."""
        slow, most, buffer = how or (-1, -1, 0)
        for stage in self.stages:
            stage.row_s = {} if slow < 0 else {slow: 1.0}
            stage.script.budget = None if most < 0 else Budget(most, buffer)
        digest = self._machines.outside.settle(number)
        self.chain.batch(LazyRows(list(rows)), number, input_digest=digest)
        for stage in self.stages:
            stage.script.impatient = False

    def round(self, at: int, cleanup_bytes: int) -> None:
        """Runs a round that cleans up some groups of a stage."""
        stage = self.stages[at]
        among = [group for group, _ in stage.state.pending] if cleanup_bytes else ()
        self.chain.round(at, cleanup_bytes, among)

    def send(self, *, fails: bool) -> None:
        """Delivers all departed groups, or fails to."""
        for stage in self.stages:
            stage.host.arrive(fails=fails)

    def end_input(self) -> None:
        """Ends the input."""
        self._wish(EndInput())

    def unfinished(self, at: int) -> bool:
        """Whether a stage still has missing or due results, waiting rows or moves."""
        state, coordinator = self.stages[at].state, self.stages[at].conductor.coordinator
        left = state.pending or state.spooled_rows or state.moves or coordinator.due
        return state.batch >= 0 and bool(left)

    # Requests of users and scripts

    def limit_memory(self, limit: int | None) -> None:
        """Sets a new memory limit."""
        limits: Mapping[int, int | None] = dict.fromkeys(range(GROUPS), limit)
        self._wish(LimitMemory(limits))

    def scale(self, slots: int) -> None:
        """Asks for another slot count."""
        self._wish(ScaleTo(slots))

    def move(self, told: Sequence[int]) -> None:
        """Begins a move at the next commit, if both slots exist and are free."""
        sender, receiver, size, groups, everything, track, at = (*told, 0)[:7]
        stage = self.stages[at % len(self.stages)]
        slots = stage.state.routing.slots
        order = Move(sender % slots, receiver % slots, size, "told", groups, bool(everything))
        protocol = "ptlb" if track else "mslb"
        stage.script.decisions.append(replace(order, protocol=protocol))

    def force(self, slot: int, size: int, at: int = 0) -> None:
        """Makes a slot spill in the batch after the next commit, if it is free."""
        stage = self.stages[at % len(self.stages)]
        order = ForceSpill(slot % stage.state.routing.slots, size, "told")
        stage.script.decisions.append(order)

    def reshape(self, slot: int, shape: Shape) -> None:
        """Changes the shape of a slot's join."""
        stage = self.stages[0]
        stage.script.shapes[slot % stage.state.routing.slots] = shape

    def give_up(self) -> None:
        """Ends parallel tracks without waiting for their old rows."""
        for stage in self.stages:
            stage.script.impatient = True

    def _wish(self, wish: Wish) -> None:
        for stage in self.stages:
            stage.conductor.wish(wish)
