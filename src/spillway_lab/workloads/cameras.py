"""Cameras that see the same scenes: small pictures with something in them, for people to look at.

    id bigint, ts timestamp, frame binary

A scene is a coloured sky, a ground and a disc, all by its number. A camera sees it a little brighter or
darker, with noise of its own. Frames of one scene are alike by their pixels (`alike`), others are not.
Frames come at Poisson times. All follows from the seed.

spillway_lab/workloads/images.py has the images of PSP's experiments, which are larger and show nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spillway_lab.workloads.pixels import Bytes, Flags, nearer, times_of

NAMES = ("north", "south", "gate")
WIDTH, HEIGHT = 80, 60
#: Mean difference of two bytes below which frames are alike.
LIMIT = 20
#: The most that a camera adds to a byte: brightness and noise.
_BRIGHTER, _NOISE = 10, 8

Frame = Bytes


@dataclass(frozen=True)
class Cameras:
    """Three cameras, so many frames a second each, of so many scenes."""

    rate: float = 12.0
    scenes: int = 60
    seed: int = 7

    def second(self, camera: int, number: int) -> pa.Table:
        """The frames of a camera in one second of event time."""
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
    """What there is to see, without a camera."""
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
    """A frame of it."""
    noise = rng.integers(0, _NOISE, picture.shape, np.uint8)
    return np.asarray(picture + np.uint8(rng.integers(0, _BRIGHTER)) + noise, np.uint8)


def alike(one: Any, other: Any) -> Flags:
    """The predicate over candidate pairs: whether the frames of each are alike, pixel by pixel."""
    return nearer(one, other, "frame", LIMIT)
