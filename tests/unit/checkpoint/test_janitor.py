"""Deletions never hold up a batch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.janitor import Janitor


class SlowCheckpoint(Checkpoint):
    """Deletes when it is told to; every call is recorded."""

    def __init__(self, place: Path) -> None:
        super().__init__(str(place))
        self.may = threading.Event()
        self.entered = threading.Event()
        self.calls: list[list[str]] = []

    def discard(self, names: Sequence[str]) -> None:
        self.entered.set()
        assert self.may.wait(30)
        self.calls.append(list(names))
        if "bad" in names:
            raise OSError("the store is away")


def test_a_stuck_store_holds_up_nobody_and_the_queue_stays_bounded(tmp_path: Path) -> None:
    checkpoint = SlowCheckpoint(tmp_path)
    janitor = Janitor(checkpoint, most_waiting=10)
    janitor.discard(["first"])
    assert checkpoint.entered.wait(30)
    # These calls return although nothing is deleted.
    janitor.discard([f"a{n}" for n in range(8)])
    janitor.discard([f"b{n}" for n in range(8)])
    assert janitor.left == 6
    checkpoint.may.set()
    janitor.close()
    assert checkpoint.calls == [["first"], [*(f"a{n}" for n in range(8)), "b0", "b1"]]


def test_a_failed_deletion_is_left_to_a_sweep(tmp_path: Path) -> None:
    checkpoint = SlowCheckpoint(tmp_path)
    checkpoint.may.set()
    janitor = Janitor(checkpoint)
    janitor.discard(["bad", "other"])
    janitor.close()
    janitor_after = Janitor(checkpoint)
    janitor_after.discard(["good"])
    janitor_after.close()
    assert (janitor.left, janitor_after.left) == (2, 0)
    assert checkpoint.calls == [["bad", "other"], ["good"]]
