"""Compaction: keeps the number of layers logarithmic with bounded work per batch.

Every batch adds one layer of level 0 per stream. When a level has `FAN` settled layers they become the
sources of a merge into one layer of the next level. A merge is done from the lowest hash upwards, a
few rows per batch: each step takes the range [.., cut) from all sources and writes it as one run of
the target. Between two steps the manifest is complete and correct: a row is in a source or in the
target, never in both, so a merge needs no log of its own and survives any crash.

Effort: a row is rewritten once per level, and there are log_FAN(state / batch) levels. A merge of
level L covers FAN**(L+1) batches' rows and has as many batches until the next one is due, so one
batch's rows per merge and batch are enough; each gets a quarter more, and ends early. It gets no more
than that however much is due, so that batches are alike: what is not merged yet is only probed.

With a window, layers are merged only while the time they span stays a small part of it: such layers
expire whole, which costs nothing. Only when late and early rows are so mixed that layers pile up is
the span ignored, and merging then leaves the expired rows out.

Where rows of equal keys combine, a layer of many batches may have no more rows than one of few, and a
batch looks most of its keys up in every layer. There `COMBINING_FAN` layers are enough for a merge, and
it takes layers of higher levels along that are smaller than what is merged. For these it gets twice the
fuel. So state is about twice what it must be, if a good part of the keys come in each batch.

Known limitation: the rows of one hash are merged in one step, however many they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillway.state.layout.layers import SETTLED, SOURCE, TARGET, Layer

#: Layers of one level that are merged into one. Probing a layer costs 3-6 ns per row, merging a
#: level some 40 ns: 8 took the least processor time of 3, 4, 6 and 8 in one slot of 10 M rows.
FAN = 8
#: The same where rows of equal keys combine. With 180,000 of 500,000 keys in each batch, 4 took the
#: least processor time of 2, 3, 4, 5, 6 and 8, with half the state of 8.
COMBINING_FAN = 4
#: Rows that a merge may take in a batch, over those that the batch brought.
FUEL = 1.25
#: Rows that a batch may always merge, so that tiny batches do not leave tiny files.
LEAST_FUEL_ROWS = 32_768
#: Part of the window that the rows of one merged layer may span.
SPAN_OF_WINDOW = 0.25
#: What the layers of higher levels that a merge takes along may add to its rows. Below 1, since where no
#: rows combine a layer has as many rows as those that it will be merged with.
TAKEN_ALONG = 0.75
#: Layers of a stream from which on the span no longer holds merging back.
CROWDED_LAYERS = 48


def fuel_rows(delta_rows: int, *, combining: bool = False) -> int:
    """Rows that each merge may take in a batch that brought `delta_rows`."""
    fuel = FUEL * delta_rows
    return max(LEAST_FUEL_ROWS, int(2 * fuel if combining else fuel))


def begin_merges(
    layers: Sequence[Layer], window_us: int | None, *, combining: bool = False
) -> tuple[Layer, ...]:
    """The layers with every merge that is due begun; `combining` says that merged rows become fewer."""
    result = list(layers)
    fan = COMBINING_FAN if combining else FAN
    for level in sorted({layer.level for layer in layers}):
        here = [at for at, layer in enumerate(result) if layer.level == level]
        if any(result[at].role == SOURCE for at in here):
            continue
        due = _due([at for at in here if result[at].role == SETTLED], result, window_us, fan)
        if due:
            due = sorted(due + _taken_along(due, result)) if combining else due
            for at in due:
                result[at] = replace(result[at], level=level, role=SOURCE)
            result.insert(due[0], Layer(level + 1, (), TARGET))
    return tuple(result)


def _due(here: list[int], layers: list[Layer], window_us: int | None, fan: int) -> list[int]:
    if len(here) < fan:
        return []
    if window_us is None or len(layers) > CROWDED_LAYERS:
        return here
    # The oldest layers that fit the span together; ones that are as wide as it already stay.
    limit = int(window_us * SPAN_OF_WINDOW)
    for first in range(len(here) - fan + 1):
        chosen = here[first : first + fan]
        if _span(layers[at] for at in chosen) <= limit:
            return chosen
    return []


def _taken_along(due: list[int], layers: list[Layer]) -> list[int]:
    """Higher layers, the smallest first, that together are small beside what is merged.

    Without this a level would fill with layers that each hold most of the keys.
    """
    level = layers[due[0]].level
    room = TAKEN_ALONG * sum(_rows(layers[at]) for at in due)
    higher = [at for at, x in enumerate(layers) if x.level > level and x.role == SETTLED]
    chosen = []
    for at in sorted(higher, key=lambda at: _rows(layers[at])):
        room -= _rows(layers[at])
        if room < 0:
            break
        chosen.append(at)
    return chosen


def _rows(layer: Layer) -> int:
    """Rows of the runs of a layer, also where only a slice of a run is left."""
    return sum(piece.run.rows for piece in layer.slices)


def _span(layers: object) -> int:
    runs = [piece.run for layer in layers for piece in layer.slices]  # type: ignore[attr-defined]
    least = min((run.min_time for run in runs if run.min_time is not None), default=0)
    return max((run.max_time for run in runs if run.max_time is not None), default=0) - least


@dataclass(frozen=True)
class Merge:
    """A merge under way: where its sources and its target are in the list of layers."""

    level: int
    sources: tuple[int, ...]
    target: int


def merges(layers: Sequence[Layer]) -> list[Merge]:
    """All merges under way, lowest level first."""
    found = []
    for level in sorted({layer.level for layer in layers if layer.role == SOURCE}):
        sources = tuple(at for at, x in enumerate(layers) if x.level == level and x.role == SOURCE)
        target = next(
            at for at, x in enumerate(layers) if x.level == level + 1 and x.role == TARGET
        )
        found.append(Merge(level, sources, target))
    return found


def finish_merges(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers without the emptied sources, and with the completed targets settled."""
    busy = {layer.level for layer in layers if layer.role == SOURCE and layer.slices}
    settled = (
        replace(layer, role=SETTLED)
        if layer.role == TARGET and layer.level - 1 not in busy
        else layer
        for layer in layers
    )
    return tuple(layer for layer in settled if layer.slices or layer.role == TARGET)
