"""A parallel track at one version: what a manifest names of groups that two slots serve.

`state.slot.tracks.Tracker` changes it during a batch, and says what is old and what is new.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.state.layout.layers import Layer


@dataclass(frozen=True)
class Track:
    """The groups of one parallel track, and their new rows."""

    move: int
    groups: tuple[int, ...]
    #: No row to come meets an old one when the watermark is here; None: there is no old one.
    until_us: int | None
    #: For each stream, the layers of new rows; of a made one, of those that are made of new rows alone.
    streams: tuple[tuple[Layer, ...], ...]

    def over(self, watermark_us: int | None) -> bool:
        """Whether all old rows are gone (AllOldPurged)."""
        if self.until_us is None:
            return True
        return watermark_us is not None and watermark_us >= self.until_us
