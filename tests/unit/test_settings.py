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
    "wrong",
    [
        {"slots": 0},
        {"groups": 0},
        {"slots": 9, "groups": 4},
        {"share": "rack"},
        {"spill_mode": "round-robin"},
        {"adjustment": "gentle"},
        {"ring": "long"},
    ],
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


@pytest.mark.parametrize("strategy", ["flux-load", "flux-memory", "flux-hybrid"])
def test_strategies_of_flux_are_settings_with_the_papers_thresholds(strategy: str) -> None:
    adapt = Adapt(strategy=strategy)
    assert adapt.strategy_name == strategy
    assert (adapt.imbalance_threshold, adapt.utilisation_threshold) == (1.2, 0.9)


def test_what_is_found_while_the_query_runs_is_written_auto() -> None:
    fixed = Adapt(delta_min="250 ms", t_gap=timedelta(seconds=3), imbalance_threshold=1.5)
    assert (fixed.delta_min_s, fixed.t_gap_s) == (0.25, 3.0)
    tuned = Adapt(delta_min="auto", t_gap="auto", imbalance_threshold="auto")
    assert (tuned.delta_min_s, tuned.t_gap_s) == (None, None)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            {"imbalance_threshold": 0.9},
            "imbalance_threshold=0.9 is not a number of at least 1\n"
            '  hint: for example .adapt(imbalance_threshold=1.2 or "auto")',
        ),
        (
            {"imbalance_threshold": "some"},
            "imbalance_threshold='some' is not a number of at least 1\n"
            '  hint: for example .adapt(imbalance_threshold=1.2 or "auto")',
        ),
        (
            {"utilisation_threshold": 1.1},
            "utilisation_threshold=1.1 is not more than 0 and at most 1\n"
            "  hint: for example .adapt(utilisation_threshold=0.3)",
        ),
        (
            {"delta_min": "0 seconds"},
            "delta_min='0 seconds' is not longer than nothing\n"
            '  hint: for example .adapt(delta_min="1 second" or "auto")',
        ),
        (
            {"t_gap": timedelta(0)},
            "t_gap=datetime.timedelta(0) is not longer than nothing\n"
            '  hint: for example .adapt(t_gap="1 second" or "auto")',
        ),
        (
            {"batch_target": "0 seconds"},
            "batch_target='0 seconds' is not longer than nothing\n"
            '  hint: for example .adapt(batch_target="1 second" or "auto")',
        ),
        (
            {"skew_buffer": "some"},
            "skew_buffer='some' is not a positive number of bytes\n"
            '  hint: write for example skew_buffer="200MB" or skew_buffer=200000000',
        ),
        (
            {"productivity_ratio": True},
            "productivity_ratio=True is not a number of at least 1\n"
            "  hint: for example .adapt(productivity_ratio=2)",
        ),
    ],
)
def test_settings_of_flux_that_make_no_sense_are_refused(wrong, text) -> None:
    with pytest.raises(SettingsError) as refused:
        Adapt(**wrong)
    assert str(refused.value) == text


def test_rows_wait_in_slow_slots_only_where_a_buffer_is_given() -> None:
    assert Adapt().skew_bytes is None
    given = Adapt(skew_buffer="64 MiB", batch_target="2 seconds")
    assert (given.skew_bytes, given.batch_target_s) == (64 << 20, 2.0)
    assert Adapt(skew_buffer=1000).batch_target_s is None


@pytest.mark.parametrize("name", ["delta_min", "t_gap", "batch_target"])
def test_a_time_that_is_no_duration_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match=f"the {name} 'soon' is not a duration"):
        Adapt(**{name: "soon"})
