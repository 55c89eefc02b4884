"""`spillway inspect`: what a checkpoint holds, and whether it is complete."""

from __future__ import annotations

from typing import Annotated

import typer

from spillway.cli.output import JsonOption, console_for, emit_json, guarded

FOUND_PROBLEMS = 1


def inspect(
    checkpoint: Annotated[str, typer.Argument(help="The checkpointLocation of a query.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every run file and compare its checksum.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Show query, routing, slots and state of a checkpoint; exit 1 if something is missing.

    The query may be running: the command locks nothing and changes nothing.
    """
    from spillway.cli.inspection import show
    from spillway.inspect.document import as_document
    from spillway.inspect.stages import inspect_stages

    with guarded(json_output):
        found = inspect_stages(checkpoint, verify=verify)
    if json_output:
        first, *later = map(as_document, found)
        emit_json({**first, "then": later} if later else first)
    else:
        for stage in found:
            show(stage, console_for(json_output))
    if any(stage.problems for stage in found):
        raise typer.Exit(FOUND_PROBLEMS)
