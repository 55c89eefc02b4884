"""FLUX's figures: verdicts follow from the points, and no Spark is started for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spillway.cli.main import app
from spillway.experiments import reproduce, reproduce_flux
from spillway.experiments.reproduce_flux import SIMULATED, document
from spillway.experiments.reproduce_flux_exchange import BUFFERS, EXCHANGE, FLUX, UNLOADED
from spillway.experiments.reproduce_page import load, rendered
from spillway.simulator.scenario import Scenario
from spillway.simulator.series import NAMES
from spillway.simulator.simulation import Result

ROOT = Path(__file__).parents[2]


def made(seconds: float = 4.0, **series: list[float]) -> Result:
    """A run with given series; the others are 0."""
    points = max((len(values) for values in series.values()), default=1)
    zeros = dict.fromkeys(NAMES, [0.0] * points)
    known = {**zeros, "second": [(at + 1) * seconds / points for at in range(points)], **series}
    rows = known["rows_per_s"]
    return Result(
        Scenario(seconds=seconds),
        {name: tuple(values) for name, values in known.items()},
        (),
        {"rows_per_s": sum(rows) / len(rows), "moves": 3, "spills": 0},
        (),
    )


def steady(rows: float, **more: Any) -> Result:
    return made(rows_per_s=[rows], **more)


def held(name: str, results: Mapping[str, Mapping[float, Result]]) -> bool:
    return bool(document(SIMULATED[name], results)["holds"])


def swept(flux: list[float], exchange: list[float]) -> dict[str, dict[float, Result]]:
    lines = {FLUX: flux, EXCHANGE: exchange, UNLOADED: [100.0] * len(BUFFERS)}
    return {
        line: {x: steady(y) for x, y in zip(BUFFERS, values, strict=True)}
        for line, values in lines.items()
    }


@pytest.mark.parametrize(
    ("flux", "exchange", "holds"),
    [
        ([50, 60, 70, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 65, 69, 80], True),
        ([50, 60, 70, 80, 90, 94, 94, 94], [50, 50, 52, 55, 60, 65, 69, 80], False),
        ([50, 60, 70, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 66, 69, 80], False),
        ([50, 60, 55, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 65, 69, 80], False),
        ([70, 75, 76, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 65, 69, 80], False),
        ([50, 51, 70, 80, 90, 96, 97, 98], [50, 52, 52, 55, 60, 65, 69, 80], False),
    ],
    ids=["as it should", "never near", "exchange too", "falls", "no loss at all", "beaten"],
)
def test_flux_3_asks_flux_to_be_near_where_exchange_is_not(
    flux: list[float], exchange: list[float], holds: bool
) -> None:
    assert held("flux-3", swept(flux, exchange)) is holds


def test_no_claim_holds_where_a_check_failed() -> None:
    runs = swept([50, 60, 70, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 65, 69, 80])
    good = runs[FLUX][0]
    runs[FLUX][0] = Result(good.scenario, good.series, (), good.totals, ("1 s, rows: lost",))
    found = document(SIMULATED["flux-3"], runs)
    assert found["holds"] is False
    assert "a check of a run failed" in rendered([found])


def test_section_has_claim_numbers_verdict_and_plot() -> None:
    runs = swept([50, 60, 70, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 65, 69, 80])
    page = rendered([document(SIMULATED["flux-3"], runs)])
    for text in (
        "# FLUX, simulated",
        SIMULATED["flux-3"].claim,
        "with 512 rows of buffer Flux has 0.96, Exchange 0.65",
        "The claim holds; no check failed.",
        "| 512 | 96 | 65 | 100 |",
        "(figures/flux-3.png)",
    ):
        assert text in page


def test_measured_documents_have_the_texts_of_today_and_verdicts_of_their_data() -> None:
    for found in load(ROOT / "bench" / "reproduction"):
        if found["figure"] not in SIMULATED:
            continue
        figure = SIMULATED[found["figure"]]
        assert (found["claim"], found["paper"]) == (figure.claim, figure.paper)
        assert list(found) == ["figure", "claim", "paper", "series", "measured", "holds"]
        assert list(found["series"]) == list(figure.runs())
        assert found["measured"]["exact"] is (found["measured"]["violations"] == [])


def test_spark_is_not_needed_for_a_simulated_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(reproduce, "require_java", refuse)
    monkeypatch.setattr(reproduce, "_documents", refuse)
    monkeypatch.setattr(reproduce_flux, "simulate", lambda _: steady(100.0))
    with pytest.raises(SystemExit) as ended:
        app(["reproduce", "flux-3", "--json"])
    out, err = capsys.readouterr()
    assert ended.value.code == 1
    assert json.loads(out)["figure"] == "flux-3"
    assert "simulating flux-3: Flux, 32" in err
