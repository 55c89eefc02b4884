"""The text of `query.explain()` about one stage: streams, keys, windows, slots, tiers, and plans."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from spillway.errors import StateError
from spillway.inspect.explanation import plan_line, shape_report
from spillway.plan.groupby import GroupByPlan
from spillway.plan.join import Plan, StreamPlan
from spillway.plan.kind import INNER_JOIN
from spillway.plan.sliced import SlicedPlan
from spillway.spark.runtime.home import LocalFolders
from spillway.spark.runtime.stage import Stage


def describe_stage(stage: Stage) -> list[str]:
    """The lines of `explain` about one stage."""
    plan = stage.spec.plan
    kind = getattr(plan, "kind", INNER_JOIN)
    lines = [plan.OPERATOR if kind == INNER_JOIN else f"{plan.OPERATOR}, {kind.text}"]
    for stream in plan.streams:
        lines += _stream(stream, plan)
    return [*lines, *_windows(plan), *_places(stage), *_choices(stage)]


def _stream(stream: StreamPlan, plan: Plan) -> Iterator[str]:
    columns = ", ".join(f"{name} {kind}" for name, kind in stream.columns)
    yield f"  stream {stream.name} ({columns})"
    keys = zip(stream.keys, plan.key_types, strict=True)
    yield f"    keys   {', '.join(f'{k} as {kind}' for k, kind in keys) or _unkeyed(plan)}"
    window = stream.window
    if window is None:
        yield "    window unbounded"
        return
    every = "every " if window.tumbling else ""
    yield (
        f"    window {every}{window.window_us / 1e6:g} s on {window.time}, "
        f"lateness {window.lateness_us / 1e6:g} s"
    )


def _windows(plan: Plan) -> Iterator[str]:
    """What a group-by over windows gives, and when."""
    if isinstance(plan, GroupByPlan) and plan.windows is not None:
        when = {
            "append": "one final row each, when the watermark has passed its end",
            "update": "a row for each that a batch touched",
        }
        yield f"  groups {plan.windows.text}: {when[plan.mode]}"


def _unkeyed(plan: Plan) -> str:
    """The text in place of the keys, for a query without keys."""
    if isinstance(plan, GroupByPlan):
        return "none: one slot has all rows"
    if isinstance(plan, SlicedPlan) and plan.copies > 1:
        return f"none: rows visit the slots of one of {plan.copies} copies of each slice"
    return "none: rows visit all slots"


def _places(stage: Stage) -> Iterator[str]:
    """Slots, and where they keep state."""
    spec, routing = stage.spec, stage.state.routing
    places = LocalFolders.of(spec.query_id, spec.adapt)
    limits = ", ".join(
        "no limit" if one is None else f"{one} bytes a slot"
        for one in sorted(set(stage.conductor.ahead.memory.values()), key=str)
    )
    yield (f"  slots  {routing.slots}, groups {routing.groups}, routing version {routing.version}")
    yield f"  memory {places.memory} ({limits})"
    if spec.spare is not None:
        yield f"         the limit is {spec.spare.reason}; .adapt(memory=...) sets another"
    yield f"  disk   {places.disk}"
    yield f"  durable {stage.checkpoint.location}"


def _choices(stage: Stage) -> Iterator[str]:
    """What the query chose, and why."""
    spec = stage.spec
    if spec.distribution is not None:
        yield f"  distribute {spec.distribution}"
    for line in stage.conductor.ahead.explained_visits():
        yield f"  visits {line}"
    if spec.shaping is not None:
        yield f"  plan   {plan_line(spec.shaping)}"
        for slot in range(stage.state.routing.slots):
            for line in _shape(stage, slot):
                yield f"    {line}"


def _shape(stage: Stage, slot: int) -> list[str]:
    """The lines about the shape of one slot."""
    state = stage.state
    manifest, name = None, state.manifests[slot]
    # A running query may delete the manifest meanwhile; then the lines omit its states.
    with contextlib.suppress(StateError):
        manifest = None if name is None else stage.checkpoint.manifest(name)
    report = shape_report(state, slot, manifest, len(stage.spec.plan.streams))
    return [] if report is None else report.lines()
