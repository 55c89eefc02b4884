"""A running query deletes files of attempts that died unreported, and nothing that anybody may need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.host import CheckpointHost
from spillway.checkpoint.janitor import Janitor
from spillway.coordinator.batch.committed import Committed, initial
from spillway.coordinator.batch.plan import SWEEP_BATCHES
from spillway.ids import SlotId
from spillway.routing.routing import Routing
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.runs.orphans import local_orphans

ROUTING = Routing.even(4, 2)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    found = Checkpoint(str(tmp_path))
    found.recover(1, ROUTING)
    return found


def committed(checkpoint: Checkpoint, batch: int) -> Committed:
    names = []
    for slot in range(2):
        name = f"manifests/{batch:09d}-{slot}-{checkpoint.new_attempt()}.json"
        checkpoint.durable.write(name, empty_manifest(SlotId(slot), 1).encode())
        names.append(name)
    return replace(initial(ROUTING, 1), batch=batch, manifests=tuple(names))


def strew(checkpoint: Checkpoint, batch: int, epoch: int | None = None) -> list[str]:
    """Files of an attempt that nobody reported."""
    attempt = checkpoint.new_attempt() if epoch is None else f"e{epoch}.0123456789ab"
    run = f"runs/{batch:09d}-0-0-0-{attempt}.arrow"
    names = [run, f"manifests/{batch:09d}-0-{attempt}.json"]
    for name in names:
        checkpoint.durable.write(name, b"x")
    return names


def files(checkpoint: Checkpoint) -> set[str]:
    return {f"{f}/{n}" for f in ("runs", "manifests") for n in checkpoint.durable.names(f)}


def test_files_of_dead_attempts_go_and_those_of_running_ones_stay(checkpoint: Checkpoint) -> None:
    before, state = committed(checkpoint, 6), committed(checkpoint, 7)
    dead = strew(checkpoint, 5)
    # The last batch, the running one, and a start that has taken over.
    running = [*strew(checkpoint, 6), *strew(checkpoint, 7), *strew(checkpoint, 8)]
    running += strew(checkpoint, 5, epoch=checkpoint.epoch + 1)
    assert sorted(checkpoint.orphans(state, before)) == sorted(dead)
    checkpoint.discard(checkpoint.orphans(state, before))
    assert files(checkpoint) == {*running, *state.manifests, *before.manifests}


def test_commits_sweep_now_and_then(checkpoint: Checkpoint) -> None:
    host = CheckpointHost(checkpoint, 1)
    dead = set(strew(checkpoint, 1))
    for batch in range(SWEEP_BATCHES - 2, SWEEP_BATCHES):
        host.append(committed(checkpoint, batch))
    assert dead <= files(checkpoint)
    host.append(committed(checkpoint, SWEEP_BATCHES))
    assert not dead & files(checkpoint)


def test_janitor_sweeps_in_its_own_thread_and_survives_a_sweep_that_fails(
    checkpoint: Checkpoint,
) -> None:
    janitor, dead = Janitor(checkpoint), strew(checkpoint, 1)

    def fails() -> list[str]:
        raise OSError("the store is away")

    janitor.sweep(fails)
    janitor.sweep(lambda: dead[:1])
    janitor.discard(dead[1:])
    for _ in range(200):
        if not files(checkpoint) & set(dead):
            break
        janitor._thread.join(0.05)
    janitor.close()
    assert not files(checkpoint) & set(dead)


def test_local_file_stays_only_for_a_slot_of_this_host_or_a_move() -> None:
    """Slot 0 runs here, slot 1 elsewhere; `old` are runs of batch 1, `new` is of the running batch."""
    old = [f"00000000{batch}-{name}.arrow" for batch in (1,) for name in "abcd"]
    new = "000000005-e.arrow"
    a, b, c, d = old
    files = [a, b, c, d, f"{a}~1", f"{b}~1", f"{c}~0", new, "in-use", "slot-0"]
    # Slot 1 may just have come here, and restore a run.
    names = [*files, f".{b}.0123", f".{d}.0123", f".{d}~1.0123"]
    named = {0: {a}, 1: {a, b}}
    found = local_orphans(names, named, here=[0], leaving=[c], before=5)
    assert found == [b, d, f".{d}.0123", f".{d}~1.0123"]
