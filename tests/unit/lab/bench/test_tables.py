from __future__ import annotations

from pathlib import Path

from spillway_lab.bench.tables import load, rendered, table

ROOT = Path(__file__).parents[4]


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
        "ratios": {
            "vs_spark_memory": 8.0,
            "vs_spark_rocksdb": None,
            "vs_identity": 0.75,
            "vs_unsynced": 0.91,
        },
    }
    row = table([document]).splitlines()[2]
    assert "`join2`" in row
    for figure in ("0.50", "4.00", "8.0", "0.75", "0.91", "1.25", "0.30"):
        assert f" {figure} " in row
    assert row.count("|") == 14


def test_plans_have_a_row_each_and_auto_has_the_ratios() -> None:
    times = {"steady_p50_s": 0.5, "changed_max_s": 0.9, "recovered_p50_s": 0.6}
    document = {
        "name": "plans",
        "engines": {"nway": times, "auto": {**times, "steady_p50_s": 0.25}},
        "ratios": {"recovered_vs_best": 1.04, "steady_overhead": None},
    }
    head, _, nway, auto = table([document]).splitlines()
    assert "recovered vs best" in head
    assert nway == "| `plans` | `nway` | 0.50 | 0.90 | 0.60 |  |  |"
    assert auto == "| `plans` | `auto` | 0.25 | 0.90 | 0.60 | 1.04 | - |"
