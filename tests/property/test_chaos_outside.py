"""A loss of power that reaches Spark's offsets and the sink: when the product must sync them."""

from __future__ import annotations

from unittest import mock

import pytest

from spillway.testing.chaos import outside
from spillway.testing.chaos.schedule import (
    Schedule,
    ScheduledEvent,
    ScheduledQuery,
    Settings,
    Strike,
)
from spillway.testing.chaos.world import run_schedule
from spillway.testing.simulated.rows import Row


def losing_power(sink: str, call: int) -> Schedule:
    """Six batches of a join; each fails after the sink has it, or before, and then the power goes."""
    events = [
        ScheduledEvent(
            "batch",
            tuple(Row(at % 2, at // 2 % 3, b, 10 * b + at) for at in range(8)),
            strikes=(Strike("fails", 0, 1), Strike("power", call + b)),
        )
        for b in range(6)
    ]
    start = Settings(2, True, {"memory": 600, "block_rows": 3})
    return Schedule(call, ScheduledQuery("join", (5, 5)), "disk", 1, sink, (start,), tuple(events))


def differences(sink: str, synced: str) -> list[str]:
    with (
        mock.patch.object(outside, "POWER_REACHES_OUTSIDE", True),
        mock.patch.object(outside, "SYNCED", synced),
    ):
        runs = [run_schedule(losing_power(sink, call)) for call in (12, 45)]
    assert sum(run.disasters["power"] for run in runs) > 6
    return [one for run in runs for one in run.differences]


@pytest.mark.parametrize("sink", ["ids", "replace"])
def test_offsets_synced_before_the_note_lose_nothing(sink: str) -> None:
    assert differences(sink, "note") == []


@pytest.mark.parametrize(
    ("sink", "synced"), [("ids", "never"), ("ids", "record"), ("replace", "never")]
)
def test_offsets_synced_later_stop_the_query(sink: str, synced: str) -> None:
    found = differences(sink, synced)
    assert any("other rows than it had before" in one for one in found)
