"""The statistics of a slot's groups, as one table of arrays.

Rows and bytes are counted from the slices, so they are exact at every version. Outputs and the last
insertion are carried from version to version. Policies read the whole table at once; nothing here
loops over groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

#: The value of `last_insert` for a group that never had a row.
NEVER = -1


@dataclass(frozen=True)
class GroupTable:
    """One entry per group of the query; groups of other slots are all zero."""

    rows: Ints
    bytes: Ints
    #: Results that a row of the group completed, since the first start.
    outputs: Ints
    #: The last batch that brought a row.
    last_insert: Ints

    @classmethod
    def empty(cls, groups: int) -> GroupTable:
        """A table in which nothing has happened."""
        rows, sizes, outputs = (np.zeros(groups, np.int64) for _ in range(3))
        return cls(rows, sizes, outputs, np.full(groups, NEVER, np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, owned: Iterable[int]) -> GroupTable:
        """The table with every other group as if it had never been."""
        keep = np.zeros(len(self), np.bool_)
        keep[[group for group in owned if group < len(self)]] = True
        return GroupTable(
            np.where(keep, self.rows, 0),
            np.where(keep, self.bytes, 0),
            np.where(keep, self.outputs, 0),
            np.where(keep, self.last_insert, NEVER),
        )

    def merged(self, other: GroupTable) -> GroupTable:
        """Both tables as one; each group is in one of them."""
        if len(self) == 0 or len(other) == 0:
            return self if len(self) else other
        return GroupTable(
            self.rows + other.rows,
            self.bytes + other.bytes,
            self.outputs + other.outputs,
            np.maximum(self.last_insert, other.last_insert),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data: the groups in which something happened."""
        ids = np.flatnonzero((self.rows > 0) | (self.last_insert != NEVER))
        return {
            "count": len(self),
            "ids": ids.tolist(),
            "rows": self.rows[ids].tolist(),
            "bytes": self.bytes[ids].tolist(),
            "outputs": self.outputs[ids].tolist(),
            "last_insert": self.last_insert[ids].tolist(),
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> GroupTable:
        """The inverse of `to_json`."""
        table = cls.empty(found["count"])
        for name in ("rows", "bytes", "outputs", "last_insert"):
            getattr(table, name)[found["ids"]] = found[name]
        return table
