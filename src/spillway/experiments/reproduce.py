"""`spillway reproduce`: the papers' figures on a real Spark, one run for each line.

Figures that share a line share the run. A limit of memory follows from the All-Mem run of the same
workload, so that one always comes first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spillway.doctor import require_java
from spillway.experiments.bench_spec import chosen
from spillway.experiments.quiet import java_errors_to
from spillway.experiments.reproduce_runs import Input, Run, run_variant
from spillway.experiments.reproduce_spec import (
    ALL_MEMORY,
    FIGURES,
    MEMORY_PART,
    Figure,
    Variant,
    workload,
)
from spillway.experiments.reproduce_verdicts import document
from spillway.spark.session import local_session

#: Told what goes on, in words for people.
Say = Callable[[str], None]

Rates = tuple[float, ...]


def run_figures(names: Sequence[str], say: Say = lambda _: None) -> Iterator[dict[str, Any]]:
    """Makes the named figures, all if none is named; gives each one's document when it is done.

    What was asked for is checked at once, and run as the documents are taken.
    """
    wanted = [FIGURES[name] for name in chosen("figure", names, list(FIGURES))]
    require_java()
    return _documents(wanted, say)


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
    """Inputs and runs that are there already, for figures that share them."""

    def __init__(self, spark: SparkSession, folder: Path, say: Say) -> None:
        self._spark = spark
        self._folder = folder
        self._say = say
        self._inputs: dict[Rates, tuple[Input, int]] = {}
        self._runs: dict[tuple[Rates, Variant, float], Run] = {}

    def document(self, figure: Figure) -> dict[str, Any]:
        """The figure, with what of it has not been run yet."""
        rates = figure.join_rates
        _, expected = self._input(rates)
        by_part = {
            part: {variant.name: self._run(rates, variant, part) for variant in figure.variants}
            for part in (MEMORY_PART, *figure.other_parts)
        }
        runs = by_part.pop(MEMORY_PART)
        return document(figure, runs, self._limit_bytes(rates, MEMORY_PART), expected, by_part)

    def _input(self, rates: Rates) -> tuple[Input, int]:
        if rates not in self._inputs:
            self._say(f"writing the streams, join rates {_told(rates)}")
            source = Input(
                self._spark, workload(rates), self._folder / f"input-{len(self._inputs)}"
            )
            self._inputs[rates] = source, source.rows_expected()
        return self._inputs[rates]

    def _run(self, rates: Rates, variant: Variant, part: float) -> Run:
        limited = variant.victims is not None
        name = rates, variant, part if limited else 1.0
        if name not in self._runs:
            limit = self._limit_bytes(rates, part) if limited else None
            told = f", memory for {part:.0%} of the state" if limited else ""
            self._say(f"join rates {_told(rates)}: {variant.name}{told}")
            source, _ = self._input(rates)
            checkpoint = self._folder / f"checkpoint-{len(self._runs)}"
            self._runs[name] = run_variant(source, variant, limit, checkpoint)
        return self._runs[name]

    def _limit_bytes(self, rates: Rates, part: float) -> int:
        return int(part * self._run(rates, Variant(ALL_MEMORY), 1.0).memory[-1])


def _told(rates: Rates) -> str:
    return "/".join(f"{rate:g}" for rate in rates)
