"""Child processes that tests start in a session of their own, and kill whole.

The JVM of a driver is a child of its Python process, executors are children of the JVM, and Spark's
Python workers put themselves into process groups of their own; all of them stay in one session.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import psutil

from spillway.settings import Adapt
from spillway.spark.runtime.home import LocalFolders

HERE = Path(__file__).parent
#: The processes of a query: its driver in Python, the JVM of the driver, the JVMs of executors on their
#: own, and Spark's Python workers without the daemons that fork them.
DRIVER, JVM, EXECUTOR, WORKER = ROLES = ("driver", "jvm", "executor", "worker")


class Child:
    """A Python script of this folder, or of another by its path, running in a session of its own."""

    def __init__(
        self,
        script: str,
        arguments: Sequence[str],
        scratch: Path,
        more_environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self.log = scratch / f"{Path(script).stem}-{time.monotonic_ns()}.log"
        environment = os.environ | {
            "TMPDIR": str(scratch),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(scratch),
            **more_environment,
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / script), *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=scratch,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether the script has not ended."""
        return self.process.poll() is None

    def tell(self, line: str) -> None:
        """Writes a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self, *, workers: bool = True) -> None:
        """SIGKILL to the driver and its JVM; to Spark's Python workers only if asked.

        Workers that are not killed find out by themselves, and may do work until they do.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if workers:
            self._kill_rest()
        self.process.wait()

    def processes(self, role: str) -> list[psutil.Process]:
        """The living processes of a role (`ROLES`), the driver and its JVM being one each."""
        return [one for one in self._members() if _role(one, self.process.pid) == role]

    def send(self, signal_number: int, processes: Sequence[psutil.Process]) -> int:
        """Sends a signal; returns how many processes were there to get it."""
        sent = 0
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal_number)
                sent += 1
        return sent

    def close(self) -> None:
        """Ends whatever is left of it."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        if self.running:
            self.kill()
        self._kill_rest()

    def told(self) -> str:
        """What it printed, without the frames of Java."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith("\tat "))[-10_000:]

    def _kill_rest(self) -> None:
        left = list(self._members())
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=30)

    def members(self) -> list[psutil.Process]:
        """All its processes that live."""
        return list(self._members())

    def _members(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(process.pid) == self.process.pid:
                    yield process


def _role(process: psutil.Process, driver: int) -> str | None:
    """What a process of a query is; None: something that passes, as a shell that starts another."""
    if process.pid == driver:
        return DRIVER
    with contextlib.suppress(psutil.Error):
        words = " ".join(process.cmdline())
        if "CoarseGrainedExecutorBackend" in words:
            return EXECUTOR
        if "org.apache.spark.deploy.SparkSubmit" in words:
            return JVM
        if "runtime.daemon" in words and "java" not in process.parent().name():
            return WORKER
    return None


def wait_until(
    true: Callable[[], bool], seconds: float, *, step: float = 0.02, child: Child | None = None
) -> bool:
    """Whether something came true in time, and before the child ended."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until or (child is not None and not child.running):
            return true()
        time.sleep(step)
    return True


def local_roots(root: Path, scratch: Path | None = None) -> tuple[Path, ...]:
    """Where the query of a child, with its scratch and checkpoint below `root`, has local tiers."""
    metadata = root / "checkpoint/spillway/metadata.json"
    if not metadata.exists():
        return ()
    found = json.loads(metadata.read_bytes().partition(b"\n")[2])
    own = (scratch or root / "scratch") / f"spillway-{os.getuid()}"
    return LocalFolders.roots(found["query_id"], Adapt(disk_dir=str(own)))
