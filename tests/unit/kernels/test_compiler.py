"""Kernels load and run wherever they can be read, whoever compiles at the same time."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import pytest

from spillway.kernels import compiler

SOURCE = Path(__file__).parents[3] / "src"
#: Takes a capability from what a program gets when it starts (prctl).
PR_CAPBSET_DROP, LAST_CAPABILITY = 24, 63

#: Uses two kernels and says where their code is.
PROGRAM = """
import numpy as np, sys
from spillway.kernels.checksum import checksum
from spillway.kernels.compiler import cache_directory
from spillway.doctor import check_kernels
assert checksum(b"abc" * 100) == checksum(b"abc" * 100) != checksum(b"abd" * 100)
print(cache_directory(), check_kernels().status, sep="|")
"""


def first_is_positive(values):
    return values[0] > 0


@pytest.fixture
def locked_down() -> Iterator[Path]:
    """A copy of the package in a directory that is read-only, and a directory for temporary files."""
    place = Path(tempfile.mkdtemp())
    try:
        shutil.copytree(SOURCE, place / "src", ignore=shutil.ignore_patterns("__pycache__"))
        (place / "tmp").mkdir()
        for path in (place, place / "src", *(p for p in (place / "src").rglob("*") if p.is_dir())):
            path.chmod(0o555)
        yield place
    finally:
        for path in (place, *(p for p in place.rglob("*") if p.is_dir() and not p.is_symlink())):
            path.chmod(0o755)
        shutil.rmtree(place)


def drop_capabilities() -> None:
    """Permissions of files hold for this process from now on, also if it runs as root."""
    libc = ctypes.CDLL(None)
    for capability in range(LAST_CAPABILITY):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def run_locked_down(place: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PYTHONPATH": str(place / "src"), "PATH": os.environ["PATH"]}
    environ |= {"TMPDIR": str(place / "tmp"), "HOME": str(place / "src"), "LC_ALL": "C.UTF-8"}

    def run(program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program], env=environ, cwd="/", capture_output=True, text=True,
            preexec_fn=drop_capabilities if os.getuid() == 0 else None, timeout=120, check=False,
        )  # fmt: skip

    if run(f"open({str(place / 'src' / 'file')!r}, 'w')").returncode == 0:
        pytest.skip("this system lets no process of root obey the permissions of files")
    return run(PROGRAM)


def test_kernels_load_from_a_read_only_package_without_a_home(locked_down: Path) -> None:
    done = run_locked_down(locked_down)
    assert (done.returncode, done.stderr) == (0, "")
    directory, status = done.stdout.strip().split("|")
    private = locked_down / "tmp" / f"spillway-kernels-{os.getuid()}"
    assert Path(directory).is_relative_to(private)
    assert status == "ok"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    kept = {path.name for path in private.rglob("*.nbc")}
    assert kept
    # The next process uses what this one compiled.
    assert run_locked_down(locked_down).returncode == 0
    assert {path.name for path in private.rglob("*.nbc")} == kept


def test_kernels_load_where_no_directory_is_safe(locked_down: Path) -> None:
    # Everybody may write to this directory, so the code in it may be anybody's.
    planted = locked_down / "tmp" / f"spillway-kernels-{os.getuid()}"
    planted.mkdir(mode=0o777)
    planted.chmod(0o777)
    done = run_locked_down(locked_down)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "None|warn"
    assert not list(planted.iterdir())


@pytest.fixture
def cached_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


SIGNED, UNSIGNED = np.array([-1], np.int64), np.array([2**64 - 1], np.uint64)


def test_processes_that_compile_at_once_do_not_mix_up_their_code(cached_here: Path) -> None:
    one, other, third = (compiler.kernel(first_is_positive) for _ in range(3))
    # Both read the index before either writes; the other's index is last, this one's code is last.
    other._cache._cache_file._load_index = dict
    files = one._cache._cache_file
    save_data = files._save_data

    def save_data_late(name: str, data: object) -> None:
        assert other(UNSIGNED)
        save_data(name, data)

    files._save_data = save_data_late
    assert not one(SIGNED)
    assert third(UNSIGNED)
    assert not third(SIGNED)
    assert sum(third.stats.cache_hits.values()) == 1


def test_damaged_cache_is_compiled_again(cached_here: Path) -> None:
    assert compiler.kernel(first_is_positive)(UNSIGNED)
    for path in cached_here.rglob("*.nb?"):
        path.write_bytes(b"")
    assert compiler.kernel(first_is_positive)(UNSIGNED)
    assert not compiler.kernel(first_is_positive)(SIGNED)


def test_full_cache_does_not_fail_a_kernel(cached_here: Path) -> None:
    compiled = compiler.kernel(first_is_positive)
    shutil.rmtree(compiled._cache.cache_path)
    Path(compiled._cache.cache_path).write_text("not a directory")
    assert compiled(UNSIGNED)


def test_directory_of_another_user_is_not_used(tmp_path: Path) -> None:
    found = compiler.private_directory(tmp_path)
    assert found is not None
    found.chmod(0o750)
    assert compiler.private_directory(tmp_path) is None
    found.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    found.symlink_to(tmp_path / "elsewhere")
    assert compiler.private_directory(tmp_path) is None
    assert compiler.private_directory(tmp_path / "missing") is None
