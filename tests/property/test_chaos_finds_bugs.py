"""The chaos harness can fail: it finds each of the bugs in bugs.py within a few seeds."""

from __future__ import annotations

import pytest
from bugs import BUGS

from spillway.testing.chaos.drawing import draw
from spillway.testing.chaos.schedule import (
    Schedule,
    ScheduledEvent,
    ScheduledQuery,
    Settings,
    Strike,
)
from spillway.testing.chaos.world import run_schedule
from spillway.testing.simulated.rows import Row
from tier import few

#: Where the search begins, so that the quick tier finds each within a few runs.
FIRST = {
    "no_note": 10,
    "other_plan_in_a_replay": 10,
    "no_sync": 0,
    "deleted_too_early": 0,
    "repeated_report_taken_for_garbage": 2,
    "forgotten_spool": 10,
    "uncounted_nulls": 0,
    "late_rows_let_in": 6,
    "committed_batch_run_again": 24,
    "first_stage_commits_first": 15,
    "number_of_the_batch_for_the_sink": 12,
    "damaged_file_trusted": 2,
    "commit_without_epoch": 13,
    "parts_swept": 31,
    "slot_by_the_number_of_the_task": 30,
    "nothing_spills": 2,
    "memory_checked_once_a_batch": 9,
    "leftovers_never_swept": 2,
    "local_leftovers_never_swept": 15,
    "local_write_error_swallowed": 30,
    "rows_lost_at_a_byte_bound": 32,
    "final_results_given_again": 8,
    "due_results_forgotten": 8,
}


def found_within(bug: str, first: int, seeds: int) -> bool:
    with BUGS[bug]():
        return any(run_schedule(draw(seed)).differences for seed in range(first, first + seeds))


@pytest.mark.parametrize("bug", few(FIRST, 0, 2, 6, 8, 11, 12, 20))
def test_some_seed_finds_the_bug(bug: str) -> None:
    assert found_within(bug, FIRST[bug], 5)


def failing_sinks(then: tuple[str, ...]) -> Schedule:
    """Batches whose sink fails after its write; the same driver repeats them with another limit."""
    events = [
        ScheduledEvent(
            "batch",
            tuple(Row(at % 2, at % 5, b, 12 * b + at) for at in range(12)),
            strikes=(Strike("fails", 0, 1), Strike("stay", 0, 1)) if b > 3 else (),
        )
        for b in range(8)
    ]
    # Without a limit, spilled groups come back, with the results that they missed.
    start = Settings(2, True, {"memory": 200, "calm_batches": 1, "low_water": 0.9})
    query = ScheduledQuery("join", (9, 9), then=then)
    return Schedule(3, query, "objects", 1, "replace", (start,), tuple(events))


@pytest.mark.parametrize("then", [(), ("group-by",)])
def test_note_ignored_by_the_same_start_is_found(then: tuple[str, ...]) -> None:
    with BUGS["note_ignored_by_the_same_start"]():
        assert run_schedule(failing_sinks(then)).differences


def test_every_bug_is_searched_for() -> None:
    assert {*FIRST, "note_ignored_by_the_same_start"} == set(BUGS)
