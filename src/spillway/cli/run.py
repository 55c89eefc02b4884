"""`spillway run`: a continuous query from a job file, or from a SQL file with options.

Exit codes: 0 the input ended, or Ctrl-C, SIGTERM or --seconds stopped the query after a batch; 1 the
query failed while it ran; 2 the job, its query or the machine is not right, and nothing started; 130 a
second Ctrl-C ended the process at once. A restart continues from the checkpoint after any of them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spillway.cli.output import (
    JsonOption,
    console_for,
    emit_json,
    error_parts,
    guarded,
    print_error,
)
from spillway.cli.watching import display
from spillway.errors import SettingsError, SpillwayError

if TYPE_CHECKING:
    from spillway.jobs.spec import Job
    from spillway.spark.jobs.following import Seen

FAILED = 1


def run(
    job: Annotated[
        Path, typer.Argument(help="A job file (.yaml, .json), or a query (.sql) with --stream.")
    ],
    stream: Annotated[
        list[str] | None,
        typer.Option(help="With .sql: a stream, as name=format:path. Once for each stream."),
    ] = None,
    schema: Annotated[
        list[str] | None, typer.Option(help="With .sql: columns of a stream, as name='id bigint'.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="With .sql: an option, as name.key=value; name is a stream or sink."),
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option(help="With .sql: where results go, as format:path; default console."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="With .sql: the checkpoint directory.")
    ] = None,
    adapt: Annotated[
        list[str] | None, typer.Option(help="With .sql: a setting, as slots=2.")
    ] = None,
    trigger: Annotated[
        str | None, typer.Option(help="With .sql: for example '1 second', or available-now.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="With .sql: the Spark master; default local[*].")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Stop the query after so many seconds.", min=0)
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Open the live dashboard, and print its address.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, and start nothing.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the plan, and start nothing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Run a continuous query until it ends, or until Ctrl-C or SIGTERM stops it after a batch.

    Exit codes: 0 ended or stopped; 1 the query failed; 2 the job or its query is not right.
    """
    given = {
        "--stream": stream, "--schema": schema, "--option": option, "--sink": sink,
        "--checkpoint": checkpoint, "--adapt": adapt, "--trigger": trigger, "--master": master,
    }  # fmt: skip
    with guarded(json_output):
        if dashboard:
            from spillway.dashboard.server.serving import check_packages

            check_packages()
        if job.suffix.lower() == ".sql":
            from spillway.jobs.flags import Flags, job_of_flags

            flags = Flags(
                stream or [], schema or [], option or [], sink or "console", checkpoint, adapt or [],
                trigger, master,
            )  # fmt: skip
            found = job_of_flags(job, flags)
        else:
            found = _of_file(job, [name for name, value in given.items() if value is not None])
        if dry_run or explain:
            _look(found, json_output, explain=explain)
            return
        if json_output and found.sink.format == "console":
            raise SettingsError(
                "a console sink and --json both write to standard output",
                hint="use another sink, or leave --json out",
            )
        seen = run_job(found, seconds, json_output=json_output, dashboard=dashboard)
    _tell(seen, json_output)


def _of_file(path: Path, flags: list[str]) -> Job:
    from spillway.jobs.reading import read_job

    if flags:
        raise SettingsError(
            f"{flags[0]} is for .sql files",
            hint=f"write it in {path}; docs/guide/jobs.md has the fields",
        )
    return read_job(path)


def _look(job: Job, json_output: bool, *, explain: bool) -> None:
    """Checks a job and prints what it does, or its plan."""
    from spillway.spark.jobs.starting import (
        checked,
        explanation,
        query_of,
        session_of,
        streams_of,
    )

    spark = session_of(job)
    streams = streams_of(job, spark)
    if explain:
        text = explanation(job, streams, spark)
    else:
        text = "\n".join(checked(job, query_of(job, streams, spark)))
    if json_output:
        emit_json({"job": job.name, "plan": text.splitlines()})
        return
    console_for(False).print(text, soft_wrap=True)
    if not explain:
        console_for(False).print(f"{job.name} is ready to run")


def run_job(
    job: Job,
    seconds: float | None = None,
    *,
    json_output: bool = False,
    submitted: bool = False,
    dashboard: bool = False,
) -> Seen:
    """Runs a job to its end."""
    from spillway.spark.jobs.following import Seen, follow, stoppable
    from spillway.spark.jobs.starting import query_of, session_of, started, streams_of

    seen = Seen(job.name, time.monotonic())
    with display(console_for(json_output)) as show:
        show(seen)
        spark = session_of(job, submitted=submitted)
        # Spark's context takes Ctrl-C for itself when it starts: it would cancel the running batch.
        with stoppable() as asked:
            query = started(job, query_of(job, streams_of(job, spark), spark))
            if dashboard:
                seen.dashboard = query.dashboard().url
                show(seen)
            follow(query, seen, asked, show, seconds)
    return seen


def _tell(seen: Seen, json_output: bool) -> None:
    """The end of a job, and its exit code."""
    problem = seen.problem
    if json_output:
        error = None if problem is None else {"error": error_parts(problem)}
        emit_json({**seen.document(), **(error or {})})
    elif problem is not None:
        print_error(problem)
    else:
        lost = sum(seen.rows_late.values())
        console_for(False).print(
            f"{seen.name} {seen.ended}: {sum(seen.rows_in.values()):,} rows in "
            f"({lost:,} more were late), {seen.rows_out:,} rows out, {seen.batches:,} batches "
            f"in {seen.elapsed_s:.1f} s"
        )
    if problem is not None:
        raise typer.Exit(FAILED) from (problem if isinstance(problem, SpillwayError) else None)
