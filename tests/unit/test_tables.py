from __future__ import annotations

from pathlib import Path

from spillway.experiments.tables import load, rendered, table

ROOT = Path(__file__).parents[2]


def test_readme_shows_what_was_measured_and_nothing_else() -> None:
    page = (ROOT / "README.md").read_text()
    assert rendered(page, load(ROOT / "bench" / "results")) == page


def test_a_row_has_the_figures_of_its_document() -> None:
    document = {
        "name": "join2",
        "engines": {
            "spillway": {"batch_p50_s": 0.5, "p99_vs_p50": 1.25, "operator_us_per_row": 0.301},
            "spark-memory": {"batch_p50_s": 4.0},
        },
        "ratios": {"vs_spark_memory": 8.0, "vs_spark_rocksdb": None, "vs_identity": 0.75},
    }
    row = table([document]).splitlines()[2]
    assert "`join2`" in row
    for figure in ("0.50", "4.00", "8.0", "0.75", "1.25", "0.30"):
        assert f" {figure} " in row
    assert row.count("|") == 13
