"""Frozen settings, checked when they are made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from spillway.errors import SettingsError

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_UNITS |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}

#: Which groups leave memory first; see spillway/policies/spill.py.
VICTIMS = ("least-productive", "most-productive", "largest", "random", "inactive")


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
    #: State that one slot may have in memory, bytes or text like "200MB"; or a mapping from slots to
    #: such limits. At the limit whole groups move to disk, and their missing results come later.
    #: None: no limit.
    memory: int | str | Mapping[int, int | str] | None = None
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
    #: Keep each slot on its executor: "auto" does where there is more than one.
    anchor: str = "auto"

    def __post_init__(self) -> None:
        for name in ("slots", "groups", "block_rows", "inactive_batches", "calm_batches"):
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
        _one_of("share", self.share, ("host", "executor"))
        _one_of("anchor", self.anchor, ("auto", "always", "never"))
        _one_of("victims", self.victims, VICTIMS)
        _one_of("cleanup", self.cleanup, ("auto", "manual"))
        _fraction("spill_fraction", self.spill_fraction)
        _fraction("low_water", self.low_water)
        for slot, limit in self._memory_by_slot().items():
            parse_bytes("memory" if slot is None else f"memory of slot {slot}", limit)
        parse_bytes("piece_bytes", self.piece_bytes)

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


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SettingsError(
            f"{name}={value!r} is not one of {', '.join(map(repr, choices))}",
            hint=f"for example .adapt({name}={choices[0]!r})",
        )
