"""Errors keep their three parts: as text, pickled, and quoted in the text of another exception."""

from __future__ import annotations

import pickle

import pytest

from spillway.errors import (
    EnvironmentMissing,
    PlanError,
    QueryError,
    SettingsError,
    SpillwayError,
    StateError,
    from_wire,
)

KINDS = [SpillwayError, PlanError, SettingsError, StateError, QueryError, EnvironmentMissing]


def parts(error: SpillwayError) -> tuple[type, str, str | None, str | None]:
    return type(error), error.message, error.detail, error.hint


def test_text_has_message_detail_and_hint():
    error = PlanError("no column 'ofer' in bank1", detail="it has: offer", hint="write 'offer'")
    assert str(error) == (
        "no column 'ofer' in bank1\n  detail: it has: offer\n  hint: write 'offer'"
    )


def test_text_leaves_out_the_parts_that_are_not_there():
    assert str(SpillwayError("no room")) == "no room"
    assert str(SpillwayError("no room", hint="add some")) == "no room\n  hint: add some"


@pytest.mark.parametrize("kind", KINDS)
def test_wire_keeps_kind_and_parts_inside_a_longer_text(kind: type[SpillwayError]):
    error = kind("slot 3: {state} is gone", detail='said "no"\nand left', hint="größer: 2 GB")
    quoted = f"Job aborted: Traceback\n  {error.to_wire()}\n\tat java.lang.Thread.run"
    arrived = from_wire(quoted)
    assert arrived is not None
    assert parts(arrived) == parts(error)


def test_wire_keeps_missing_parts_missing():
    arrived = from_wire(StateError("gone").to_wire())
    assert arrived is not None
    assert parts(arrived) == (StateError, "gone", None, None)


def test_wire_gives_the_first_of_several_errors():
    arrived = from_wire(PlanError("one").to_wire() + " caused by " + StateError("two").to_wire())
    assert arrived is not None
    assert parts(arrived)[:2] == (PlanError, "one")


def test_text_without_an_error_gives_none():
    assert from_wire("java.lang.OutOfMemoryError: Java heap space") is None


@pytest.mark.parametrize("kind", KINDS)
def test_pickle_keeps_kind_and_parts(kind: type[SpillwayError]):
    error = kind("m", detail="d", hint="h")
    assert parts(pickle.loads(pickle.dumps(error))) == parts(error)
