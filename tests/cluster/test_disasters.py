"""Queries suffer real disasters, drawn from seeds; see `disasters/`.

The full tier plays ten seeds, and two with state in an object store; the quick tier plays simulated
disasters only (tests/property/test_chaos_seeds.py).
`make chaos-real SEEDS=50` plays more, and `make chaos-real SEED=7` plays one again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from disasters.play import Told, play
from disasters.stories import Story, story_of
from object_store import MISSING, object_store

#: Whether somebody has asked for seeds, in whatever tier.
ASKED = "SEED" in os.environ or "SEEDS" in os.environ
pytestmark = [] if ASKED else [pytest.mark.full]
#: From this seed on, state is in an object store; and how many such seeds the full tier plays.
STORE, STORE_SEEDS = 1001, 2


def _seeds() -> list[int]:
    if "SEED" in os.environ:
        return [int(seed) for seed in os.environ["SEED"].split(",")]
    more = int(os.environ.get("SEEDS", "10"))
    stores = range(STORE, STORE + STORE_SEEDS) if more else ()
    return [*range(1, more + 1), *stores]


@pytest.fixture(scope="module")
def played() -> Iterator[list[Told]]:
    """What has happened in all stories; the totals are printed at the end."""
    found: list[Told] = []
    yield found
    strikes = sum((told.strikes for told in found), Counter())
    print(
        f"\n{len(found)} seeds without a difference: {sum(told.rows for told in found)} rows compared, "
        f"{sum(told.deaths for told in found)} deaths of drivers, "
        f"{strikes.total()} strikes ({', '.join(f'{what} {n}' for what, n in strikes.items())})"
    )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [seed for seed in _seeds() if seed < STORE])
def test_disasters_lose_and_repeat_nothing(seed: int, tmp_path: Path, played: list[Told]) -> None:
    _play(story_of(seed, tmp_path), played)


@pytest.mark.timeout(1200)
@pytest.mark.skipif(bool(MISSING), reason=f"no S3 server: {', '.join(MISSING)} not installed")
@pytest.mark.parametrize("seed", [seed for seed in _seeds() if seed >= STORE])
def test_disasters_with_an_object_store(seed: int, tmp_path: Path, played: list[Told]) -> None:
    """The first driver is frozen, another takes over, the first wakes up: only one may commit."""
    with object_store() as uri:
        _play(story_of(seed, tmp_path, durable=uri), played)


def _play(story: Story, played: list[Told]) -> None:
    print(story)
    try:
        told = play(story)
    except AssertionError:
        print(f"play it again: make chaos-real SEED={story.seed}")
        raise
    print(told)
    played.append(told)
