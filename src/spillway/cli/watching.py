"""The view of a running job: a table that changes in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from spillway.cli.figures import count, size

if TYPE_CHECKING:
    from spillway.spark.jobs.following import Seen

#: Without a terminal, the command prints a line this often.
_LINE_EVERY_S = 5.0


@contextmanager
def display(console: Console) -> Iterator[Callable[[Seen], None]]:
    """A function that shows how far a job is."""
    if not console.is_terminal:
        yield _lines(console)
        return
    with Screen(console=console, refresh_per_second=4) as screen:
        yield lambda seen: screen.update(_picture(seen))


def _lines(console: Console) -> Callable[[Seen], None]:
    phase, printed_at, address = "", 0.0, None

    def show(seen: Seen) -> None:
        nonlocal phase, printed_at, address
        if seen.dashboard != address:
            address = seen.dashboard
            console.print(f"{seen.name}: dashboard at {address}", soft_wrap=True)
        changed, phase = seen.phase != phase, seen.phase
        due = seen.last is not None and time.monotonic() - printed_at >= _LINE_EVERY_S
        if changed:
            console.print(f"{seen.name}: {phase}", soft_wrap=True)
        elif due:
            printed_at = time.monotonic()
            console.print(f"{seen.elapsed_s:5.0f} s  " + ", ".join(_facts(seen)), soft_wrap=True)

    return show


def _facts(seen: Seen) -> Iterator[str]:
    last = seen.last or {}
    yield f"batch {last.get('batchId', '-')}"
    yield f"rows in {count(sum(seen.rows_in.values()))}"
    if late := sum(seen.rows_late.values()):
        yield f"late {count(late)}"
    yield f"rows out {count(seen.rows_out)}"
    if seen.batches:
        yield f"state {count(seen.state_rows)} rows, {size(seen.state_bytes)}"
    if "batchMs" in last:
        yield f"last batch {last['batchMs'] / 1e3:.2f} s"


def _picture(seen: Seen) -> Group:
    table = Table(box=None, pad_edge=False)
    table.add_column("stream")
    for title in ("rows in", "late", "NULL key or time"):
        table.add_column(title, justify="right")
    for name, rows in seen.rows_in.items():
        lost = (seen.rows_late.get(name, 0), seen.rows_null.get(name, 0))
        table.add_row(name, count(rows), *map(count, lost))
    head = Text.assemble((seen.name, "bold"), f"  {seen.phase}  {seen.elapsed_s:.0f} s")
    address = [] if seen.dashboard is None else [Text(f"dashboard: {seen.dashboard}")]
    return Group(head, *address, Text(", ".join(_facts(seen))), table)
