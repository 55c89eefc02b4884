"""PSP's streams of images (8.1): byte arrays of 5,000, 10,000 or 20,000 RGB pixels, at Poisson times.

    id bigint, ts timestamp, image fixed_size_binary(3 * pixels)

An image is one of `scenes` scenes plus noise. Images of one scene match, so one pair in `scenes` does.
The cost of the predicate `alike` is proportional to the pixels. A row depends only on the seed, not on
how the input is cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.errors import SettingsError
from spillway_lab.simulator.ring.arrivals import poisson_times
from spillway_lab.workloads.pixels import Bytes, Flags, nearer, times_of

PIXELS = {"small": 5_000, "middle": 10_000, "large": 20_000}
#: Images match if their bytes differ by less than this on average. Bytes of different scenes differ by
#: 85 on average, those of one scene by less than twice the noise.
LIMIT = 30
_NOISE = 8


@dataclass(frozen=True)
class Images:
    """Streams of images, `seconds` long.

    Example:
        >>> rows = Images(streams=2, seconds=1.0, rate=20.0).table(0, 0.0, 1.0)
        >>> rows.column_names, rows.schema.field("image").type.byte_width
        (['id', 'ts', 'image'], 15000)
    """

    streams: int = 3
    size: str = "small"
    #: Rows a second of each stream, and the length of the streams.
    rate: float = 50.0
    seconds: float = 60.0
    scenes: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size not in PIXELS:
            raise SettingsError(
                f"size={self.size!r} is not one of {', '.join(map(repr, PIXELS))}",
                hint="for example size='small'",
            )
        if self.streams < 1 or self.scenes < 1 or self.rate <= 0:
            raise SettingsError(
                f"{self.scenes} scenes, {self.streams} streams and {self.rate:g} images a second must "
                "be positive",
                hint="use at least one scene and one stream, and a rate above 0",
            )

    @property
    def width(self) -> int:
        """Bytes of an image."""
        return 3 * PIXELS[self.size]

    @property
    def selectivity(self) -> float:
        """The fraction of all pairs that match."""
        return 1.0 / self.scenes

    @cached_property
    def times(self) -> tuple[NDArray[np.float64], ...]:
        """The seconds at which the rows of each stream arrive."""
        rng = np.random.default_rng([self.seed, 0])
        rates = [(0.0, self.rate)]
        return tuple(poisson_times(rates, self.seconds, rng) for _ in range(self.streams))

    def scene_of(self, stream: int) -> NDArray[np.int64]:
        """The scene of each row of a stream."""
        rng = np.random.default_rng([self.seed, 1, stream])
        return rng.integers(0, self.scenes, len(self.times[stream]))

    def table(self, stream: int, since_s: float, until_s: float) -> pa.Table:
        """The rows of a stream that arrive in [since_s, until_s)."""
        times = self.times[stream]
        first, last = np.searchsorted(times, [since_s, until_s]).tolist()
        pixels = self._pixels(stream, first, last)
        image = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(self.width), last - first, [None, pa.py_buffer(pixels)]
        )
        return pa.table(
            {
                "id": pa.array(np.arange(first, last)),
                "ts": times_of((times[first:last] * 1e6).astype(np.int64)),
                "image": image,
            }
        )

    def _pixels(self, stream: int, first: int, last: int) -> Bytes:
        scenes = self.scene_of(stream)[first:last]
        pixels = np.empty((last - first, self.width), np.uint8)
        for row, scene in enumerate(scenes.tolist()):
            # Each row has its own generator, so that it is the same in every batch.
            rng = np.random.default_rng([self.seed, 2, stream, first + row])
            noise = rng.integers(0, _NOISE, self.width, np.uint8)
            np.add(_scene(self.seed, scene, self.width), noise, out=pixels[row])
        return pixels


@lru_cache(maxsize=256)
def _scene(seed: int, scene: int, width: int) -> Bytes:
    """A scene without noise; its bytes leave room for noise."""
    rng = np.random.default_rng([seed, 3, scene])
    return rng.integers(0, 256 - _NOISE, width, np.uint8)


def alike(left: Any, right: Any) -> Flags:
    """The predicate over candidate pairs: whether their images match, pixel by pixel."""
    return nearer(left, right, "image", LIMIT)
