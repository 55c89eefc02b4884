"""Which releases of Spark and of its connectors Spillway's tests run together.

`docs/guide/connectors.md` has the same table; a test compares both. `spillway doctor` warns of other
combinations: they may work, but no test says so. A connector contains compiled code for one minor
release of Spark and may fail on another: Iceberg's runtime for 4.1 cannot load its classes on 4.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

#: Minor releases of Spark that the tests run on. All tests run on the first one; the others run the
#: tests of folders `spark` and `cluster` (`make test-spark VERSION=...`).
SPARK_TESTED = ("4.2", "4.1", "4.3")


@dataclass(frozen=True)
class Connector:
    """A package that connects Spark to another system, as the tests use it."""

    name: str
    #: Group, and name without the versions that it contains.
    group: str
    artifact: str
    #: The tested release for each minor release of Spark.
    tested: Mapping[str, str]
    #: Whether the artifact's name has the release of Spark in it; else both have the same release.
    names_spark: bool = True

    def coordinate(self, spark: str) -> str | None:
        """What to put into spark.jars.packages; None if no test runs it on this release."""
        version = self.tested.get(spark)
        if version is None:
            return None
        infix = f"-{spark}" if self.artifact.startswith("iceberg") else f"_{spark}"
        return f"{self.group}:{self.artifact}{infix if self.names_spark else ''}_2.13:{version}"


CONNECTORS = (
    Connector("Delta Lake", "io.delta", "delta-spark", {"4.2": "4.4.0"}),
    Connector("Iceberg", "org.apache.iceberg", "iceberg-spark-runtime", {"4.1": "1.12.0"}),
    Connector(
        "Kafka", "org.apache.spark", "spark-sql-kafka-0-10", {"4.2": "4.2.0"}, names_spark=False
    ),
)


@dataclass(frozen=True)
class Installed:
    """A connector that a configuration or a directory names."""

    connector: Connector
    #: The minor release of Spark that it is built for.
    spark: str
    version: str

    def doubt(self, spark: str) -> str | None:
        """Why no test covers it on a minor release of Spark; None: one does."""
        if self.spark != spark:
            return f"{self.connector.name} {self.version} is built for Spark {self.spark}"
        tested = self.connector.tested.get(spark)
        if tested is None:
            return f"{self.connector.name} is not tested on Spark {spark}"
        if tested != self.version:
            return f"{self.connector.name} {self.version} is not tested; {tested} is"
        return None


def find_connectors(texts: Iterable[str]) -> list[Installed]:
    """The connectors in names of jar files, Maven coordinates or settings.

    Example:
        >>> [(one.spark, one.version) for one in find_connectors(["delta-spark_4.2_2.13-4.4.0.jar"])]
        [('4.2', '4.4.0')]
    """
    whole = "\n".join(texts)
    found: list[Installed] = []
    for one in CONNECTORS:
        release = r"[-_](\d+\.\d+)" if one.names_spark else "()"
        pattern = rf"{re.escape(one.artifact)}{release}_2\.13[-:](\d+(?:\.\d+)+)"
        for spark, version in re.findall(pattern, whole):
            named = Installed(one, spark or ".".join(version.split(".")[:2]), version)
            if named not in found:
                found.append(named)
    return found


def configured(environ: Mapping[str, str], homes: Iterable[Path]) -> list[str]:
    """Texts that name connectors: jars of Spark, its default settings, arguments of spark-submit."""
    texts = [environ.get("PYSPARK_SUBMIT_ARGS", "")]
    conf = environ.get("SPARK_CONF_DIR")
    for home in homes:
        texts += [path.name for path in sorted((home / "jars").glob("*.jar"))]
    for folder in [Path(conf)] if conf else [home / "conf" for home in homes]:
        try:
            texts.append((folder / "spark-defaults.conf").read_text())
        except OSError:
            continue
    return texts
