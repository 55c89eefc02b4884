"""Check what must be true after any disasters. They read storage and the ledger, never the drivers.

check_files     every file that the log names exists and is intact
check_outcome   results, counts of late and NULL rows, conservation between stages, one owner
check_sweep     a start leaves no unnamed file
check_belief    a driver that says it has a successor has one
check_commit    a commit that a driver believes in is in the log
check_leftovers a commit leaves no old unnamed file, and a short log
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import pyarrow as pa

from spillway.coordinator.batch.committed import Committed, steps_of
from spillway.kernels.checksum import checksum
from spillway.state.manifest.manifest import Manifest
from spillway.state.runs.durable.exclusive import CLAIM
from spillway.state.runs.names import run_of
from spillway.state.runs.orphans import batch_of
from spillway.state.runs.run import Run
from spillway.testing.chaos.driver import Machines
from spillway.testing.chaos.ledger import Entry, StageHistory, described
from spillway.testing.chaos.query import rows_of, subjects
from spillway.testing.chaos.store import Medium, checkpoint_on
from spillway.testing.simulated.places import Machine
from spillway.testing.simulated.rows import Row, Subject, matches_nothing
from spillway.testing.simulated.sizes import KEEP_RECORDS

#: Most files of a log: records and takeovers, each with the notes of two owners.
MOST_LOGGED = 6 * KEEP_RECORDS


def check_files(machines: Machines) -> None:
    """Raises AssertionError unless every named file exists and is intact.

    It compares a file when it first sees it. The content of a name never changes, unless a loss of power
    or a writer replaces the bytes.
    """
    for at, medium in enumerate(machines.media):
        for run in _named_runs(medium):
            path = f"runs/{run.name}"
            data = medium.files.get(path)
            assert data is not None, f"run {run.name} of stage {at} is missing"
            if medium.intact.get(path) is data:
                continue
            whole = len(data) == run.size_bytes and checksum(pa.py_buffer(data)) == run.checksum
            assert whole, f"run {run.name} of stage {at} is damaged"
            medium.intact[path] = data


def check_sweep(machines: Machines) -> list[str]:
    """Reports the unnamed files that a start left."""
    found = []
    for at, medium in enumerate(machines.media):
        if left := _unnamed(medium):
            found.append(f"nobody names {len(left)} files of stage {at}, for example {left[0]}")
    return found


def check_belief(machines: Machines, driver: int, problem: BaseException) -> None:
    """Raises AssertionError if a driver says that another has taken over, and none has."""
    if "has taken over" in str(problem):
        newest = {medium.published[-1][1] for medium in machines.media if medium.published}
        assert newest != {driver}, f"driver {driver} has no successor, but fails: {problem}"


def check_commit(machines: Machines, at: int, state: Committed) -> list[str]:
    """Reports a commit that its driver believes in, and that the log does not have."""
    newest = checkpoint_on(machines.media[at]).log.latest()
    steps, mine = steps_of(newest), steps_of(state)
    known = newest is not None and (steps > mine or newest.manifests == state.manifests)
    if known and steps >= mine:
        return []
    return [f"a driver believes that it committed step {mine} of stage {at}; the log has {steps}"]


def check_leftovers(machines: Machines, at: int, state: Committed, before: Committed) -> list[str]:
    """Reports unnamed files of batches before the last commit, after a commit and its sweep.

    While groups move, unnamed files are in transit, so no sweep deletes them. The log has at most
    KEEP_RECORDS records and as many takeovers, each with the notes of a few owners.
    """
    medium = machines.media[at]
    found = []
    logged = [name for name in medium.files if name.startswith("log/") and CLAIM not in name]
    if len(logged) > MOST_LOGGED:
        found.append(f"the log of stage {at} has {len(logged)} files")
    if state.moves or before.moves:
        return found
    # The next commit deletes what only the last one named.
    former = [name for name in before.manifests if name in medium.files]
    kept = {
        *former,
        *(f"runs/{r}" for n in former for r in checkpoint_on(medium).manifest(n).runs()),
    }
    old = [n for n in _unnamed(medium) if n not in kept and (batch_of(n) or 0) < before.batch]
    found += [f"nobody names {old[0]} of stage {at} after batch {state.batch}"] if old else []
    known = {name.removeprefix("runs/") for name in kept} | {r.name for r in _named_runs(medium)}
    for host in machines.hosts[at]:
        found += [one for place in host.places() for one in _local(place, at, known, state)]
    return found


def _local(place: Machine, at: int, known: Collection[str], state: Committed) -> list[str]:
    """Reports partial local files of dead processes that a sweep in this batch has kept.

    A task may be fetching a file that is still named. The slots delete whole files one batch after the
    commit that stops naming them.
    """
    batch, kept = place.kept
    if batch != state.batch or state.round:
        return []
    parts = [n for n in kept if n.startswith(".") and (batch_of(n) or 0) < batch]
    left = [n for n in parts if run_of(n) not in known]
    return [f"nobody names {left[0]} in a local tier of stage {at}"] if left else []


def _unnamed(medium: Medium) -> list[str]:
    named = {f"runs/{run.name}" for run in _named_runs(medium)} | set(_named_manifests(medium))
    return [n for n in medium.files if n.startswith(("runs/", "manifests/")) and n not in named]


def check_outcome(machines: Machines, batches: Sequence[Sequence[Row]]) -> list[str]:
    """Reports all differences from brute force."""
    stages = subjects(machines.schedule.query)
    found: list[str] = []
    for at, subject in enumerate(stages):
        state = checkpoint_on(machines.media[at]).log.latest()
        taken = 0 if state is None else state.batch + 1 + state.rounds
        steps = [machines.ledger.steps.get((at, number)) for number in range(taken)]
        if None in steps:
            found.append(f"stage {at} has committed step {steps.index(None)}, which never ran")
            continue
        known = [step for step in steps if step is not None]
        given = _given_rows(subject, known, batches if at == 0 else None, machines)
        found += _counts(at, machines, given)
        said = _said(at, known, machines)
        history = StageHistory(given.accepted, said, given.watermark_us, given.apart)
        found += _compared(at, subject, history, machines)
        if at:
            found += _conserved(at, known, machines)
    return found + _owners(machines)


class _Rows:
    """The rows of a stage: those it accepted, and the counts of the others by stream."""

    def __init__(self, streams: int) -> None:
        self.accepted: list[tuple[int, Row]] = []
        #: Those with a NULL key or time that are not late.
        self.apart: list[Row] = []
        self.came, self.late, self.null = ([0] * streams for _ in range(3))
        self.watermark_us: int | None = None


def _given_rows(
    subject: Subject,
    steps: Sequence[Entry],
    batches: Sequence[Sequence[Row]] | None,
    machines: Machines,
) -> _Rows:
    """Finds late rows from the rows alone, with the watermark of the batch before."""
    if batches is None:
        batches = _batches_of(steps)
    found, lateness = _Rows(len(subject.streams)), machines.schedule.query.lateness
    timed = subject.streams[0].time is not None
    newest: list[int | None] = [None] * len(subject.streams)
    watermark: int | None = None
    for number, rows in enumerate(batches):
        for row in rows:
            if matches_nothing(subject, row):
                found.null[row.stream] += 1
                if row.time is None or watermark is None or row.time >= watermark:
                    found.apart.append(row)
                continue
            found.came[row.stream] += 1
            if timed and watermark is not None and row.at < watermark:
                found.late[row.stream] += 1
            else:
                found.accepted.append((number, row))
        for row in rows if timed else ():
            if not matches_nothing(subject, row):
                known = newest[row.stream]
                newest[row.stream] = row.at if known is None else max(known, row.at)
        times = [time for time in newest if time is not None]
        if timed and len(times) == len(newest):
            # The watermark never goes back: the newest times only grow.
            watermark = min(times) - lateness
    found.watermark_us = watermark
    return found


def _batches_of(steps: Sequence[Entry]) -> list[Sequence[Row]]:
    """The rows of each batch of a later stage; rounds have none."""
    found: dict[int, Sequence[Row]] = {}
    for step in steps:
        found.setdefault(step.batch, step.rows)
    return [found[number] for number in sorted(found)]


def _said(at: int, steps: Sequence[Entry], machines: Machines) -> list[tuple[int, Counter[object]]]:
    """The output of a stage; for the last stage, the content of the sink."""
    ledger = machines.ledger
    if at < ledger.stages - 1:
        return [(step.batch, step.output) for step in steps]
    return [(step.batch, ledger.sink.get(n, Counter())) for n, step in enumerate(steps)]


def _counts(at: int, machines: Machines, given: _Rows) -> list[str]:
    state = checkpoint_on(machines.media[at]).log.latest()
    if state is None:
        return []
    none = (0,) * len(given.came)
    pairs = {
        "rows in": (given.came, state.rows_in),
        "late rows": (given.late, state.rows_late),
        "NULL rows": (given.null, state.rows_null or none),
    }
    return [
        f"stage {at} counts {tuple(counted)} {what}, there were {tuple(wanted)}"
        for what, (wanted, counted) in pairs.items()
        if tuple(wanted) != tuple(counted)
    ]


def _compared(at: int, subject: Subject, given: StageHistory, machines: Machines) -> list[str]:
    machines.ledger.compared += sum(given.results.values())
    try:
        subject.check(given)
    except AssertionError as problem:
        text = str(problem).split("\n")[0][:300]
        return [f"the results of stage {at} are not those of the batch query: {text}"]
    return []


def _conserved(at: int, steps: Sequence[Entry], machines: Machines) -> list[str]:
    """Checks that a batch of a later stage has the results of one step of the stage before it."""
    row_of = rows_of(machines.schedule.query)[at]
    assert row_of is not None
    found = []
    for number, rows in enumerate(_batches_of(steps)):
        before = machines.ledger.steps.get((at - 1, number))
        wanted = Counter(map(row_of, before.output.elements())) if before else Counter()
        if Counter(rows) != wanted:
            what = described(Counter(wanted), Counter(rows))
            found.append(f"batch {number} of stage {at} is not step {number} before it: {what}")
    return found


def _owners(machines: Machines) -> list[str]:
    """Checks that records are published once, and never after another driver took over.

    With claims, an older owner may complete a record that its successor has passed. It must not believe
    in it (`check_commit`).
    """
    found = []
    for at, medium in enumerate(machines.media):
        records = [(name, owner) for name, owner in medium.published if name.startswith("log/")]
        twice = [name for name, n in Counter(name for name, _ in records).items() if n > 1]
        found += [f"stage {at}: {name} was published twice" for name in twice]
        owner, former = -1, set[int]()
        for name, now in records if medium.mode != "claims" else ():
            if now in former:
                found.append(f"stage {at}: driver {now} published {name} after driver {owner}")
            former |= {owner} - {now}
            owner = now
    return found


def _named_manifests(medium: Medium) -> list[str]:
    """Those of the newest record, and the parts of moves that the open note names."""
    log = checkpoint_on(medium).log
    newest = log.newest()
    state = None if newest is None else newest.state
    note = log.open_note(newest)
    parts = [move.part for move in note.moves if move.part] if note else []
    return [*(name for name in (state.manifests if state else ()) if name), *parts]


def _manifests(medium: Medium) -> list[Manifest]:
    looked_at = checkpoint_on(medium)
    for name in (named := _named_manifests(medium)):
        data = medium.files.get(name)
        known = medium.decoded.get(name)
        if data is None or known is None or known[0] is not data:
            manifest = looked_at.manifest(name)
            medium.decoded[name] = medium.files[name], manifest
    return [medium.decoded[name][1] for name in named]


def _named_runs(medium: Medium) -> list[Run]:
    return list(
        {run.name: run for one in _manifests(medium) for run in one.runs().values()}.values()
    )
