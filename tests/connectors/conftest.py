"""Servers that the tests of this folder start, each once for a run."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from broker import Broker, kafka
from database import Database, postgres
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A PostgreSQL server."""
    with postgres(tmp_path_factory.mktemp("database"), free_port()) as running:
        yield running


@pytest.fixture
def database(server: Database) -> Database:
    """The server, with an empty schema."""
    server.rows("DROP SCHEMA public CASCADE")
    server.rows("CREATE SCHEMA public")
    return server


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker."""
    with kafka(tmp_path_factory.mktemp("broker"), free_port(), free_port()) as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A `local[2]` session; one of other tests in this process does as well."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("spillway-tests")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.python.daemon.module", "spillway.spark.runtime.daemon")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def free_port() -> int:
    """A port that nobody listens to."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


#: The folder of the tests, for scripts that they start.
HERE = Path(__file__).parent
