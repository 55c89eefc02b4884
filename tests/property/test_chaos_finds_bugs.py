"""The chaos harness can fail: it finds each of the bugs in bugs.py within a few seeds."""

from __future__ import annotations

import pytest
from bugs import BUGS

from spillway.testing.chaos.drawing import draw
from spillway.testing.chaos.world import run_schedule

#: Where the search begins, so that the quick tier finds each within a few runs.
FIRST = {
    "no_note": 6,
    "other_plan_in_a_replay": 6,
    "no_sync": 1,
    "deleted_too_early": 1,
    "repeated_report_taken_for_garbage": 2,
    "forgotten_spool": 1,
    "uncounted_nulls": 0,
    "late_rows_let_in": 1,
    "committed_batch_run_again": 1,
    "first_stage_commits_first": 2,
    "number_of_the_batch_for_the_sink": 6,
    "damaged_file_trusted": 12,
    "commit_without_epoch": 0,
    "parts_swept": 0,
}


def found_within(bug: str, first: int, seeds: int) -> bool:
    with BUGS[bug]():
        return any(run_schedule(draw(seed)).differences for seed in range(first, first + seeds))


@pytest.mark.parametrize("bug", FIRST)
def test_some_seed_finds_the_bug(bug: str) -> None:
    assert found_within(bug, FIRST[bug], 5)


def test_every_bug_is_searched_for() -> None:
    assert set(FIRST) == set(BUGS)
