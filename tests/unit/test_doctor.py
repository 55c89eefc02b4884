"""The doctor finds what is there, names what is not, and says how to get it."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from spillway import doctor
from spillway.cli.main import app
from spillway.doctor import Check
from spillway.errors import EnvironmentMissing

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"

JAVA_17 = 'openjdk version "17.0.15" 2025-04-15'
JAVA_8 = 'java version "1.8.0_392"'


def nothing(_name: str) -> None:
    """A `which` that finds nothing."""


def script(path: Path, *lines: str, status: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    said = "".join(f"echo '{line}' >&2\n" for line in lines)
    path.write_text(f"#!/bin/sh\n{said}exit {status}\n")
    path.chmod(0o755)
    return path


def java_home(path: Path, *lines: str, status: int = 0) -> dict[str, str]:
    script(path / "bin" / "java", *lines, status=status)
    return {"JAVA_HOME": str(path)}


def missing_java(environ: dict[str, str], which: doctor.Which) -> EnvironmentMissing:
    with pytest.raises(EnvironmentMissing) as raised:
        doctor.require_java(environ, which)
    assert "\n" not in raised.value.message
    assert raised.value.hint == doctor.JAVA_REMEDY
    return raised.value


# Java


@pytest.mark.parametrize(
    ("line", "version", "major"),
    [
        (JAVA_17, "17.0.15", 17),
        ('openjdk version "21" 2023-09-19', "21", 21),
        ('openjdk version "25-ea" 2025-09-16', "25-ea", 25),
    ],
)
def test_java_of_java_home_is_found_with_its_version(tmp_path, line, version, major):
    java = doctor.require_java(java_home(tmp_path, line), nothing)
    assert java == doctor.Java(str(tmp_path / "bin" / "java"), version, major)


def test_java_on_path_is_found_when_java_home_is_not_set(tmp_path):
    path = str(script(tmp_path / "java", JAVA_17))
    assert doctor.require_java({}, lambda name: path).path == path


def test_java_version_is_found_below_other_lines(tmp_path):
    environ = java_home(tmp_path, "Picked up JAVA_TOOL_OPTIONS: -Xmx1g", JAVA_17)
    assert doctor.require_java(environ, nothing).major == 17


def test_no_java_says_so_in_one_line():
    missing = missing_java({}, nothing)
    assert missing.message == (
        "Spark needs Java 17 or newer: PATH has no java, and JAVA_HOME is not set"
    )


def test_old_java_is_named_with_its_version(tmp_path):
    missing = missing_java(java_home(tmp_path, JAVA_8), nothing)
    assert missing.message == (
        f"Spark needs Java 17 or newer: {tmp_path}/bin/java is Java 1.8.0_392"
    )


def test_java_home_counts_even_if_path_has_a_better_one(tmp_path):
    path = str(script(tmp_path / "java", JAVA_17))
    missing = missing_java({"JAVA_HOME": str(tmp_path / "gone")}, lambda name: path)
    assert missing.message.endswith("gone/bin/java does not run (from JAVA_HOME)")


def test_java_that_only_complains_does_not_count(tmp_path):
    missing_java(java_home(tmp_path, "Unable to locate a Java Runtime.", status=1), nothing)


def test_check_of_missing_java_fails_with_the_remedy():
    check = doctor.check_java({}, nothing)
    assert (check.status, check.remedy) == ("fail", doctor.JAVA_REMEDY)


# Python and packages


def test_old_python_fails():
    assert doctor.check_python((3, 9, 18)).status == "fail"
    assert doctor.check_python((3, 10, 0)).status == "ok"


def test_every_dependency_is_checked_with_the_bounds_of_pyproject():
    needed = re.search(r"^dependencies = \[$(.*?)^\]$", PYPROJECT.read_text(), re.M | re.S)
    assert needed
    lines = [line.strip() for line in needed[1].splitlines() if line.strip().startswith('"')]
    declared = [re.fullmatch(r'"([\w.-]+)>=([\d.]+),<([\d.]+)",', line) for line in lines]
    bounds = {found[1]: (found[2], found[3]) for found in declared if found}
    assert len(bounds) == len(lines)
    # Without these two the command line does not start, so it cannot report them.
    started_with = {"typer", "rich"}
    assert {name: bounds[name] for name in bounds.keys() - started_with} == doctor.PACKAGES


@pytest.mark.parametrize(
    ("version", "status", "found"),
    [
        ("4.0.1", "fail", "4.0.1; Spillway needs 4.1 or newer"),
        ("4.1.0.dev1", "ok", "4.1.0.dev1"),
        ("4.10", "ok", "4.10"),
        ("5.0.0", "warn", "5.0.0; Spillway is tested with versions below 5"),
    ],
)
def test_package_version_is_compared_by_numbers(version, status, found):
    check = doctor.check_package("pyspark", lambda name: version)
    assert (check.status, check.found) == (status, found)


def test_missing_package_fails_and_says_what_to_install():
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    expected = Check("numba", "fail", "not installed", "pip install 'numba>=0.60,<0.70'")
    assert doctor.check_package("numba", absent) == expected


# The workers' Python


def test_worker_python_that_is_this_one_is_ok():
    check = doctor.check_worker_python({"PYSPARK_PYTHON": sys.executable})
    assert check == Check("PYSPARK_PYTHON", "ok", sys.executable)


def test_worker_python_that_is_not_there_fails_with_the_remedy():
    check = doctor.check_worker_python({"PYSPARK_PYTHON": "/gone/python"})
    assert check.found == "/gone/python: it does not run"
    assert (check.status, check.remedy) == ("fail", f"export PYSPARK_PYTHON={sys.executable}")


@pytest.mark.parametrize(
    ("told", "status"),
    [("2 7 /elsewhere", "fail"), (f"3 {sys.version_info[1]} /elsewhere", "warn")],
)
def test_worker_python_that_is_another_one_is_noticed(tmp_path, told, status):
    other = script(tmp_path / "python", told)
    check = doctor.check_worker_python({"PYSPARK_PYTHON": str(other)})
    assert check.status == status
    major, minor, prefix = told.split()
    assert check.found == f"{other}: it is another Python, {major}.{minor} in {prefix}"


def test_worker_python_left_open_is_python3_of_path(tmp_path):
    same = doctor.check_worker_python({}, lambda name: sys.executable)
    other = script(tmp_path / "python3", "2 7 /elsewhere")
    different = doctor.check_worker_python({}, lambda name: str(other))
    assert (same.status, different.status) == ("ok", "warn")


# Room


@pytest.fixture
def room(monkeypatch) -> Callable[..., None]:
    """Sets how much room every path has."""

    def give(*, total: int, free: int) -> None:
        usage = SimpleNamespace(total=total, free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    return give


def test_small_shared_memory_is_a_warning_with_the_remedy(tmp_path, room):
    room(total=64 << 20, free=60 << 20)
    check = doctor.check_shared_memory(tmp_path)
    assert (check.status, check.found) == ("warn", f"60 MiB free of 64 MiB ({tmp_path})")
    assert "--shm-size" in (check.remedy or "")


def test_large_shared_memory_is_ok(tmp_path, room):
    room(total=8 * doctor.GIB, free=2 * doctor.GIB)
    check = doctor.check_shared_memory(tmp_path)
    assert check == Check("shared memory", "ok", f"2.0 GiB free of 8.0 GiB ({tmp_path})")


def test_no_shared_memory_is_a_warning(tmp_path):
    assert doctor.check_shared_memory(tmp_path / "shm").status == "warn"


def test_full_disk_is_a_warning_with_the_remedy(tmp_path, room):
    room(total=100 * doctor.GIB, free=0)
    check = doctor.check_disk(tmp_path)
    assert check.status == "warn"
    assert "TMPDIR" in (check.remedy or "")


def test_little_memory_is_a_warning():
    assert doctor.check_memory(doctor.GIB).status == "warn"
    assert doctor.check_memory(4 * doctor.GIB) == Check("memory", "ok", "4.0 GiB")
    assert doctor.check_memory(None).status == "ok"


@pytest.mark.parametrize(
    ("told", "status", "found"),
    [
        ("65530\n", "warn", "65530 per process"),
        ("262144\n", "ok", "262144 per process"),
        ("", "ok", "unknown on this system"),
    ],
)
def test_few_memory_maps_are_a_warning_with_the_remedy(tmp_path, told, status, found):
    limit = tmp_path / "max_map_count"
    limit.write_text(told)
    check = doctor.check_maps(limit)
    assert (check.status, check.found) == (status, found)
    assert ("sysctl -w vm.max_map_count=262144" in (check.remedy or "")) == (status == "warn")
    assert doctor.check_maps(tmp_path / "missing").status == "ok"


def test_memory_of_a_container_is_its_limit(tmp_path):
    limit = tmp_path / "memory.max"
    limit.write_text("1048576\n")
    assert doctor.memory_bytes(limit) == 1 << 20
    limit.write_text("max\n")
    assert doctor.memory_bytes(limit) == doctor.memory_bytes(tmp_path / "gone")


# The command


def run_doctor(monkeypatch, checks: list[Check], *options: str) -> int:
    monkeypatch.setattr("spillway.cli.doctor.examine", lambda: checks)
    with pytest.raises(SystemExit) as ended:
        app(["doctor", *options])
    return int(ended.value.code or 0)


def test_doctor_exits_0_when_nothing_failed(monkeypatch, capsys):
    checks = [Check("Java", "ok", "17"), Check("disk", "warn", "0 MiB", "free some [now]")]
    assert run_doctor(monkeypatch, checks) == 0
    out = capsys.readouterr().out
    assert re.search(r"ok\s+Java\s+17", out)
    assert re.search(r"warn\s+disk\s+0 MiB\s+-> free some \[now\]", out)


def test_doctor_exits_2_when_something_failed(monkeypatch, capsys):
    checks = [Check("Java", "fail", "none", "install it")]
    assert run_doctor(monkeypatch, checks, "--json") == 2
    assert json.loads(capsys.readouterr().out) == {
        "ok": False,
        "checks": [
            {"name": "Java", "status": "fail", "found": "none", "remedy": "install it"},
        ],
    }


def test_every_check_of_this_machine_has_a_finding_and_a_remedy_if_not_ok():
    for check in doctor.examine():
        assert check.found
        assert check.status == "ok" or check.remedy


def test_doctor_compiles_kernels_when_asked(monkeypatch, capsys):
    monkeypatch.setattr("spillway.kernels.warming.warm", lambda: iter([("probe.expand", 0.25)]))
    assert run_doctor(monkeypatch, [Check("Java", "ok", "17")], "--warm") == 0
    assert "compiled 1 kernels" in capsys.readouterr().out
    assert run_doctor(monkeypatch, [Check("Java", "ok", "17")], "--warm", "--json") == 0
    warmed = json.loads(capsys.readouterr().out)["warmed"]
    assert warmed == [{"kernel": "probe.expand", "seconds": 0.25}]
