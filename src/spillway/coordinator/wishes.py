"""Wishes: requests of users to a running stage, as values.

A wish may come from any thread at any time. The conductor keeps it until the next batch or round
begins, so that a commit in progress loses none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.coordinator.decisions.adaptation import Rules


@dataclass(frozen=True)
class ScaleTo:
    """Change to this number of slots."""

    slots: int


@dataclass(frozen=True)
class LimitMemory:
    """Limit the bytes of state in memory, by slot; None: no limit."""

    memory: Mapping[int, int | None]


@dataclass(frozen=True)
class PauseAdaptation:
    """Begin nothing that the user did not ask for, or begin it again."""

    paused: bool


@dataclass(frozen=True)
class EndInput:
    """The input has ended, so no parallel track would ever end."""


@dataclass(frozen=True)
class FollowRules:
    """Decide by other rules; for tests and benchmarks (spillway.testing.steer)."""

    rules: Rules


Wish = ScaleTo | LimitMemory | PauseAdaptation | EndInput | FollowRules
