"""Wishes: what users ask of a running stage, as values.

A wish may come from any thread and at any time. The conductor keeps it until the next batch or round
begins, so that no wish is lost while a batch is being committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillway.coordinator.coordinator import Coordinator


@dataclass(frozen=True)
class ScaleTo:
    """Have this number of slots."""

    slots: int


@dataclass(frozen=True)
class LimitMemory:
    """Have at most these bytes of state in memory, by slot; None: no limit."""

    memory: Mapping[int, int | None]


@dataclass(frozen=True)
class EndInput:
    """No more input comes, so no parallel track would ever end."""


@dataclass(frozen=True)
class Steer:
    """Go on as another coordinator does; for tests (spillway.testing.steer)."""

    change: Callable[[Coordinator], Coordinator]


Wish = ScaleTo | LimitMemory | EndInput | Steer
