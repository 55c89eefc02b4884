"""How `spillway demo` speaks; the streams themselves are in tests/spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from spillway.cli.main import app
from spillway.coordinator.batch.committed import Committed
from spillway.routing.routing import Routing
from spillway_lab.demo import banks as demo
from spillway_lab.demo.check import Verdict, watermarks
from spillway_lab.workloads.banks import BANKS, LATENESS_S, Banks

SECOND_US = 1_000_000
ENTRY = {
    "batchId": 0,
    "rowsIn": dict.fromkeys(BANKS, 10),
    "rowsLate": dict.fromkeys(BANKS, 1),
    "rowsOut": 7,
    "batchMs": 250.0,
    "stateRows": 27,
    "stateBytes": 1234,
    "watermark": None,
    "slots": [],
}


def result(spec: demo.DemoSpec, differing: int = 0, late: int = 1) -> demo.DemoResult:
    live = demo.Live("running", 12.0)
    assert live.take([ENTRY])
    assert not live.take([ENTRY])
    committed = Committed(0, Routing.even(4, 2), (None, None), None, (), (10,) * 3, (1,) * 3, 7)
    verdict = Verdict(7, 7, differing, dict.fromkeys(BANKS, late))
    return demo.DemoResult(spec, Banks(spec.rows), live, committed, verdict, [("Alder", "95.00")])


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs `spillway demo` with a result that is there at once."""

    def command(*arguments: object, **outcome: int) -> tuple[int, str, str]:
        def answer(spec: demo.DemoSpec, show: Callable[[demo.Live], None]) -> demo.DemoResult:
            done = result(spec, **outcome)
            for _ in range(2):
                show(done.live)
            return done

        monkeypatch.setattr(demo, "run_demo", answer)
        with pytest.raises(SystemExit) as ended:
            app(["demo", *map(str, arguments)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return command


def test_document_is_all_there_is_on_stdout_and_lines_are_on_stderr(run) -> None:
    code, out, err = run("--json", "--rows", 10)
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert found["exact"] is True
    assert found["rows_in"] == dict.fromkeys(BANKS, 10)
    assert found["query1"] == [{"brokerName": "Alder", "min_price": "95.00"}]
    assert found["check"]["differing_rows"] == 0
    assert "rows in 30, rows out 7, late rows 3, state 27 rows, 1.2 kB" in err


def test_text_ends_with_the_verdict(run) -> None:
    code, out, _ = run()
    assert code == 0
    assert "exact: the Spark batch query gives the same 7 rows" in out
    assert "Alder" in out


@pytest.mark.parametrize("outcome", [{"differing": 2}, {"late": 5}])
def test_other_rows_or_other_late_rows_are_not_exact(run, outcome) -> None:
    code, out, _ = run("--json", **outcome)
    assert code == 1
    assert json.loads(out)["exact"] is False
    code, out, _ = run(**outcome)
    assert code == 1
    assert "NOT exact" in out


@pytest.mark.parametrize("arguments", [["--seconds", 0], ["--rows", 0], ["--slots", 0]])
def test_nothing_to_run_is_refused(run, arguments) -> None:
    code, out, _ = run("--json", *arguments)
    assert code == 2
    assert json.loads(out)["error"]["hint"]


def test_watermark_follows_the_slowest_bank_one_batch_behind() -> None:
    times = [[10 * SECOND_US, 20 * SECOND_US], [9 * SECOND_US, 30 * SECOND_US]]
    assert watermarks(times) == [None, (9 - LATENESS_S) * SECOND_US]
