"""The doctor knows which connectors the tests run on which Spark, and so does the documentation."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from spillway import connectors, doctor

ROOT = Path(__file__).parents[2]
DELTA, ICEBERG, KAFKA = connectors.CONNECTORS


@pytest.mark.parametrize(
    ("text", "name", "spark", "version"),
    [
        ("delta-spark_4.2_2.13-4.4.0.jar", "Delta Lake", "4.2", "4.4.0"),
        ("io.delta:delta-spark_4.1_2.13:4.3.1", "Delta Lake", "4.1", "4.3.1"),
        ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "Iceberg", "4.1", "1.12.0"),
        ("--packages a:b:1,org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", "Kafka", "4.2", "4.2.0"),
    ],
)  # fmt: skip
def test_connector_is_found_in_its_name(text: str, name: str, spark: str, version: str) -> None:
    [found] = connectors.find_connectors([text])
    assert (found.connector.name, found.spark, found.version) == (name, spark, version)


def test_tested_coordinates_are_found_without_a_doubt() -> None:
    for one in connectors.CONNECTORS:
        for spark in one.tested:
            [found] = connectors.find_connectors([str(one.coordinate(spark))])
            assert found.doubt(spark) is None
    assert ICEBERG.coordinate("4.3") is None


def home(path: Path, *jars: str, settings: str = "") -> Path:
    (path / "jars").mkdir(parents=True)
    for jar in jars:
        (path / "jars" / jar).touch()
    (path / "conf").mkdir()
    (path / "conf" / "spark-defaults.conf").write_text(settings)
    return path


@pytest.mark.parametrize(
    ("spark", "settings", "status", "found", "remedy"),
    [
        ("4.2.0", "", "ok", "Spark 4.2.0; none configured", ""),
        ("4.2.1", "io.delta:delta-spark_4.2_2.13:4.4.0", "ok", "Delta Lake 4.4.0", ""),
        ("4.4.0", "", "warn", "Spark 4.4.0 is not tested", "pyspark==4.2.*"),
        (
            *("4.2.0", "iceberg-spark-runtime-4.1_2.13:1.12.0", "warn"),
            *("Iceberg 1.12.0 is built for Spark 4.1", "docs/guide/connectors.md"),
        ),
        (
            *("4.2.0", "io.delta:delta-spark_4.1_2.13:4.4.0", "warn"),
            *("built for Spark 4.1", "use io.delta:delta-spark_4.2_2.13:4.4.0"),
        ),
        (
            *("4.3.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0", "warn"),
            *("Kafka is not tested on Spark 4.3", "docs/guide/connectors.md"),
        ),
        (
            *("4.2.0", "io.delta:delta-spark_4.2_2.13:4.3.9", "warn"),
            *("Delta Lake 4.3.9 is not tested; 4.4.0 is", "delta-spark_4.2_2.13:4.4.0"),
        ),
    ],
)
def test_doctor_warns_of_untested_combinations(
    tmp_path: Path, spark: str, settings: str, status: str, found: str, remedy: str
) -> None:
    place = home(tmp_path / "spark", settings=f"spark.jars.packages {settings}\n")
    check = doctor.check_connectors({}, lambda _: spark, place)
    assert (check.status, check.found) == (status, check.found)
    assert found in check.found
    assert remedy in (check.remedy or "")


def test_doctor_reads_jars_arguments_and_the_configured_directory(tmp_path: Path) -> None:
    place = home(tmp_path / "spark", "iceberg-spark-runtime-4.1_2.13-1.12.0.jar")
    environ = {
        "PYSPARK_SUBMIT_ARGS": "--packages io.delta:delta-spark_4.1_2.13:4.4.0 pyspark-shell"
    }
    check = doctor.check_connectors(environ, lambda _: "4.1.3", place)
    assert "Delta Lake is not tested on Spark 4.1" in check.found
    assert "Iceberg" not in check.found
    conf = home(tmp_path / "other", settings="spark.jars.packages a:delta-spark_4.2_2.13:4.4.0")
    check = doctor.check_connectors(
        {"SPARK_CONF_DIR": str(conf / "conf")}, lambda _: "4.2.0", place
    )
    assert "Iceberg 1.12.0 is built for Spark 4.1" in check.found
    assert "Delta" not in check.found


def test_doctor_is_content_without_pyspark() -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert doctor.check_connectors({}, missing).status == "ok"


def test_main_release_is_that_of_the_constraints() -> None:
    text = (ROOT / "constraints.txt").read_text()
    [version] = re.findall(r"^pyspark==(\d+\.\d+)\.\d+$", text, re.M)
    assert version == connectors.SPARK_TESTED[0]


def test_documentation_has_the_table_of_releases() -> None:
    page = (ROOT / "docs/guide/connectors.md").read_text()
    head, *rows = page.split("## Releases", 1)[1].split("\n\n")[1].splitlines()
    releases = [cell.strip().removeprefix("Spark ") for cell in head.split("|")[2:-1]]
    assert sorted(releases) == sorted(connectors.SPARK_TESTED)
    told = {row.split("|")[1].strip(): row.split("|")[2:-1] for row in rows}
    for one in connectors.CONNECTORS:
        cells = dict(zip(releases, (cell.strip() for cell in told[one.name]), strict=True))
        tested = {spark: text for spark, text in cells.items() if text[0].isdigit()}
        assert tested == one.tested
        for spark in one.tested:
            if one.names_spark:
                assert str(one.coordinate(spark)) in page


def test_documentation_names_tests_that_exist() -> None:
    page = (ROOT / "docs/guide/connectors.md").read_text()
    named = re.findall(r"`(tests/[a-z_/]+\.py)`", page)
    assert len(named) > 8
    assert [path for path in named if not (ROOT / path).exists()] == []
