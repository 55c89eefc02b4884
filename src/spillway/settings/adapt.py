"""`Adapt`: how a query uses the machine.

The tables above it say what is valid for each setting, so that all settings of one kind have one check
and one form of message. A setting that is None by default may be None; what "auto" means is next to the
setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from spillway.duration import duration_us
from spillway.errors import SettingsError
from spillway.redaction import hidden
from spillway.settings.checks import (
    MAY_BE_AUTO,
    check_choice,
    check_count,
    check_duration,
    check_fraction,
    check_ratio,
    parse_bytes,
)
from spillway.settings.choices import (
    ADJUSTMENTS,
    AGGRESSIVE,
    AUTO,
    DISTRIBUTIONS,
    FIXED,
    MOVES,
    MSLB,
    RINGS,
    SPILL_MODES,
    STRATEGIES,
    UNLIMITED,
    VICTIMS,
)

#: The groups that routing tables have room for.
MOST_GROUPS = 65_536

_COUNTS = (
    *("slots", "groups", "block_rows", "inactive_batches", "calm_batches", "relocation_batches"),
    *("copies", "interleave"),
)
_CHOICES: dict[str, tuple[str, ...]] = {
    "share": ("host", "executor"),
    "anchor": ("auto", "always", "never"),
    "victims": VICTIMS,
    "spill_mode": SPILL_MODES,
    "cleanup": ("auto", "manual"),
    "distribute": (*DISTRIBUTIONS, AUTO),
    "adjustment": ADJUSTMENTS,
    "ring": RINGS,
    "strategy": (*STRATEGIES, AUTO),
    "moves": MOVES,
}
_FRACTIONS = (
    *("spill_fraction", "low_water", "relocation_threshold", "memory_threshold"),
    "utilisation_threshold",
)
#: Numbers of at least 1, durations and sizes, each with an example; some may be "auto".
_RATIOS = {"productivity_ratio": "2", "imbalance_threshold": "1.2"}
_DURATIONS = {
    "relocation_interval": '"45 seconds"',
    "segment": '"30 seconds"',
    "delta_min": '"1 second"',
    "t_gap": '"1 second"',
    "batch_target": '"1 second"',
}
_SIZES = ("max_forced_spill", "skew_buffer", "buffer", "relocation_bytes", "piece_bytes")


@dataclass(frozen=True)
class Adapt:
    """How a query uses the machine; what `.adapt(...)` sets.

    Example:
        >>> Adapt(slots=4, memory="200MB").memory_of(0)
        200000000
        >>> Adapt(slots=4, memory={1: "50MB"}).memory_of(0) is None
        True
    """

    #: Parallel instances of the operator; None: one per core of Spark.
    slots: int | None = None
    #: Partition groups, the unit of routing; the first start of a checkpoint fixes the number.
    groups: int = 256
    #: How a new checkpoint divides its groups: a weight for each slot; None: evenly.
    shares: tuple[float, ...] | None = None
    #: State that one slot may hold in memory, in bytes or as text like "200MB"; or a mapping from slots
    #: to such limits (slots that it does not name have none). At the limit whole groups spill to disk,
    #: and their missing results come later. None: half of the memory that is free when the query starts,
    #: divided over the slots (`explain()` shows it). "unlimited": no limit.
    memory: int | str | Mapping[int, int | str] | None = None
    #: What the query does when memory is short: "none", "spill-only", "relocate-only", "lazy-disk",
    #: "active-disk", "global-disk", "flux-memory"; or when slots are not equally busy: "flux-load",
    #: "flux-hybrid". None: "lazy-disk" with a `memory`, "spill-only" without. "auto": "lazy-disk" with
    #: moves="auto".
    strategy: str | None = None
    #: How groups move. "mslb": their state moves. "ptlb": sender and receiver both process new rows
    #: until the old ones have left the window; only for queries with a window. "auto": the cheaper one.
    #: None: "auto" with strategy="auto", else "mslb".
    moves: str | None = None
    #: State moves when the emptiest slot has less than this fraction of the fullest slot's state.
    relocation_threshold: float = 0.8
    #: How often the query compares its slots: a duration of its own processing time, or a number of
    #: batches, which takes precedence.
    relocation_interval: str | timedelta = "45 seconds"
    relocation_batches: int | None = None
    #: Bytes of state that move at a time. Larger amounts move in parts, one after the other, so that few
    #: rows wait for moving groups.
    relocation_bytes: int | str = 1024 * 1024 * 1024
    #: Fraction of `memory` at which groups spill.
    memory_threshold: float = 1.0
    #: A slot must spill when another slot makes more than this many times its results per group.
    productivity_ratio: float = 2.0
    #: Most bytes of all forced spills together; None: what exceeds the memory of all slots.
    max_forced_spill: int | str | None = None
    #: The FLUX strategies move a group when a slot is this many times as busy, or as full, as another
    #: (th_imb of the paper). "auto": tuned from measured benefit.
    imbalance_threshold: float | str = 1.2
    #: They move no group to a slot that is busy for more than this fraction of the time (th_util).
    utilisation_threshold: float = 0.9
    #: They collect statistics for at least this long before groups move again: a duration of the query's
    #: own processing time. "auto": until the statistics are certain enough.
    delta_min: str | timedelta = "1 second"
    #: What happens to a group that does not fit in memory. "generations": the slot processes its next
    #: rows at once and produces the missing results later. "rotation": its rows wait on disk until the
    #: group has its turn in memory, so all results come late and none is missing.
    spill_mode: str = "generations"
    #: With rotation: how long a group stays in memory before the next one has its turn. "auto": tuned
    #: from the waiting input.
    t_gap: str | timedelta = AUTO
    #: Bytes of rows that may wait for moving groups; above it the move completes before the next batch.
    buffer: int | str = 256 * 1024 * 1024
    #: Bytes of rows that a slow slot can buffer, so that a batch does not wait for it (the transient
    #: skew buffer of FLUX). None: no buffer, all slots finish every batch.
    skew_buffer: int | str | None = None
    #: How long a slot works in a batch before it buffers rows. "auto": 1.5 × the median slot.
    batch_target: str | timedelta = AUTO
    #: Which groups spill first: "least-productive", "most-productive", "largest", "random", "inactive".
    victims: str = "least-productive"
    #: Fraction of the state in memory that spills at a time.
    spill_fraction: float = 0.3
    #: Whether recent batches weigh more in the productivity of a group.
    amortised: bool = False
    #: Batches without a row after which victims="inactive" takes a group first.
    inactive_batches: int = 60
    #: Seed of victims="random".
    seed: int = 0
    #: Groups come back when memory was below this fraction of the limit for `calm_batches` batches.
    low_water: float = 0.5
    calm_batches: int = 3
    #: Missing results at the end of a finite input: "auto" produces them, "manual" leaves them to
    #: `query.cleanup()`.
    cleanup: str = "auto"
    #: Directory of the memory tier; None: shared memory if it is large enough.
    memory_dir: str | None = None
    #: Directory of the disk tier; None: the scratch directory of Spark or of the system.
    disk_dir: str | None = None
    #: Where runs and manifests are durable, a path or URI; None: in the checkpoint.
    durable: str | None = None
    #: Whether a batch waits until its files are on disk, on a local filesystem. Without it, a killed
    #: query loses nothing, but a power loss can destroy the checkpoint. Object stores always confirm.
    fsync: bool = True
    #: Who shares one memory tier: all workers of a "host", or those of one "executor".
    share: str = "host"
    #: Rows of one result batch and of an intermediate block of the join.
    block_rows: int = 65_536
    #: Bytes of input that a slot processes at a time; it divides larger batches.
    piece_bytes: int | str = 256 * 1024 * 1024
    #: How a join without equal keys uses the slots. "psp": one slot stores each row, and the row visits
    #: all slots. "ctr": the same with several copies of each row. "atr": by segments of one stream's
    #: time. "auto": the cost model chooses, from the first rows. The first start of a checkpoint
    #: decides.
    distribute: str = "psp"
    #: Copies of a row ("ctr").
    copies: int = 2
    #: Length of a segment ("atr"; None: 3 × the longest window), and the stream that defines the
    #: segments (None: the first stream, or with "auto" the one with the most rows a second).
    segment: str | timedelta | None = None
    master: str | None = None
    #: How "psp" changes its slot count. "aggressive": groups move at once, as in all other joins.
    #: "passive": nothing moves; new slots get new rows, retiring slots get no new rows and leave when a
    #: window has passed. "auto": passive unless slots fall behind.
    adjustment: str = AGGRESSIVE
    #: How many of its slots "psp" uses. "fixed": all. "auto": the number with the shortest response time
    #: by a cost model with measured costs. A restart continues with the number in use.
    ring: str = FIXED
    #: New rows, or combinations, that look for partners in a slot at a time (the interleaving of PSP-I).
    #: It bounds the memory for their candidates, as `block_rows` bounds pairs, and changes no result.
    #: Each set of rows searches every run of the slot separately, in Python. With 1 this takes about
    #: 0.3 ms for each row and run, hundreds of times the cost of rows that search together.
    interleave: int = 65_536
    #: Whether to keep each slot on its executor. "auto": yes if there is more than one executor.
    anchor: str = "auto"

    def __post_init__(self) -> None:
        self._check(_COUNTS, check_count)
        self._check(_CHOICES, lambda name, value: check_choice(name, value, _CHOICES[name]))
        self._check(_FRACTIONS, check_fraction)
        self._check(_RATIOS, lambda name, value: check_ratio(name, value, _RATIOS[name]))
        self._check(_DURATIONS, lambda name, value: check_duration(name, value, _DURATIONS[name]))
        self._check(_SIZES, parse_bytes)
        self._check_groups()
        self._check_shares()
        for slot, limit in self._memory_by_slot().items():
            if limit != UNLIMITED:
                parse_bytes("memory" if slot is None else f"memory of slot {slot}", limit)

    def __repr__(self) -> str:
        given = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self))
        return hidden(f"{type(self).__name__}({given})")

    def _check(self, names: Iterable[str], check: Callable[[str, Any], object]) -> None:
        """Checks the settings of one kind, except None and "auto" where these have a meaning."""
        for name in names:
            value = getattr(self, name)
            unset = value is None and getattr(type(self), name) is None
            if not unset and not (value == AUTO and name in MAY_BE_AUTO):
                check(name, value)

    def _check_groups(self) -> None:
        if self.groups > MOST_GROUPS:
            raise SettingsError(
                f"groups={self.groups} must be at most {MOST_GROUPS}",
                hint="write for example .adapt(groups=1024)",
            )
        if self.slots is not None and self.slots > self.groups:
            raise SettingsError(
                f"{self.slots} slots cannot share {self.groups} groups",
                hint=f"raise groups to at least {self.slots}, or lower slots",
            )

    def _check_shares(self) -> None:
        if self.shares is None:
            return
        weights = [w for w in self.shares if isinstance(w, int | float) and w >= 0]
        if len(weights) != len(self.shares) or sum(weights) <= 0 or len(weights) != self.slots:
            raise SettingsError(
                f"shares={self.shares!r} must have one weight for each slot, none of them negative",
                detail=f"slots={self.slots}",
                hint="write for example .adapt(slots=3, shares=(3, 1, 1))",
            )

    @property
    def strategy_name(self) -> str:
        """The strategy, with the default resolved."""
        if self.strategy is not None:
            return "lazy-disk" if self.strategy == AUTO else self.strategy
        return "none" if self.memory in (None, UNLIMITED) else "lazy-disk"

    @property
    def moves_name(self) -> str:
        """How groups move, with the default resolved."""
        return self.moves or (AUTO if self.strategy == AUTO else MSLB)

    @property
    def interval_s(self) -> float:
        """Seconds between two comparisons of the slots."""
        return duration_us("relocation_interval", self.relocation_interval) / 1e6

    @property
    def delta_min_s(self) -> float | None:
        """The fewest seconds that FLUX strategies collect statistics; None: tuned."""
        return _seconds_or_auto("delta_min", self.delta_min)

    @property
    def t_gap_s(self) -> float | None:
        """Seconds between two turns of groups in memory; None: tuned."""
        return _seconds_or_auto("t_gap", self.t_gap)

    @property
    def skew_bytes(self) -> int | None:
        """Bytes of rows that a slow slot can buffer; None: no buffer."""
        limit = self.skew_buffer
        return None if limit is None else parse_bytes("skew_buffer", limit)

    @property
    def batch_target_s(self) -> float | None:
        """Seconds that a slot works in a batch before it buffers rows; None: from the other slots."""
        return _seconds_or_auto("batch_target", self.batch_target)

    @property
    def max_forced_bytes(self) -> int | None:
        """Most bytes of all forced spills together."""
        limit = self.max_forced_spill
        return None if limit is None else parse_bytes("max_forced_spill", limit)

    def memory_of(self, slot: int) -> int | None:
        """The memory of one slot in bytes; None: no limit."""
        limits = self._memory_by_slot()
        limit = limits.get(slot, limits.get(None))
        return None if limit in (None, UNLIMITED) else parse_bytes("memory", limit)

    def takes_spare_memory(self) -> bool:
        """Whether the limit of memory follows from what is free."""
        never = self.strategy in ("none", "relocate-only")
        return self.memory is None and not never

    def with_spare_memory(self, limit_bytes: int) -> Adapt:
        """The settings with a limit that the user did not set: slots spill at it, and nothing moves."""
        return replace(self, memory=limit_bytes, strategy=self.strategy or "spill-only")

    def _memory_by_slot(self) -> dict[int | None, int | str]:
        if self.memory is None:
            return {}
        if not isinstance(self.memory, Mapping):
            return {None: self.memory}
        for slot in self.memory:
            if not isinstance(slot, int) or slot < 0 or slot >= (self.slots or self.groups):
                last = (self.slots or self.groups) - 1
                raise SettingsError(
                    f"memory has a limit for slot {slot!r}, but the slots are 0 to {last}",
                    hint='write for example .adapt(slots=2, memory={0: "200MB", 1: "50MB"})',
                )
        return {slot: limit for slot, limit in self.memory.items()}  # noqa: C416 - wider key type

    def changed(self, **changes: object) -> Adapt:
        """A copy with some settings replaced; an unknown name raises."""
        known = {field.name for field in fields(self)}
        for name in changes:
            if name not in known:
                raise SettingsError(
                    f"there is no setting {name!r}",
                    hint=f"the settings are {', '.join(sorted(known))}",
                )
        return replace(self, **changes)  # type: ignore[arg-type]  # __post_init__ checks them


def _seconds_or_auto(name: str, value: str | timedelta) -> float | None:
    return None if value == AUTO else duration_us(name, value) / 1e6
