"""Kernels that common operators need are compiled before the first batch."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core import types

from spillway.kernels import compiler, warming
from spillway.kernels.tiling import cut_tiles

LAW = Path(__file__).parents[2] / "property"

#: Runs operators without Spark, and lists the kernels that the list of types lacks.
PROGRAM = """
import sys, tempfile
from pathlib import Path
from numba.core.registry import CPUDispatcher
from law import Cluster, Row, SlicedHeld
from spillway.kernels import warming
from spillway.testing.simulated.joins import Joined
from spillway.testing.simulated.sliced import Sliced

class SlicedCluster(Cluster):
    held = SlicedHeld

for made in (Joined([None, None]), Joined([5, 5]), Sliced([4, 4], [("band", 0, 1)], False, [1, 1])):
    kind = SlicedCluster if isinstance(made, Sliced) else Cluster
    with tempfile.TemporaryDirectory() as folder:
        query = kind(Path(folder), made, 0, 2)
        for clock in range(1, 6):
            query.batch([Row(s, k, clock, 10 * clock + k) for s in (0, 1) for k in range(8)], [])
known = {(id(compiled), some) for _, compiled, some in warming.kernels()}
names = {id(compiled): name for name, compiled, _ in warming.kernels()}
for module in [one for name, one in sys.modules.items() if name.startswith("spillway.kernels.")]:
    for name, compiled in vars(module).items():
        if isinstance(compiled, CPUDispatcher) and compiled.__module__ == module.__name__:
            for some in compiled.signatures:
                if (id(compiled), some) not in known:
                    print(module.__name__, name, some)
"""


@pytest.fixture
def without_jit_skipped() -> None:
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        pytest.skip("nothing compiles")


@pytest.mark.usefixtures("without_jit_skipped")
def test_second_pass_compiles_nothing() -> None:
    for name, seconds in warming.warm():
        assert name in warming.SIGNATURES
        assert seconds > 0
    assert list(warming.warm()) == []
    assert all(compiler.is_cached(compiled, some) for _, compiled, some in warming.kernels())


@pytest.mark.usefixtures("without_jit_skipped")
def test_join_meets_no_kernel_that_is_not_listed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=LAW, env={**os.environ, "PYTHONPATH": str(LAW)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.usefixtures("without_jit_skipped")
def test_loaded_kernel_is_not_compiled_again() -> None:
    list(warming.warm())
    warming.load()
    before = dict(cut_tiles.stats.cache_misses)
    ranges = np.zeros(1, np.int64), np.ones(1, np.int64)
    cut_tiles(*ranges, 256, 4096, 4)
    assert dict(cut_tiles.stats.cache_misses) == before


def test_types_are_read() -> None:
    array = types.Array(types.uint32, 1, "C")
    fixed = types.Array(types.int64, 1, "C", readonly=True)
    assert warming.read("u4[] i8{} (i8 u4[]) b1") == (
        array,
        fixed,
        types.Tuple((types.int64, array)),
        types.boolean,
    )


def test_cache_is_in_the_user_s_directory_for_this_version(tmp_path: Path) -> None:
    found = compiler.user_directory(tmp_path / "caches", "kernels-1")
    assert found == tmp_path / "caches" / "spillway" / "kernels-1"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    assert compiler.user_directory(tmp_path / "caches", "kernels-1") == found
    found.chmod(0o770)
    assert compiler.user_directory(tmp_path / "caches", "kernels-1") is None
    file = tmp_path / "file"
    file.touch()
    assert compiler.user_directory(file, "kernels-1") is None


def test_kernels_of_one_version_share_a_place_wherever_they_are_installed() -> None:
    version = compiler._version()
    assert f"py{sys.version_info[0]}{sys.version_info[1]}-numba" in version
    assert version == compiler._version()


def test_nothing_starts_when_all_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "is_cached", lambda *_: True)
    monkeypatch.setattr(warming.subprocess, "Popen", None)
    warming.start()


def test_one_process_compiles_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    class Child:
        def __init__(self, command, **how) -> None:
            begun.append(command)

        def terminate(self) -> None: ...

        def wait(self) -> None: ...

    monkeypatch.setattr(warming, "_running", [])
    monkeypatch.setattr(warming, "is_cached", lambda *_: False)
    monkeypatch.setattr(warming, "cache_directory", lambda: "somewhere")
    monkeypatch.setattr(warming, "_can_compile", lambda: True)
    monkeypatch.setattr(warming.subprocess, "Popen", Child)
    warming.start()
    warming.start()
    assert begun == [[sys.executable, "-m", "spillway.kernels.warming"]]
