"""The arithmetic of the benchmark, and how its command takes arguments and gives documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillway.cli.main import app
from spillway.errors import SettingsError
from spillway_lab.bench import runs as bench
from spillway_lab.bench.figures import (
    case_document,
    engine_figures,
    nearest_rank,
    plans_document,
)
from spillway_lab.bench.settle import free_bytes
from spillway_lab.bench.spec import BenchSettings, EngineOrder
from spillway_lab.cli.bench import _table
from spillway_lab.workloads.pairs import Pairs

KEYS = {"rows_per_s", "batch_p50_s", "batch_p99_s", "state_rows"}


def result(engine: str, seconds: list[float], **more: float) -> dict[str, Any]:
    batches = [
        {"batch": at, "seconds": s, "state_rows": 1000 * (at + 1), **more}
        for at, s in enumerate(seconds)
    ]
    return {
        "engine": engine,
        "batches": batches,
        "plain_arrow_bytes_per_row": 16.0,
        "spark": "test",
    }


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs `spillway bench` with engines that answer at once."""

    def answer(name: str, engine: str, settings: BenchSettings, say: bench.Say) -> dict[str, Any]:
        say(name, engine, {"phase": "measured", "batch": 1, "of": settings.batches_of(engine)})
        speed = {"spillway": 0.5, "identity": 0.4, "spillway-unsynced": 0.4}
        speed |= {"spark-memory": 4.0, "spark-rocksdb": 8.0}
        more = {"state_bytes": 20_000.0, "operator_cpu_ms": 40.0}
        return result(engine, [speed[engine]] * settings.batches_of(engine), **more)

    monkeypatch.setattr(bench, "run_engine", answer)
    monkeypatch.setattr(bench, "require_java", lambda: None)
    monkeypatch.setattr(bench, "settle", lambda: pytest.fail("settled without being asked"))

    def command(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app(["bench", "--no-settle", *map(str, arguments)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return command


def test_rows_per_second_is_all_rows_over_all_seconds_of_the_measured_batches() -> None:
    figures = engine_figures(result("spark-memory", [9.0, 9.0, 1.0, 3.0]), 400, dropped=2)
    assert figures == {
        "rows_per_s": 200.0,
        "batch_p50_s": 2.0,
        "batch_p99_s": 3.0,
        "state_rows": 4000,
        "batches": 2,
    }


def test_figures_of_spillway_tell_of_operator_state_and_growth() -> None:
    seconds = [9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.5, 2.0]
    measured = result("spillway", seconds, state_bytes=220_000, operator_cpu_ms=2.0)
    figures = engine_figures(measured, 1000, dropped=1)
    assert figures["operator_us_per_row"] == 2.0
    assert figures["bytes_per_state_row"] == 20.0
    assert figures["plain_arrow_bytes_per_row"] == 16.0
    assert figures["growth"] == 2.0
    assert (figures["growth_from_state_rows"], figures["growth_to_state_rows"]) == (3000, 9000)
    assert figures["p99_vs_p50"] == pytest.approx(2.5 / 1.5, abs=1e-3)


def test_at_least_one_batch_is_measured() -> None:
    assert engine_figures(result("identity", [1.0, 2.0]), 10, dropped=5)["batches"] == 1


def test_p99_of_few_batches_is_the_slowest() -> None:
    assert nearest_rank([1.0] * 98 + [7.0], 0.99) == 7.0
    assert nearest_rank([1.0] * 199 + [7.0], 0.99) == 1.0


def test_ratios_are_of_rows_per_second_and_null_without_both_engines() -> None:
    fast, slow = {"rows_per_s": 900.0}, {"rows_per_s": 100.0}
    whole = case_document("join2", {"spillway": fast, "spark-memory": slow})
    assert whole["ratios"] == {
        "vs_spark_memory": 9.0,
        "vs_spark_rocksdb": None,
        "vs_identity": None,
        "vs_unsynced": None,
    }
    alone = case_document("join2", {"spark-memory": slow})
    assert set(alone["ratios"].values()) == {None}


def test_one_name_gives_one_document(run) -> None:
    code, out, err = run("join2", "--json", "--batches", 4, "--rows", 10)
    found = json.loads(out)
    assert code == 0
    assert found["name"] == "join2"
    spark = {"spark-memory", "spark-rocksdb"}
    assert set(found["engines"]) == {"spillway", "identity", "spillway-unsynced", *spark}
    assert all(figures.keys() >= KEYS for figures in found["engines"].values())
    assert found["ratios"] == {
        "vs_spark_memory": 8,
        "vs_spark_rocksdb": 16,
        "vs_identity": 0.8,
        "vs_unsynced": 0.8,
    }
    assert found["engines"]["spillway"]["rows_per_s"] == 40.0
    assert "join2, spark-rocksdb, measured" in err


def test_several_names_give_a_list_in_the_order_of_the_cases(run) -> None:
    _, out, _ = run("join3", "join2", "--json", "--engines", "identity,spillway")
    found = json.loads(out)
    assert [document["name"] for document in found] == ["join2", "join3"]
    assert list(found[0]["engines"]) == ["spillway", "identity"]


def test_identity_by_name_is_measured_alone(run) -> None:
    found = json.loads(run("identity", "--json")[1])
    assert list(found["engines"]) == ["identity"]
    assert set(found["ratios"].values()) == {None}


def test_table_has_engines_and_ratios(run) -> None:
    code, out, _ = run("join2", "--engines", "spillway", "--engines", "spark-memory")
    assert code == 0
    assert "spark-memory" in out
    assert "8.00 x" in out


def test_table_has_the_cost_of_sync() -> None:
    figures = {"rows_per_s": 1.0, "batch_p50_s": 1.0, "batch_p99_s": 1.0, "state_rows": 1}
    document = {
        "name": "join2",
        "engines": {"spillway-unsynced": figures},
        "ratios": {"vs_unsynced": 0.91},
    }
    assert list(_table(document).columns[-1].cells) == ["0.91 x"]


def test_results_are_written_where_out_says(run, tmp_path: Path) -> None:
    run("join2", "join3", "--out", tmp_path / "results")
    names = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert names == ["join2.json", "join3.json"]
    _, out, _ = run("join2", "--json", "--out", tmp_path / "one.json")
    assert json.loads((tmp_path / "one.json").read_text()) == json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["join9"], "there is no benchmark 'join9'", "join2, join3"),
        (["--engines", "flink"], "there is no engine 'flink'", "spillway, identity"),
        (["identity", "--engines", "spillway"], "runs identity", "identity is for identity"),
        (
            ["--batches", "1"],
            "--batches 1, --spark-batches 10 and --rows 200000",
            "at least 2 batches",
        ),
        (["--dir", "no/such/place"], "there is no directory no/such/place", "--dir"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_runs(
    run, arguments, message, hint
) -> None:
    code, out, err = run(*arguments, "--json")
    error = json.loads(out)["error"]
    assert (code, err) == (2, "")
    assert message in error["message"]
    assert hint in error["hint"]


def test_order_survives_its_way_to_the_child() -> None:
    settings = BenchSettings(rows=100, batches=8, spark_batches=4)
    order = EngineOrder.of("join2-window", "spark-memory", settings, "somewhere")
    assert EngineOrder(**json.loads(json.dumps(order.to_json()))) == order
    assert order.batches == 4
    # The keys are those of the longest run, whatever part of it an engine runs.
    ours = EngineOrder.of("join2-window", "spillway", settings, "elsewhere")
    assert order.pairs == ours.pairs


def test_failed_engine_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(f"line {at}" for at in range(40)))
    error = bench._failed("join2", "spark-rocksdb", log, 1)
    assert error.message == "engine spark-rocksdb failed in join2, with exit code 1"
    assert error.detail is not None
    assert error.detail.endswith("line 39")
    assert "line 10" not in error.detail


@pytest.mark.parametrize(
    ("limit", "free"), [("max", 4096 * 1024), ("3000000", 2_000_000), ("500000", 0)]
)
def test_free_memory_is_the_containers_where_that_is_less(tmp_path: Path, limit, free) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 8192 kB\nMemAvailable: 4096 kB\n")
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text("1000000")
    assert free_bytes(tmp_path / "meminfo", tmp_path) == free
    assert free_bytes(tmp_path / "none", tmp_path) is None


def test_keys_have_room_for_the_rows_of_the_run() -> None:
    assert Pairs(2, rows=1024, batches=4).key_bits == 12
    assert Pairs(2, rows=1024, batches=5).key_bits == 13
    with pytest.raises(SettingsError, match=r"more than 2\^31"):
        Pairs(2, rows=1 << 30, batches=4)


def plan_batches(*seconds: float) -> list[dict[str, Any]]:
    return [
        {"seconds": s, "operator_cpu_ms": s * 500, "state_bytes": 10, "rows_out": at}
        for at, s in enumerate(seconds)
    ]


def plan_result(engine: str, steady: float, then: float, **turns: float) -> dict[str, Any]:
    """Twenty batches before a change and ten after it; and of turns, the seconds of a batch."""
    return {
        "engine": engine, "change": 20, "reshaped": [], "spark": "test",
        "batches": plan_batches(*[steady] * 20, *[9.0] * 5, *[then] * 5),
        "turns": {plan: plan_batches(*[took] * 4) for plan, took in turns.items()},
    }  # fmt: skip


def test_plans_are_compared_with_the_best_fixed_one_before_and_after_the_change() -> None:
    found = plans_document(
        {
            "nway": plan_result("nway", 0.5, 1.0),
            "tree-ab": plan_result("tree-ab", 0.4, 2.0),
            "auto": plan_result("auto", 0.9, 1.1, nway=0.6, auto=0.63),
        }
    )
    assert found["ratios"]["recovered_vs_best"] == 1.1
    # Of batches in turns alone: processes differ.
    assert found["ratios"]["steady_overhead"] == found["ratios"]["steady_cpu_overhead"] == 1.05
    steady = {engine: one["steady_p50_s"] for engine, one in found["engines"].items()}
    assert steady == {"nway": 0.6, "tree-ab": 0.4, "auto": 0.63}
    assert found["engines"]["auto"]["changed_max_s"] == 9.0
    assert found["exact"]


def test_auto_alone_is_compared_with_nothing_after_the_change() -> None:
    found = plans_document({"auto": plan_result("auto", 0.4, 1.0, nway=0.5, auto=0.5)})
    assert found["ratios"]["recovered_vs_best"] is None
    assert found["ratios"]["steady_overhead"] == 1.0


def test_plans_that_differ_in_rows_are_not_exact() -> None:
    other = plan_result("nway", 0.5, 1.0)
    other["batches"][3]["rows_out"] += 1
    assert not plans_document({"tree-ab": plan_result("tree-ab", 0.4, 1.0), "nway": other})["exact"]
