"""The spool at one version: the rows that wait for a later batch, as a manifest names them.

`state.slot.spool.Spooler` changes it during a batch, and explains why rows wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway.state.layout.layers import Layer


@dataclass(frozen=True)
class Spool:
    """The rows that wait at one version."""

    #: For each input stream, its layers; all their runs are on the disk tier. Empty: nothing waits.
    streams: tuple[tuple[Layer, ...], ...] = ()
    #: For each group with waiting rows, when the first one began to wait, by the query's clock.
    since_s: Mapping[int, float] = field(default_factory=dict)
    #: Totals over all streams, for people.
    rows: int = 0
    bytes: int = 0
