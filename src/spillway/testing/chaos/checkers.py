"""Check what must be true after any disasters. They read storage and the ledger, never the drivers.

check_files     every file that the log names exists and is intact
check_outcome   results, counts of late and NULL rows, conservation between stages, one owner
check_sweep     a start leaves no unnamed file
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from spillway.kernels.checksum import checksum
from spillway.state.manifest.manifest import Manifest
from spillway.state.runs.run import Run
from spillway.testing.chaos.driver import Machines
from spillway.testing.chaos.ledger import Entry, StageHistory, described
from spillway.testing.chaos.query import rows_of, subjects
from spillway.testing.chaos.store import Medium, checkpoint_on
from spillway.testing.simulated.rows import Row, Subject, matches_nothing


def check_files(machines: Machines) -> None:
    """Raises AssertionError unless every named file exists and is intact."""
    for at, medium in enumerate(machines.media):
        for run in _named_runs(medium):
            data = medium.files.get(f"runs/{run.name}")
            assert data is not None, f"run {run.name} of stage {at} is missing"
            whole = len(data) == run.size_bytes and checksum(pa.py_buffer(data)) == run.checksum
            assert whole, f"run {run.name} of stage {at} is damaged"


def check_sweep(machines: Machines) -> list[str]:
    """Reports the unnamed files that a start left."""
    found = []
    for at, medium in enumerate(machines.media):
        named = {f"runs/{run.name}" for run in _named_runs(medium)}
        named |= set(_named_manifests(medium))
        left = [n for n in medium.files if n.startswith(("runs/", "manifests/")) and n not in named]
        if left:
            found.append(f"nobody names {len(left)} files of stage {at}, for example {left[0]}")
    return found


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
        found += _compared(
            at, subject, StageHistory(given.accepted, _said(at, known, machines)), machines
        )
        if at:
            found += _conserved(at, known, machines)
    return found + _owners(machines)


class _Rows:
    """The rows of a stage: those it accepted, and the counts of the others by stream."""

    def __init__(self, streams: int) -> None:
        self.accepted: list[tuple[int, Row]] = []
        self.came, self.late, self.null = ([0] * streams for _ in range(3))


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
    """Checks that records are published once, and never after a successor has published."""
    found = []
    for at, medium in enumerate(machines.media):
        records = [(name, owner) for name, owner in medium.published if name.startswith("log/")]
        twice = [name for name, n in Counter(name for name, _ in records).items() if n > 1]
        found += [f"stage {at}: {name} was published twice" for name in twice]
        newest = -1
        # With claims, an older owner may complete a record that its successor has already passed.
        for name, owner in records if medium.mode != "claims" else ():
            if owner < newest:
                found.append(f"stage {at}: driver {owner} published {name} after driver {newest}")
            newest = max(newest, owner)
    return found


def _named_manifests(medium: Medium) -> list[str]:
    state = checkpoint_on(medium).log.latest()
    return [] if state is None else [name for name in state.manifests if name]


def _manifests(medium: Medium) -> list[Manifest]:
    looked_at = checkpoint_on(medium)
    return [looked_at.manifest(name) for name in _named_manifests(medium)]


def _named_runs(medium: Medium) -> list[Run]:
    return list(
        {run.name: run for one in _manifests(medium) for run in one.runs().values()}.values()
    )
