"""Images that are alike in a known part of their pairs, the same in every run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import SettingsError
from spillway.operators.predicates.columns import Rows
from spillway_lab.workloads.images import Images, alike
from spillway_lab.workloads.pixels import difference

SMALL = Images(streams=2, rate=20.0, seconds=4.0, scenes=4)


def all_pairs(images: Images, kind: pa.DataType | None) -> tuple[Rows, Rows, np.ndarray]:
    """All pairs of two streams, their images of some type, and whether they are of one scene."""
    columns = [images.table(n, 0.0, images.seconds)["image"].combine_chunks() for n in (0, 1)]
    sides = [grid.ravel() for grid in np.mgrid[: len(columns[0]), : len(columns[1])]]
    same = images.scene_of(0)[sides[0]] == images.scene_of(1)[sides[1]]
    left, right = (
        Rows(name, ["image"], [column.cast(kind or column.type)].__getitem__, at, len(at))
        for name, column, at in zip("ab", columns, sides, strict=True)
    )
    return left, right, same


@pytest.mark.parametrize("kind", [None, pa.binary()], ids=["fixed size", "as in Spark"])
def test_images_of_one_scene_are_alike_and_others_are_not(kind: pa.DataType | None) -> None:
    left, right, same = all_pairs(Images(streams=2, rate=10.0, seconds=2.0, scenes=4), kind)
    assert 0 < same.sum() < len(same)
    assert (alike(left, right) == same).all()


def test_part_of_pairs_that_match_is_one_in_the_scenes() -> None:
    images = Images(streams=2, rate=50.0, seconds=60.0, scenes=20)
    same = images.scene_of(0)[:, None] == images.scene_of(1)[None, :]
    assert same.mean() == pytest.approx(images.selectivity, rel=0.05)


def test_rows_are_the_same_however_the_input_is_cut() -> None:
    whole = SMALL.table(1, 0.0, 4.0)
    parts = [SMALL.table(1, at, at + 0.5) for at in np.arange(0.0, 4.0, 0.5)]
    assert pa.concat_tables(parts).combine_chunks().equals(whole.combine_chunks())
    again = Images(streams=2, rate=20.0, seconds=4.0, scenes=4)
    assert again.table(1, 0.0, 4.0).equals(whole)


def test_times_are_poisson_and_in_order() -> None:
    images = Images(streams=3, rate=50.0, seconds=200.0)
    assert len(images.times) == 3
    for times in images.times:
        gaps = np.diff(times)
        assert (gaps >= 0).all()
        assert gaps.mean() == pytest.approx(1 / 50, rel=0.05)
        assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


@pytest.mark.parametrize(
    ("size", "width"), [("small", 15_000), ("middle", 30_000), ("large", 60_000)]
)
def test_sizes_are_those_of_the_paper(size: str, width: int) -> None:
    assert Images(size=size).width == width


def test_difference_equals_that_of_whole_numbers_over_many_blocks() -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.integers(0, 256, (300, 15_000), np.uint8) for _ in range(2))
    plain = np.abs(left.astype(int) - right).mean(axis=1)
    assert difference(left, right) == pytest.approx(plain)


def test_images_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingsError) as refused:
        Images(size="huge")
    assert refused.value.message == "size='huge' is not one of 'small', 'middle', 'large'"
    with pytest.raises(SettingsError) as refused:
        Images(scenes=0)
    assert refused.value.message == "0 scenes, 3 streams and 50 images a second must be positive"
