"""The coordinator's log: one small file per committed batch, in the durable tier.

A batch is committed when its record appears, whole and for the first time, under `log/`. Everything
else in the checkpoint gets its meaning from the newest record. Each carries a checksum.
"""

from __future__ import annotations

import json
import re
from typing import Any

from spillway.coordinator.coordinator import Committed
from spillway.errors import QueryError, StateError
from spillway.kernels.checksum import checksum
from spillway.routing.routing import Routing, decode_table, encode_table
from spillway.state.manifest import newer_format
from spillway.state.tiers import DurableTier

FORMAT = 1
_NAME = re.compile(r"^(\d+)\.json$")


class Log:
    """Committed batches, newest last."""

    def __init__(self, durable: DurableTier) -> None:
        self._durable = durable

    def latest(self) -> Committed | None:
        """The newest committed state, or None in a new checkpoint."""
        batches = self.batches()
        return None if not batches else self.read(batches[-1])

    def batches(self) -> list[int]:
        """The ids of the batches on record, ascending."""
        found = (_NAME.match(name) for name in self._durable.names("log"))
        return sorted(int(match.group(1)) for match in found if match)

    def read(self, batch: int) -> Committed:
        """One record, refused if it is damaged or of a newer format."""
        name = _path(batch)
        data = self._durable.read(name)
        head, _, body = (b"" if data is None else bytes(data)).partition(b"\n")
        if not head or head != f"{checksum(body):016x}".encode():
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
        data = f"{checksum(body):016x}\n".encode() + body
        if not self._durable.publish(_path(state.batch), data):
            raise QueryError(
                f"batch {state.batch} was committed by another query on {self._durable.location}",
                hint="stop one of the two queries that share this checkpoint; "
                "each query needs a checkpointLocation of its own",
            )

    def forget(self, batch: int) -> None:
        """Drops one record; only those that no restart can need."""
        self._durable.delete(_path(batch))


def _path(batch: int) -> str:
    return f"log/{batch:09d}.json"


def _to_json(state: Committed) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "batch": state.batch,
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
    }


def _from_json(found: dict[str, Any]) -> Committed:
    routing = found["routing"]
    return Committed(
        batch=found["batch"],
        routing=Routing(routing["version"], routing["slots"], decode_table(routing["table"])),
        manifests=tuple(found["manifests"]),
        watermark_us=found["watermark_us"],
        max_times=tuple(found["max_times"]),
        rows_in=tuple(found["rows_in"]),
        rows_late=tuple(found["rows_late"]),
        rows_out=found["rows_out"],
    )
