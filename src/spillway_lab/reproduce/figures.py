"""`spillway reproduce`: the papers' figures on a real Spark, one run for each line; some are simulated.

Figures that share a line share the run. A memory limit is a fraction of the state of the whole input;
`Laboratory` measures that state first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spillway.doctor import require_java
from spillway.spark.api.session import local_session
from spillway_lab.bench.spec import chosen
from spillway_lab.quiet import java_errors_to
from spillway_lab.reproduce.flux.figures import SIMULATED, simulated_documents
from spillway_lab.reproduce.flux.real import FLUX_REAL
from spillway_lab.reproduce.plans.real import PLANS_REAL
from spillway_lab.reproduce.psp.figures import PSP_FIGURES, psp_documents
from spillway_lab.reproduce.psp.real import PSP_REAL
from spillway_lab.reproduce.results import Results
from spillway_lab.reproduce.runs import Input, Run, run_variant, state_bytes
from spillway_lab.reproduce.spec import FIGURES
from spillway_lab.reproduce.terms import Feed, Figure, Variant
from spillway_lab.reproduce.verdicts import document

#: Figures that need clusters of their own.
REAL = {**FLUX_REAL, **PLANS_REAL, **PSP_REAL}
#: Called with progress, in words for people.
Say = Callable[[str], None]


def run_figures(names: Sequence[str], say: Say = lambda _: None) -> Iterator[dict[str, Any]]:
    """Makes the named figures, or all; yields each one's document when it is done.

    The names are checked at once; figures run as the documents are consumed.
    """
    wanted = chosen("figure", names, [*FIGURES, *REAL, *SIMULATED, *PSP_FIGURES])
    simulated = [SIMULATED[name] for name in wanted if name in SIMULATED]
    local = [FIGURES[name] for name in wanted if name in FIGURES]
    clustered = [REAL[name] for name in wanted if name in REAL]
    if local or clustered:
        require_java()
    return chain(
        _documents(local, say) if local else (),
        (figure.document(say) for figure in clustered),
        simulated_documents(simulated, say),
        psp_documents([PSP_FIGURES[name] for name in wanted if name in PSP_FIGURES], say),
    )


def _documents(figures: Sequence[Figure], say: Say) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="spillway-reproduce-") as folder:
        say("starting Spark")
        spark = _session(Path(folder))
        try:
            laboratory = Laboratory(spark, Path(folder), say)
            for figure in figures:
                yield laboratory.document(figure)
        finally:
            spark.stop()


def _session(folder: Path) -> SparkSession:
    with java_errors_to(folder / "spark.log"):
        return local_session(
            "spillway-reproduce",
            conf={
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.local.dir": str(folder / "scratch"),
            },
        )


class Laboratory:
    """Inputs and runs made so far, for figures that share them."""

    def __init__(self, spark: SparkSession, folder: Path, say: Say) -> None:
        self._spark = spark
        self._folder = folder
        self._say = say
        self._inputs: dict[Feed, _Known] = {}
        self._runs: dict[Hashable, Run] = {}

    def document(self, figure: Figure) -> dict[str, Any]:
        """The figure, after whatever has not run yet."""
        return document(figure, self._results(figure))

    def _results(self, figure: Figure) -> Results:
        by_part = {
            part: {variant.name: self._run(figure, variant, part) for variant in figure.variants}
            for part in (figure.memory_part, *figure.other_parts)
        }
        part, compared_with = figure.memory_part, figure.compared_with
        return Results(
            by_part.pop(part),
            self._known(figure.feed).rows_expected,
            None if part is None else self._limit_bytes(figure.feed, part),
            {other: runs for other, runs in by_part.items() if other is not None},
            None if compared_with is None else self._results(FIGURES[compared_with]),
        )

    def _known(self, feed: Feed) -> _Known:
        if feed not in self._inputs:
            self._say(f"writing the streams, {_told(feed)}")
            name = f"input-{len(self._inputs)}"
            source = Input(self._spark, feed, self._folder / name)
            state = state_bytes(source, self._folder / f"checkpoint-{name}")
            self._inputs[feed] = _Known(source, source.rows_expected(), state)
        return self._inputs[feed]

    def _run(self, figure: Figure, variant: Variant, part: float | None) -> Run:
        limited = part if variant.limited else None
        name = figure.feed, variant.settings, limited
        if name not in self._runs:
            source = self._known(figure.feed).source
            limit = None if limited is None else self._limit_bytes(figure.feed, limited)
            told = f", memory for {limited:.0%} of the state" if limited is not None else ""
            self._say(f"{_told(figure.feed)}: {variant.name}{told}")
            checkpoint = self._folder / f"checkpoint-{len(self._runs)}"
            self._runs[name] = run_variant(source, variant, limit, checkpoint)
        return self._runs[name]

    def _limit_bytes(self, feed: Feed, part: float) -> int:
        return int(part * self._known(feed).state_bytes)


@dataclass(frozen=True)
class _Known:
    """An input and its size."""

    source: Input
    rows_expected: int
    #: Bytes of all of it as state.
    state_bytes: int


def _told(feed: Feed) -> str:
    rates = "/".join(f"{rate:g}" for rate in feed.workload.join_rates)
    return f"join rates {rates}, {feed.batches} batches"
