"""Checks that a checkpoint has all stages of its query, and that they have taken the same steps."""

from __future__ import annotations

from dataclasses import replace

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.committed import Committed, steps_of
from spillway.coordinator.chain import step_gap
from spillway.errors import StateError
from spillway.inspect.inspection import Inspection, inspect_checkpoint
from spillway.plan.difference import operator_of


def inspect_stages(path: str, *, verify: bool = False) -> list[Inspection]:
    """Inspects the checkpoints of all stages of a query, in the order in which rows pass them."""
    found = [inspect_checkpoint(path, verify=verify)]
    first = found[0]
    for number, query in enumerate(first.metadata["then"], start=2):
        place = _place_of(first.location, number)
        if place is None:
            return _with_missing(found, f"stage {number} ({operator_of(query)}) is missing")
        found.append(_following(found[-1], inspect_checkpoint(place, verify=verify)))
    return found


def _place_of(first: str, number: int) -> str | None:
    """Finds a later stage: next to the first, or in it if the user named its directory."""
    first = first.rstrip("/")
    places = (f"{home}/spillway-{number}" for home in (first.removesuffix("/spillway"), first))
    return next((place for place in places if Checkpoint(place).metadata()), None)


def _with_missing(found: list[Inspection], problem: str) -> list[Inspection]:
    """Adds the problem to the last stage. A query without a commit may not have made all stages."""
    *others, last = found
    if last.committed is None:
        return found
    return [*others, replace(last, problems=[*last.problems, problem])]


def _following(before: Inspection, later: Inspection) -> Inspection:
    """Adds a problem if a stage has not taken the steps of the stage before it.

    A running query commits meanwhile, the later stage first. So an earlier look at the stage before
    shows what the later one must have, and a newer look shows what it may have.
    """
    newer = _committed(before)
    taken = 0 if later.committed is None else later.committed.batch + 1
    # A stage is at most one step ahead.
    fits = steps_of(before.committed) <= taken <= steps_of(newer) + 1
    if fits or (later.problems and later.committed is None):
        return later
    gap = step_gap(newer, later.committed) or step_gap(before.committed, later.committed)
    return replace(later, problems=[*later.problems, f"it does not fit the stage before it: {gap}"])


def _committed(found: Inspection) -> Committed | None:
    try:
        return Checkpoint(found.location).log.latest()
    except StateError:
        return found.committed
