"""Commands of the page: what they are, and the check of what they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from spillway.errors import SettingsError

#: The largest command, in bytes.
MOST_BYTES = 4096

CLEANUP, SCALE, MEMORY, PAUSE = "cleanup", "scale", "memory", "pause"


class Cleanup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Produce the missing results now."""


class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Change the slot count."""

    slots: int


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limit the memory of one slot, or of all; no limit without `bytes`."""

    bytes: int | str | None
    slot: int | None = None


class Pause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin no adaptation, or begin them again."""

    paused: bool


Command: TypeAlias = Cleanup | Scale | Memory | Pause
KINDS: Mapping[str, type[Command]] = {
    CLEANUP: Cleanup,
    SCALE: Scale,
    MEMORY: Memory,
    PAUSE: Pause,
}


@dataclass(frozen=True)
class Controls:
    """The commands that a query takes; each returns what to say, or raises a SpillwayError."""

    run: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The commands, in the order in which the page shows them."""
        return tuple(name for name in KINDS if name in self.run)


def parsed(name: str, body: bytes) -> Command:
    """Returns a command from its JSON.

    Example:
        >>> parsed("scale", b'{"slots": 4}')
        Scale(slots=4)
    """
    if name not in KINDS:
        raise SettingsError(
            f"there is no command {name!r}", hint=f"the commands are {', '.join(KINDS)}"
        )
    kind = KINDS[name]
    try:
        return msgspec.json.decode(body, type=kind)
    except ValueError as problem:
        wanted = ", ".join(kind.__struct_fields__) or "nothing"
        raise SettingsError(
            f"the command {name} cannot be read",
            detail=str(problem),
            hint=f"send a JSON object with {wanted}",
        ) from problem
