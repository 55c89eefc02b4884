"""The architecture is a set of contracts in pyproject.toml, which `make lint` checks."""

from __future__ import annotations

from pathlib import Path

from importlinter import api

ROOT = Path(__file__).parents[2]


def test_contracts_of_the_architecture_are_there() -> None:
    read = api.read_configuration(str(ROOT / "pyproject.toml"))
    contracts = {one["id"]: one for one in read["contracts_options"]}
    assert set(contracts) == {
        *("layers", "state", "api", "dashboard", "spark", "pure", "lab", "root")
    }
    assert (contracts["layers"]["containers"], contracts["layers"]["exhaustive"]) == (
        ["spillway"],
        "True",
    )
    assert contracts["spark"]["ignore_imports"] == [
        "spillway.spark.** -> pyspark",
        "spillway.testing.** -> pyspark",
    ]
    assert "ignore_imports" not in contracts["layers"]


def test_what_decides_is_pure() -> None:
    read = api.read_configuration(str(ROOT / "pyproject.toml"))
    [pure] = [one for one in read["contracts_options"] if one["id"] == "pure"]
    rooms = {f"spillway.{room}" for room in ("coordinator", "policies", "protocols")}
    assert set(pure["source_modules"]) == rooms
    assert {"time", "os", "pathlib", "random", "pyspark"} <= set(pure["forbidden_modules"])
    assert "ignore_imports" not in pure


def test_lint_checks_them() -> None:
    assert "lint-imports" in (ROOT / "Makefile").read_text()
