"""The spool at one version: what a manifest names of the rows that wait for a later batch.

`state.slot.spool.Spooler` changes it during a batch, and says why rows wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway.state.layout.layers import Layer


@dataclass(frozen=True)
class Spool:
    """The rows that wait at one version."""

    #: For each input stream, its layers; all their runs are of the disk tier. Empty: nothing waits.
    streams: tuple[tuple[Layer, ...], ...] = ()
    #: For each group with waiting rows, since when the first of them waits, by the query's clock.
    since_s: Mapping[int, float] = field(default_factory=dict)
    #: Totals for people: what waits, over all streams.
    rows: int = 0
    bytes: int = 0
