"""`spillway doctor`: what is missing on this machine, and how to get it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from spillway.cli.output import USER_ERROR, JsonOption, console_for, emit_json, guarded
from spillway.doctor import Check, examine, healthy

if TYPE_CHECKING:
    from spillway.state.runs.reaping import Abandoned

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


SweepOption = Annotated[
    bool, typer.Option("--sweep", help="Remove local state of queries whose processes are gone.")
]
IdleOption = Annotated[
    float,
    typer.Option("--idle", help="With --sweep: remove only state unused for this many minutes."),
]
WarmOption = Annotated[
    bool, typer.Option("--warm", help="Compile kernels now, not in the first batch of a query.")
]
PlacesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--in",
        help="With --sweep: search this memory_dir or disk_dir, not the defaults.",
    ),
]


def doctor(
    json_output: JsonOption = False,
    sweep: SweepOption = False,
    idle: IdleOption = 60.0,
    places: PlacesOption = None,
    warm: WarmOption = False,
) -> None:
    """Check Python, Java, packages, memory and disk; exit 2 if queries cannot run.

    Every problem comes with a remedy. With --sweep, the command also removes the files that killed
    queries left in shared memory and on the local disk, and lists them. With --warm, it also compiles
    the kernels that this user has not compiled yet, which takes about ten seconds once per version.
    """
    with guarded(json_output):
        checks = examine()
        warmed = _warm() if warm else None
        swept = _sweep(places, idle * 60) if sweep else None
    if json_output:
        removed = {} if swept is None else {"swept": [_document(*one) for one in swept]}
        listed = [asdict(check) for check in checks]
        compiled = {} if warmed is None else {"warmed": warmed}
        emit_json({"ok": healthy(checks), "checks": listed, **removed, **compiled})
    else:
        console_for(json_output).print(_listed(checks))
        for line in (*_told(swept), *_told_of_kernels(warmed)):
            console_for(json_output).print(line, soft_wrap=True)
    if not healthy(checks):
        raise typer.Exit(USER_ERROR)


def _sweep(places: list[Path] | None, after_s: float) -> list[tuple[Abandoned, bool]]:
    """The abandoned directories, and whether each could be removed."""
    from spillway.spark.runtime.home import default_parents
    from spillway.state.runs.reaping import abandoned, reap

    found = abandoned(places or default_parents(), time.time(), after_s)
    return [(one, reap(one)) for one in found]


def _warm() -> list[dict[str, object]]:
    """The kernels that were compiled."""
    from spillway.kernels.warming import warm

    return [{"kernel": name, "seconds": round(seconds, 3)} for name, seconds in warm()]


def _told_of_kernels(warmed: list[dict[str, object]] | None) -> Iterator[str]:
    if warmed is not None:
        yield f"compiled {len(warmed)} kernels" if warmed else "all kernels were compiled before"


def _document(gone: Abandoned, removed: bool) -> dict[str, object]:
    return {
        "path": str(gone.path),
        "bytes": gone.bytes,
        "files": gone.files,
        "idle_seconds": round(gone.idle_s),
        "removed": removed,
    }


def _told(swept: list[tuple[Abandoned, bool]] | None) -> Iterator[str]:
    if swept is None:
        return
    for gone, removed in swept:
        what = "removed" if removed else "could not remove"
        yield f"{what} {gone.path}: {gone.files} files, {gone.bytes} bytes"
    total = sum(gone.bytes for gone, removed in swept if removed)
    yield f"swept {total} bytes of {sum(removed for _, removed in swept)} ended queries"


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
