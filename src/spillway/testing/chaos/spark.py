"""Simulated Spark: tasks fail, run twice or lose their report, and sinks read in odd ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import pyarrow as pa

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.plan import BatchPlan
from spillway.coordinator.chain import Answers
from spillway.errors import SpillwayError
from spillway.testing.chaos.gate import Disasters, DriverGate, TaskDied
from spillway.testing.chaos.ledger import Entry, Ledger
from spillway.testing.chaos.schedule import Strike
from spillway.testing.simulated.engine import LazyRows, Partition, SimulatedEngine, Written
from spillway.testing.simulated.stages import SimulatedStage, TaskReport, fits_memory

#: Failures of a task after which Spark gives up the job.
_MOST_FAILURES = 4


class JobFailed(Exception):
    """Spark has given up a job."""


class SinkFailed(Exception):
    """The user's sink raised an error."""


class ChaosTasks:
    """Runs tasks on hosts, and repeats them like Spark."""

    def __init__(
        self, stages: Sequence[SimulatedStage], gate: DriverGate, disasters: Disasters
    ) -> None:
        self._stages = stages
        self._gate = gate
        self._disasters = disasters

    def run(self, at: int, partitions: Sequence[Partition]) -> list[pa.RecordBatch]:
        """Runs one task, and perhaps more attempts of it."""
        # A driver that was paused gets no more disasters.
        strikes = [] if self._gate.past else self._disasters.at_task()
        kinds = {strike.kind: strike for strike in strikes}
        if "speculate" in kinds:
            self._try(at, partitions, kinds["speculate"].arg or None)
        read = self._until_done(at, partitions, kinds.get("retry"))
        if "resubmit" in kinds:
            self._arrive(partitions, read[1])
            read = self._until_done(at, partitions, None)
        if "unreported" not in kinds:
            self._arrive(partitions, read[1])
        return read[0]

    def _until_done(
        self, at: int, partitions: Sequence[Partition], retry: Strike | None
    ) -> tuple[list[pa.RecordBatch], list[list[TaskReport]]]:
        if retry is not None:
            self._try(at, partitions, retry.arg + 1)
        for _ in range(_MOST_FAILURES):
            found = self._try(at, partitions, None)
            if found is not None:
                return found
        raise JobFailed("a task failed 4 times")

    def _try(
        self, at: int, partitions: Sequence[Partition], most: int | None
    ) -> tuple[list[pa.RecordBatch], list[list[TaskReport]]] | None:
        """Runs one attempt; returns None if it dies. With `most`, it dies after this many batches."""
        read: list[pa.RecordBatch] = []
        said: list[list[TaskReport]] = []
        stage = self._stages[at]
        for one in partitions:
            host = stage.host_of(one.slot)
            said.append([])
            try:
                with self._gate.task_on(host):
                    for batch in one.read(said[-1].append):
                        read.append(batch)
                        if most is not None and len(read) >= most:
                            return None
            except TaskDied as death:
                stage.hosts[host].restart_worker()
                if death.host:
                    stage.hosts[host].lose()
                return None
            except (OSError, SpillwayError) as problem:
                self.last_problem = problem
                return None
        return read, said

    @staticmethod
    def _arrive(partitions: Sequence[Partition], said: Sequence[Sequence[TaskReport]]) -> None:
        for one, reports in zip(partitions, said, strict=True):
            one.arrive(reports)


class ChaosEngine(SimulatedEngine):
    """Records the output of every step in the ledger."""

    ledger: Ledger
    #: The read-only checkpoint of a stage.
    look: Callable[[int], Checkpoint]

    def read_all(self, results: LazyRows) -> list[pa.RecordBatch]:
        """Reads everything, and records it."""
        read = super().read_all(results)
        self.note(results, Counter(self.values(results.at, read)))
        return read

    def collect_answers(
        self, at: int, results: LazyRows, plan: BatchPlan, *, replay: bool
    ) -> Answers:
        """Collects the records of a stage; checks that every slot kept its limit."""
        found = super().collect_answers(at, results, plan, replay=replay)
        for record in found.records.values():
            written = self.look(at).manifest(record.manifest)
            if not fits_memory(plan, record, written):
                bytes_ = f"{sum(record.state_bytes)} of {plan.memory_bytes[record.slot]} bytes"
                where = f"slot {record.slot} of stage {at} in batch {plan.batch}"
                self.ledger.differences.append(f"{where} has {bytes_} in memory")
        return found

    def note(self, results: LazyRows, output: Counter[Hashable]) -> None:
        """Records the output of a step."""
        assert results.plan is not None
        number = self.stages[results.at].conductor.coordinator.steps
        step = Entry(results.plan.batch, tuple(results.rows), output)
        self.ledger.note_step(results.at, number, step)


class ChaosSink:
    """A sink that stores steps by number, and reads them as the schedule says."""

    def __init__(self, mode: str, ledger: Ledger, disasters: Disasters, tasks: ChaosTasks) -> None:
        self._mode = mode
        self._ledger = ledger
        self._disasters = disasters
        self._tasks = tasks

    def write(self, step: Written, sink_id: int, *, replay: bool) -> None:
        """Reads a step and stores it."""
        if self._mode == "ids" and sink_id in self._ledger.sink:
            return
        strikes = {strike.kind: strike.arg for strike in self._disasters.at_write()}
        if strikes.get("fails") == 0:
            raise SinkFailed("the sink fails before its write")
        if "partly" in strikes and not replay:
            # In a replay, a sink that reads nothing counts as one that has everything already.
            self._read(step, 1, part=True)
            return
        if "twice" in strikes:
            self._read(step, 1)
        output = self._read(step, max(1, strikes.get("coalesce", 1)))
        assert isinstance(step.engine, ChaosEngine)
        step.engine.note(step.results, output)
        self._ledger.note_output(sink_id, output)
        if "fails" in strikes:
            raise SinkFailed("the sink fails after its write")

    def _read(self, step: Written, together: int, *, part: bool = False) -> Counter[Hashable]:
        partitions = step.partitions()[::-1]
        if part:
            partitions = partitions[1:]
        read: list[pa.RecordBatch] = []
        for at in range(0, len(partitions), together):
            read += self._tasks.run(step.results.at, partitions[at : at + together])
        return Counter(step.values(read))
