"""The checkpoints of all stages of a query: they belong together, and to this query.

The metadata of the first stage names the whole chain. A later stage commits a step first, so it has
taken as many steps as the stage before it, or one more. With any other number, the later stage would
miss rows forever or get them twice, so a start rejects it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.chain import step_gap
from spillway.errors import QueryError
from spillway.plan.difference import Fingerprint, refuse_other_sources

_WHOLE = "restore the whole checkpoint directory from one backup, or start with a new one"


@dataclass(frozen=True)
class AskedStage:
    """What a start asks of the checkpoint of one stage."""

    query: Fingerprint
    groups: int
    #: By stream, the sources that it reads; empty for a stage that reads another stage.
    sources: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def open_stages(
    checkpoints: Sequence[Checkpoint], asked: Sequence[AskedStage], version: str
) -> list[dict[str, Any]]:
    """Returns the metadata of all stages; writes it if the query is new, otherwise compares it."""
    first, *later = checkpoints
    written = first.metadata()
    if written is None:
        _refuse_left(first, later)
    then = [one.query for one in asked[1:]]
    sources = {stream: list(some) for stream, some in asked[0].sources.items()}
    opened = [first.open(asked[0].query, asked[0].groups, version, then, sources)]
    if written is not None:
        refuse_other_sources(first.location, written.get("sources", sources), sources)
        _refuse_apart(checkpoints)
    for checkpoint, one in zip(later, asked[1:], strict=True):
        opened.append(checkpoint.open(one.query, one.groups, version))
    return opened


def _refuse_left(first: Checkpoint, later: Sequence[Checkpoint]) -> None:
    """Rejects later stages whose first stage is gone."""
    left = next((one.location for one in later if one.metadata() is not None), None)
    if left is not None:
        raise QueryError(
            f"the checkpoint at {left} belongs to a query whose first stage is missing",
            detail=f"{first.location} has no metadata.json",
            hint=_WHOLE,
        )


def _refuse_apart(checkpoints: Sequence[Checkpoint]) -> None:
    """Rejects stages that have not taken the same steps."""
    states = [one.log.latest() for one in checkpoints]
    for (before, now), checkpoint in zip(pairwise(states), checkpoints[1:], strict=True):
        if (gap := step_gap(before, now)) is not None:
            raise QueryError(
                f"the checkpoint at {checkpoint.location} does not fit the stage before it",
                detail=gap,
                hint=_WHOLE,
            )
