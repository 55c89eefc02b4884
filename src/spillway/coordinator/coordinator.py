"""The coordinator: everything that decides between two batches of a stage, as one frozen value.

    take          takes a user's request
    hear          takes messages about moves; gives up tracks that last too long
    settle        changes to the slot count of this start
    grant_wish    begins the change of slots that a user, or the ring, asked for
    plan_batch    returns the plan of the next batch; `plan_round`, of the next round
    commit        turns the records of a batch or round into the next committed state

Methods return effects (coordinator/effects.py) in the order in which a host carries them out. None
reads a clock, a file or Spark, so the Spark runtime, the simulators and the tests run the same
decisions. coordinator/conductor.py connects a coordinator to its host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spillway.coordinator import wishes
from spillway.coordinator.batch.commit import commit_batch
from spillway.coordinator.batch.committed import Committed, Mark, Scaling, next_round_of, steps_of
from spillway.coordinator.batch.plan import (
    BatchPlan,
    LocalRules,
    Note,
    new_note,
    next_round,
    plan_batch,
    plan_round,
)
from spillway.coordinator.batch.references import References
from spillway.coordinator.batch.steps import steps_after_batch, steps_in_batch
from spillway.coordinator.decisions.adaptation import (
    Rules,
    adapt,
    give_up,
    rescale,
    resume,
    tire,
    waits,
)
from spillway.coordinator.decisions.reshaping import reshape, shapes_of
from spillway.coordinator.decisions.ring import Ring
from spillway.coordinator.decisions.smoothing import smooth
from spillway.coordinator.decisions.visiting import Model, explained_visits, model_now, probing_of
from spillway.coordinator.effects import (
    AppendRecord,
    Effect,
    Effects,
    PrepareMoves,
    Reroute,
    SendGroups,
    StepReached,
    WriteNote,
)
from spillway.coordinator.sending import departed, in_one_place, room_of, send_groups
from spillway.coordinator.terms import Terms
from spillway.coordinator.took import Took
from spillway.metrics.events import Event
from spillway.metrics.record import SlotRecord
from spillway.operators.theta.sliced import Probing
from spillway.policies.cluster.protocols import Protocols
from spillway.policies.local.rotation import TurnGaps
from spillway.policies.local.skew import Skew
from spillway.protocols.messages import Message, Received, SendFailed
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.parallel_track import ParallelTrack


@dataclass(frozen=True)
class Coordinator:
    """The committed state, the rules, the measurements and the requests."""

    terms: Terms
    state: Committed
    rules: Rules
    references: References = field(default_factory=References)
    #: Bytes of state that each slot may have in memory; None: no limit.
    memory: Mapping[int, int | None] = field(default_factory=dict)
    #: How much slow slots process in a batch; None: everything.
    skew: Skew | None = None
    #: How groups rotate in memory; None: they spill in generations.
    gaps: TurnGaps | None = None
    #: The ring length of a join; None: other operators have no ring.
    ring: Ring | None = None
    #: The slot count of this start, until it is reached; and the change requested since.
    slots_asked: int | None = None
    wished: Scaling | None = None
    #: The records of the last commit by slot, and how long its batch took.
    last: Mapping[int, SlotRecord] = field(default_factory=dict)
    took: Took = Took(0.0)
    #: Events between batches since the last commit.
    told: tuple[Event, ...] = ()
    #: Run files whose local copies the next plan deletes.
    garbage: tuple[str, ...] = ()
    #: The moves that the host is sending.
    sending: frozenset[int] = frozenset()
    #: Whether this start has not committed a batch yet.
    first: bool = True
    #: Whether the input has ended.
    ended: bool = False

    @classmethod
    def at_start(
        cls,
        terms: Terms,
        state: Committed,
        references: References,
        slots: int,
    ) -> Coordinator:
        """Returns the coordinator of a start with `state` and `slots` requested slots."""
        settings, most = terms.adapt, max(slots, state.routing.slots)
        skew_bytes, rotates = settings.skew_bytes, settings.spill_mode == "rotation"
        adjusts = terms.join is not None and terms.copies == 1
        ring = Ring.of(settings, slots) if adjusts else None
        return cls(
            terms,
            state,
            Rules.of(settings, terms.life_us),
            references,
            {s: terms.memory_of(s, most) for s in range(most)},
            skew=None if skew_bytes is None else Skew(skew_bytes, settings.batch_target_s),
            gaps=TurnGaps(settings.t_gap_s) if rotates else None,
            ring=ring,
            slots_asked=slots if ring is None else ring.slots_at_start(state),
        )

    # Current state

    @property
    def limits(self) -> dict[int, int | None]:
        """The bytes of state at which each slot spills; None: never."""
        if not self.rules.strategy.spills:
            return {}
        part = self.terms.adapt.memory_threshold
        return {
            slot: None if limit is None else max(1, int(limit * part))
            for slot, limit in self.memory.items()
        }

    @property
    def moving(self) -> bool:
        """Whether groups are moving, and continue without rows too."""
        return any(self.ended or m.phase is not Phase.DUPLICATING for m in self.state.moves)

    @property
    def changing(self) -> bool:
        """Whether the slot count changes and a batch without rows helps; a track waits for rows."""
        held = bool(self.state.moves) and not self.moving
        scaling = self.state.scaling is not None and not held
        return self.wished is not None or (scaling and not waits(self.state, self.last))

    @property
    def due(self) -> bool:
        """Whether the watermark has come further than what the slots have given."""
        return self.owes or self.state.undecided

    @property
    def owes(self) -> bool:
        """Whether the watermark has made results final that no batch or round has given yet."""
        return self.terms.final and self.state.due

    @property
    def crowded(self) -> bool:
        """Whether so much waits for groups in transit that they must arrive before more comes."""
        most = self.terms.buffer_bytes
        parked = sum(record.parked_bytes for record in self.last.values())
        return parked > most or self._crowded_slot(self.state.moves, most) is not None

    @property
    def steps(self) -> int:
        """The batches and rounds since the first start: the batches of the next stage."""
        return steps_of(self.state)

    @property
    def model(self) -> Model | None:
        """The cost model of a join on predicates from the last batch; None: no data."""
        if self.terms.join is None:
            return None
        return model_now(self.terms.join, self.last, self.took.seconds, self.took.period_s)

    def probing(self, plan: BatchPlan) -> Probing:
        """Returns the order in which the rows of a batch visit the slots of a join on predicates."""
        assert self.terms.join is not None
        return probing_of(self.terms.join, plan, self.last, self.took.seconds)

    def explained_visits(self) -> list[str]:
        """Explains the cost of a join without keys, also for other slot counts if rows visit all."""
        if (join := self.terms.join) is None:
            return []
        lines = explained_visits(join, self.last, self.took.seconds, self.took.period_s)
        more = [] if self.ring is None else self.ring.lines(self.state, self.wished)
        return [*lines, *more]

    # Requests

    def take(self, wish: wishes.Wish) -> tuple[Coordinator, Effects]:
        """Takes a user's request; it applies from the next batch or round."""
        match wish:
            case wishes.ScaleTo(slots):
                rescale(self.state, slots)
                passive = self.ring is not None and self.ring.passive(self.model, len(self.last))
                return self._wish(Scaling(slots, passive=passive))
            case wishes.LimitMemory(memory):
                return replace(self, memory={**self.memory, **memory}), ()
            case wishes.PauseAdaptation(paused):
                return replace(self, rules=replace(self.rules, paused=paused)), ()
            case wishes.EndInput():
                rules = replace(self.rules, protocols=Protocols())
                return replace(self, ended=True, rules=rules), ()
            case wishes.FollowRules(rules):
                return replace(self, rules=rules), ()

    def _wish(self, wished: Scaling) -> tuple[Coordinator, Effects]:
        effects = () if wished.passive else (PrepareMoves(),)
        return replace(self, wished=wished), effects

    # Between two batches

    def hear(self, said: Iterable[tuple[Message, float]]) -> tuple[Coordinator, Effects]:
        """Takes messages about moves, gives up tracks that last too long, sends what has departed."""
        said = list(said)
        state, heard = resume(self.state, said)
        answered = {one.move for one, _ in said if isinstance(one, Received | SendFailed)}
        if reason := self._impatience(state):
            state, given_up = give_up(state, reason)
        else:
            state, given_up = tire(state, self.rules, self.took.seconds)
        told = (*self.told, *heard, *given_up)
        return replace(self, state=state, told=told, sending=self.sending - answered)._send()

    def settle(self) -> tuple[Coordinator, Effects]:
        """Changes to the slot count of this start, when nothing moves.

        After `Reroute` the host returns the new state (`rerouted`).
        """
        asked, state = self.slots_asked, self.state
        if asked is None or state.scaling is not None or state.moves:
            return self, ()
        settled = replace(self, slots_asked=None)
        if asked == state.routing.slots:
            return settled, ()
        return settled, (Reroute(state.routing.resized(asked, self.terms.copies)),)

    def rerouted(self, state: Committed, references: References) -> Coordinator:
        """Returns the coordinator after the state was rewritten under another routing."""
        return replace(self, state=state, references=references)

    def grant_wish(self) -> Coordinator:
        """Returns the coordinator with the requested change of slots begun."""
        if (wished := self.wished) is None:
            return self
        state = rescale(self.state, wished.slots, passive=wished.passive, reason=wished.reason)
        memory = self._memory_for(self.state.routing.slots, state.routing.slots)
        return replace(self, state=state, wished=None, slots_asked=None, memory=memory)

    def _memory_for(self, before: int, slots: int) -> dict[int, int | None]:
        """Returns the limits for another slot count; limits that a user has set stay."""
        terms, shared = self.terms, self.terms.spare
        given = {
            slot: limit
            for slot, limit in self.memory.items()
            if shared is None or limit != shared.limit_of(before)
        }
        return {s: terms.memory_of(s, slots) for s in {*self.memory, *range(slots)}} | given

    def _impatience(self, state: Committed) -> str:
        """Says why the coordinator gives up parallel tracks now; "" if it does not."""
        if self.ended:
            return "the input has ended"
        if self._resizing(state):
            return f"the query changes to {self.slots_asked} slots"
        # A track that is given up costs no result, and its groups can spill again.
        tracks = (move for move in state.moves if isinstance(move, ParallelTrack))
        full = self._crowded_slot(tracks, 0)
        return "" if full is None else f"slot {full} is out of memory, and a track cannot spill"

    def _resizing(self, state: Committed) -> bool:
        """Whether this start waits for moves to end before it changes its slot count."""
        return self.slots_asked not in (None, state.routing.slots) and state.scaling is None

    def _crowded_slot(self, moves: Iterable[GroupMove], most: int) -> int | None:
        """Returns a slot in a move with more than `most` bytes for which memory has no room."""
        taking_part = {slot for move in moves for slot in move.slots}
        crowded = (s for s in taking_part & set(self.last) if self.last[s].demoted_bytes > most)
        return min(crowded, default=None)

    def _send(self) -> tuple[Coordinator, Effects]:
        """Sends what has departed from a slot and is not yet in transit."""
        due = departed(self.state, self.sending)
        sending = self.sending | {move.move for move in due}
        return replace(self, sending=sending), tuple(map(self._sent, due))

    def _sent(self, move: GroupMove) -> SendGroups:
        shapes = shapes_of(self.state, self.terms.shaping)
        by_name = in_one_place(move, self.last, self.rules)
        room = room_of(move.receiver, self.last, self.limits)
        return send_groups(move, self.state, shapes, by_name=by_name, room_bytes=room)

    # One batch or round

    def plan_batch(
        self, batch: int, note: Note | None = None, input_digest: str | None = None
    ) -> tuple[BatchPlan, Effects]:
        """Returns the plan of the next batch; with a note, the same plan as when it began.

        A new plan has a note to write: another start could plan differently.
        """
        planned = note or replace(self._new_note(), input_digest=input_digest)
        plan = plan_batch(self.state, batch, self.garbage, sweep=self.first, note=planned)
        return plan, () if note is not None else (WriteNote(Mark(batch), planned),)

    def _new_note(self) -> Note:
        """Returns the note of the next batch, from the present state."""
        slots = self.state.routing.slots
        return new_note(
            self.state,
            self.limits,
            budgets=self.skew.budgets() if self.skew else None,
            t_gaps_s=self.gaps.seconds(slots) if self.gaps else None,
            shapes=shapes_of(self.state, self.terms.shaping),
            local=LocalRules.of(self.terms.adapt),
        )

    def due_cleanup(self, wanted_bytes: int, among: Collection[int]) -> tuple[int, ...]:
        """Returns the groups, of those given, that the next round cleans up."""
        return next_round(self.state, wanted_bytes * self.state.routing.slots, among)

    def plan_round(self, cleanup: Sequence[int]) -> tuple[BatchPlan, Effects] | None:
        """Returns the plan of a round that cleans up some groups; None: nothing to do.

        A round has no new rows, so it has no budget and turns start at once: it processes what
        waits.
        """
        state = self.state
        waits = state.moves or state.scaling or state.spooled_rows or self.due
        if not (cleanup or waits):
            return None
        at_once = dict.fromkeys(range(state.routing.slots), 0.0) if self.gaps else None
        note = new_note(
            state,
            self.limits,
            cleanup,
            t_gaps_s=at_once,
            shapes=shapes_of(state, self.terms.shaping),
            local=LocalRules.of(self.terms.adapt),
        )
        return self.repeat_round(note), (WriteNote(next_round_of(state), note),)

    def repeat_round(self, note: Note) -> BatchPlan:
        """Returns the plan of a round that began with this note."""
        return plan_round(self.state, note, self.garbage)

    def commit(
        self,
        plan: BatchPlan,
        records: Mapping[int, SlotRecord],
        took: Took,
        attempts: Iterable[SlotRecord] = (),
    ) -> tuple[Coordinator, Effects]:
        """Commits a batch or round; `attempts` are all records, including repeated ones."""
        state = self._committed(plan, records, took)
        references, files = self.references.after(plan, records, attempts, state)
        committed = replace(
            self,
            state=state,
            references=references,
            garbage=files.runs,
            last=records,
            took=took,
            told=(),
            first=self.first and state.round > 0,
        )
        observed, wishing = committed._observed()
        after, sending = observed._send()
        append: Effects = () if self.terms.identity else (AppendRecord(state),)
        effects: list[Effect] = [*map(_reached, steps_in_batch(plan, records)), *append, files]
        effects += [*wishing, *map(_reached, steps_after_batch(state.moves)), *sending]
        return after, tuple(effects)

    def _committed(
        self, plan: BatchPlan, records: Mapping[int, SlotRecord], took: Took
    ) -> Committed:
        terms, limits, rules = self.terms, self.limits, self.rules
        state = commit_batch(self.state, plan, records, terms.lateness_us, took.seconds, self.told)
        if not self._resizing(self.state):
            state = adapt(state, records, limits, rules, took.period_s or 0.0)
        state = reshape(state, plan, records, limits, took.came_s, terms.shaping, rules.paused)
        return state if terms.join is None else smooth(state, records, terms.join.slicing)

    def _observed(self) -> tuple[Coordinator, Effects]:
        """Returns the coordinator with what the last batch showed about pace, turns and the ring."""
        state, records = self.state, self.last
        skew, gaps, ring, due = self.skew, self.gaps, self.ring, None
        if skew is not None:
            skew = skew.observed(records, is_round=state.round > 0)
        if gaps is not None:
            gaps = gaps.observed(records, self.took.seconds)
        if ring is not None and ring.automatic:
            changing = self.rules.paused or self.wished is not None or self.slots_asked is not None
            ring, due = ring.observed(state, records, self.model, changing=changing)
        after = replace(self, skew=skew, gaps=gaps, ring=ring)
        return (after, ()) if due is None else after._wish(due)


def _reached(found: tuple[GroupMove, int]) -> StepReached:
    return StepReached(*found)
