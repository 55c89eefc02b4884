"""An inspection of a checkpoint as one document of plain data: `spillway inspect --json`.

Other programs may rely on its names. They are not the names of the log, which may change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spillway.checkpoint.record import Record
from spillway.codec import plain
from spillway.coordinator.batch.committed import Committed, Scaling
from spillway.inspect.inspection import Inspection, SlotReport
from spillway.metrics.progress import iso_utc
from spillway.plan.join import JoinPlan, window_from
from spillway.protocols.move import GroupMove
from spillway.redaction import hidden


def as_document(found: Inspection) -> dict[str, Any]:
    """Returns the inspection as plain data, for `--json`."""
    query, state, names = found.metadata["query"], found.committed, found.streams
    return {
        "location": hidden(found.location),
        "version": found.metadata["spillway"],
        "format": found.metadata["format"],
        "query_id": found.metadata["query_id"],
        "operator": query.get("operator", JoinPlan.OPERATOR),
        **({"kind": query["kind"]} if "kind" in query else {}),
        "streams": [_stream_document(stream) for stream in query["streams"]],
        "key_types": query["key_types"],
        "groups": found.metadata["groups"],
        "owner": None if found.record is None else _owner_document(found.record),
        "committed": None if state is None else _committed_document(state, names),
        "slots": [_slot_document(slot) for slot in found.slots],
        "events": [plain(event) for event in found.events],
        "files": {
            "runs": found.files.named,
            "bytes": found.files.named_bytes,
            "unnamed": found.files.unnamed,
        },
        "verified": found.verified,
        "ok": not found.problems,
        "problems": list(found.problems),
    }


def _owner_document(record: Record) -> dict[str, Any]:
    owner = record.owner
    return {
        "epoch": record.epoch,
        "sequence": record.sequence,
        "host": owner.host,
        "pid": owner.pid,
        "started_at": owner.started_at,
    }


def _stream_document(stream: Mapping[str, Any]) -> dict[str, Any]:
    window = None if stream["window"] is None else window_from(stream["window"])
    return {
        "name": stream["name"],
        "columns": dict(stream["columns"]),
        "keys": stream["keys"],
        "window": None
        if window is None
        else {
            "time": window.time,
            "seconds": window.window_us / 1e6,
            "lateness_seconds": window.lateness_us / 1e6,
            "tumbling": window.tumbling,
        },
    }


def _committed_document(state: Committed, names: Sequence[str]) -> dict[str, Any]:
    return {
        "batch": state.batch,
        "batches": state.batch + 1,
        "routing": {
            "version": state.routing.version,
            "slots": state.routing.slots,
            "groups": state.routing.groups,
        },
        "watermark": None if state.watermark_us is None else iso_utc(state.watermark_us),
        "rows_in": dict(zip(names, state.rows_in, strict=True)),
        "rows_late": dict(zip(names, state.rows_late, strict=True)),
        "rows_null": dict(zip(names, state.rows_null or (0,) * len(names), strict=True)),
        "rows_out": state.rows_out,
        "rows_cleaned": state.rows_cleaned,
        "rounds": state.rounds,
        "groups_pending": len(state.pending),
        "spooled_rows": state.spooled_rows,
        "spooled_bytes": state.spooled_bytes,
        "moves": [_move_document(move) for move in state.moves],
        "scaling": None if state.scaling is None else _scaling_document(state, state.scaling),
    }


def _move_document(move: GroupMove) -> dict[str, Any]:
    return {
        "move": move.move,
        "from_slot": move.sender,
        "to_slot": move.receiver,
        "protocol": move.protocol,
        "phase": move.phase.value,
        "groups": list(move.groups),
        "bytes": move.bytes,
        "wanted_bytes": move.wanted_bytes,
        "everything": move.everything,
        "failures": move.failures,
        "reason": move.reason,
    }


def _scaling_document(state: Committed, scaling: Scaling) -> dict[str, Any]:
    return {
        "from_slots": state.routing.slots,
        "to_slots": scaling.slots,
        "filling": [slot for slot, _ in scaling.tries],
        "draining": list(range(scaling.slots, state.routing.slots)),
        "adjustment": "passive" if scaling.passive else "aggressive",
        "reason": scaling.reason,
    }


def _slot_document(slot: SlotReport) -> dict[str, Any]:
    return {
        "slot": slot.slot,
        "groups": slot.groups,
        "manifest": slot.manifest,
        "streams": {name: vars(state) for name, state in slot.streams.items()},
        "top_groups": [vars(group) for group in slot.top_groups],
        "generations": [vars(part) for part in slot.generations],
        "groups_pending": slot.pending,
        "departed": [vars(part) for part in slot.departed],
        "parked": [vars(part) for part in slot.parked],
        "tracked": [vars(part) for part in slot.tracked],
        "spooled_rows": slot.spooled_rows,
        "spooled_bytes": slot.spooled_bytes,
        "plan": None if slot.plan is None else slot.plan.to_json(),
    }
