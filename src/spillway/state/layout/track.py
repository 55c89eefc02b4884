"""A parallel track at one version: groups that two slots serve, as a manifest names them.

`state.slot.tracks.Tracker` changes it during a batch, and defines old and new rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.state.layout.layers import Layer


@dataclass(frozen=True)
class Track:
    """The groups of one parallel track, and their new rows."""

    move: int
    groups: tuple[int, ...]
    #: At this watermark no future row meets an old one; None: there are no old rows.
    until_us: int | None
    #: For each stream, the layers of new rows; for a made stream, rows made only from new rows.
    streams: tuple[tuple[Layer, ...], ...]

    def over(self, watermark_us: int | None) -> bool:
        """Whether all old rows are gone (AllOldPurged)."""
        if self.until_us is None:
            return True
        return watermark_us is not None and watermark_us >= self.until_us
