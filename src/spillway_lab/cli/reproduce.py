"""`spillway reproduce`: the figures of the papers, and whether their claims hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from spillway.cli.output import JsonOption, console_for, emit_json, guarded
from spillway.errors import SettingsError

NOT_HELD = 1


def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            help="dcape-5, -6, -7 and -9 to -14; dcape-tr-6, -7, -12 and -15; flux-3, -7 to -9, "
            "-11 to -14, -15a, -15b, -15c, -tuning, -tuning-gap and -real; plans-7 to -13, -7-mslb, "
            "-8-mslb and -real; psp-8a to -8h and -real; default: all."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory for FIGURE.json and, without --page, FIGURE.png."),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Also write a page of all figures in --out, with figures/ next to it."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Reproduce figures of the papers: data, plot and verdict; exit 1 if a claim does not hold.

    Time is virtual: 40 minutes of stream are 40 batches, or 160 where the query compares slots often.
    All figures together take most of an hour. The figures of FLUX, PLANS and PSP are simulated and
    take minutes, except flux-real, plans-real and psp-real, which run on Spark. With --json, one
    figure gives one document, several give a list. Plots need the extra "lab".
    """
    from spillway_lab.reproduce.figures import run_figures
    from spillway_lab.reproduce.page import load, write_page
    from spillway_lab.reproduce.plots import plot, require_matplotlib

    errors = Console(stderr=True, markup=False, highlight=False)
    documents = []
    with guarded(json_output):
        if out is not None or page is not None:
            require_matplotlib()
        _make_folders(out, page)
        for document in run_figures(figures or [], errors.print):
            documents.append(document)
            if out is not None:
                text = json.dumps(document, indent=2) + "\n"
                (out / f"{document['figure']}.json").write_text(text)
                if page is None:
                    plot(document, out / f"{document['figure']}.png")
        if page is not None:
            write_page(documents if out is None else load(out), page)
    if json_output:
        emit_json(documents[0] if len(documents) == 1 else documents)
    else:
        console_for(json_output).print(_table(documents))
    if not all(document["holds"] for document in documents):
        raise typer.Exit(NOT_HELD)


def _make_folders(out: Path | None, page: Path | None) -> None:
    for name, folder in (("out", out), ("page", page and page.parent)):
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise SettingsError(
                f"cannot write figures to {folder}",
                detail=str(problem),
                hint=f"choose another --{name}",
            ) from problem


def _table(documents: list[dict[str, Any]]) -> Table:
    from spillway_lab.reproduce.page import verdict
    from spillway_lab.reproduce.words import ours

    table = Table("figure", "claim", "paper", "here", "verdict", show_lines=True)
    for document in documents:
        table.add_row(
            document["figure"],
            document["claim"],
            document["paper"],
            ours(document),
            verdict(document),
        )
    return table
