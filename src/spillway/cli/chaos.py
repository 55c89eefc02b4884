"""`spillway chaos`: seeded disasters strike simulated queries; brute force checks the results."""

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
    seed: Annotated[int | None, typer.Option(help="Run only this seed.")] = None,
    seeds: Annotated[int, typer.Option(help="Run this many seeds.", min=1)] = 100,
    first: Annotated[int, typer.Option(help="First seed of --seeds.")] = 0,
    schedule: Annotated[
        Path | None, typer.Option(help="Run the schedule in this JSON file.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 1,
    shrink: Annotated[
        bool, typer.Option(help="Reduce the first failing schedule and write it to a file.")
    ] = True,
    json_output: JsonOption = False,
) -> None:
    """Inject simulated failures into queries and check their results; exit 1 if one differs.

    Brute force computes the right results. The seed determines everything: storage that loses unsynced
    files, tasks that run twice, drivers that die or wake up late. For a failing seed, the command prints
    how to repeat it.
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
    """Prints progress, and each failing seed at once."""
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
    console.print(f"reducing the schedule of seed {seed}")
    small = shrink(failing)
    target = Path(f"chaos-{seed}.json")
    target.write_bytes(small.encode() + b"\n")
    console.print(
        f"reduced {len(failing.events)} events to {len(small.events)}, {failing.strikes} disasters to "
        f"{small.strikes}, {failing.rows} rows to {small.rows}\n"
        f"  repeat it: spillway chaos --schedule {target}"
    )
