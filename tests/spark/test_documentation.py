"""The Python code of the README and of docs/ runs as it is written there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spillway as sw
from spillway.spark.api.result import Result
from spillway.testing import FileStream
from tier import LONGEST_S

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

#: Code blocks that a test below runs, by the start of their first line.
RUNNABLE = (
    "import spillway as sw",
    "joined = sw.join(",
    "totals = ",
    "spread = ",
    "near = ",
    "paid = sw.join(",
    *("trades_5m = ", "updates = ", "visits = ", "minutes = ", "paid = ", "recent = "),
    *("active = ", "import numpy as np"),
    "import time",
    ".adapt(skew_buffer=",
    "from spillway_lab.simulator import",
    "def alike(shots, stills):",
    "import os",
    "# A query with a dashboard",
)
#: The other blocks, and why no test here runs them.
NOT_RUN = {
    "make demo": "shell; test_demo_live runs the demonstration",
    "make setup": "shell; CI runs it",
    "make chaos": "shell; test_chaos_seeds runs seeds and schedules",
    "spillway demo similarity": "shell; test_similarity runs it",
    "spillway demo [--seconds N]": "a list of commands; test_bare_machine starts each",
    "(state at version": "a formula",
    "spillway run job.yaml": "shell; tests/spark/test_jobs.py runs jobs",
    "spillway doctor --warm": "shell; tests/unit/kernels/test_warming.py warms",
    "prepare   the rows": "the names of three steps",
    "by_symbol = ": "needs a server; tests/connectors/test_postgres.py has these options",
    "from spillway.testing import without_repeats": "needs a broker; tests/connectors/test_kafka.py",
    "spark.jars.packages": "settings; tests/connectors/places.py has them",
    "ssh -L": "shell on another machine",
    "tail -n": "shell with jq; test_formats reads these files",
}

#: The streams that the blocks use, by name.
STREAMS = {
    "orders": "order_id bigint, customer string, total double, ts timestamp",
    "payments": "order_id bigint, amount double, ts timestamp",
    "shipments": "order_id bigint, carrier string, ts timestamp",
    "trades": "symbol string, venue string, size bigint, price double, ts timestamp",
    "events": "event_id bigint, ts timestamp",
    **dict.fromkeys(("north", "south", "gate"), "x double, ts timestamp"),
    **dict.fromkeys(
        ("shots", "stills"), "id bigint, price double, embedding array<float>, ts timestamp"
    ),
}
#: Rows of every stream.
ROWS = 12


def blocks(page: Path) -> Iterator[str]:
    """The indented blocks of a page; what stands between fences is a diagram."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    for found in re.finditer(r"(?:^ {4}.*\n(?:\n(?= {4}))*)+", text, re.M):
        yield textwrap.dedent(found.group())


def block(start: str) -> str:
    [found] = [one for page in PAGES for one in blocks(page) if one.startswith(start)]
    return found


def test_every_code_block_runs_or_has_a_reason_why_not() -> None:
    found = [one.splitlines()[0] for page in PAGES for one in blocks(page)]
    known = (*RUNNABLE, *NOT_RUN)
    assert [line for line in found if not line.startswith(known)] == []
    assert [one for one in known if not any(line.startswith(one) for line in found)] == []


def value(column: str, number: int) -> Any:
    """The value of a column in a row: equal numbers are partners, an even one paid enough."""
    if column == "ts":
        return datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=number)
    numbers = {"total": 10.0, "amount": 10.0 - number % 2, "price": 1.5, "x": float(number)}
    numbers |= {"order_id": number, "event_id": number, "size": 100, "id": number}
    if column == "embedding":
        # Vectors of even and of odd numbers.
        return [1.0, 0.0, 0.1] if number % 2 else [0.0, 2.0, 0.1]
    return numbers.get(column, "text")


@pytest.fixture
def names(spark: SparkSession, tmp_path: Path) -> dict[str, Any]:
    """What the blocks expect to be there: `sw`, streams with rows, and a predicate."""
    frames = {}
    for name, schema in STREAMS.items():
        stream = FileStream(spark, tmp_path / "in" / name, schema)
        columns = [column.name for column in stream.schema]
        stream.add([tuple(value(c, number) for c in columns) for number in range(ROWS)])
        frames[name] = stream.stream()
    alike = sw.predicate(lambda a, b: a.x == b.x)
    return {"sw": sw, "alike": alike, **frames}


def run(code: str, names: dict[str, Any], folder: Path) -> list[Result]:
    """Runs a block in `folder`; returns all queries that it describes, named or not."""
    for place in ("ck", "out"):
        code = code.replace(f'"{place}"', repr(str(folder / place)))
    made: list[Any] = []
    tree = ast.parse(code)
    for at, line in enumerate(tree.body):
        if isinstance(line, ast.Expr):
            keep = ast.parse("_made.append(None)", mode="eval").body
            assert isinstance(keep, ast.Call)
            keep.args = [line.value]
            tree.body[at] = ast.Expr(keep)
    names["_made"] = made
    before = set(names)
    exec(compile(ast.fix_missing_locations(tree), "block", "exec"), names)
    made += [names[name] for name in names.keys() - before]
    return [one for one in made if isinstance(one, Result)]


def finished(result: Result, folder: Path) -> int:
    """Runs a query over its whole input; returns its number of results."""
    writer = result.writeStream.format("noop").option("checkpointLocation", str(folder))
    query = writer.adapt(slots=2, groups=16).trigger(availableNow=True).start()
    assert query.awaitTermination(LONGEST_S), "the query hangs"
    return sum(one["rowsOut"] for one in query.recentProgress)


def written(spark: SparkSession, query: sw.Query, out: Path) -> list[Any]:
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return spark.read.parquet(str(out)).collect()


@pytest.mark.full
def test_first_query_joins_the_rows_that_its_conditions_allow(spark, names, tmp_path) -> None:
    run(block("import spillway as sw"), names, tmp_path)
    rows = written(spark, names["query"], tmp_path / "out")
    assert sorted(row.order_id for row in rows) == list(range(0, ROWS, 2))


@pytest.mark.full
def test_all_plans_give_the_same_number_of_results(names, tmp_path) -> None:
    plans = run(block("joined = sw.join("), names, tmp_path)
    found = [finished(one, tmp_path / str(at)) for at, one in enumerate(plans)]
    assert found == [ROWS] * 5


@pytest.mark.full
def test_totals_have_a_row_for_each_key(spark, names, tmp_path) -> None:
    run(block("totals = "), names, tmp_path)
    rows = written(spark, names["query"], tmp_path / "out")
    assert [(row.trades, row.volume) for row in rows] == [(ROWS, 100 * ROWS)]


@pytest.mark.full
def test_windows_dedup_and_groups_of_a_join_give_results(names, tmp_path) -> None:
    run(block("joined = sw.join("), names, tmp_path)
    found = run(block("spread = "), names, tmp_path)
    assert len(found) == 4
    for at, one in enumerate(found):
        assert finished(one, tmp_path / str(at)) > 0


@pytest.mark.full
@pytest.mark.parametrize(
    "start",
    [
        "trades_5m = ",
        "visits = ",
        "minutes = ",
        "paid = ",
        "recent = ",
        "active = ",
        "import numpy",
    ],
)
def test_query_of_the_page_on_windows_runs(names, tmp_path, start: str) -> None:
    made = run(block(start), names, tmp_path)
    found = [finished(one, tmp_path / str(at)) for at, one in enumerate(made)]
    # The rows of a stream are 12 seconds apart in all; few windows end by then.
    assert len(found) == (2 if start == "paid = " else 1)
    assert found[-1] > 0 or start not in ("recent = ", "active = ")
    if start == "trades_5m = ":
        run(block("updates = "), names, tmp_path)
        assert names["updates"]._mode == "update"


@pytest.mark.full
def test_join_on_predicates_finds_partners(names, tmp_path) -> None:
    [near] = run(block("near = "), names, tmp_path)
    # Numbers below 3 apart, for each pair of equal ones.
    assert finished(near, tmp_path / "0") == ROWS + 2 * (ROWS - 1) + 2 * (ROWS - 2)


def test_tiles_find_partners(names, tmp_path) -> None:
    run(block("def alike(shots, stills):"), names, tmp_path)
    # Even with even, odd with odd.
    assert finished(names["found"], tmp_path / "0") == 2 * (ROWS // 2) ** 2
    assert finished(names["priced"], tmp_path / "1") == ROWS * ROWS - ROWS


@pytest.mark.full
def test_joins_of_the_guide_say_which_rows_have_no_partner(names, tmp_path) -> None:
    paid, unpaid, tracked = run(block("paid = sw.join("), names, tmp_path)
    # All rows have partners, and are within the window until the end.
    assert finished(paid, tmp_path / "0") == ROWS
    assert finished(unpaid, tmp_path / "1") == 0
    # Odd payments are below the total; orders of even ones still wait for a payment.
    assert finished(tracked, tmp_path / "2") == ROWS // 2


@pytest.mark.full
def test_settings_for_slow_slots_start(names, tmp_path) -> None:
    joined = sw.join(a=names["orders"], b=names["payments"]).on("order_id")
    lines = block(".adapt(skew_buffer=").splitlines()
    for at, line in enumerate(lines):
        names["writer"] = joined.writeStream.format("noop").trigger(availableNow=True)
        writer = eval(f"writer{line}", names).option("checkpointLocation", str(tmp_path / str(at)))
        assert writer.start().awaitTermination(LONGEST_S)
    assert len(lines) == 2


@pytest.mark.full
def test_query_that_scales_runs_to_its_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("import time")],
        cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(re.match(r"[a-z-]+ \d+ \d+ ", line) for line in done.stdout.splitlines())


@pytest.mark.full
def test_function_that_keeps_the_number_has_all_batches(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("import os")],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    batches = sorted(path.name for path in (tmp_path / "out").glob("0*"))
    assert batches == [f"{number:012d}" for number in range(len(batches))]
    assert int(done.stdout) == 100 * len(batches) > 0


def test_query_with_a_dashboard_prints_its_address(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("# A query with a dashboard")],
        cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", done.stdout)


@pytest.mark.full
def test_simulation_keeps_all_invariants() -> None:
    names: dict[str, Any] = {}
    exec(block("from spillway_lab.simulator import"), names)
    found = names["found"]
    assert found.series["rows_per_s"]
    assert not found.violations
