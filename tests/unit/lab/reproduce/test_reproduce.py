"""Verdicts follow from the data, and the page says what was measured and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillway.cli.main import app
from spillway.errors import EnvironmentMissing
from spillway_lab.reproduce import figures as reproduce
from spillway_lab.reproduce import plots as reproduce_figures
from spillway_lab.reproduce.dcape.spill import LESS, MORE
from spillway_lab.reproduce.flux.page import SHOWN
from spillway_lab.reproduce.page import load, rendered, write_page
from spillway_lab.reproduce.results import Results
from spillway_lab.reproduce.runs import Run
from spillway_lab.reproduce.spec import FIGURES
from spillway_lab.reproduce.terms import ALL_MEMORY, Figure
from spillway_lab.reproduce.verdicts import document

ROOT = Path(__file__).parents[4]
LIMIT = 250
TOTAL = 1000
PUSHES = ("10%-push", "30%-push", "50%-push", "100%-push")


def made(output: int, *, spills: int = 0, total: int = TOTAL, **more: tuple[int, ...]) -> Run:
    """A run of three minutes, with 100 bytes of input in each."""
    memory = more.get("memory", (100, 200, LIMIT if spills else 300))
    return Run(
        (0, output // 2, output), memory, more.get("peak", memory), spills, total - output, 0.5
    )


def pushes(outputs: tuple[int, ...], spills: tuple[int, ...] = (9, 5, 3, 2)) -> dict[str, Run]:
    runs = {ALL_MEMORY: made(TOTAL)}
    for name, output, count in zip(PUSHES, outputs, spills, strict=True):
        runs[name] = made(output, spills=count)
    return runs


def ends(less: int, more: int) -> dict[str, Run]:
    return {ALL_MEMORY: made(TOTAL), LESS: made(less, spills=3), MORE: made(more, spills=3)}


def given(runs: dict[str, Run], by_part: dict[float, dict[str, Run]] | None = None) -> Results:
    return Results(runs, TOTAL, LIMIT, by_part or {})


def held(figure: str, runs: dict[str, Run]) -> bool:
    return bool(document(FIGURES[figure], given(runs))["holds"])


@pytest.mark.parametrize(
    ("outputs", "holds"),
    [
        ((900, 800, 700, 600), True),
        ((900, 800, 810, 600), False),
        ((900, 800, 700, 700), False),
        ((1000, 800, 700, 600), False),
    ],
    ids=["falling", "rising once", "level at the end", "as much as All-Mem"],
)
def test_figure_5_holds_only_where_output_falls_with_every_step(
    outputs: tuple[int, ...], holds: bool
) -> None:
    assert held("dcape-5", pushes(outputs)) is holds


def test_figure_6_holds_where_memory_is_over_by_a_batch_at_most_and_spills_get_fewer() -> None:
    outputs = (900, 800, 700, 600)
    assert held("dcape-6", pushes(outputs))
    runs = pushes(outputs)
    runs["30%-push"] = made(800, spills=5, peak=(100, 200, LIMIT + 100))
    assert held("dcape-6", runs)
    found = document(FIGURES["dcape-6"], given(runs))["measured"]
    assert found["batch_bytes"] == 100
    assert found["overshoot_bytes"]["30%-push"] == 100
    runs["30%-push"] = made(800, spills=5, peak=(100, 200, LIMIT + 101))
    assert not held("dcape-6", runs)
    runs["30%-push"] = made(800, spills=5, memory=(100, 200, LIMIT + 1))
    assert not held("dcape-6", runs)
    assert not held("dcape-6", pushes(outputs, (9, 5, 5, 2)))
    assert not held("dcape-6", pushes(outputs, (3, 2, 1, 0)))


@pytest.mark.parametrize(
    ("less", "more", "holds"),
    [(900, 600, True), (900, 601, False), (800, 300, False), (1000, 100, True)],
    ids=["just", "output too near", "cleanup too near", "nothing to clean up"],
)
def test_figure_7_asks_for_both_ratios(less: int, more: int, holds: bool) -> None:
    assert held("dcape-7", ends(less, more)) is holds


@pytest.mark.parametrize(
    ("less", "more", "holds"), [(800, 700, True), (686, 700, True), (685, 700, False)]
)
def test_figure_12_allows_two_parts_in_a_hundred(less: int, more: int, holds: bool) -> None:
    assert held("dcape-tr-12", ends(less, more)) is holds


def test_no_claim_holds_when_a_run_has_lost_a_row() -> None:
    runs = ends(900, 600)
    runs[MORE] = made(600, spills=3, total=TOTAL - 1)
    found = document(FIGURES["dcape-7"], given(runs))
    assert found["measured"]["exact"] is False
    assert found["holds"] is False
    assert "a run was not exact" in rendered([found])


def entry(
    at: int, cleanup_round: int, out: int, cleaned: int, *kinds: str, sizes: tuple[int, ...] = (10,)
) -> dict[str, Any]:
    """What a query tells of a batch or a round; events are of the last slot."""
    events = [
        {
            "event": kind,
            "slot": len(sizes) - 1,
            "seconds": 0.25,
            **({"rows_out": cleaned} if kind in ("reloaded", "cleaned-up") else {}),
        }
        for kind in kinds
    ]
    return {
        "batchId": at,
        "cleanupRound": cleanup_round,
        "rowsOut": out,
        "rowsCleaned": cleaned,
        "memoryBytes": sum(sizes),
        "slots": [{"peakBytes": 15, "stateBytes": {"a": size, "b": 0}} for size in sizes],
        "events": events,
        "batchMs": 500.0,
    }


def test_run_tells_run_time_from_cleanup() -> None:
    run = Run.of(
        [entry(0, 0, 5, 0, "spilled"), entry(1, 0, 9, 2, "reloaded", sizes=(20,)),
         entry(1, 1, 4, 4, "cleaned-up"), entry(1, 2, 3, 3, "cleaned-up")]
    )  # fmt: skip
    assert run == Run(
        (5, 12), (10, 20), (15, 20), 1, 9, 0.75, ((10, 20),), (), (), (9,), (0.75,), 1.0
    )
    assert run.total == 21


def test_rows_that_waited_for_a_move_at_the_end_are_of_the_last_batch() -> None:
    run = Run.of([entry(0, 0, 5, 0), entry(1, 0, 9, 0), entry(1, 1, 7, 4, "cleaned-up")])
    assert run.output == (5, 17)
    assert (run.cleaned, run.total) == (4, 21)


def test_run_tells_slots_and_what_the_coordinator_did() -> None:
    run = Run.of(
        [entry(0, 0, 5, 0, "move-asked", sizes=(30, 0)),
         entry(1, 0, 5, 0, "groups-reactivated", sizes=(20, 10)),
         entry(2, 0, 5, 0, "force-spilled", sizes=(20, 5)),
         entry(2, 1, 7, 7, "cleaned-up", sizes=(20, 5))]
    )  # fmt: skip
    assert run.slots == ((30, 20, 20), (0, 10, 5))
    assert run.fullest == (30, 20, 20)
    assert run.balance == (0, 0.5, 0.25)
    assert (run.relocated, run.forced, run.spills) == ((1,), (2,), 0)
    assert (run.slot_cleaned, run.slot_cleanup_s) == ((0, 7), (0, 0.25))


def test_a_section_has_claim_numbers_verdict_and_plot() -> None:
    found = document(FIGURES["dcape-7"], given(ends(900, 600)))
    page = rendered([found])
    for text in (
        FIGURES["dcape-7"].claim,
        "194,308",
        "1.50 x the output; 100 rows of cleanup against 400, 4.0 x fewer",
        "| push-less-productive | 900 | 100 | 3 |",
        "The claim holds; every run was exact",
        "(figures/dcape-7.png)",
    ):
        assert text in page
    assert "## dcape-5" not in page
    worse = document(FIGURES["dcape-7"], given(ends(800, 600)))
    assert "The claim does not hold; every run was exact" in rendered([worse])


def test_other_limits_are_told_and_leave_the_verdict_alone() -> None:
    by_part = {0.3: ends(800, 600), 0.5: ends(950, 500)}
    found = document(FIGURES["dcape-7"], given(ends(900, 600), by_part))
    assert found["holds"]
    assert found["measured"]["other_parts"] == {
        "0.3": {"output_ratio": 1.3333, "cleanup_ratio": 2.0, "holds": False},
        "0.5": {"output_ratio": 1.9, "cleanup_ratio": 10.0, "holds": True},
    }
    page = rendered([found])
    assert "| 0.3 | 1.33 x | 2.0 x fewer | does not hold |" in page
    assert "| 0.4 | 1.50 x | 4.0 x fewer | above |" in page
    by_part[0.5][LESS] = made(950, spills=1, total=TOTAL + 1)
    assert not document(FIGURES["dcape-7"], given(ends(900, 600), by_part))["holds"]


def test_page_shows_what_was_measured_and_nothing_else() -> None:
    documents = load(ROOT / "bench" / "reproduction")
    assert {one["figure"] for one in documents} == {*FIGURES, *SHOWN}
    assert (ROOT / "docs" / "reproduction.md").read_text() == rendered(documents)
    for name in (*FIGURES, *SHOWN):
        assert (ROOT / "docs" / "figures" / f"{name}.png").is_file()


def test_measured_documents_have_the_texts_of_today_and_verdicts_of_their_data() -> None:
    for found in load(ROOT / "bench" / "reproduction"):
        if found["figure"] in SHOWN:
            continue
        figure = FIGURES[found["figure"]]
        assert (found["claim"], found["paper"]) == (figure.claim, figure.paper)
        assert list(found) == ["figure", "claim", "paper", "series", "measured", "holds"]
        lines = found["series"][figure.shows]
        assert list(lines) == _line_names(figure, found["measured"])
        assert {len(line) for line in lines.values()} == {len(found["series"]["minute"])}
        if figure.shows == "output":
            last = {name: line[-1] for name, line in lines.items()}
            assert last == found["measured"]["output_rows"]
        totals = {
            rows + found["measured"]["cleanup_rows"][name]
            for name, rows in found["measured"]["output_rows"].items()
        }
        assert found["measured"]["exact"] == (totals == {found["measured"]["rows_expected"]})


def _line_names(figure: Figure, measured: dict[str, Any]) -> list[str]:
    names = [variant.name for variant in figure.variants]
    assert names == list(measured["output_rows"])
    if figure.shows != "slots":
        return names
    return [
        f"{variant.name}-M{slot}"
        for variant in figure.variants
        for slot in range(1, 1 + variant.adapt["slots"])
    ]


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs `spillway reproduce` with figures that are there at once."""

    def documents(figures: Any, say: Callable[[str], None]) -> Any:
        for figure in figures:
            say(f"running {figure.name}")
            runs = pushes((900, 800, 700, 600)) if "100%" in str(figure) else ends(900, 600)
            yield document(figure, given(runs))

    monkeypatch.setattr(reproduce, "_documents", documents)
    monkeypatch.setattr(reproduce, "require_java", lambda: None)

    def invoke(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app(["reproduce", *arguments])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return invoke


def test_json_is_one_document_for_one_figure_and_a_list_for_several(
    run: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, err = run("dcape-7", "--json")
    assert code == 0
    assert json.loads(out)["figure"] == "dcape-7"
    assert "running dcape-7" in err
    code, out, _ = run("dcape-6", "dcape-5", "--json")
    assert [one["figure"] for one in json.loads(out)] == ["dcape-5", "dcape-6"]


def test_unknown_figure_is_refused(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run("dcape-99", "--json")
    assert code == 2
    error = json.loads(out)["error"]
    assert error["message"] == "there is no figure 'dcape-99'"
    assert "dcape-7" in error["hint"]


def test_data_plots_and_page_are_written(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    results, page = tmp_path / "results", tmp_path / "docs" / "page.md"
    assert run("dcape-7", "--out", str(results))[0] == 0
    assert sorted(path.name for path in results.iterdir()) == ["dcape-7.json", "dcape-7.png"]
    assert run("dcape-6", "--out", str(results), "--page", str(page))[0] == 0
    assert page.read_text() == rendered(load(results))
    drawn = {path.name: path.read_bytes() for path in (page.parent / "figures").iterdir()}
    assert sorted(drawn) == ["dcape-6.png", "dcape-7.png"]
    write_page(load(results), page)
    assert (page.parent / "figures" / "dcape-6.png").read_bytes() == drawn["dcape-6.png"]


def test_missing_matplotlib_is_named_with_its_extra_before_anything_runs(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reproduce_figures, "find_spec", lambda _: None)
    with pytest.raises(EnvironmentMissing, match="plots need matplotlib") as raised:
        reproduce_figures.require_matplotlib()
    assert "spillway[lab]" in str(raised.value.hint)
    code, _, err = run("dcape-7", "--out", str(tmp_path))
    assert code == 2
    assert "running" not in err
    assert run("dcape-7", "--json")[0] == 0
