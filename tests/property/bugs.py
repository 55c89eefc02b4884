"""Bugs put into the product, one at a time: the chaos harness must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from unittest import mock

import numpy as np

from spillway.checkpoint import checkpoint as checkpoints
from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.host import CheckpointHost
from spillway.checkpoint.log import Log
from spillway.coordinator import chain as chains
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.references import References
from spillway.coordinator.chain import Chain
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.effects import DiscardFiles
from spillway.errors import SpillwayError
from spillway.ids import SlotId
from spillway.operators import input as inputs
from spillway.slot import identity
from spillway.slot import run as slot_run
from spillway.slot.keeper import MemoryKeeper
from spillway.slot.run import SlotBatch
from spillway.state.layout.shelf import Shelf
from spillway.state.runs import orphans as local
from spillway.state.runs import store as stores
from spillway.state.runs.run import RunData, describe_run, encode_run
from spillway.state.slot.state import SlotState
from spillway.testing.chaos.store import SimulatedStore
from spillway.testing.simulated.context import current_task

Bug = Callable[[], AbstractContextManager[object]]


def no_note() -> AbstractContextManager[object]:
    """What a batch is about to do is written nowhere."""
    return mock.patch.object(CheckpointHost, "write_note", return_value=None)


def other_plan_in_a_replay() -> AbstractContextManager[object]:
    """A start plans the batch that it repeats by its own settings."""
    return _without_notes(lambda conductor: conductor.coordinator.first)


def note_ignored_by_the_same_start() -> AbstractContextManager[object]:
    """A step that failed and is repeated by the same start gets a new plan."""
    return _without_notes(lambda conductor: not conductor.coordinator.first)


def _without_notes(when: Callable[[Conductor], bool]) -> AbstractContextManager[object]:
    real = Conductor.begin_batch

    def begin_batch(self, batch, *more):
        if not when(self):
            return real(self, batch, *more)
        with mock.patch.object(self.host, "note", return_value=None):
            return real(self, batch, *more)

    return mock.patch.object(Conductor, "begin_batch", begin_batch)


def no_sync() -> AbstractContextManager[object]:
    """A slot reports before its files are safe."""
    real = SlotBatch._commit

    def commit(self):
        with mock.patch.object(SimulatedStore, "sync", return_value=None):
            return real(self)

    return mock.patch.object(SlotBatch, "_commit", commit)


def deleted_too_early() -> AbstractContextManager[object]:
    """Files of the last commit go before the next one is on record."""
    real = Coordinator.commit

    def commit(self, *args):
        after, effects = real(self, *args)
        early = [one for one in effects if isinstance(one, DiscardFiles)]
        return after, (*early, *(one for one in effects if one not in early))

    def discard(self, files):
        self.checkpoint.discard(files.names)

    patched = mock.patch.object(Coordinator, "commit", commit)
    now = mock.patch.object(CheckpointHost, "discard", discard)
    return _both(patched, now)


def repeated_report_taken_for_garbage() -> AbstractContextManager[object]:
    """The files of a repeated report are deleted, even if the report that counts names them."""
    real = References.after

    def after(self, plan, records, attempts, state):
        attempts = list(attempts)
        found, files = real(self, plan, records, attempts, state)
        slots = [record.slot for record in attempts]
        again = [r for at, r in enumerate(attempts) if r.slot in slots[:at]]
        kept = [records[record.slot] for record in again]
        return found, replace(files, runs=(*files.runs, *(n for r in kept for n in r.added)))

    return mock.patch.object(References, "after", after)


def forgotten_spool() -> AbstractContextManager[object]:
    """Rows that wait are not in the manifest."""
    real = SlotState.next_manifest

    def next_manifest(self, *args):
        found = real(self, *args)
        return replace(found, spool=type(found.spool)())

    return mock.patch.object(SlotState, "next_manifest", next_manifest)


def uncounted_nulls() -> AbstractContextManager[object]:
    """Rows with a NULL vanish without a number."""

    def without_nulls(batches, streams):
        kept, counts = inputs.without_nulls(batches, streams)
        return kept, np.zeros_like(counts)

    return mock.patch.object(slot_run, "without_nulls", without_nulls)


def late_rows_let_in() -> AbstractContextManager[object]:
    """The watermark is one too low."""
    real = inputs.sort_input

    def sort_input(batches, streams, watermark_us, *more):
        lower = None if watermark_us is None else watermark_us - 1
        return real(batches, streams, lower, *more)

    return mock.patch.object(slot_run, "sort_input", sort_input)


def committed_batch_run_again() -> AbstractContextManager[object]:
    """A batch that Spark repeats after its commit is not recognised."""
    real = Chain.batch

    def batch(self, rows, number, period_s=None):
        return real(self, rows, max(number, self.conductors[0].state.batch + 1), period_s)

    return mock.patch.object(Chain, "batch", batch)


def first_stage_commits_first() -> AbstractContextManager[object]:
    """A crash between two commits leaves later stages behind."""
    return mock.patch.object(chains, "reversed", lambda some: iter(list(some)), create=True)


def number_of_the_batch_for_the_sink() -> AbstractContextManager[object]:
    """The sink gets the number of the batch; a round has the same as the batch before it."""
    batch = property(lambda self: max(0, self.conductors[0].state.batch + 1))
    return mock.patch.object(Chain, "sink_id", batch)


def damaged_file_trusted() -> AbstractContextManager[object]:
    """A local file is used as it is."""
    return mock.patch.object(stores, "_intact", return_value=True)


def commit_without_epoch() -> AbstractContextManager[object]:
    """A record goes after the newest one, whoever wrote that."""
    real = Log.append

    def append(self, state):
        self._own = replace(self._own, sequence=self.sequences()[-1])
        return real(self, state)

    return mock.patch.object(Log, "append", append)


def parts_swept() -> AbstractContextManager[object]:
    """A start forgets what a move has sent, though a note names it."""
    real = Checkpoint._sweep

    def sweep(self, state, manifests, note):
        return real(self, state, manifests, None)

    return mock.patch.object(Checkpoint, "_sweep", sweep)


def slot_by_the_number_of_the_task() -> AbstractContextManager[object]:
    """A task believes Spark's number, which a sink that coalesces has changed."""

    def slot_of(rows, routing, copies):
        return SlotId(current_task().partition)

    return mock.patch.object(identity, "slot_of", slot_of)


def nothing_spills() -> AbstractContextManager[object]:
    """A slot above its limit keeps everything in memory."""
    return mock.patch.object(MemoryKeeper, "_make_room", return_value=None)


def memory_checked_once_a_batch() -> AbstractContextManager[object]:
    """A slot looks at its memory only after the last piece of its input."""
    real = SlotBatch._process

    def process(self, cut, intake):
        with mock.patch.object(self._keeper, "check", return_value=None):
            yield from real(self, cut, intake)

    return mock.patch.object(SlotBatch, "_process", process)


def leftovers_never_swept() -> AbstractContextManager[object]:
    """Files of attempts that died stay in the store until the next start."""
    return mock.patch.object(checkpoints, "orphans", return_value=[])


def local_leftovers_never_swept() -> AbstractContextManager[object]:
    """Parts of files that a dead process left stay in the local tiers."""
    return mock.patch.object(local, "orphans", return_value=[])


def local_write_error_swallowed() -> AbstractContextManager[object]:
    """A slot goes on if a local tier is full, and forgets the durable copy."""

    def write(self, name, batch, time_column, *, in_memory, durable=True):
        buffer, data = encode_run(batch), RunData(batch, time_column)
        tier = self.memory if in_memory else self.disk
        run = describe_run(name, data, buffer, tier.kind)
        with suppress(OSError, SpillwayError):
            tier.write(name, buffer, run.checksum)
            if durable:
                self.durable.write(f"runs/{name}", buffer)
        return run, data

    return mock.patch.object(stores.Store, "write", write)


def rows_lost_at_a_byte_bound() -> AbstractContextManager[object]:
    """Rows that need several files lose the last one."""
    real = Shelf.write_each

    def write_each(self, stream, batches, *how, **more):
        pieces = list(batches)
        return real(self, stream, pieces[:-1] if len(pieces) > 1 else pieces, *how, **more)

    return mock.patch.object(Shelf, "write_each", write_each)


def final_results_given_again() -> AbstractContextManager[object]:
    """Rows that have expired and given their results are not marked as gone."""
    return mock.patch.object(SlotState, "finish", return_value=None)


def due_results_forgotten() -> AbstractContextManager[object]:
    """No round gives the results that the last watermark has made final."""
    return mock.patch.object(Committed, "due", False)


def _both(one, other) -> AbstractContextManager[object]:
    stack = ExitStack()
    stack.enter_context(one)
    stack.enter_context(other)
    return stack


BUGS: dict[str, Bug] = {
    bug.__name__: bug
    for bug in (
        no_note,
        other_plan_in_a_replay,
        no_sync,
        deleted_too_early,
        repeated_report_taken_for_garbage,
        forgotten_spool,
        uncounted_nulls,
        late_rows_let_in,
        committed_batch_run_again,
        first_stage_commits_first,
        number_of_the_batch_for_the_sink,
        damaged_file_trusted,
        commit_without_epoch,
        parts_swept,
        note_ignored_by_the_same_start,
        slot_by_the_number_of_the_task,
        nothing_spills,
        memory_checked_once_a_batch,
        leftovers_never_swept,
        local_leftovers_never_swept,
        local_write_error_swallowed,
        rows_lost_at_a_byte_bound,
        final_results_given_again,
        due_results_forgotten,
    )
}
