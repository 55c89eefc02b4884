"""The command line's manners: three parts and exit 2, and with --json one document and no more."""

from __future__ import annotations

import json

import pytest
import typer

from spillway.cli.main import app
from spillway.cli.output import console_for, emit_json, guarded
from spillway.errors import PlanError


def fail_with(error: Exception, *, as_json: bool) -> int:
    @guarded(as_json)
    def command() -> None:
        raise error

    with pytest.raises(typer.Exit) as ended:
        command()
    return ended.value.exit_code


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app(list(arguments))
    return int(ended.value.code or 0)


def test_user_error_prints_its_three_parts_on_stderr_and_exits_2(capsys):
    long_path = "/data/" + "x" * 200
    error = PlanError("no stream [bank4]", detail=f"read {long_path}", hint="name one of bank1..3")
    assert fail_with(error, as_json=False) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"error: no stream [bank4]\n  detail: read {long_path}\n  hint: name one of bank1..3\n"
    )


def test_user_error_with_json_is_the_one_document_on_stdout(capsys):
    assert fail_with(PlanError("no stream", hint="name one"), as_json=True) == 2
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "error": {"message": "no stream", "detail": None, "hint": "name one"}
    }
    assert err == ""


def test_defects_pass_through_unchanged():
    with pytest.raises(ZeroDivisionError), guarded(json=True):
        raise ZeroDivisionError


def test_block_without_error_ends_normally():
    with guarded(json=False):
        pass


@pytest.mark.parametrize(("as_json", "stream"), [(False, "out"), (True, "err")])
def test_text_leaves_stdout_to_the_document(capsys, as_json: bool, stream: str):
    console_for(as_json).print("batch 7 [dev]")
    captured = capsys.readouterr()
    assert getattr(captured, stream) == "batch 7 [dev]\n"
    assert captured.out + captured.err == "batch 7 [dev]\n"


def test_document_refuses_what_json_cannot_say():
    with pytest.raises(ValueError, match="JSON"):
        emit_json({"ratio": float("nan")})


def test_version_is_printed(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("spillway ")


def test_unknown_command_exits_2_and_keeps_stdout_empty(capsys):
    assert run("no-such-command") == 2
    assert capsys.readouterr().out == ""
