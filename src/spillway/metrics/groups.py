"""The statistics of a slot's groups, as one table of arrays.

Rows and bytes come from the slices, so they are exact at every version. Outputs and the last
insertion carry over from version to version. Nothing here loops over groups.

A group's *productivity* is its outputs per byte (DCAPE section 2), of the part in memory: a spilled
part produces nothing until its cleanup. Its *load* is the rows that it takes and gives in a batch;
a slot's time is shared among its groups in proportion, as in FLUX (section 5.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from spillway.codec import store_as

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: The value of `last_insert` for a group that never had a row.
NEVER = -1
#: The value of `decided_us` for a group that has decided nothing: before all times.
UNDECIDED = -(1 << 62)
#: The value of `final_us` for a group without a final result.
NOT_FINAL = -(1 << 63)
#: Weight of the newest sample in the average; a batch is a sample.
_NEWEST = 0.5
#: The same for the load: about the last ten batches count, since loads are compared over time.
_NEWEST_LOAD = 0.2


@dataclass(frozen=True)
class GroupTable:
    """One entry per group of the query in the last axis; groups of other slots are all zero."""

    #: In memory: for each stream, the rows and bytes of each group.
    rows: Ints
    bytes: Ints
    #: On disk, over all streams; and the number of generations.
    disk_rows: Ints
    disk_bytes: Ints
    generations: Ints
    #: Results that a row of the group completed, since the first start.
    outputs: Ints
    #: The same, for the part in memory now.
    produced: Ints
    #: Outputs since the last sample, and their average, in which recent samples weigh more.
    sampled: Ints
    average: Floats
    #: The last batch that brought a row.
    last_insert: Ints
    #: Average rows that a batch processes, plus its results; recent batches weigh more.
    load: Floats
    #: Average rows that a batch brings, processed or not; recent batches weigh more.
    incoming: Floats
    #: When it entered memory, by the query's clock.
    since_s: Floats
    #: The watermark up to which the slot has decided which rows stay without partners
    #: (state/slot/decided.py).
    decided_us: Ints
    #: The time up to which expired rows have given their results and are gone, if the operator gives
    #: results when rows expire (slot/expiring.py).
    final_us: Ints

    @classmethod
    def empty(cls, groups: int, streams: int = 0) -> GroupTable:
        """Returns an empty table."""
        whole, half = (streams, groups), (groups,)
        shapes = {"rows": whole, "bytes": whole}
        kinds = dict.fromkeys(("average", "load", "incoming", "since_s"), np.float64)
        columns: dict[str, Any] = {
            f.name: np.full(shapes.get(f.name, half), _neutral(f.name), kinds.get(f.name, np.int64))
            for f in fields(cls)
        }
        return cls(**columns)

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def size(self) -> Ints:
        """The bytes of each group in memory, over all streams."""
        return np.asarray(self.bytes.sum(axis=0), np.int64)

    @property
    def pending(self) -> NDArray[np.bool_]:
        """Marks groups with rows in more than one part, so that results may be missing."""
        several: NDArray[np.bool_] = self.generations + (self.rows.sum(axis=0) > 0) > 1
        return several

    @property
    def held(self) -> NDArray[np.bool_]:
        """Marks groups that have rows, in memory or on disk."""
        found: NDArray[np.bool_] = (self.rows.sum(axis=0) > 0) | (self.disk_rows > 0)
        return found

    @property
    def here(self) -> NDArray[np.bool_]:
        """Marks groups in which something happened."""
        used: NDArray[np.bool_] = self.held | (self.last_insert != NEVER) | (self.incoming > 0)
        return used

    def arranged(self, order: Sequence[int | None]) -> GroupTable:
        """Returns the table with its streams in another order; None is an empty stream."""
        columns = {
            name: np.stack(
                [np.zeros(len(self), np.int64) if at is None else old[at] for at in order]
            )
            for name, old in (("rows", self.rows), ("bytes", self.bytes))
        }
        return replace(self, **columns)

    def productivity(self, *, amortised: bool = False) -> Floats:
        """Returns outputs per byte in memory; amortised, those of recent batches."""
        outputs = self.average if amortised else self.produced
        return outputs / np.maximum(self.size, 1)

    def after(self, sizes: GroupSizes, news: GroupNews) -> GroupTable:
        """Returns the table one batch later."""
        came = (sizes.rows.sum(axis=0) > 0) & (self.rows.sum(axis=0) == 0)
        return GroupTable(
            sizes.rows,
            sizes.bytes,
            sizes.disk_rows,
            sizes.disk_bytes,
            sizes.generations,
            self.outputs + news.outputs + news.cleaned,
            np.where(news.spilled, 0, self.produced) + news.kept,
            news.outputs,
            np.where(news.spilled, 0.0, self.average) * (1 - _NEWEST) + news.kept * _NEWEST,
            np.where(news.inserted, news.batch, self.last_insert),
            self.load * (1 - _NEWEST_LOAD) + (news.rows + news.outputs) * _NEWEST_LOAD,
            self.incoming * (1 - _NEWEST_LOAD) + news.brought * _NEWEST_LOAD,
            np.where(came, news.now_s, self.since_s),
            self.decided_us,
            self.final_us,
        )

    def only(self, owned: Iterable[int]) -> GroupTable:
        """Returns the table with all other groups reset."""
        keep = np.zeros(len(self), np.bool_)
        keep[[group for group in owned if group < len(self)]] = True
        return GroupTable(
            *(np.where(keep, getattr(self, f.name), _neutral(f.name)) for f in fields(self))
        )

    def merged(self, other: GroupTable) -> GroupTable:
        """Merges two tables; each group is in one of them."""
        if len(self) == 0 or len(other) == 0:
            return self if len(self) else other
        columns = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return GroupTable(
            *(np.maximum(a, b) if _neutral(n) else a + b for n, (a, b) in columns.items())
        )


@dataclass(frozen=True)
class GroupSizes:
    """What a slot holds of each group, counted from its slices; see `GroupTable`."""

    rows: Ints
    bytes: Ints
    disk_rows: Ints
    disk_bytes: Ints
    generations: Ints


@dataclass
class GroupNews:
    """What one batch did to the groups."""

    batch: int
    #: Results that new rows completed: all, and those of the part in memory after the batch.
    outputs: Ints
    kept: Ints
    #: Results that cleanup produced.
    cleaned: Ints
    #: Groups that spilled in the batch, and groups that got a row.
    spilled: NDArray[np.bool_]
    inserted: NDArray[np.bool_]
    #: Rows processed, and rows that came.
    rows: Ints
    brought: Ints
    #: The query's clock.
    now_s: float = 0.0

    @classmethod
    def none(cls, batch: int, groups: int, now_s: float = 0.0) -> GroupNews:
        """Returns news of zero."""
        outputs, kept, cleaned, rows, brought = (np.zeros(groups, np.int64) for _ in range(5))
        spilled, inserted = (np.zeros(groups, np.bool_) for _ in range(2))
        return cls(batch, outputs, kept, cleaned, spilled, inserted, rows, brought, now_s)

    def add_rows(self, rows: Ints) -> None:
        """Adds rows of each group that came into memory."""
        self.rows += rows
        self.inserted |= rows > 0

    def add_outputs(self, outputs: Ints) -> None:
        """Adds results of a piece of the batch."""
        self.outputs += outputs
        self.kept += outputs

    def forget(self, groups: Iterable[int]) -> None:
        """Resets groups that are not here any more."""
        at = list(groups)
        for column in (self.outputs, self.kept, self.cleaned, self.rows, self.brought):
            column[at] = 0
        self.spilled[at] = self.inserted[at] = False

    def end_parts(self, groups: Iterable[int]) -> None:
        """Ends the part in memory of groups, and its output count."""
        at = list(groups)
        self.spilled[at] = True
        self.kept[at] = 0


#: The values of a group without rows, where they are not 0.
_NEUTRAL = {"last_insert": NEVER, "decided_us": UNDECIDED, "final_us": NOT_FINAL}


def _neutral(name: str) -> int:
    return _NEUTRAL.get(name, 0)


class _Columns(msgspec.Struct):
    """A table in a file: the columns of the groups in which something happened."""

    count: int
    streams: int
    ids: list[int]
    columns: dict[str, list[Any]]


def _columns_of(table: GroupTable) -> _Columns:
    ids = np.flatnonzero(table.here)
    columns = {one.name: getattr(table, one.name)[..., ids].tolist() for one in fields(table)}
    # Most operators decide nothing, and give no final results.
    for name in ("decided_us", "final_us"):
        if all(one == _NEUTRAL[name] for one in columns[name]):
            del columns[name]
    return _Columns(len(table), len(table.rows), ids.tolist(), columns)


def _table_of(found: _Columns) -> GroupTable:
    table = GroupTable.empty(found.count, found.streams)
    for one in fields(table):
        # A missing column keeps its neutral values.
        if found.ids and one.name in found.columns:
            getattr(table, one.name)[..., found.ids] = found.columns[one.name]
    return table


store_as(GroupTable, _Columns, _columns_of, _table_of)
