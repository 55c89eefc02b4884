"""A Kafka broker on loopback: one process in KRaft mode, from Kafka's own Maven artifacts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from artifacts import BROKER, with_dependencies
from processes import wait_until

from spillway.doctor import require_java

_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


@dataclass
class Broker:
    """A broker that a test can kill and start again."""

    folder: Path
    port: int
    controller: int
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """For kafka.bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    def format(self) -> None:
        """Writes the settings and an empty log."""
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "log",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "num.partitions": 2,
            "group.initial.rebalance.delay.ms": 0,
        }
        self.folder.mkdir()
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.folder / "settings").write_text(text)
        command = self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", "settings")
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr[-2000:]

    def start(self) -> None:
        """Starts it and waits until it listens."""
        with (self.folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", "settings"), cwd=self.folder, stdout=out, stderr=out
            )
        assert wait_until(self._answers, 90, step=0.1), (self.folder / "out").read_text()[-3000:]

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _java(self, *arguments: str) -> list[str]:
        options = ["-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return [require_java().path, *options, "-cp", with_dependencies(BROKER), *arguments]


@contextmanager
def kafka(folder: Path, port: int, controller: int) -> Iterator[Broker]:
    """A running broker below `folder`."""
    with_dependencies(BROKER)
    broker = Broker(folder / "kafka", port, controller)
    broker.format()
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
