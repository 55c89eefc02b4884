"""Compaction: keeps the number of layers logarithmic with bounded work per batch.

Every batch adds one layer of level 0 per stream. A merge turns `FAN` settled layers of a level into one
layer of the next. It proceeds from the lowest hash upwards: each step moves the range [.., cut) of all
sources into one run of the target. A row is never in both, so a merge needs no log and survives a crash.

Effort: a merge rewrites a row once per level; there are log_FAN(state / batch) levels. A merge of level
    L covers FAN**(L+1) batches, and has as many to finish. So one batch's rows per merge and batch are
    enough; each gets a quarter more, and ends early.

Runs: a step writes one run. A step in every batch would make thousands of runs in 10,000 batches. So a
    merge of level L takes a step once in 2**L batches, of as many times the rows, up to
    `rows.bounds.STEP_BYTES`. At most one of the higher levels steps in a batch, as on a ruler; slots and
    streams begin at different marks. A layer of 8**L batches has about 4**L runs, or one for every 32
    to 64 MiB.

Window: compaction merges layers only while their time span stays a small part of the window, so that
    layers expire whole, at no cost. If layers pile up, it ignores the span and drops expired rows.

Combined rows: if rows of equal keys combine, a layer of many batches may be small, and a batch looks up
    most of its keys in every layer. So a merge takes only `COMBINING_FAN` layers, and smaller layers of
    higher levels, with twice the fuel. With many keys per batch, state is about twice its minimum.

Known limitation: a step merges all rows of one hash; the target may have several runs with that hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spillway.rows import bounds
from spillway.state.layout.layers import SETTLED, SOURCE, TARGET, Layer

#: Layers of one level that one merge takes. Probing a layer costs 3-6 ns per row, merging a level
#: about 40 ns. Of 3, 4, 6 and 8, 8 took the least CPU time in one slot of 10 M rows.
FAN = 8
#: The same when rows of equal keys combine. With 180,000 of 500,000 keys in each batch, 4 took the
#: least CPU time of 2, 3, 4, 5, 6 and 8, with half the state of 8.
COMBINING_FAN = 4
#: Rows that a merge may take in a batch, relative to the rows of the batch.
FUEL = 1.25
#: Rows that a batch may always merge, so that tiny batches do not leave tiny files.
LEAST_FUEL_ROWS = 32_768
#: Fraction of the window that the rows of one merged layer may span.
SPAN_OF_WINDOW = 0.25
#: Rows of higher layers that a merge may take along, relative to its own rows. It is below 1: if no
#: rows combine, a layer has as many rows as the layers it merges with next.
TAKEN_ALONG = 0.75
#: Layers of a stream at which the span no longer limits merging.
CROWDED_LAYERS = 48


def fuel_rows(delta_rows: int, *, combining: bool = False) -> int:
    """Returns the rows that each merge may take in a batch of `delta_rows`."""
    fuel = FUEL * delta_rows
    return max(LEAST_FUEL_ROWS, int(2 * fuel if combining else fuel))


def due_rows(merge: Merge, layers: Sequence[Layer], fuel: int, batches: int) -> int:
    """Returns the rows that a merge may take in this batch; 0 if it is not due.

    `batches` counts them. A merge that is bound to fall behind, because it is due in batches with few
    rows, gets its share of all its rows instead.
    """
    if merge.level == 0:
        return fuel
    runs = [p.run for at in (*merge.sources, merge.target) for p in layers[at].slices]
    rows, size = sum(run.rows for run in runs), sum(run.size_bytes for run in runs)
    fuel = max(fuel, int(FUEL * rows / FAN ** (merge.level + 1)))
    step_bytes = max(1, fuel * size // max(rows, 1))
    most = max(1, bounds.STEP_BYTES // step_bytes)
    period = 1 << min(merge.level, most.bit_length() - 1)
    # Levels with the same bounded period are due in different batches.
    beyond = merge.level - (period.bit_length() - 1)
    return period * fuel if (batches + beyond) % period == period // 2 else 0


def begin_merges(
    layers: Sequence[Layer], window_us: int | None, *, combining: bool = False
) -> tuple[Layer, ...]:
    """Returns the layers with every due merge begun; `combining`: merging reduces rows."""
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
    # Take the oldest layers that fit the span together; layers as wide as the span stay.
    limit = int(window_us * SPAN_OF_WINDOW)
    for first in range(len(here) - fan + 1):
        chosen = here[first : first + fan]
        if _span(layers[at] for at in chosen) <= limit:
            return chosen
    return []


def _taken_along(due: list[int], layers: list[Layer]) -> list[int]:
    """Chooses higher layers, smallest first, that together are small next to the merged rows.

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
    """Counts the rows of a layer's runs, including runs with only a slice left."""
    return sum(piece.run.rows for piece in layer.slices)


def _span(layers: Iterable[Layer]) -> int:
    runs = [piece.run for layer in layers for piece in layer.slices]
    least = min((run.min_time for run in runs if run.min_time is not None), default=0)
    return max((run.max_time for run in runs if run.max_time is not None), default=0) - least


@dataclass(frozen=True)
class Merge:
    """A merge in progress: the positions of its sources and its target in the list of layers."""

    level: int
    sources: tuple[int, ...]
    target: int


def merges(layers: Sequence[Layer]) -> list[Merge]:
    """Returns all merges in progress, lowest level first."""
    found = []
    for level in sorted({layer.level for layer in layers if layer.role == SOURCE}):
        sources = tuple(at for at, x in enumerate(layers) if x.level == level and x.role == SOURCE)
        target = next(
            at for at, x in enumerate(layers) if x.level == level + 1 and x.role == TARGET
        )
        found.append(Merge(level, sources, target))
    return found


def finish_merges(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Returns the layers without empty sources, and with completed targets settled."""
    busy = {layer.level for layer in layers if layer.role == SOURCE and layer.slices}
    settled = (
        replace(layer, role=SETTLED)
        if layer.role == TARGET and layer.level - 1 not in busy
        else layer
        for layer in layers
    )
    return tuple(layer for layer in settled if layer.slices or layer.role == TARGET)
