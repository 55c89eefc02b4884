"""Gives the rows of one batch that stay without partners, for operators that decide about rows.

The watermark decides, in steps: so a slot does not read the same times in every batch
(state/slot/decided.py). A round decides up to the watermark itself, because no batch may follow. State
expires by the watermark up to which the slot has decided.

A row with a NULL key or time matches nothing. If it is of a stream whose rows come out without partners,
it comes out as it arrives, unless it is late: it goes into no state, and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spillway.operators.input import null_rows
from spillway.operators.operator import Deciding, Made, Operator
from spillway.operators.stats import OperatorStats
from spillway.rows.cutting import cut_rows
from spillway.slot.job import SlotJob
from spillway.state.slot.state import SlotState


class Decider:
    """Decides in one batch of one slot; for most operators it has nothing to do."""

    def __init__(self, state: SlotState, operator: Operator, job: SlotJob) -> None:
        self._state = state
        self._operator = operator if isinstance(operator, Deciding) else None
        self._job = job

    @property
    def watermark_us(self) -> int | None:
        """The watermark by which rows are decided, and expire."""
        whole = self._job.watermark_us
        if self._operator is None or whole is None or self._job.is_round:
            return whole
        return whole - whole % self._operator.step_us

    def results(self, stats: OperatorStats) -> Made:
        """Yields what the watermark decides."""
        watermark_us = self.watermark_us
        if self._operator is not None and watermark_us is not None:
            yield from self._operator.decide(self._state, watermark_us, stats)
            self._state.decided.advance(watermark_us, self._state.undecidable)
            self._state.news.add_outputs(stats.take_outputs())

    def alone(self, batches: Sequence[pa.RecordBatch]) -> Made:
        """Yields the results of new rows that match nothing."""
        if self._operator is None:
            return
        for number in self._operator.kept:
            columns = self._job.streams[number]
            for rows in null_rows(batches, number, columns, self._job.watermark_us):
                for some in cut_rows(rows, most_rows=self._operator.block_rows):
                    yield self._operator.alone(number, some.columns, some.num_rows)
