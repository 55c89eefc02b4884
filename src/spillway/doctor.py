"""What the machine must have, what it has, and how to get what is missing.

Every check looks at one thing, changes nothing that lasts and does not import Spark. `fail` means
that queries cannot run, `warn` that they run but may lack something. Where Spark has its own rule
(which Java, which Python for the workers), the check follows Spark, not the shell.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from spillway.connectors import SPARK_TESTED, configured, find_connectors
from spillway.errors import EnvironmentMissing

Status = Literal["ok", "warn", "fail"]
Which = Callable[[str], str | None]

GIB = 1 << 30
PYTHON_NEEDED = (3, 10)
JAVA_NEEDED = 17
#: Package -> (at least, below); a test compares them with pyproject.toml. The command line needs typer
#: and rich to start, so it does not check them.
PACKAGES = {
    "pyspark": ("4.1", "5"),
    "pyarrow": ("18", "27"),
    "numpy": ("1.26", "3"),
    "numba": ("0.60", "0.70"),
    "pandas": ("2.2", "3"),
    "sqlglot": ("30", "31"),
    "msgspec": ("0.22", "0.23"),
}
#: Containers get 64 MB of shared memory by default, which holds almost no state.
LOW_ROOM_BYTES = GIB
#: Spark's driver takes a heap of 1 GiB by default; this leaves the same amount for Python workers.
LOW_MEMORY_BYTES = 2 * GIB
#: A process maps every run that it has open. The usual value for software that maps many files; Linux
#: allows 65,530 by default.
LOW_MAP_COUNT = 262_144

JAVA_REMEDY = (
    f"install Java {JAVA_NEEDED} or newer (Debian, Ubuntu: apt-get install "
    f"openjdk-{JAVA_NEEDED}-jre-headless; macOS: brew install openjdk@{JAVA_NEEDED}), "
    "or set JAVA_HOME to its directory"
)
_JAVA_VERSION = re.compile(r'version "((?:1\.)?(\d+)[^"]*)"')
_WHO_ARE_YOU = "import sys; print(*sys.version_info[:2], sys.prefix)"
_PROBE_SECONDS = 30


@dataclass(frozen=True)
class Check:
    """The result of one check: its name and status, what was found, and what to do about it."""

    name: str
    status: Status
    found: str
    remedy: str | None = None


@dataclass(frozen=True)
class Java:
    """A Java that runs, and its version."""

    path: str
    version: str
    major: int


def examine(environ: Mapping[str, str] | None = None, which: Which = shutil.which) -> list[Check]:
    """Every check, for this interpreter and this machine."""
    environ = os.environ if environ is None else environ
    return [
        check_python(sys.version_info[:3]),
        check_java(environ, which),
        *(check_package(name) for name in PACKAGES),
        check_connectors(environ),
        check_worker_python(environ, which),
        check_kernels(),
        check_shared_memory(Path("/dev/shm")),
        check_disk(Path(tempfile.gettempdir())),
        check_cores(),
        check_memory(memory_bytes()),
        check_maps(),
    ]


def healthy(checks: Iterable[Check]) -> bool:
    """Whether queries can run: nothing failed."""
    return all(check.status != "fail" for check in checks)


def require_java(environ: Mapping[str, str] | None = None, which: Which = shutil.which) -> Java:
    """The Java that Spark will start.

    Raises:
        EnvironmentMissing: There is none, or it is too old. Call this before making a Spark
            session, because Spark reports a missing Java with a page of stack trace.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME")
    path = str(Path(home, "bin", "java")) if home else which("java")
    if path is None:
        raise _java_missing("PATH has no java, and JAVA_HOME is not set")
    java = _ask_java(path)
    if java is None:
        raise _java_missing(f"{path} does not run" + (" (from JAVA_HOME)" if home else ""))
    if java.major < JAVA_NEEDED:
        raise _java_missing(f"{java.path} is Java {java.version}")
    return java


def check_python(version: tuple[int, int, int]) -> Check:
    """This interpreter."""
    found = f"{_dotted(version)} ({sys.executable})"
    if version >= PYTHON_NEEDED:
        return Check("Python", "ok", found)
    return Check("Python", "fail", found, f"install Python {_dotted(PYTHON_NEEDED)} or newer")


def check_java(environ: Mapping[str, str], which: Which = shutil.which) -> Check:
    """The Java that Spark would start."""
    try:
        java = require_java(environ, which)
    except EnvironmentMissing as missing:
        return Check("Java", "fail", missing.message, missing.hint)
    return Check("Java", "ok", f"{java.version} ({java.path})")


def check_package(name: str, version_of: Callable[[str], str] = metadata.version) -> Check:
    """An installed package, and whether Spillway supports its version."""
    at_least, below = PACKAGES[name]
    remedy = f"pip install '{name}>={at_least},<{below}'"
    try:
        version = version_of(name)
    except metadata.PackageNotFoundError:
        return Check(name, "fail", "not installed", remedy)
    if _numbers(version) < _numbers(at_least):
        return Check(name, "fail", f"{version}; Spillway needs {at_least} or newer", remedy)
    if _numbers(version) >= _numbers(below):
        return Check(
            name, "warn", f"{version}; Spillway is tested with versions below {below}", remedy
        )
    return Check(name, "ok", version)


def check_connectors(
    environ: Mapping[str, str],
    version_of: Callable[[str], str] = metadata.version,
    home: Path | None = None,
) -> Check:
    """Whether tests run this Spark together with the connectors that it would load."""
    name = "connectors"
    try:
        version = version_of("pyspark")
    except metadata.PackageNotFoundError:
        return Check(name, "ok", "none: pyspark is not installed")
    spark = _dotted(_numbers(version)[:2])
    homes = [Path(text) for text in (home or _pyspark_home(), environ.get("SPARK_HOME")) if text]
    found = find_connectors(configured(environ, homes))
    told = ", ".join(f"{one.connector.name} {one.version}" for one in found) or "none configured"
    if spark not in SPARK_TESTED:
        remedy = f"pip install 'pyspark=={SPARK_TESTED[0]}.*'"
        return Check(name, "warn", f"Spark {version} is not tested; {told}", remedy)
    doubts = [(one, why) for one in found if (why := one.doubt(spark))]
    if not doubts:
        return Check(name, "ok", f"Spark {version}; {told}")
    tested = [one.connector.coordinate(spark) for one, _ in doubts]
    known = ", ".join(text for text in tested if text)
    remedy = f"use {known}" if known else "see docs/guide/connectors.md for tested combinations"
    why = "; ".join(why for _, why in doubts)
    return Check(name, "warn", f"untested combination with Spark {version}: {why}", remedy)


def _pyspark_home() -> Path | None:
    from importlib.util import find_spec

    found = find_spec("pyspark")
    return Path(found.origin).parent if found and found.origin else None


def check_worker_python(environ: Mapping[str, str], which: Which = shutil.which) -> Check:
    """The Python that Spark starts its workers with: PYSPARK_PYTHON, or python3 from PATH."""
    name = "PYSPARK_PYTHON"
    wanted = environ.get(name)
    chosen = wanted or "not set, so Spark uses python3 from PATH"
    remedy = f"export {name}={sys.executable}"
    path = which(wanted or "python3")
    answer = _answer([path, "-c", _WHO_ARE_YOU]) if path else None
    if answer is None:
        return Check(name, "fail" if wanted else "warn", f"{chosen}: it does not run", remedy)
    theirs = answer.strip().split(" ", 2)
    major, minor = map(str, sys.version_info[:2])
    if theirs == [major, minor, sys.prefix]:
        return Check(name, "ok", chosen)
    # Spark rejects workers of another minor version; with the same one, packages may be missing.
    hopeless = bool(wanted) and theirs[:2] != [major, minor]
    other = f"{chosen}: it is another Python, {'.'.join(theirs[:2])} in {theirs[2]}"
    return Check(name, "fail" if hopeless else "warn", other, remedy)


def _compiled_code() -> str | None:
    from spillway.kernels.compiler import cache_directory

    return cache_directory()


def check_kernels(directory_of: Callable[[], str | None] = _compiled_code) -> Check:
    """Where compiled kernels are kept, so that only the first Python worker compiles them."""
    name = "kernels"
    try:
        directory = directory_of()
    except ImportError as missing:
        return Check(
            name, "fail", f"numba cannot be imported: {missing}", "install numba, see above"
        )
    if directory is not None:
        return Check(name, "ok", f"compiled code is in {directory}")
    return Check(
        name,
        "warn",
        "no writable directory for compiled code, so every Python worker compiles for some seconds",
        "set NUMBA_CACHE_DIR to a directory that only this user can write to",
    )


def check_shared_memory(path: Path) -> Check:
    """Where the memory tier keeps state; containers often have only 64 MB."""
    name = "shared memory"
    if not path.is_dir() or not os.access(path, os.W_OK):
        remedy = (
            f"on Linux, mount a tmpfs on {path}; without it, state in memory uses a local directory"
        )
        return Check(name, "warn", f"{path} is missing or not writable", remedy)
    remedy = (
        "give the container more shared memory: docker run --shm-size=4g; in Kubernetes, mount an "
        f"emptyDir with medium: Memory on {path}"
    )
    return _check_room(name, path, remedy)


def check_disk(path: Path) -> Check:
    """Where Spark writes shuffle files and slots spill groups."""
    remedy = "free some space, or set TMPDIR and SPARK_LOCAL_DIRS to directories on a larger disk"
    return _check_room("local disk", path, remedy)


def check_cores() -> Check:
    """How many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return Check("cores", "ok", str(len(affinity(0)) if affinity else os.cpu_count() or 1))


def check_memory(available_bytes: int | None) -> Check:
    """How much memory this process may use."""
    if available_bytes is None:
        return Check("memory", "ok", "unknown on this system")
    found = _size(available_bytes)
    if available_bytes >= LOW_MEMORY_BYTES:
        return Check("memory", "ok", found)
    remedy = f"give the machine or container {_size(LOW_MEMORY_BYTES)} or more"
    return Check("memory", "warn", found, remedy)


def check_maps(limit: Path = Path("/proc/sys/vm/max_map_count")) -> Check:
    """How many files a process may map: a slot maps the runs of its state."""
    name = "memory maps"
    try:
        most = int(limit.read_text())
    except (OSError, ValueError):
        return Check(name, "ok", "unknown on this system")
    found = f"{most} per process"
    if most >= LOW_MAP_COUNT:
        return Check(name, "ok", found)
    remedy = (
        f"with state of many runs: sysctl -w vm.max_map_count={LOW_MAP_COUNT} on each host; beyond the "
        "limit, a process copies runs into its own memory, and the progress counts them as copied"
    )
    return Check(name, "warn", found, remedy)


def memory_bytes(cgroup_limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int | None:
    """The memory of the machine, or the limit of the container if that is lower."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return None
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = cgroup_limit.read_text().strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical


def _check_room(name: str, path: Path, remedy: str) -> Check:
    room = shutil.disk_usage(path)
    found = f"{_size(room.free)} free of {_size(room.total)} ({path})"
    if room.free >= LOW_ROOM_BYTES:
        return Check(name, "ok", found)
    return Check(name, "warn", found, remedy)


def _ask_java(path: str) -> Java | None:
    # JAVA_TOOL_OPTIONS makes Java print other lines before its version: search, do not match.
    found = _JAVA_VERSION.search(_answer([path, "-version"]) or "")
    return Java(path, found.group(1), int(found.group(2))) if found else None


def _answer(command: list[str]) -> str | None:
    """What a command prints on both streams; None if it does not start or fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _java_missing(why: str) -> EnvironmentMissing:
    return EnvironmentMissing(f"Spark needs Java {JAVA_NEEDED} or newer: {why}", hint=JAVA_REMEDY)


def _numbers(version: str) -> tuple[int, ...]:
    """The release numbers of a version; `4.1.0.dev1` gives (4, 1, 0)."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release.group().split(".")) if release else ()


def _dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count >> 20} MiB"
