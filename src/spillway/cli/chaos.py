"""`spillway chaos`: a query without Spark under seeded disasters, against brute force."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spillway.cli.output import JsonOption, console_for, emit_json, guarded

if TYPE_CHECKING:
    from rich.console import Console

    from spillway.testing.chaos.report import Report
    from spillway.testing.chaos.schedule import Schedule

FOUND_DIFFERENCES = 1


def chaos(
    seed: Annotated[int | None, typer.Option(help="Run the schedule of this seed.")] = None,
    seeds: Annotated[int, typer.Option(help="Run this many seeds.", min=1)] = 100,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
    schedule: Annotated[
        Path | None, typer.Option(help="Run the schedule in this JSON file.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    shrink: Annotated[
        bool, typer.Option(help="Make the first failing schedule small, and write it to a file.")
    ] = True,
    json_output: JsonOption = False,
) -> None:
    """Let disasters strike queries, and compare results with brute force; exit 1 on a difference.

    Everything is simulated from the seed: storage that forgets what was not synced, tasks that run
    twice, drivers that die or wake up late. A failing seed prints the command that repeats it.
    """
    from spillway.testing.chaos.running import read_schedule, run_all

    console = console_for(True)
    with guarded(json_output):
        if schedule is not None:
            given: list[int | Schedule] = [read_schedule(schedule)]
        else:
            given = [seed] if seed is not None else list(range(first, first + seeds))
        report = run_all(given, jobs, lambda one: _tell(console, one, len(given)))
    _end(report, json_output)
    if report.failed:
        if shrink:
            _shrink(console, given, report)
        raise typer.Exit(FOUND_DIFFERENCES)


def _tell(console: Console, report: Report, total: int) -> None:
    """Progress, and every failing seed as it is found."""
    if report.news:
        seed, what = report.news.popitem()
        console.print(f"seed {seed}: {what}\n  repeat it: spillway chaos --seed {seed}")
    elif total > 1 and report.seeds % 50 == 0:
        console.print(f"{report.seeds} of {total} seeds, {len(report.failed)} with differences")


def _end(report: Report, json_output: bool) -> None:
    if json_output:
        emit_json(report.document())
    else:
        for line in report.lines():
            console_for(json_output).print(line)


def _shrink(console: Console, given: list[int | Schedule], report: Report) -> None:
    from spillway.testing.chaos.running import scheduled
    from spillway.testing.chaos.shrink import shrink

    seed = min(report.failed)
    failing = next(one for one in map(scheduled, given) if one.seed == seed)
    console.print(f"making the schedule of seed {seed} small ...")
    small = shrink(failing)
    target = Path(f"chaos-{seed}.json")
    target.write_bytes(small.encode() + b"\n")
    console.print(
        f"{len(failing.events)} events, {failing.strikes} disasters, {failing.rows} rows became "
        f"{len(small.events)}, {small.strikes}, {small.rows}\n"
        f"  repeat it: spillway chaos --schedule {target}"
    )
