"""Frozen settings, checked when they are made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta

from spillway.duration import duration_us
from spillway.errors import SettingsError

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_UNITS |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}

#: Which groups leave memory first; see spillway/policies/local/controller.py.
VICTIMS = ("least-productive", "most-productive", "largest", "random", "inactive")

#: How groups live on disk; see spillway/slot/keeper.py and spillway/slot/rotation.py.
SPILL_MODES = ("generations", "rotation")

#: How slots share memory; see spillway/policies/cluster/strategy.py.
STRATEGIES = (
    *("none", "spill-only", "relocate-only", "lazy-disk", "active-disk", "global-disk"),
    *("flux-load", "flux-memory", "flux-hybrid"),
)

#: How a join without equal keys is spread over slots; see spillway/spark/api/matching.py.
DISTRIBUTIONS = ("psp", "atr", "ctr")

#: How the slots of such a join come and go; see spillway/coordinator/smoothing.py.
AGGRESSIVE, PASSIVE = "aggressive", "passive"

#: How groups move; see spillway/policies/cluster/protocols.py.
MSLB, PTLB = "mslb", "ptlb"

#: The value of a setting that is found while the query runs, see spillway/policies/cluster/tuning.py,
#: or when it is first started, see spillway/spark/api/distribution.py.
AUTO = "auto"
MOVES = (MSLB, PTLB, AUTO)
ADJUSTMENTS = (AGGRESSIVE, PASSIVE, AUTO)
#: Who says how many slots there are; see spillway/policies/ring/length.py.
FIXED = "fixed"
RINGS = (FIXED, AUTO)


_FRACTIONS = (
    *("spill_fraction", "low_water", "relocation_threshold", "memory_threshold"),
    "utilisation_threshold",
)


@dataclass(frozen=True)
class Adapt:
    """How a query uses the machine; what `.adapt(...)` sets.

    Example:
        >>> Adapt(slots=4, memory="200MB").memory_of(0)
        200000000
        >>> Adapt(slots=4, memory={1: "50MB"}).memory_of(0) is None
        True
    """

    #: Parallel instances of the operator; None means one per core Spark has.
    slots: int | None = None
    #: Partition groups, the unit that is routed; fixed by the first start of a checkpoint.
    groups: int = 256
    #: How the groups of a new checkpoint are shared out, a weight for each slot; None: evenly.
    shares: tuple[float, ...] | None = None
    #: State that one slot may have in memory, bytes or text like "200MB"; or a mapping from slots to
    #: such limits. At the limit whole groups move to disk, and their missing results come later.
    #: None: no limit.
    memory: int | str | Mapping[int, int | str] | None = None
    #: What is done where memory is short: "none", "spill-only", "relocate-only", "lazy-disk",
    #: "active-disk", "global-disk", "flux-memory"; or where slots are not equally busy: "flux-load",
    #: "flux-hybrid". None: "lazy-disk" where memory is limited, else "none". "auto": "lazy-disk", and
    #: moves="auto".
    strategy: str | None = None
    #: How groups move: "mslb", their state does; "ptlb", sender and receiver both process their new rows
    #: until the old ones have left the window, for queries with a window; "auto", what costs less.
    #: None: "auto" with strategy="auto", else "mslb".
    moves: str | None = None
    #: State moves when the emptiest slot has less than this part of the fullest one's.
    relocation_threshold: float = 0.8
    #: How often slots are compared: a duration of the query's own processing time; or so many
    #: batches, where they are given.
    relocation_interval: str | timedelta = "45 seconds"
    relocation_batches: int | None = None
    #: State that moves at a time, in bytes: more than that goes in parts, one after the other, so
    #: that few rows wait for groups on their way.
    relocation_bytes: int | str = 128 * 1024 * 1024
    #: Part of `memory` from which on groups go to disk.
    memory_threshold: float = 1.0
    #: A slot is told to spill when another makes more than so many times its results per group.
    productivity_ratio: float = 2.0
    #: Bytes that slots are told to spill in all; None: what the slots together have no memory for.
    max_forced_spill: int | str | None = None
    #: The FLUX strategies move a group when a slot is so many times as busy, or as full, as another
    #: (th_imb of the paper), or "auto": as it pays; and none to a slot that is busy for more than this
    #: part of the time (th_util).
    imbalance_threshold: float | str = 1.2
    utilisation_threshold: float = 0.9
    #: They collect statistics for at least so long before groups move again: a duration of the query's
    #: own processing time, or "auto": as long as it takes to be sure.
    delta_min: str | timedelta = "1 second"
    #: What becomes of a group that has no room in memory: "generations", its next rows are processed at
    #: once, and the results that it misses are made later; or "rotation", its rows wait on disk until
    #: it has its turn in memory, so that all results come late and none is missing.
    spill_mode: str = "generations"
    #: How long a group that came back from disk stays in memory before the next one has its turn, where
    #: groups take turns; or "auto": as the input that waits demands.
    t_gap: str | timedelta = AUTO
    #: Rows that may wait for groups on their way to another slot, in bytes; beyond it the move is
    #: completed before the next batch.
    buffer: int | str = 256 * 1024 * 1024
    #: Rows that may wait in a slot that is slower than the others, in bytes, so that a batch need not
    #: wait for it (the transient skew buffer of FLUX); None: none do, and all slots end every batch.
    skew_buffer: int | str | None = None
    #: How long a slot may work in a batch before rows wait: a duration, or "auto": half as long again
    #: as most others.
    batch_target: str | timedelta = AUTO
    #: Which groups go first: "least-productive", "most-productive", "largest", "random", "inactive".
    victims: str = "least-productive"
    #: Part of the state in memory that goes at a time.
    spill_fraction: float = 0.3
    #: Whether recent batches weigh more in the productivity of a group.
    amortised: bool = False
    #: Batches without a row after which "inactive" takes a group first.
    inactive_batches: int = 60
    #: What "random" draws from.
    seed: int = 0
    #: Groups come back when memory was filled less than this part of the limit for so many batches.
    low_water: float = 0.5
    calm_batches: int = 3
    #: Missing results at the end of a finite input: "auto" makes them, "manual" leaves them to
    #: `query.cleanup()`.
    cleanup: str = "auto"
    #: Directory of the memory tier; None picks shared memory where it is large enough.
    memory_dir: str | None = None
    #: Directory of the disk tier; None picks Spark's or the system's scratch directory.
    disk_dir: str | None = None
    #: Where runs and manifests are kept durably, a path or URI; None: in the checkpoint.
    durable: str | None = None
    #: Who shares one memory tier: all workers of a "host", or those of one "executor".
    share: str = "host"
    #: Rows of one result batch, and of the intermediate blocks of the join.
    block_rows: int = 65_536
    #: Input of one slot that is processed at a time, in bytes; larger batches go in pieces.
    piece_bytes: int | str = 256 * 1024 * 1024
    #: How a join without equal keys is spread over the slots: "psp", every row is stored once and visits
    #: all slots; "ctr", with several copies of each row; "atr", by segments of one stream's time;
    #: "auto", what the cost model says of the first rows. The first start of a checkpoint decides.
    distribute: str = "psp"
    #: Copies of a row ("ctr"); the length of a segment ("atr"; None: three of the longest windows), and
    #: the stream that is cut (None: the first, or with "auto" the one with the most rows a second).
    copies: int = 2
    segment: str | timedelta | None = None
    master: str | None = None
    #: How "psp" comes to another number of slots: "aggressive", groups move at once, as those of all
    #: other joins do; "passive", nothing moves: new slots get rows to come, and slots that are to go get
    #: none, and go when a window has passed; "auto", passive unless slots fall behind.
    adjustment: str = AGGRESSIVE
    #: How many slots "psp" uses: "fixed", all; "auto", as many of `slots` as answer soonest, by what is
    #: measured. A start from a checkpoint goes on with those that were in use.
    ring: str = FIXED
    #: New rows, or combinations, that look for partners in a slot at a time (the interleaving of PSP-I).
    #: It bounds what is held of where their candidates are, as `block_rows` bounds pairs, and changes no
    #: result. Every part searches every run of the slot by itself, in Python: with 1 that takes about
    #: 0.3 ms for each row and run, hundreds of times what it takes for rows that go together.
    interleave: int = 65_536
    #: Keep each slot on its executor: "auto" does where there is more than one.
    anchor: str = "auto"

    def __post_init__(self) -> None:
        counts = ("slots", "groups", "block_rows", "inactive_batches", "calm_batches")
        for name in (*counts, "relocation_batches", "copies", "interleave"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise SettingsError(
                    f"{name}={value!r} is not a whole number of at least 1",
                    hint=f"for example .adapt({name}=8)",
                )
        if self.groups > 65_536:
            raise SettingsError(f"groups={self.groups} is more than 65536", hint="use fewer groups")
        if self.slots is not None and self.slots > self.groups:
            raise SettingsError(
                f"{self.slots} slots cannot share {self.groups} groups",
                hint=f"raise groups to at least {self.slots}, or lower slots",
            )
        self._check_shares()
        _one_of("share", self.share, ("host", "executor"))
        _one_of("anchor", self.anchor, ("auto", "always", "never"))
        _one_of("victims", self.victims, VICTIMS)
        _one_of("spill_mode", self.spill_mode, SPILL_MODES)
        _one_of("cleanup", self.cleanup, ("auto", "manual"))
        _one_of("distribute", self.distribute, (*DISTRIBUTIONS, AUTO))
        _one_of("adjustment", self.adjustment, ADJUSTMENTS)
        _one_of("ring", self.ring, RINGS)
        if self.segment is not None:
            _seconds("segment", self.segment, '"30 seconds"')
        if self.strategy is not None:
            _one_of("strategy", self.strategy, (*STRATEGIES, AUTO))
        if self.moves is not None:
            _one_of("moves", self.moves, MOVES)
        for name in _FRACTIONS:
            _fraction(name, getattr(self, name))
        _ratio("productivity_ratio", self.productivity_ratio, "2")
        if self.imbalance_threshold != AUTO:
            _ratio("imbalance_threshold", self.imbalance_threshold, '1.2 or "auto"')
        _seconds("relocation_interval", self.relocation_interval, '"45 seconds"')
        for name in ("delta_min", "t_gap", "batch_target"):
            if (value := getattr(self, name)) != AUTO:
                _seconds(name, value, '"1 second" or "auto"')
        for name in ("max_forced_spill", "skew_buffer"):
            if (limit := getattr(self, name)) is not None:
                parse_bytes(name, limit)
        parse_bytes("buffer", self.buffer)
        parse_bytes("relocation_bytes", self.relocation_bytes)
        for slot, limit in self._memory_by_slot().items():
            parse_bytes("memory" if slot is None else f"memory of slot {slot}", limit)
        parse_bytes("piece_bytes", self.piece_bytes)

    def _check_shares(self) -> None:
        if self.shares is None:
            return
        weights = [w for w in self.shares if isinstance(w, int | float) and w >= 0]
        if len(weights) != len(self.shares) or sum(weights) <= 0 or len(weights) != self.slots:
            raise SettingsError(
                f"shares={self.shares!r} is not a weight of at least 0 for each slot",
                detail=f"slots={self.slots}",
                hint="for example .adapt(slots=3, shares=(3, 1, 1))",
            )

    @property
    def strategy_name(self) -> str:
        """The strategy, also where none was chosen."""
        if self.strategy is not None:
            return "lazy-disk" if self.strategy == AUTO else self.strategy
        return "none" if self.memory is None else "lazy-disk"

    @property
    def moves_name(self) -> str:
        """How groups move, also where only the strategy says it."""
        return self.moves or (AUTO if self.strategy == AUTO else MSLB)

    @property
    def interval_s(self) -> float:
        """Seconds from one comparison of the slots to the next."""
        return duration_us("relocation_interval", self.relocation_interval) / 1e6

    @property
    def delta_min_s(self) -> float | None:
        """Seconds that the FLUX strategies collect statistics at least; None: as it turns out."""
        return None if self.delta_min == AUTO else duration_us("delta_min", self.delta_min) / 1e6

    @property
    def t_gap_s(self) -> float | None:
        """Seconds from one turn of groups in memory to the next; None: as it turns out."""
        return None if self.t_gap == AUTO else duration_us("t_gap", self.t_gap) / 1e6

    @property
    def skew_bytes(self) -> int | None:
        """Bytes of rows that may wait in a slow slot; None: none do."""
        limit = self.skew_buffer
        return None if limit is None else parse_bytes("skew_buffer", limit)

    @property
    def batch_target_s(self) -> float | None:
        """Seconds that a slot may work in a batch before rows wait; None: as others do."""
        target = self.batch_target
        return None if target == AUTO else duration_us("batch_target", target) / 1e6

    @property
    def max_forced_bytes(self) -> int | None:
        """Bytes that slots are told to spill in all."""
        limit = self.max_forced_spill
        return None if limit is None else parse_bytes("max_forced_spill", limit)

    def memory_of(self, slot: int) -> int | None:
        """The memory of one slot in bytes; None: no limit."""
        limits = self._memory_by_slot()
        limit = limits.get(slot, limits.get(None))
        return None if limit is None else parse_bytes("memory", limit)

    def _memory_by_slot(self) -> dict[int | None, int | str]:
        if self.memory is None:
            return {}
        if not isinstance(self.memory, Mapping):
            return {None: self.memory}
        for slot in self.memory:
            if not isinstance(slot, int) or slot < 0 or slot >= (self.slots or self.groups):
                raise SettingsError(
                    f"memory names the slot {slot!r}, which the query does not have",
                    hint='slots are numbered from 0, for example memory={0: "200MB", 1: "50MB"}',
                )
        return {slot: limit for slot, limit in self.memory.items()}  # noqa: C416

    def changed(self, **changes: object) -> Adapt:
        """These settings with some replaced; an unknown name is refused."""
        known = {field.name for field in fields(self)}
        for name in changes:
            if name not in known:
                raise SettingsError(
                    f"there is no setting {name!r}",
                    hint=f"the settings are {', '.join(sorted(known))}",
                )
        return replace(self, **changes)  # type: ignore[arg-type]


def parse_bytes(name: str, value: int | str) -> int:
    """A number of bytes from a number or from text with a unit.

    Example:
        >>> parse_bytes("memory", "64 MiB")
        67108864
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", str(value))
    if found and found.group(2).lower() in _UNITS:
        amount = int(float(found.group(1)) * _UNITS[found.group(2).lower()])
        if amount > 0:
            return amount
    raise SettingsError(
        f"{name}={value!r} is not a positive number of bytes",
        hint=f'write for example {name}="200MB" or {name}=200000000',
    )


def _fraction(name: str, value: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise SettingsError(
            f"{name}={value!r} is not more than 0 and at most 1",
            hint=f"for example .adapt({name}=0.3)",
        )


def _ratio(name: str, value: object, example: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 1:
        raise SettingsError(
            f"{name}={value!r} is not a number of at least 1",
            hint=f"for example .adapt({name}={example})",
        )


def _seconds(name: str, value: str | timedelta, example: str) -> None:
    if duration_us(name, value) <= 0:
        raise SettingsError(
            f"{name}={value!r} is not longer than nothing",
            hint=f"for example .adapt({name}={example})",
        )


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SettingsError(
            f"{name}={value!r} is not one of {', '.join(map(repr, choices))}",
            hint=f"for example .adapt({name}={choices[0]!r})",
        )
