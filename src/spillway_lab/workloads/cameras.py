"""Cameras that see the same scenes: small pictures that people can look at.

    id bigint, ts timestamp, frame binary

The number of a scene determines its sky, ground and disc. Each camera adds brightness and noise. Frames
of one scene match by their pixels (`alike`), others do not. They arrive at Poisson times. Everything
follows from the seed. The larger images of PSP are in spillway_lab/workloads/images.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spillway_lab.workloads.pixels import Bytes, Flags, nearer, times_of

NAMES = ("north", "south", "gate")
WIDTH, HEIGHT = 80, 60
#: Frames match if their bytes differ by less than this on average.
LIMIT = 20
#: A camera adds less than this to a byte: brightness, and noise.
_BRIGHTER, _NOISE = 10, 8

Frame = Bytes


@dataclass(frozen=True)
class Cameras:
    """Three cameras that take `rate` frames a second each, of `scenes` scenes."""

    rate: float = 12.0
    scenes: int = 60
    seed: int = 7

    def second(self, camera: int, number: int) -> pa.Table:
        """The frames that a camera takes in one second of event time."""
        rng = np.random.default_rng([self.seed, camera, number])
        count = int(rng.poisson(self.rate))
        times = 1_000_000 * number + np.sort(rng.integers(0, 1_000_000, count))
        frames = [
            seen(scene(int(which), self.seed), rng).tobytes()
            for which in rng.integers(0, self.scenes, count)
        ]
        return pa.table(
            {
                # No second has a million frames.
                "id": pa.array(1_000_000 * number + np.arange(count)),
                "ts": times_of(times),
                "frame": pa.array(frames, pa.binary()),
            }
        )


def scene(number: int, seed: int = 0) -> Frame:
    """The picture of a scene, before a camera changes it."""
    rng = np.random.default_rng([seed, number])
    sky, ground, disc = (rng.integers(20, 215, 3) for _ in range(3))
    down, across = np.mgrid[0:HEIGHT, 0:WIDTH]
    fade = 1.0 - 0.5 * down[..., None] / HEIGHT
    picture = np.where(down[..., None] < rng.integers(25, 45), sky * fade, ground)
    middle = rng.integers(10, HEIGHT - 10), rng.integers(15, WIDTH - 15)
    inside = (down - middle[0]) ** 2 + (across - middle[1]) ** 2 < rng.integers(8, 16) ** 2
    picture[inside] = disc
    return np.asarray(picture, np.uint8)


def seen(picture: Frame, rng: np.random.Generator) -> Frame:
    """A frame that a camera takes of a picture."""
    noise = rng.integers(0, _NOISE, picture.shape, np.uint8)
    return np.asarray(picture + np.uint8(rng.integers(0, _BRIGHTER)) + noise, np.uint8)


def alike(one: Any, other: Any) -> Flags:
    """The predicate over candidate pairs: whether their frames match, pixel by pixel."""
    return nearer(one, other, "frame", LIMIT)
