from __future__ import annotations

from datetime import timedelta

import pytest

from spillway.duration import duration_us
from spillway.errors import PlanError, SettingsError
from spillway.settings import Adapt, parse_bytes


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("200MB", 200_000_000), ("1 GiB", 1 << 30), ("1.5k", 1500), (7, 7), ("64mib", 64 << 20)],
)
def test_bytes_are_read_as_people_write_them(text, bytes_) -> None:
    assert parse_bytes("memory", text) == bytes_


@pytest.mark.parametrize("wrong", ["lots", "0", -1, True, "10 parsecs", ""])
def test_what_is_no_number_of_bytes_is_refused(wrong) -> None:
    with pytest.raises(SettingsError, match="is not a positive number of bytes"):
        Adapt(memory=wrong)


def test_unknown_setting_is_named_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="there is no setting 'slot'") as caught:
        Adapt().changed(slot=3)
    assert "slots" in str(caught.value.hint)


@pytest.mark.parametrize(
    "wrong", [{"slots": 0}, {"groups": 0}, {"slots": 9, "groups": 4}, {"share": "rack"}]
)
def test_impossible_settings_are_refused(wrong) -> None:
    with pytest.raises(SettingsError):
        Adapt(**wrong)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10 minutes", 600_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("500 milliseconds", 500_000),
        ("interval 2 days", 172_800_000_000),
        ("1.5s", 1_500_000),
        (timedelta(seconds=3), 3_000_000),
        ("0 seconds", 0),
    ],
)
def test_durations_are_read_as_people_write_them(text, us) -> None:
    assert duration_us("window", text) == us


@pytest.mark.parametrize("wrong", ["", "soon", "1 month", "10", "-5 seconds"])
def test_what_is_no_duration_is_refused(wrong) -> None:
    with pytest.raises(PlanError, match="is not a duration"):
        duration_us("window", wrong)
