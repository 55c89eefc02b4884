"""`spillway doctor`: what is missing on this machine, and how to get it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import typer
from rich.table import Table
from rich.text import Text

from spillway.cli.output import USER_ERROR, JsonOption, console_for, emit_json, guarded
from spillway.doctor import Check, examine, healthy

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(json_output: JsonOption = False) -> None:
    """Check Java, Spark, shared memory and disk; exit 2 if something is missing.

    Every finding that is not ok says what to do.
    """
    with guarded(json_output):
        checks = examine()
    if json_output:
        emit_json({"ok": healthy(checks), "checks": [asdict(check) for check in checks]})
    else:
        console_for(json_output).print(_listed(checks))
    if not healthy(checks):
        raise typer.Exit(USER_ERROR)


def _listed(checks: Iterable[Check]) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in checks:
        status = Text(check.status, style=_COLOURS[check.status])
        table.add_row(status, Text(check.name), Text(check.found))
        if check.remedy:
            table.add_row("", "", Text(f"-> {check.remedy}"))
    return table
