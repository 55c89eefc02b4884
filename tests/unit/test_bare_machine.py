"""What works on a machine without Java, and without any package but those of the command line.

The command line runs for real, in an interpreter that sees the source, typer, rich and what these two
need, and nothing else that is installed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
import typer

from spillway import doctor
from spillway.cli.main import register

SOURCE = Path(__file__).parents[2] / "src"
HEAVY = {"pyspark", "pyarrow", "numpy", "numba", "pandas", "sqlglot", "msgspec", "matplotlib"}

Run = Callable[..., subprocess.CompletedProcess[str]]


def needed(name: str, seen: set[str]) -> Iterator[metadata.Distribution]:
    """The installed distribution of that name, and all that it requires here."""
    seen.add(name)
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return
    yield found
    for line in found.requires or ():
        required = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
        if required not in seen and "extra ==" not in line:
            yield from needed(required, seen)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the few packages of the command line, and the entry points of spillway."""
    place = tmp_path_factory.mktemp("bare")
    seen: set[str] = set()
    for found in (*needed("typer", seen), *needed("rich", seen)):
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            if not (place / top).exists():
                (place / top).symlink_to(Path(str(found.locate_file(top))))
    entry_points = metadata.distribution("spillway").read_text("entry_points.txt")
    assert entry_points
    own = place / "spillway-0.dist-info"
    own.mkdir()
    (own / "METADATA").write_text("Metadata-Version: 2.1\nName: spillway\nVersion: 0\n")
    (own / "entry_points.txt").write_text(entry_points)
    return place


@pytest.fixture
def run(bare: Path, tmp_path: Path) -> Run:
    """Runs Python there; -S leaves out everything that is installed."""

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join((str(SOURCE), str(bare)))
        environ = {"PATH": str(tmp_path), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, "-S", *arguments],
            env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return start


@pytest.fixture
def spillway(run: Run) -> Run:
    """Runs the command line there."""
    return lambda *arguments: run("-m", "spillway.cli.main", *arguments)


def loaded(code: str) -> set[str]:
    """The heavy packages that a fresh interpreter of this machine has loaded after some code."""
    show = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {show}"],
        env=environ, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return HEAVY & set(done.stdout.split())


def test_import_of_spillway_loads_no_heavy_package() -> None:
    assert loaded("import spillway; dir(spillway); spillway.SettingsError") == set()


def test_import_of_the_command_line_loads_no_heavy_package() -> None:
    assert loaded("import spillway.cli.main") == set()


def test_the_bare_machine_has_no_heavy_package(run: Run) -> None:
    for name in HEAVY:
        assert f"No module named '{name}'" in run("-c", f"import {name}").stderr


def test_spillway_can_be_imported_there(run: Run) -> None:
    done = run("-c", "import spillway; print(spillway.__version__)")
    assert (done.returncode, done.stderr) == (0, "")


def test_help_lists_all_commands_there(spillway: Run) -> None:
    done = spillway("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name in (
        *("demo", "bench", "reproduce", "simulate"),
        *("dashboard", "inspect", "doctor", "chaos"),
    ):
        assert re.search(rf"\b{name}\b", done.stdout)
        assert spillway(name, "--help").returncode == 0


def test_doctor_says_what_is_missing_there_and_how_to_get_it(spillway: Run) -> None:
    done = spillway("doctor", "--json")
    assert (done.returncode, done.stderr) == (2, "")
    document = json.loads(done.stdout)
    assert document["ok"] is False
    checks = {check["name"]: check for check in document["checks"]}
    for name, (at_least, below) in doctor.PACKAGES.items():
        remedy = f"pip install '{name}>={at_least},<{below}'"
        found = {"status": "fail", "found": "not installed", "remedy": remedy}
        assert checks[name] == {"name": name} | found
    assert checks["Java"] == {
        "name": "Java",
        "status": "fail",
        "found": "Spark needs Java 17 or newer: PATH has no java, and JAVA_HOME is not set",
        "remedy": doctor.JAVA_REMEDY,
    }
    assert checks["Python"]["status"] == "ok"


def test_doctor_for_people_lists_the_same_there(spillway: Run) -> None:
    done = spillway("doctor")
    assert (done.returncode, done.stderr) == (2, "")
    assert re.search(r"fail\s+pyspark\s+not installed\s+-> pip install 'pyspark>=", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("bench", "identity"), "'spillway[lab]'"),
        (("demo",), "'spillway[lab]'"),
        (("simulate",), "'spillway[lab]'"),
        (("reproduce", "flux-7"), "'spillway[lab]'"),
        (("inspect", "checkpoint"), "spillway"),
        (("dashboard", "checkpoint"), "spillway"),
        (("chaos", "--seeds", "1"), "spillway"),
    ],
)
def test_other_commands_say_what_to_install(spillway: Run, arguments, wanted: str) -> None:
    done = spillway(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    told = rf"error: spillway {arguments[0]} needs the Python package \w+, which is not installed"
    assert re.fullmatch(told, lines[0])
    assert lines[1:] == [
        f"  hint: pip install {wanted}; spillway doctor lists what else is missing"
    ]


def test_commands_that_miss_a_package_give_one_document_with_json(spillway: Run) -> None:
    done = spillway("simulate", "--json")
    assert (done.returncode, done.stderr) == (2, "")
    error = json.loads(done.stdout)["error"]
    assert error["hint"].startswith("pip install 'spillway[lab]'")


@pytest.mark.parametrize("options", [(), ("--batches", "3"), ("--json",)])
def test_command_that_cannot_be_imported_says_what_to_install(capsys, options) -> None:
    commands = typer.Typer()
    for name in ("bench", "other"):
        register(commands, metadata.EntryPoint(name, "missing_lab.cli:run", "spillway.commands"))
    with pytest.raises(SystemExit) as ended:
        commands(["bench", *options])
    assert ended.value.code == 2
    told = capsys.readouterr()
    message = "spillway bench needs the Python package missing_lab, which is not installed"
    hint = "pip install 'spillway[lab]'; spillway doctor lists what else is missing"
    if options == ("--json",):
        error = {"message": message, "detail": None, "hint": hint}
        assert (json.loads(told.out), told.err) == ({"error": error}, "")
    else:
        assert (told.out, told.err) == ("", f"error: {message}\n  hint: {hint}\n")
