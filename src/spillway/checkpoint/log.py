"""The coordinator's log: one small file per commit, in the durable tier.

A batch is committed when its record appears, whole and for the first time, under `log/`; so is a
round, which comes after a batch and before the next. Everything else in the checkpoint gets its meaning
from the newest record, and from the note beside it, if there is one: what of its plan a batch or round
that was begun must have again (`coordinator.Note`). Each carries a checksum.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any, NamedTuple

from spillway.coordinator.coordinator import Committed, GivenUpTrack, Note, Sample, Scaling
from spillway.errors import QueryError, StateError
from spillway.kernels.checksum import sealed, unsealed
from spillway.metrics.events import event_from_json
from spillway.plan.shape import parse
from spillway.policies.cluster.rounds import Progress
from spillway.policies.shape.shaping import SlotShape
from spillway.protocols.engine import move_from_json
from spillway.protocols.move import GroupMove
from spillway.routing.routing import Routing, decode_table, encode_table
from spillway.slot.limits import Budget
from spillway.slot.orders import order_from_json, order_to_json
from spillway.state.manifest import newer_format
from spillway.state.runs.tiers import DurableTier

#: 2 added moves, scaling and the clock; 3 what the strategies of FLUX measure; 4 parallel tracks; 5
#: changes of the number of slots in which nothing moves.
FORMAT = 5
_BEGUN = ".begun"
#: A round may come before the first batch, and then is one after batch -1.
_NAME = re.compile(r"^(-?\d+)(?:\.(\d+))?\.json$")


class Mark(NamedTuple):
    """The name of a commit: a batch, and which round after it; 0 is the batch itself."""

    batch: int
    round: int = 0


class Log:
    """Commits, newest last."""

    def __init__(self, durable: DurableTier) -> None:
        self._durable = durable

    def latest(self) -> Committed | None:
        """The newest committed state, or None in a new checkpoint."""
        marks = self.marks()
        return None if not marks else self.read(marks[-1])

    def marks(self) -> list[Mark]:
        """The commits on record, ascending."""
        found = (_NAME.match(name) for name in self._durable.names("log"))
        return sorted(Mark(int(one.group(1)), int(one.group(2) or 0)) for one in found if one)

    def read(self, mark: Mark) -> Committed:
        """One record, refused if it is damaged or of a newer format."""
        name = _path(mark)
        data = self._durable.read(name)
        body = None if data is None else unsealed(data)
        if body is None:
            raise StateError(
                f"log record {name} is {'missing' if data is None else 'damaged'}",
                detail=f"in {self._durable.location}",
                hint="restore the checkpoint directory from a copy",
            )
        found = json.loads(body)
        if found["format"] > FORMAT:
            raise newer_format(f"log record {name}", found["format"], FORMAT)
        return _from_json(found)

    def append(self, state: Committed) -> None:
        """Commits a batch; refused if another query has committed it first."""
        path = _path(Mark(state.batch, state.round))
        if not self._durable.publish(path, sealed(record_text(state))):
            raise QueryError(
                f"batch {state.batch} was committed by another query on {self._durable.location}",
                hint="stop one of the two queries that share this checkpoint; "
                "each query needs a checkpointLocation of its own",
            )

    def begin(self, mark: Mark, note: Note) -> None:
        """Notes what a batch or round is about to do, so that a restart repeats it as it was."""
        self._durable.replace(_path(mark, _BEGUN), sealed(note_text(note)))

    def begun(self, mark: Mark) -> Note | None:
        """The note of a batch or round, if it was begun with one."""
        name = _path(mark, _BEGUN)
        data = self._durable.read(name)
        if data is None:
            return None
        body = unsealed(data)
        if body is None:
            raise StateError(
                f"log record {name} is damaged",
                detail=f"in {self._durable.location}",
                hint="restore the checkpoint directory from a copy",
            )
        return _note_from_json(json.loads(body))

    def open_note(self, state: Committed) -> Note | None:
        """The note of whatever was begun after a commit and has not ended."""
        return self.begun(next_round_of(state)) or self.begun(Mark(state.batch + 1))

    def forget(self, mark: Mark) -> None:
        """Drops one record, and its note; only those that no restart can need."""
        self._durable.delete(_path(mark))
        self._durable.delete(_path(mark, _BEGUN))


def record_text(state: Committed) -> bytes:
    """A record, as it is written."""
    return json.dumps(_to_json(state), separators=(",", ":")).encode()


def note_text(note: Note) -> bytes:
    """A note, as it is written."""
    return json.dumps(_note_to_json(note), separators=(",", ":")).encode()


def next_round_of(state: Committed) -> Mark:
    """The name of a round that comes next."""
    return Mark(state.batch, state.round + 1)


def _path(mark: Mark, suffix: str = ".json") -> str:
    after = f".{mark.round:06d}" if mark.round else ""
    return f"log/{mark.batch:09d}{after}{suffix}"


def _to_json(state: Committed) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "batch": state.batch,
        "rounds": state.rounds,
        "round": state.round,
        "routing": _routing_to_json(state.routing),
        "manifests": list(state.manifests),
        "watermark_us": state.watermark_us,
        "max_times": list(state.max_times),
        "rows_in": list(state.rows_in),
        "rows_late": list(state.rows_late),
        "rows_out": state.rows_out,
        "rows_cleaned": state.rows_cleaned,
        "pending": state.pending,
        "spooled": [state.spooled_rows, state.spooled_bytes],
        "events": [event.to_json() for event in state.events],
        "moves": [move.to_json() for move in state.moves],
        "moves_begun": state.moves_begun,
        "forces": [[slot, order_to_json(force)] for slot, force in state.forces],
        "forced_bytes": state.forced_bytes,
        "scaling": None if state.scaling is None else asdict(state.scaling),
        "clock_s": round(state.clock_s, 6),
        "sample": asdict(state.sample),
        "given_up": None if state.given_up is None else asdict(state.given_up),
        "shapes": [one.to_json() for one in state.shapes],
    }


def _from_json(found: dict[str, Any]) -> Committed:
    spooled_rows, spooled_bytes = found.get("spooled", (0, 0))
    return Committed(
        batch=found["batch"],
        rounds=found["rounds"],
        round=found["round"],
        routing=_routing_from_json(found["routing"]),
        manifests=tuple(found["manifests"]),
        watermark_us=found["watermark_us"],
        max_times=tuple(found["max_times"]),
        rows_in=tuple(found["rows_in"]),
        rows_late=tuple(found["rows_late"]),
        rows_out=found["rows_out"],
        rows_cleaned=found["rows_cleaned"],
        pending=tuple((group, size) for group, size in found["pending"]),
        spooled_rows=spooled_rows,
        spooled_bytes=spooled_bytes,
        events=tuple(event_from_json(event) for event in found["events"]),
        shapes=tuple(SlotShape.from_json(one) for one in found.get("shapes", ())),
        **(_adaptation(found) if found["format"] > 1 else {}),
    )


def _adaptation(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "moves": _moves(found["moves"]),
        "moves_begun": found["moves_begun"],
        "forces": tuple((slot, order_from_json(force)) for slot, force in found["forces"]),
        "forced_bytes": found["forced_bytes"],
        "scaling": _scaling(found["scaling"]) if found["scaling"] else None,
        "clock_s": found["clock_s"],
        "sample": _sample(found["sample"]),
        "given_up": GivenUpTrack(**found["given_up"]) if found.get("given_up") else None,
    }


def _scaling(found: dict[str, Any]) -> Scaling:
    tries = tuple((slot, count) for slot, count in found["tries"])
    return Scaling(found["slots"], tries, found.get("passive", False), found.get("reason", ""))


def _sample(found: dict[str, Any]) -> Sample:
    values: dict[str, Any] = {
        key: tuple(one) if isinstance(one, list) else one for key, one in found.items()
    }
    if "progress" in found:
        values["progress"] = Progress.from_json(found["progress"])
    return Sample(**values)


def _moves(found: list[dict[str, Any]]) -> tuple[GroupMove, ...]:
    return tuple(move_from_json(move) for move in found)


def _routing_to_json(routing: Routing) -> dict[str, Any]:
    table = encode_table(routing.table)
    return {"version": routing.version, "slots": routing.slots, "table": table}


def _routing_from_json(found: dict[str, Any]) -> Routing:
    return Routing(found["version"], found["slots"], decode_table(found["table"]))


def _note_to_json(note: Note) -> dict[str, Any]:
    return {
        "routing": _routing_to_json(note.routing),
        "memory": list(note.memory_bytes),
        "cleanup": list(note.cleanup),
        "moves": [move.to_json() for move in note.moves],
        "budgets": [None if one is None else asdict(one) for one in note.budgets],
        "t_gaps_s": list(note.t_gaps_s),
        "shapes": [str(shape) for shape in note.shapes],
    }


def _note_from_json(found: dict[str, Any]) -> Note:
    return Note(
        _routing_from_json(found["routing"]),
        tuple(found["memory"]),
        tuple(found["cleanup"]),
        _moves(found["moves"]),
        tuple(None if one is None else Budget(**one) for one in found.get("budgets", ())),
        tuple(found.get("t_gaps_s", ())),
        shapes=tuple(parse(text) for text in found.get("shapes", ())),
    )
