"""`spillway demo`: joins live streams on an embedded Spark and checks the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from spillway.cli.figures import count, size
from spillway.cli.output import JsonOption, console_for, emit_json, guarded
from spillway.errors import SettingsError

if TYPE_CHECKING:
    from spillway_lab.demo.banks import DemoResult, Live
    from spillway_lab.demo.similarity import SimilarityResult

NOT_EXACT = 1
#: Without a terminal, the command prints a line this often.
_LINE_EVERY_S = 5.0


BANKS, SIMILARITY = "banks", "similarity"
#: Default seconds, and rows of each stream in each batch.
_USUAL = {BANKS: (60.0, 10_000), SIMILARITY: (30.0, 12)}
_TITLES = {
    BANKS: "QUERY 1 of DCAPE: three banks joined on currency and offer",
    SIMILARITY: "similar frames of three cameras within ten seconds",
}


def demo(
    name: Annotated[
        str, typer.Argument(help="banks: QUERY 1 of DCAPE; similarity: similar frames of cameras.")
    ] = BANKS,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Seconds that the streams run; default: 60 for banks, 30 for similarity."
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Rows of each stream in each batch; default: 10000, or 12 for similarity."
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Slots; default: one per core.")] = None,
    out: Annotated[Path, typer.Option(help="The page of pictures that similarity writes.")] = Path(
        "similarity.html"
    ),
    json_output: JsonOption = False,
) -> None:
    """Join live streams and check the result; exit 1 if it is not exact.

    banks joins three banks on equal keys. similarity matches frames of three cameras by their pixels
    and writes a page that shows them.
    """
    from spillway_lab.demo.banks import DemoSpec, run_demo
    from spillway_lab.demo.similarity import SimilaritySpec, run_similarity

    console = console_for(json_output)
    with guarded(json_output):
        if name not in _USUAL:
            raise SettingsError(
                f"there is no demonstration {name!r}", hint=f"use one of {', '.join(_USUAL)}"
            )
        usual = _USUAL[name]
        how_long = usual[0] if seconds is None else seconds
        how_many = usual[1] if rows is None else rows
        with _display(console, _TITLES[name]) as show:
            if name == SIMILARITY:
                matched = run_similarity(SimilaritySpec(how_long, how_many, slots, out), show)
            else:
                result = run_demo(DemoSpec(how_long, how_many, slots), show)
    if name == SIMILARITY:
        _tell_matches(matched, console, json_output=json_output)
        return
    if json_output:
        emit_json(result.document())
    else:
        _tell(result, console)
    if not result.exact:
        raise typer.Exit(NOT_EXACT)


def _tell_matches(result: SimilarityResult, console: Console, *, json_output: bool) -> None:
    if json_output:
        emit_json(result.document())
    else:
        console.print(
            f"{count(result.frames)} frames in {count(result.batches)} batches, "
            f"{count(result.matches)} matches; {result.page} shows them"
        )
        told = f"a comparison of all combinations gives {count(result.expected)} matches"
        style = "bold green" if result.exact else "bold red"
        console.print(Text(f"{'exact' if result.exact else 'NOT exact'}: {told}", style=style))
    if not result.exact:
        raise typer.Exit(NOT_EXACT)


@contextmanager
def _display(console: Console, title: str) -> Iterator[Callable[[Live], None]]:
    """A picture that changes in place on a terminal, plain lines elsewhere."""
    if not console.is_terminal:
        yield _lines(console)
        return
    with Screen(console=console, refresh_per_second=5) as screen:
        yield lambda live: screen.update(_picture(live, title))


def _lines(console: Console) -> Callable[[Live], None]:
    phase, printed_at, url = "", 0.0, ""

    def show(live: Live) -> None:
        nonlocal phase, printed_at, url
        if live.url != url:
            url = live.url
            console.print(f"dashboard: {url}")
        if live.phase != phase:
            phase = live.phase
            console.print(phase)
        elif live.last is not None and time.monotonic() - printed_at >= _LINE_EVERY_S:
            printed_at = time.monotonic()
            facts = (f"{name} {value}" for name, value in _facts(live, live.last))
            console.print(f"{live.elapsed_s:5.0f} s  " + ", ".join(facts), soft_wrap=True)

    return show


def _facts(live: Live, last: Any) -> list[tuple[str, str]]:
    return [
        ("batch", count(last["batchId"])),
        ("rows in", count(live.rows_in)),
        ("rows out", count(live.rows_out)),
        ("late rows", count(live.rows_late)),
        ("state", f"{count(last['stateRows'])} rows, {size(last['stateBytes'])}"),
        ("watermark", last["watermark"] or "none yet"),
        ("batch time", f"{last['batchMs']:.0f} ms"),
    ]


def _picture(live: Live, title: str) -> Group:
    head = Text(title, style="bold")
    address = f"   dashboard: {live.url}" if live.url else ""
    state = Text(f"{live.phase}, {live.elapsed_s:.0f} s{address}", style="dim")
    if live.last is None:
        return Group(head, state)
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(live, live.last):
        facts.add_row(Text(name, style="bold"), Text(value))
    return Group(head, state, facts, _slots(live.last))


def _slots(last: Any) -> Table:
    table = Table("slot", "state rows", "state", "rows in", "rows out", "batch time")
    for column in table.columns:
        column.justify = "right"
    for slot in last["slots"]:
        table.add_row(
            str(slot["slot"]),
            count(sum(slot["stateRows"].values())),
            size(sum(slot["stateBytes"].values())),
            count(slot["rowsIn"]),
            count(slot["rowsOut"]),
            f"{slot['busyMs']:.0f} ms",
        )
    return table


def _tell(result: DemoResult, console: Console) -> None:
    answer = Table("brokerName", "min(price)", title="QUERY 1", title_justify="left")
    answer.columns[1].justify = "right"
    for broker, price in result.cheapest:
        answer.add_row(broker, price)
    console.print(answer)
    state, verdict = result.committed, result.verdict
    console.print(
        f"{count(sum(state.rows_in))} rows in ({count(sum(state.rows_late))} of them late), "
        f"{count(state.rows_out)} rows out, in {count(state.batch + 1)} batches"
    )
    if result.exact:
        told = f"the Spark batch query gives the same {count(verdict.expected_rows)} rows"
        console.print(Text(f"exact: {told}", style="bold green"))
        return
    console.print(
        Text(
            f"NOT exact: {count(verdict.differing_rows)} rows differ; the Spark batch query gives "
            f"{count(verdict.expected_rows)} rows and drops {count(sum(verdict.late.values()))} "
            "late ones",
            style="bold red",
        )
    )
