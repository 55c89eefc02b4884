"""`spillway bench`: Spillway and Spark's own join on the same input, and their ratio."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from spillway.cli.figures import count
from spillway.cli.output import JsonOption, console_for, emit_json, guarded
from spillway.errors import SettingsError

if TYPE_CHECKING:
    from spillway_lab.bench.runs import Say


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="join2, join3, join2-strings, join2-window, join2-left, groupby, window-agg, spill, "
            "relocate, plans, theta, dashboard, identity; default: all."
        ),
    ] = None,
    engines: Annotated[
        list[str] | None,
        typer.Option(
            help="spillway, identity, spark-memory, spark-rocksdb, ...; repeat it, or use commas."
        ),
    ] = None,
    batches: Annotated[int, typer.Option(help="Batches that spillway and identity run.")] = 50,
    spark_batches: Annotated[int, typer.Option(help="Batches that Spark's own joins run.")] = 10,
    rows: Annotated[int, typer.Option(help="Rows of each stream in each batch.")] = 200_000,
    warmup: Annotated[float, typer.Option(help="Seconds of warm-up for each engine.")] = 40.0,
    driver_memory: Annotated[str, typer.Option(help="Java heap of each engine.")] = "6g",
    directory: Annotated[
        str | None, typer.Option("--dir", help="Directory for scratch files and checkpoints.")
    ] = None,
    no_settle: Annotated[
        bool, typer.Option("--no-settle", help="Skip pre-faulting of memory.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write a .json file, or one NAME.json per benchmark into a directory."
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compare Spillway with Spark's own stream-stream join on two cores.

    The engines run one after the other, each in a new process, on the same input. Ratios compare input
    rows per second. With --json, one benchmark gives one document, several give a list.
    """
    from spillway_lab.bench.runs import run_bench, settle
    from spillway_lab.bench.spec import BenchSettings

    console, errors = console_for(json_output), Console(stderr=True, markup=False, highlight=False)
    documents = []
    with guarded(json_output):
        settings = BenchSettings(
            rows, batches, spark_batches, warmup_s=warmup, driver_memory=driver_memory,
            directory=directory,
        )  # fmt: skip
        _check_out(out)
        asked = [one.strip() for text in engines or [] for one in text.split(",") if one.strip()]
        with errors.status("") as status:
            measured = run_bench(names or [], asked, settings, _teller(errors, status.update))
            if not no_settle:
                status.update("pre-faulting memory")
                settle()
            for document in measured:
                documents.append(document)
                _write(document, out)
                if not json_output:
                    console.print(_table(document))
    whole = documents[0] if len(documents) == 1 else documents
    if out is not None and out.suffix == ".json":
        out.write_text(json.dumps(whole, indent=2) + "\n")
    if json_output:
        emit_json(whole)


def _check_out(out: Path | None) -> None:
    if out is None:
        return
    folder = out.parent if out.suffix == ".json" else out
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SettingsError(
            f"cannot write results to {out}", detail=str(problem), hint="choose another --out"
        ) from problem


def _write(document: dict[str, Any], out: Path | None) -> None:
    if out is not None and out.suffix != ".json":
        (out / f"{document['name']}.json").write_text(json.dumps(document, indent=2) + "\n")


def _teller(errors: Console, update: Callable[[str], None]) -> Say:
    """Progress on standard error: one line in place on a terminal, else one per engine and phase."""
    told: set[tuple[str, str, str]] = set()

    def say(name: str, engine: str, fact: dict[str, Any]) -> None:
        phase = fact["phase"]
        if errors.is_terminal:
            of = f" of {fact['of']}" if phase == "measured" else ""
            update(f"{name}, {engine}, {phase}: batch {fact['batch']}{of}")
        elif (name, engine, phase) not in told:
            told.add((name, engine, phase))
            errors.print(f"{name}, {engine}, {phase}")

    return say


def _table(document: dict[str, Any]) -> Table:
    if document["name"] in ("relocate", "theta", "dashboard"):
        return _plain_table(document)
    if document["name"] == "plans":
        return _plans_table(document)
    table = Table(
        "engine", "rows/s", "batch p50", "batch p99", "state rows", "spillway is",
        title=document["name"], title_justify="left",
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    from spillway_lab.bench.figures import ratio_name

    for engine, figures in document["engines"].items():
        ratio = document["ratios"].get(ratio_name(engine))
        table.add_row(
            engine,
            count(figures["rows_per_s"]),
            f"{figures['batch_p50_s']:.3f} s",
            f"{figures['batch_p99_s']:.3f} s",
            count(figures["state_rows"]),
            "" if ratio is None else f"{ratio:.2f} x",
        )
    ours = document["engines"].get("spillway")
    if ours is not None:
        table.caption_justify = "left"
        table.caption = (
            f"operator {ours['operator_us_per_row']:.3f} µs of processor per row; "
            f"{ours['bytes_per_state_row']} bytes a state row, "
            f"{ours['plain_arrow_bytes_per_row']} as plain Arrow; batch time grew "
            f"{ours['growth']:.2f} x from {count(ours['growth_from_state_rows'])} "
            f"to {count(ours['growth_to_state_rows'])} state rows; p99 is "
            f"{ours['p99_vs_p50']:.2f} x p50"
        )
    return table


def _plans_table(document: dict[str, Any]) -> Table:
    table = Table(
        "plan", "before", "worst of 5 after", "then", "state bytes",
        title=document["name"], title_justify="left",
    )  # fmt: skip
    for engine, found in document["engines"].items():
        times = (found[name] for name in ("steady_p50_s", "changed_max_s", "recovered_p50_s"))
        table.add_row(engine, *(f"{one:.3f} s" for one in times), count(found["state_bytes"]))
    table.caption_justify = "left"
    told = (f"{name} {value}" for name, value in document["ratios"].items())
    table.caption = ", ".join((*told, f"exact {document['exact']}"))
    return table


def _plain_table(document: dict[str, Any]) -> Table:
    table = Table("what", "measured", title=document["name"], title_justify="left")
    for name, value in {**document["ratios"], **document["engines"]["spillway"]}.items():
        table.add_row(name, str(value))
    return table
