"""What slots do at their disks: groups leave memory when it is short, and come back.

A slot does one piece of disk work at a time, and nothing else meanwhile (FLUX 6.3). Policies choose the
groups; this module knows the duration and effect of the work.

*generations* (DCAPE): some groups leave memory together, as in `spillway.slot.keeper`, and continue
with an empty part; not while groups of the slot are in transit.

*rotation* (FLUX 6.1): groups leave one by one and take turns; the slot writes their rows for later.
Before it sends a group on disk, it reads it and processes its rows.

Known limitation: with generations nothing comes back, and missing results stay missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from spillway.metrics.events import Event, ForceSpilled, Reloaded, Spilled
from spillway.metrics.groups import Ints
from spillway.policies.cluster.tuning import GapTuner
from spillway.policies.local.rotation import Rotation
from spillway.slot.controller import Turn, Waiting
from spillway.slot.orders import Force
from spillway_lab.simulator.cluster.cluster import Cluster
from spillway_lab.simulator.cluster.control import Control


class Disks:
    """The disks of all slots."""

    def __init__(self, cluster: Cluster, control: Control) -> None:
        scenario = cluster.scenario
        self._cluster = cluster
        self._control = control
        self._spills = control.rules.strategy.spills
        self._rotates = scenario.spill_mode == "rotation"
        self._t_gap_s = scenario.settings.t_gap_s
        # State that does not grow needs no spare room.
        self._fill = 1.0 if scenario.workload.warm else Rotation.fill
        #: What to do when a slot's disk has finished its work.
        self._at_work: dict[int, Callable[[], None]] = {}
        #: Spills that the coordinator ordered and that have not begun.
        self._forced: list[tuple[int, Force]] = []
        #: When each group came into memory, or when the first row waiting for it arrived.
        self._since_s = np.zeros(scenario.groups)
        self._gaps = [GapTuner(self._seconds(int(cluster.sizes().max(initial=0))))] * scenario.slots

    def busy(self) -> set[int]:
        """The slots with disk work."""
        return set(self._at_work)

    def force(self, forces: Iterable[tuple[int, Force]]) -> None:
        """Spills that the coordinator orders; they begin when the disk is idle."""
        self._forced.extend(forces)

    def end(self) -> None:
        """Completes work that is done."""
        for slot in [s for s in self._at_work if self._cluster.disk_left_s[s] <= 0]:
            self._at_work.pop(slot)()

    def begin(self, now_s: float) -> None:
        """Begins work that is due."""
        if not self._spills:
            return
        waiting, self._forced = self._forced, []
        for slot, order in waiting:
            if slot in self._at_work:
                self._forced.append((slot, order))
            else:
                self._spill(slot, ForceSpilled, order.bytes, order.reason, order.below)
        if self._rotates:
            self._rotate(now_s)
            return
        cluster = self._cluster
        limits, relocating = cluster.limits(now_s), self._control.relocating
        for slot in np.flatnonzero(cluster.memory_bytes > limits).tolist():
            if slot not in self._at_work and slot not in relocating:
                self._over(slot, int(cluster.memory_bytes[slot]), int(limits[slot]))

    def _over(self, slot: int, held: int, limit: int) -> None:
        fraction = self._control.rules.strategy.spill_fraction
        wanted = max(int(held * fraction), held - limit)
        self._spill(slot, Spilled, wanted, f"{held} bytes in memory, limit {limit}", None)

    def _spill(
        self, slot: int, kind: type[Event], wanted: int, why: str, below: int | None
    ) -> None:
        cluster, control = self._cluster, self._control
        table = control.statistics(slot)
        choice = control.controller.victims(table, wanted, control.batch, below)
        groups = list(choice.groups)
        if not groups:
            return
        size = int(table.size[groups].sum())
        seconds = self._seconds(size)

        def finish() -> None:
            cluster.disk_rows[groups] += cluster.state_rows[groups]
            cluster.state_rows[groups] = 0.0
            cluster.forget_sums()
            self._tell(kind, slot, groups, size, seconds, f"{why}: {choice.reason}")

        self._work(slot, seconds, finish)

    def _rotate(self, now_s: float) -> None:
        """Asks the policy about each slot with groups on disk, or too much in memory."""
        cluster = self._cluster
        still, limits = ~cluster.stalled, cluster.limits(now_s)
        slots = cluster.scenario.slots
        sizes = np.where(still, cluster.sizes(), 0)
        held = np.bincount(cluster.slot, weights=sizes, minlength=slots)
        on_disk = np.bincount(cluster.slot, weights=cluster.on_disk, minlength=slots)
        over = held > limits
        for slot in np.flatnonzero(over | (on_disk > 0)).tolist():
            if slot in self._at_work or (cluster.draining[slot] and not over[slot]):
                continue
            if wanted := self._to_be_sent(slot):
                self._turn(slot, Turn((), wanted, "it is to be sent"), now_s)
                continue
            turn = self._next_turn(slot, int(limits[slot]), now_s)
            if turn.leave or turn.enter:
                self._turn(slot, turn, now_s)

    def _next_turn(self, slot: int, limit: int, now_s: float) -> Turn:
        """Follows the policy one group at a time: the slot serves rows and answers in between."""
        rotation = self._rotation(slot)
        turn = rotation.turn(self._waiting(self._control.owned(slot)), limit, now_s)
        if len(turn.enter) > 1:
            owned = self._control.owned(slot)
            some = owned[~self._cluster.on_disk[owned] | (owned == turn.enter[0])]
            return rotation.turn(self._waiting(some), limit, now_s)
        return turn if turn.enter else Turn(turn.leave[:1], (), turn.reason)

    def _to_be_sent(self, slot: int) -> tuple[int, ...]:
        cluster = self._cluster
        at = (cluster.slot == slot) & cluster.stalled & cluster.on_disk
        return tuple(np.flatnonzero(at)[:1].tolist())

    def _rotation(self, slot: int) -> Rotation:
        t_gap_s = self._gaps[slot].t_gap_s if self._t_gap_s is None else self._t_gap_s
        return Rotation(t_gap_s, self._fill)

    def _waiting(self, groups: Ints) -> Waiting:
        cluster = self._cluster
        row_bytes = cluster.scenario.workload.row_bytes
        rows = cluster.state_rows[groups] + cluster.disk_rows[groups]
        return Waiting(
            groups,
            (rows * row_bytes).astype(np.int64),
            ~cluster.on_disk[groups],
            self._since_s[groups],
            np.ceil(cluster.spooled[groups] * row_bytes).astype(np.int64),
            self._since_s[groups],
        )

    def _turn(self, slot: int, turn: Turn, now_s: float) -> None:
        """Groups leave and others come, as one piece of work."""
        cluster = self._cluster
        leave, enter = np.array(turn.leave, np.int64), np.array(turn.enter, np.int64)
        row_bytes = cluster.scenario.workload.row_bytes
        out = int(cluster.sizes()[leave].sum())
        rows = cluster.disk_rows[enter] + cluster.spooled[enter]
        back = int(cluster.disk_sizes()[enter].sum())
        write_s = self._seconds(out, len(leave))
        read_s = self._seconds(int(rows.sum() * row_bytes), len(enter))

        def finish() -> None:
            then_s = round(now_s + write_s + read_s, 9)
            self._move_out(slot, leave, then_s)
            self._move_in(slot, enter, then_s)
            if len(leave):
                self._tell(Spilled, slot, leave.tolist(), out, write_s, turn.reason)
            if len(enter):
                self._tell(Reloaded, slot, enter.tolist(), back, read_s, turn.reason)
                waiting = int(cluster.spooled[cluster.slot == slot].sum() * row_bytes)
                used = float(cluster.utilisation[slot])
                self._gaps[slot] = self._gaps[slot].observe(read_s / len(enter), waiting, used)

        self._work(slot, write_s + read_s, finish)

    def _move_out(self, slot: int, groups: Ints, now_s: float) -> None:
        cluster = self._cluster
        # Rows that were waiting and are not processed yet continue to wait.
        cluster.draining[slot] = [one for one in cluster.draining[slot] if one not in groups]
        cluster.disk_rows[groups] += cluster.state_rows[groups]
        cluster.state_rows[groups] = 0.0
        cluster.on_disk[groups] = True
        self._since_s[groups] = now_s
        cluster.forget_sums()

    def _move_in(self, slot: int, groups: Ints, now_s: float) -> None:
        cluster = self._cluster
        cluster.state_rows[groups] += cluster.disk_rows[groups]
        cluster.disk_rows[groups] = 0.0
        cluster.on_disk[groups] = False
        self._since_s[groups] = now_s
        cluster.draining[slot].extend(groups.tolist())
        cluster.forget_sums()

    def _work(self, slot: int, seconds: float, finish: Callable[[], None]) -> None:
        self._cluster.disk_left_s[slot] += seconds
        self._at_work[slot] = finish

    def _tell(
        self, kind: type[Event], slot: int, groups: list[int], size: int, seconds: float, why: str
    ) -> None:
        ordered = tuple(sorted(int(group) for group in groups))
        event = kind(self._control.batch, slot, ordered, size, round(seconds, 6), why)
        self._control.add_event(event, moved_out=groups if isinstance(event, Spilled) else ())

    def _seconds(self, size: int, pieces: int = 1) -> float:
        machine = self._cluster.scenario.machine
        return size / machine.disk_bytes_per_s + pieces * machine.seek_s
