"""Keys of what is counted: their text form, and sums."""

from __future__ import annotations

import pytest

from spillway.ids import NO_VERSION, SlotId
from spillway.metrics.counts import (
    Judged,
    Key,
    Probed,
    Sampled,
    Spent,
    key_of_text,
    key_text,
    of_predicates,
    recorded,
)
from spillway.state.manifest.manifest import Manifest
from spillway.state.manifest.reading import decode_manifest

KEYS: dict[str, Key] = {
    "0>1": Probed("0", "1"),
    "0+2>1": Probed("0+2", "1"),
    "0~1": Sampled("0", "1"),
    "match 0:near": Judged("0:near"),
    "match a.x ~ b.x": Judged("a.x ~ b.x"),
    "match a.x > b.x": Judged("a.x > b.x"),
    "match cost a": Judged("cost a"),
    "cost match b": Spent("match b"),
    "cost a.x ~ b.x > 1": Spent("a.x ~ b.x > 1"),
}


@pytest.mark.parametrize("text", KEYS)
def test_key_comes_back_from_its_text(text: str) -> None:
    assert key_text(KEYS[text]) == text
    assert key_of_text(text) == KEYS[text]


def test_manifest_keeps_counts_of_every_kind() -> None:
    counts = {key: (float(at), 0.5) for at, key in enumerate(KEYS.values())}
    manifest = Manifest(NO_VERSION, SlotId(0), ((),), selectivity=counts)
    assert decode_manifest(manifest.encode(), "m").selectivity == counts


def test_predicates_and_samples_are_told_apart() -> None:
    counts = dict.fromkeys(KEYS.values(), (1.0, 1.0))
    assert {type(key) for key in of_predicates(counts)} == {Judged, Spent}
    assert {type(key) for key in recorded(counts)} == {Judged, Spent, Sampled}
