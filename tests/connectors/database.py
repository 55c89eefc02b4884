"""A PostgreSQL server on loopback, from the packages of the system, with data of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

#: Where Debian and others put the server's programs, which are not on PATH.
_FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


@dataclass(frozen=True)
class Database:
    """A running server."""

    programs: Path
    data: Path
    port: int

    @property
    def url(self) -> str:
        """The address for psycopg."""
        return f"postgresql://spillway:kept-secret@127.0.0.1:{self.port}/postgres"

    @property
    def jdbc(self) -> str:
        """The address for Java."""
        return (
            f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=spillway&password=kept-secret"
        )

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs a statement; returns its rows."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def crash(self) -> None:
        """Kills the server as a loss of power would, without a checkpoint."""
        self._control("stop", "-m", "immediate")

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.data} -c max_connections=50"
        )
        self._control("start", "-w", "-t", "60", "-l", str(self.data / "log"), "-o", options)

    def _control(self, *arguments: str) -> None:
        _run([str(self.programs / "pg_ctl"), "-D", str(self.data), *arguments])


@contextmanager
def postgres(folder: Path, port: int) -> Iterator[Database]:
    """A server with an empty database below `folder`."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = next((one for one in _FOLDERS if (one / "postgres").exists()), None)
    if programs is None and (on_path := shutil.which("postgres")):
        programs = Path(on_path).parent
    if programs is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    data = folder / "postgres"
    data.mkdir()
    password = data.parent / "password"
    password.write_text("kept-secret")
    for one in (data, password):
        _give(one)
    if os.getuid() == 0:
        # The server does not run as root, and its user must reach the directory.
        for parent in (folder, *folder.parents):
            if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o011)
    options = ["-U", "spillway", "--no-sync", "-A", "md5", "-E", "UTF8", "--locale", "C"]
    _run([str(programs / "initdb"), "-D", str(data), "--pwfile", str(password), *options])
    server = Database(programs, data, port)
    server.start()
    try:
        yield server
    finally:
        server.crash()


def _give(path: Path) -> None:
    if os.getuid() == 0:
        user = _user()
        os.chown(path, user.pw_uid, user.pw_gid)


def _user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.skip("no user to run PostgreSQL as, other than root")


def _run(command: Sequence[str]) -> None:
    options: dict[str, Any] = {}
    if os.getuid() == 0:
        user = _user()
        options = {"user": user.pw_uid, "group": user.pw_gid}
    # A file, not a pipe: the server inherits it and would keep a pipe open.
    done = subprocess.run(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        check=False,
        cwd="/",
        timeout=120,
        **options,
    )
    assert done.returncode == 0, f"{command} failed"
