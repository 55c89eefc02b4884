"""Who may write to a log: one owner at a time, whoever comes late."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from obstore.store import LocalStore, MemoryStore
from pyarrow import fs

from spillway.checkpoint.log import KEEP_RECORDS, Log
from spillway.checkpoint.record import Owner, note_path, record_path
from spillway.coordinator.batch.committed import Committed, Mark, initial
from spillway.coordinator.batch.plan import Note, new_note
from spillway.errors import QueryError, StateError
from spillway.kernels.checksum import sealed
from spillway.routing.routing import Routing
from spillway.state.runs.durable import DurableStore, exclusive, local, open_durable
from spillway.state.runs.durable.arrow import ArrowDurable
from spillway.state.runs.durable.objects import ObjectDurable

START = initial(Routing.even(4, 2), 2)


def state(batch: int) -> Committed:
    return replace(START, batch=batch)


def note(*cleanup: int) -> Note:
    return new_note(START, {}, cleanup)


@pytest.fixture(params=["files", "memory objects", "local objects"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> DurableStore:
    if request.param == "memory objects":
        return ObjectDurable("memory:///", MemoryStore())
    if request.param == "local objects":
        return ObjectDurable("local", LocalStore(str(tmp_path), mkdir=True))
    return open_durable(str(tmp_path))


def started(durable: DurableStore) -> Log:
    log = Log(durable)
    log.take_over()
    return log


def test_a_start_takes_the_next_epoch_and_repeats_the_state(durable: DurableStore) -> None:
    first = started(durable)
    assert (first.owned.sequence, first.owned.epoch, first.owned.state) == (0, 1, None)
    first.append(state(0))
    second = started(durable)
    assert (second.owned.sequence, second.owned.epoch) == (2, 2)
    assert second.latest() == state(0)
    assert second.commits() == [state(0)]


def test_an_older_owner_cannot_commit(durable: DurableStore) -> None:
    first = started(durable)
    first.append(state(0))
    second = Log(durable)
    second.take_over(Owner("elsewhere", 7, 0.0, "t"))
    with pytest.raises(QueryError) as refused:
        first.append(state(1))
    assert refused.value.message == (
        f"another start has taken over the checkpoint at {durable.location}, epoch 2 after 1"
    )
    assert refused.value.detail == (
        "the owner is process 7 on elsewhere, started at 1970-01-01T00:00:00+00:00; "
        "this start commits nothing more, and no row is lost"
    )
    assert refused.value.hint == (
        "let one query run on a checkpoint; give each query its own checkpointLocation"
    )
    second.append(state(1))
    assert second.latest() == state(1)


def test_an_older_owner_stops_before_its_next_batch(durable: DurableStore) -> None:
    first = started(durable)
    assert first.is_owner
    second = started(durable)
    assert not first.is_owner
    with pytest.raises(QueryError, match="epoch 2 after 1"):
        first.begin(Mark(0), note())
    # What it wrote late does not count: the takeover has looked before.
    assert second.read_note(Mark(0)) is None
    assert started(durable).read_note(Mark(0)) is None


def test_a_takeover_keeps_the_note_of_the_batch_that_has_begun(durable: DurableStore) -> None:
    first = started(durable)
    first.append(state(0))
    first.begin(Mark(1), note(3))
    for _ in range(3):
        log = started(durable)
        assert log.read_note(Mark(1)) == note(3)
        assert log.read_note(Mark(0, 1)) is None
    log.append(state(1))
    assert log.read_note(Mark(2)) is None
    assert started(durable).open_note(log.newest()) is None


def test_a_start_that_died_before_it_copied_the_note_loses_nothing(durable: DurableStore) -> None:
    first = started(durable)
    first.begin(Mark(0), note(3))
    died = started(durable).owned
    durable.delete([note_path(died.sequence + 1, died.epoch)])
    log = started(durable)
    assert log.owned.epoch == 3
    assert log.read_note(Mark(0)) == note(3)


def test_a_note_of_an_older_owner_replaces_none_of_a_newer(durable: DurableStore) -> None:
    first = started(durable)
    second = started(durable)
    second.begin(Mark(0), note(1))
    with pytest.raises(QueryError):
        first.begin(Mark(0), note(2))
    assert second.read_note(Mark(0)) == note(1)
    assert started(durable).read_note(Mark(0)) == note(1)


def test_the_log_keeps_which_rows_a_batch_had(durable: DurableStore) -> None:
    log = started(durable)
    log.begin(Mark(0), replace(note(), input_digest="00ff"))
    assert started(durable).read_note(Mark(0)).input_digest == "00ff"
    started(durable).append(replace(state(0), input_digest="00ff"))
    assert started(durable).latest().input_digest == "00ff"


def test_a_record_without_the_rows_of_its_batch_is_read(tmp_path: Path) -> None:
    """Records of earlier builds do not have the field."""
    durable = open_durable(str(tmp_path))
    started(durable).append(state(0))
    path = tmp_path / record_path(1)
    body = path.read_bytes().partition(b"\n")[2]
    assert b',"input_digest":null' in body
    path.write_bytes(sealed(body.replace(b',"input_digest":null', b"")))
    assert started(durable).latest() == state(0)


class LostAnswers:
    """A store whose next answer to a publication says that the name is taken, after success."""

    def __init__(self, durable: DurableStore) -> None:
        self._durable = durable
        self.loses = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._durable, name)

    def publish(self, name: str, data: bytes) -> bool:
        done = self._durable.publish(name, data)
        self.loses, lost = max(0, self.loses - 1), self.loses > 0
        return done and not lost


def test_a_lost_answer_is_no_other_owner(durable: DurableStore) -> None:
    flaky = LostAnswers(durable)
    log = Log(flaky)
    flaky.loses = 1
    assert log.take_over().epoch == 1
    flaky.loses = 1
    log.append(state(0))
    assert log.latest() == state(0)


class FailingAnswers(LostAnswers):
    """A store whose next publication fails after success; reading what is there may fail too."""

    def __init__(self, durable: DurableStore) -> None:
        super().__init__(durable)
        self.unreadable = False

    def publish(self, name: str, data: bytes) -> bool:
        done = self._durable.publish(name, data)
        if self.loses:
            self.loses -= 1
            raise OSError("the answer is lost")
        return done

    def read(self, name: str) -> pa.Buffer | None:
        if self.unreadable:
            raise OSError("the store is away")
        return self._durable.read(name)


def test_a_commit_whose_answer_is_lost_is_adopted(durable: DurableStore) -> None:
    flaky = FailingAnswers(durable)
    log = Log(flaky)
    flaky.loses = 1
    assert log.take_over().epoch == 1
    flaky.loses = 1
    log.append(state(0))
    assert (log.owned.state, log.is_owner) == (state(0), True)
    log.append(state(1))
    assert started(durable).commits() == [state(0), state(1)]


def test_a_commit_whose_outcome_is_unknown_is_no_other_owner(durable: DurableStore) -> None:
    flaky = FailingAnswers(durable)
    log = Log(flaky)
    log.take_over()
    flaky.loses, flaky.unreadable = 1, True
    with pytest.raises(OSError, match="the answer is lost"):
        log.append(state(0))
    flaky.unreadable = False
    assert log.is_owner
    # The batch is committed, but this start has gone on without it.
    for step in (lambda: log.append(state(1)), lambda: log.begin(Mark(1), note())):
        with pytest.raises(QueryError) as refused:
            step()
        assert refused.value.message == (
            f"the checkpoint at {durable.location} has a commit of this start whose outcome it did "
            "not learn"
        )
        assert refused.value.detail == "record 1 of the log: batch 0; no row is lost"
        assert refused.value.hint == "start the query again: it continues after that commit"
    second = started(durable)
    assert second.owned.state == state(0)
    with pytest.raises(QueryError, match="epoch 2 after 1"):
        log.check_owner()
    assert not log.is_owner


def test_after_a_commit_without_a_last_look_an_owner_plans_nothing_new(tmp_path: Path) -> None:
    """A local owner looks for a later record; if that fails, its coordinator is behind the log."""
    flaky = FailingAnswers(open_durable(str(tmp_path)))
    log = Log(flaky)
    log.take_over()
    log.begin(Mark(0), note(1))
    flaky.unreadable = True
    with pytest.raises(OSError, match="the store is away"):
        log.append(state(0))
    flaky.unreadable = False
    assert log.latest() == state(0)
    assert log.read_note(Mark(0)) == note(1)
    with pytest.raises(QueryError, match="whose outcome it did not learn"):
        log.append(replace(state(0), clock_s=5.0))
    log.append(state(0))
    log.append(state(1))
    assert log.commits() == [state(0), state(1)]


def test_record_that_a_disk_did_not_confirm_is_not_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = started(open_durable(str(tmp_path)))

    def fail(path: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(local, "sync_folder", fail)
    with pytest.raises(StateError, match="did not confirm that written data is on disk"):
        log.append(state(0))
    assert log.owned.state is None


def test_the_log_keeps_the_last_records_and_all_late_owners_out(durable: DurableStore) -> None:
    first = started(durable)
    first.append(state(0))
    second = started(durable)
    outdated = [name for batch in range(1, 250) for name in second.append(state(batch))]
    durable.delete(outdated)
    kept = second.sequences()
    # The takeovers stay, at 0 and 2.
    assert kept == [0, 2, *range(second.owned.sequence - KEEP_RECORDS + 1, 252)]
    for _ in range(2):
        with pytest.raises(QueryError, match="epoch 2 after 1"):
            first.append(state(1))
    third = started(durable)
    durable.delete(third.leftovers())
    assert third.sequences()[:2] == [0, 2]
    assert len(third.sequences()) <= KEEP_RECORDS + 3
    assert len(durable.names("log")) <= 2 * KEEP_RECORDS + 5


def test_claims_go_with_their_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(exclusive, "_renameat2", lambda: None)
    durable = open_durable(str(tmp_path), fsync=False)
    log = started(durable)
    for batch in range(KEEP_RECORDS + 50):
        durable.delete(log.append(state(batch)))
    names = durable.names("log")
    claims = {name.removesuffix(".claim") for name in names if name.endswith(".claim")}
    assert claims == {name for name in names if name.endswith(".json")}
    assert len(claims) == KEEP_RECORDS + 1


@pytest.mark.parametrize("kind", ["local", "arrow"])
def test_a_start_deletes_partial_files_of_older_ones(tmp_path: Path, kind: str) -> None:
    durable: DurableStore = open_durable(str(tmp_path))
    if kind == "arrow":
        durable = ArrowDurable(str(tmp_path), fs.LocalFileSystem(), str(tmp_path))
    first = started(durable)
    old = ["log/000000001.json.ab.partial", "log/000000001.000001.begun.cd.partial"]
    late = ["log/000000003.json.ef.partial", "log/000000002.000003.begun.01.partial"]
    for name in [*old, *late]:
        (tmp_path / name).write_bytes(b"x")
    second = started(durable)
    assert second.owned.sequence == 1
    # A later start may be writing the others just now.
    assert sorted(second.leftovers()) == sorted(old)
    assert first.sequences() == [0, 1]


def test_owner_of_a_claimed_record_and_a_takeover_see_each_other(tmp_path: Path) -> None:
    """Without hard links and exclusive renames, a record is claimed before it is there."""
    durable = open_durable(str(tmp_path))
    first = started(durable)
    first.append(state(0))
    first.begin(Mark(1), note(3))
    # The owner has claimed its record, and pauses.
    (tmp_path / f"{record_path(2)}.claim").touch()
    second = started(durable)
    assert (second.owned.sequence, second.owned.epoch) == (3, 3)
    assert second.owned.state == state(0)
    assert second.read_note(Mark(1)) == note(3)
    # It comes back and completes it: too late.
    with pytest.raises(QueryError, match="epoch 3 after 1"):
        first.append(state(1))
    assert started(durable).owned.state == state(0)


def test_takeover_adopts_a_record_that_was_completed_meanwhile(tmp_path: Path) -> None:
    durable = open_durable(str(tmp_path))
    first = started(durable)
    first.append(state(0))
    (tmp_path / f"{record_path(2)}.claim").touch()

    class Meanwhile(LostAnswers):
        def publish(self, name: str, data: bytes) -> bool:
            if name == record_path(3):
                # The older owner completes its record before the takeover appears.
                first.append(state(1))
            return self._durable.publish(name, data)

    second = Log(Meanwhile(durable))
    assert second.take_over().state == state(1)
    assert second.owned.sequence == 4
    with pytest.raises(QueryError):
        first.append(state(2))


def test_takeover_that_died_before_it_looked_again_does_not_hide_a_commit(tmp_path: Path) -> None:
    durable = open_durable(str(tmp_path))
    first = started(durable)
    first.append(state(0))
    (tmp_path / f"{record_path(2)}.claim").touch()
    died = started(durable).owned
    assert died.passed
    durable.delete([note_path(died.sequence + 1, died.epoch)])
    # The commit was complete before the takeover appeared.
    record = replace(first.owned, sequence=2, since=2, state=state(1))
    assert Log(durable)._publish(record)
    assert started(durable).owned.state == state(1)


def test_damage_is_not_taken_for_a_record_in_progress(tmp_path: Path) -> None:
    durable = open_durable(str(tmp_path))
    started(durable).append(state(0))
    path = tmp_path / record_path(1)
    whole = path.read_bytes()
    for damaged in (whole[:-3], b""):
        path.write_bytes(damaged)
        with pytest.raises(StateError, match=r"log/000000001.json is damaged"):
            started(durable)


def test_takeover_gives_up_if_others_never_stop(tmp_path: Path) -> None:
    class Busy(LostAnswers):
        def publish(self, name: str, data: bytes) -> bool:
            return False

        def read(self, name: str) -> pa.Buffer | None:
            return None

    with pytest.raises(QueryError) as refused:
        Log(Busy(open_durable(str(tmp_path)))).take_over()
    assert refused.value.message == f"the checkpoint at {tmp_path} cannot be taken over"
    assert refused.value.detail == "other queries wrote to its log 100 times meanwhile"
    assert refused.value.hint == (
        "stop the other queries that use this checkpoint, then start again"
    )
