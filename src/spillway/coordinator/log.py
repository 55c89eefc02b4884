"""The coordinator's log: one small file per commit, in the durable tier.

A batch is committed when its record appears, whole and for the first time, under `log/`; so is a round
of cleanup, which comes after a batch and before the next. Everything else in the checkpoint gets its
meaning from the newest record. Each carries a checksum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from spillway.coordinator.coordinator import Committed
from spillway.errors import QueryError, StateError
from spillway.kernels.checksum import sealed, unsealed
from spillway.metrics.events import event_from_json
from spillway.routing.routing import Routing, decode_table, encode_table
from spillway.state.manifest import newer_format
from spillway.state.tiers import DurableTier

FORMAT = 1
_NAME = re.compile(r"^(\d+)(?:\.(\d+))?\.json$")


class Mark(NamedTuple):
    """The name of a commit: a batch, and which round of cleanup after it; 0 is the batch itself."""

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
        body = json.dumps(_to_json(state), separators=(",", ":")).encode()
        if not self._durable.publish(_path(Mark(state.batch, state.round)), sealed(body)):
            raise QueryError(
                f"batch {state.batch} was committed by another query on {self._durable.location}",
                hint="stop one of the two queries that share this checkpoint; "
                "each query needs a checkpointLocation of its own",
            )

    def begin_round(self, state: Committed, groups: Sequence[int]) -> None:
        """Notes which groups the next round cleans up, so that a restart repeats it as it was."""
        body = json.dumps(list(groups)).encode()
        self._durable.replace(_intent(state), sealed(body))

    def begun_round(self, state: Committed) -> tuple[int, ...] | None:
        """The groups of a round that was begun after the commit and has not ended."""
        data = self._durable.read(_intent(state))
        if data is None:
            return None
        body = unsealed(data)
        if body is None:
            raise StateError(
                f"log record {_intent(state)} is damaged",
                detail=f"in {self._durable.location}",
                hint="restore the checkpoint directory from a copy",
            )
        return tuple(json.loads(body))

    def forget(self, mark: Mark) -> None:
        """Drops one record, and its note; only those that no restart can need."""
        self._durable.delete(_path(mark))
        if mark.round:
            self._durable.delete(_path(mark, ".begun"))


def _path(mark: Mark, suffix: str = ".json") -> str:
    after = f".{mark.round:06d}" if mark.round else ""
    return f"log/{mark.batch:09d}{after}{suffix}"


def _intent(state: Committed) -> str:
    return _path(Mark(state.batch, state.round + 1), ".begun")


def _to_json(state: Committed) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "batch": state.batch,
        "rounds": state.rounds,
        "round": state.round,
        "routing": {
            "version": state.routing.version,
            "slots": state.routing.slots,
            "table": encode_table(state.routing.table),
        },
        "manifests": list(state.manifests),
        "watermark_us": state.watermark_us,
        "max_times": list(state.max_times),
        "rows_in": list(state.rows_in),
        "rows_late": list(state.rows_late),
        "rows_out": state.rows_out,
        "rows_cleaned": state.rows_cleaned,
        "pending": state.pending,
        "events": [event.to_json() for event in state.events],
    }


def _from_json(found: dict[str, Any]) -> Committed:
    routing = found["routing"]
    return Committed(
        batch=found["batch"],
        rounds=found["rounds"],
        round=found["round"],
        routing=Routing(routing["version"], routing["slots"], decode_table(routing["table"])),
        manifests=tuple(found["manifests"]),
        watermark_us=found["watermark_us"],
        max_times=tuple(found["max_times"]),
        rows_in=tuple(found["rows_in"]),
        rows_late=tuple(found["rows_late"]),
        rows_out=found["rows_out"],
        rows_cleaned=found["rows_cleaned"],
        pending=tuple((group, size) for group, size in found["pending"]),
        events=tuple(event_from_json(event) for event in found["events"]),
    )
