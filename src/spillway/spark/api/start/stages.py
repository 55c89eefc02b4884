"""The steps of a start before the first row: check the plan, lock the checkpoints, recover the stages.

A query has one stage for each operator in the chain. All errors of the query, its settings and its
checkpoint appear here, before Spark's stream starts. After an error the start releases all that it took.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.stages import AskedStage, open_stages
from spillway.errors import SettingsError
from spillway.operators.theta.sliced import SlicedJoin
from spillway.policies.local.spare import spare_memory
from spillway.routing.routing import Routing
from spillway.routing.slices import interleaved
from spillway.settings import PTLB, Adapt
from spillway.spark.api.kinds import check_later_window
from spillway.spark.api.session import default_slots
from spillway.spark.api.start.distribution import check_spread
from spillway.spark.api.start.sources import sources_of
from spillway.spark.runtime.room import rooms
from spillway.spark.runtime.session import is_local
from spillway.spark.runtime.spec import QuerySpec
from spillway.spark.runtime.stage import Stage, Start
from spillway.state.runs.durable import open_durable

if TYPE_CHECKING:
    from spillway.spark.api.result import Planned, Result


@dataclass(frozen=True)
class PlannedStage:
    """One operator of the chain: the user's query, its settings and its plan."""

    result: Result
    adapt: Adapt
    planned: Planned


def plan_stages(result: Result, adapt: Adapt, mode: str) -> list[PlannedStage]:
    """Checks and plans the stages of a query, from the streams to the results; warns."""
    planned = []
    for one in result.chain:
        own, written = adapt.changed(**one.own_settings), replace(one, mode=mode)
        planned.append(PlannedStage(written, own, written.planned(own)))
    for stage in planned:
        _check_moves(stage.planned, stage.adapt)
    for before, stage in itertools.pairwise(planned):
        check_later_window(before.planned, stage.planned)
    check_spread([stage.planned for stage in planned], adapt)
    for stage in planned:
        if stage.result.own_settings:
            check_spread([stage.planned], stage.adapt)
    for text in (text for stage in planned for text in stage.planned.warnings):
        # The user's line is above start() and this function.
        warnings.warn(text, stacklevel=3)
    return planned


def acquire_all(
    planned: Sequence[PlannedStage], location: str, held: ExitStack
) -> list[Checkpoint]:
    """Locks the checkpoints of all stages; `held` releases them if the start fails."""
    checkpoints = []
    for at, stage in enumerate(planned):
        place = place_of(location, stage.adapt, at)
        checkpoint = Checkpoint(place, open_durable(place, fsync=stage.adapt.fsync))
        checkpoint.acquire()
        held.callback(checkpoint.release)
        checkpoints.append(checkpoint)
    return checkpoints


def open_metadata(
    planned: Sequence[PlannedStage], checkpoints: Sequence[Checkpoint], version: str
) -> list[dict[str, Any]]:
    """Reads or writes the metadata of all stages; rejects the checkpoints of another query."""
    return open_stages(checkpoints, [_asked(stage) for stage in planned], version)


def _asked(stage: PlannedStage) -> AskedStage:
    query, before = stage.planned.plan.fingerprint(), stage.result.before
    if before is not None:
        return AskedStage({**query, "shaped": before.described_verbs}, stage.adapt.groups)
    sources = {name: sources_of(frame) for name, frame in stage.planned.frames.items()}
    return AskedStage(query, stage.adapt.groups, sources)


def _check_moves(planned: Planned, adapt: Adapt) -> None:
    """Rejects parallel tracks where one would never end."""
    if adapt.moves_name == PTLB and (why := planned.operator.untracked):
        hints = ['use moves="mslb", which moves the state; "auto" does so where needed']
        hints += [planned.track_hint] if planned.track_hint else []
        raise SettingsError(
            f'moves="ptlb" does not work with the {planned.plan.OPERATOR}',
            detail=f"a parallel track ends when old rows no longer matter, but {why}",
            hint="; or ".join(hints),
        )


def place_of(location: str, adapt: Adapt, at: int) -> str:
    """Where a stage keeps its state; the first stage of several uses the place of a single one."""
    folder = "spillway" if at == 0 else f"spillway-{at + 1}"
    if adapt.durable is None:
        return f"{location.rstrip('/')}/{folder}"
    return adapt.durable if at == 0 else f"{adapt.durable.rstrip('/')}/{folder}"


def with_spare_memory(spark: SparkSession, spec: QuerySpec, slots: int, stages: int) -> QuerySpec:
    """The stage with a share of the free memory as its limit, if the user has set none."""
    adapt = spec.adapt
    if spec.identity or not adapt.takes_spare_memory():
        return spec
    found = spare_memory(rooms(spark, spec.query_id, adapt), slots, stages)
    if found is None:
        return spec
    return replace(spec, adapt=adapt.with_spare_memory(found.limit_of(slots)), spare=found)


def stage_of(
    spark: SparkSession, spec: QuerySpec, checkpoint: Checkpoint, stages: int = 1
) -> Stage:
    """The stage as its checkpoint left it, or a new one; the query has `stages` stages."""
    slots = spec.adapt.slots or default_slots(spark)
    spec = with_spare_memory(spark, spec, slots, stages)
    adapt = spec.adapt
    groups, shares = adapt.groups, adapt.shares
    new = Routing.shared(groups, shares) if shares else Routing.even(groups, slots)
    if isinstance(spec.operator, SlicedJoin) and not shares:
        # Neighbouring slices are in different slots, so that every slot has a share of any window.
        new = Routing(0, slots, interleaved(groups, slots, spec.operator.slicing.copies))
    state, references = checkpoint.recover(len(spec.plan.streams), new)
    anchored = adapt.anchor == "always" or (adapt.anchor == "auto" and not is_local(spark))
    start = Start(checkpoint, state, references, slots, anchored)
    return Stage(spark, spec, start)
