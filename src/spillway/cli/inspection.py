"""The text of `spillway inspect`: one checkpoint, as tables and lines for people.

It imports the state of a query, and so NumPy and Arrow; the command imports it when it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spillway.cli.figures import count, size
from spillway.coordinator.batch.committed import Committed, Scaling
from spillway.inspect.inspection import Inspection, MovingPart
from spillway.metrics.events import Event, MoveEvent, Reshaped, Scaled
from spillway.metrics.progress import iso_utc
from spillway.plan.join import window_from
from spillway.protocols.move import GroupMove
from spillway.redaction import hidden
from spillway.settings import PTLB

#: Events in the text; `--json` has more.
SHOWN_EVENTS = 8


def show(found: Inspection, console: Console) -> None:
    """Print what one stage of the checkpoint holds, and what is wrong with it."""
    console.print(_summary(found))
    if found.slots:
        console.print(_slots(found))
    events = (_event(event) for event in found.events[-SHOWN_EVENTS:])
    for line in (*_moves(found), *_moving(found), *_frozen(found), *_plans(found), *events):
        console.print(Text(line), soft_wrap=True)
    if top := _top_groups(found):
        console.print(Text(f"most results: {top}"))
    for problem in found.problems:
        console.print(Text(f"problem: {problem}", style="bold red"), soft_wrap=True)
    if not found.problems:
        how = "sizes and checksums of all runs" if found.verified else "sizes of all runs"
        console.print(Text(f"complete: the manifests and the {how} are correct", style="green"))


def _summary(found: Inspection) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in _facts(found):
        table.add_row(name, value)
    return table


def _facts(found: Inspection) -> Iterator[tuple[str, str]]:
    """The lines of the summary: what a line is about, and what it says."""
    yield "checkpoint", hidden(found.location)
    yield "query", f"{found.metadata['query_id']}, spillway {found.metadata['spillway']}"
    key_types = found.metadata["query"]["key_types"]
    for stream in found.metadata["query"]["streams"]:
        keys = ", ".join(f"{k} {kind}" for k, kind in zip(stream["keys"], key_types, strict=True))
        yield f"stream {stream['name']}", f"on {keys}, {_window(stream['window'])}"
    if found.record is not None:
        yield "owner", f"epoch {found.record.epoch}: {found.record.owner}"
    state = found.committed
    if state is None:
        yield "committed", "unknown" if found.problems else "no batch yet"
        return
    yield from _state_facts(found.streams, state)
    files = found.files
    unnamed = f", and {count(files.unnamed)} that no manifest names" if files.unnamed else ""
    yield "run files", f"{count(files.named)} with {size(files.named_bytes)}{unnamed}"


def _state_facts(streams: Sequence[str], state: Committed) -> Iterator[tuple[str, str]]:
    """What the last log record says."""
    routing = state.routing
    yield "committed", f"{count(state.batch + 1)} batches, the last is {state.batch}"
    yield "routing", f"{routing.slots} slots, {routing.groups} groups, version {routing.version}"
    if state.scaling is not None:
        yield "scaling", _scaling(state.scaling, routing.slots)
    yield "watermark", "none" if state.watermark_us is None else iso_utc(state.watermark_us)
    nulls = state.rows_null or (0,) * len(streams)
    for name, rows, late, null in zip(streams, state.rows_in, state.rows_late, nulls, strict=True):
        empty = f"; {count(null)} more with a NULL key or time" if null else ""
        yield f"rows of {name}", f"{count(rows)} in, {count(late)} late{empty}"
    cleaned = f", {count(state.rows_cleaned)} of them by cleanup" if state.rows_cleaned else ""
    yield "rows out", count(state.rows_out) + cleaned
    if state.pending:
        missing = size(sum(part[1] for part in state.pending))
        yield "cleanup due", f"{count(len(state.pending))} groups with {missing}"
    if state.spooled_rows:
        yield "waiting rows", f"{count(state.spooled_rows)}, {size(state.spooled_bytes)}"


def _slots(found: Inspection) -> Table:
    table = Table("slot", "groups", "stream", "rows", "in memory", "on disk", "layers", "runs")
    for column in table.columns:
        column.justify = "left" if column.header == "stream" else "right"
    for slot in found.slots:
        head = (str(slot.slot), str(slot.groups))
        if not slot.streams:
            table.add_row(*head, "unreadable")
        for name, state in slot.streams.items():
            rows = count(state.rows + state.disk_rows)
            sizes = (size(state.bytes), size(state.disk_bytes))
            table.add_row(*head, name, rows, *sizes, str(state.layers), str(state.runs))
            head = ("", "")
    return table


def _scaling(scaling: Scaling, slots: int) -> str:
    filling = [slot for slot, _ in scaling.tries]
    parts = [f"to {scaling.slots} slots{', passive' if scaling.passive else ''}"]
    for what, which in (("being filled", filling), ("retiring", range(scaling.slots, slots))):
        if which:
            parts.append(f"{what}: {', '.join(map(str, which))}")
    return "; ".join([*parts, scaling.reason] if scaling.reason else parts)


def _moves(found: Inspection) -> list[str]:
    return [
        f"{'parallel track' if move.protocol == PTLB else 'move'} {move.move} "
        f"from slot {move.sender} to slot {move.receiver}: {move.phase.value} "
        f"{_amount(move)} ({move.reason})"
        for move in (found.committed.moves if found.committed else ())
    ]


def _amount(move: GroupMove) -> str:
    """What moves; before the sender has chosen, what was asked for."""
    if move.groups:
        return f"{count(len(move.groups))} groups, {size(move.bytes)}"
    return "everything" if move.everything else f"about {size(move.wanted_bytes)}"


def _moving(found: Inspection) -> list[str]:
    return [
        f"slot {slot.slot}: {what} {_part(part)}, of move {part.move}"
        for slot in found.slots
        for what, parts in (
            ("departed", slot.departed),
            ("parked", slot.parked),
            ("new in a parallel track", slot.tracked),
        )
        for part in parts
    ]


def _part(part: MovingPart) -> str:
    held = f"{count(part.rows)} rows, {size(part.bytes)}"
    on_disk = f" and {count(part.disk_rows)} rows, {size(part.disk_bytes)} on disk"
    return held + (on_disk if part.disk_rows else "")


def _frozen(found: Inspection) -> list[str]:
    return [
        f"slot {slot.slot}: {count(len(slot.generations))} generations on disk, "
        f"{count(slot.pending)} groups miss results"
        for slot in found.slots
        if slot.generations
    ]


def _plans(found: Inspection) -> list[str]:
    return [line for slot in found.slots if slot.plan is not None for line in slot.plan.lines()]


def _event(event: Event) -> str:
    """What was done, where, to how much of the state, and why."""
    if isinstance(event, Reshaped):
        change = f"from {event.before} to {event.shape}"
        return f"batch {event.batch}, slot {event.slot}: reshaped {change} ({event.reason})"
    if isinstance(event, Scaled):
        return f"batch {event.batch}: scaled to {event.slot} slots"
    where = f"slot {event.slot}"
    if isinstance(event, MoveEvent):
        where = f"move {event.move} from slot {event.slot} to slot {event.receiver}"
    groups = f" {count(len(event.groups))} groups," if event.groups else ""
    return (
        f"batch {event.batch}, {where}: {event.kind}{groups} {size(event.bytes)}, "
        f"{event.seconds:.3f} s ({event.reason})"
    )


def _top_groups(found: Inspection) -> str:
    parts = []
    for slot in found.slots:
        groups = ", ".join(f"{g.group} ({count(g.outputs)})" for g in slot.top_groups)
        if groups:
            parts.append(f"slot {slot.slot} group {groups}")
    return "; ".join(parts)


def _window(written: Sequence[Any] | None) -> str:
    if written is None:
        return "unbounded"
    window = window_from(written)
    how = "every" if window.tumbling else "within"
    lateness = f"lateness {window.lateness_us / 1e6:g} s"
    return f"{how} {window.window_us / 1e6:g} s on {window.time}, {lateness}"
