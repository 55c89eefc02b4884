"""What the tests of connectors need from the registries: jars of Maven, another release of Spark.

Jars are resolved by the Ivy that is part of Spark and kept in a cache of the user, so that only the
first run waits for them. What cannot be had skips the test, with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyspark
import pytest

from spillway.connectors import CONNECTORS
from spillway.doctor import require_java

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spillway-tests"
_SECONDS = 300
_DELTA, _ICEBERG, _KAFKA = CONNECTORS
_DELTA_VERSION = _DELTA.tested["4.2"]

DELTA = (
    str(_DELTA.coordinate("4.2")),
    *(
        f"io.delta:{name}:{_DELTA_VERSION}"
        for name in (
            *("delta-storage", "delta-kernel-api", "delta-kernel-defaults"),
            "delta-kernel-unitycatalog",
        )
    ),
)
ICEBERG = (str(_ICEBERG.coordinate("4.1")),)
#: The connector, and what it needs besides Spark. Not every registry has the helper for delegation
#: tokens in the connector's release; that of 4.0 has the same classes.
KAFKA = (
    str(_KAFKA.coordinate("4.2")),
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
POSTGRES_JDBC = ("org.postgresql:postgresql:42.7.8",)
#: The broker, with everything that it depends on.
BROKER = "org.apache.kafka:kafka_2.13:3.9.2"
#: The release of Spark that Iceberg has a connector for.
ICEBERG_SPARK = "4.1.3"


def jars(coordinates: Iterable[str]) -> list[str]:
    """The jars of Maven coordinates, without what they depend on."""
    found = []
    for one in coordinates:
        _, name, version = one.split(":")
        path = CACHE / "jars" / f"{name}-{version}.jar"
        if not path.exists():
            _resolve(one, CACHE / "jars", transitive=False)
        if not path.exists():
            pytest.skip(f"{one} cannot be had from the registry of Maven")
        found.append(str(path))
    return found


def with_dependencies(coordinate: str) -> str:
    """A class path with a Maven artifact and everything that it depends on."""
    _, name, version = coordinate.split(":")
    folder = CACHE / f"{name}-{version}"
    if not (folder / f"{name}-{version}.jar").exists():
        _resolve(coordinate, folder, transitive=True)
    if not (folder / f"{name}-{version}.jar").exists():
        pytest.skip(f"{coordinate} cannot be had from the registry of Maven")
    return f"{folder}/*"


def other_spark(version: str) -> str:
    """The directory for PYTHONPATH with another release of Spark; `make test-spark` uses it too."""
    folder = Path(sys.prefix) / f"spark-{version}"
    if not (folder / "pyspark").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--no-input", "--target", str(folder), f"pyspark=={version}"]
        done = subprocess.run(command, capture_output=True, check=False, timeout=1200)
        if done.returncode:
            pytest.skip(f"pyspark {version} cannot be had from the registry of Python packages")
    return str(folder)


def _resolve(coordinate: str, folder: Path, *, transitive: bool) -> None:
    group, name, version = coordinate.split(":")
    [ivy] = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    command = [require_java().path, "-cp", str(ivy), "org.apache.ivy.Main"]
    command += ["-cache", str(CACHE / "ivy"), "-dependency", group, name, version]
    command += ["-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    if not transitive:
        command.append("-notransitive")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the registry of Maven did not answer for {coordinate} in {_SECONDS} s")
