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
def test_text_that_is_not_a_number_of_bytes_is_rejected(wrong) -> None:
    with pytest.raises(SettingsError, match="must be a positive number of bytes"):
        Adapt(memory=wrong)


def test_unknown_setting_is_named_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="there is no setting 'slot'") as caught:
        Adapt().changed(slot=3)
    assert "slots" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        (
            {"slots": 0},
            "slots=0 must be a whole number of at least 1",
            "write for example .adapt(slots=8)",
        ),
        (
            {"groups": True},
            "groups=True must be a whole number of at least 1",
            "write for example .adapt(groups=8)",
        ),
        (
            {"groups": None},
            "groups=None must be a whole number of at least 1",
            "write for example .adapt(groups=8)",
        ),
        (
            {"groups": 70_000},
            "groups=70000 must be at most 65536",
            "write for example .adapt(groups=1024)",
        ),
        (
            {"slots": 9, "groups": 4},
            "9 slots cannot share 4 groups",
            "raise groups to at least 9, or lower slots",
        ),
        (
            {"share": "rack"},
            "share='rack' is not one of 'host', 'executor'",
            "write for example .adapt(share='host')",
        ),
        (
            {"spill_mode": "round-robin"},
            "spill_mode='round-robin' is not one of 'generations', 'rotation'",
            "write for example .adapt(spill_mode='generations')",
        ),
        (
            {"adjustment": "gentle"},
            "adjustment='gentle' is not one of 'aggressive', 'passive', 'auto'",
            "write for example .adapt(adjustment='aggressive')",
        ),
        (
            {"ring": "long"},
            "ring='long' is not one of 'fixed', 'auto'",
            "write for example .adapt(ring='fixed')",
        ),
        (
            {"segment": "0 s"},
            "segment='0 s' must be a positive duration",
            'write for example .adapt(segment="30 seconds")',
        ),
        (
            {"slots": 2, "shares": (1, -1)},
            "shares=(1, -1) must have one weight for each slot, none of them negative",
            "write for example .adapt(slots=3, shares=(3, 1, 1))",
        ),
        (
            {"slots": 2, "memory": {2: "1MB"}},
            "memory has a limit for slot 2, but the slots are 0 to 1",
            'write for example .adapt(slots=2, memory={0: "200MB", 1: "50MB"})',
        ),
    ],
)
def test_impossible_settings_are_rejected(wrong, message: str, hint: str) -> None:
    with pytest.raises(SettingsError) as rejected:
        Adapt(**wrong)
    assert (rejected.value.message, rejected.value.hint) == (message, hint)


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
def test_text_that_is_not_a_duration_is_rejected(wrong) -> None:
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
            "imbalance_threshold=0.9 must be a number of at least 1\n"
            "  hint: write for example .adapt(imbalance_threshold=1.2) or "
            '.adapt(imbalance_threshold="auto")',
        ),
        (
            {"imbalance_threshold": "some"},
            "imbalance_threshold='some' must be a number of at least 1\n"
            "  hint: write for example .adapt(imbalance_threshold=1.2) or "
            '.adapt(imbalance_threshold="auto")',
        ),
        (
            {"utilisation_threshold": 1.1},
            "utilisation_threshold=1.1 must be a number above 0 and at most 1\n"
            "  hint: write for example .adapt(utilisation_threshold=0.3)",
        ),
        (
            {"delta_min": "0 seconds"},
            "delta_min='0 seconds' must be a positive duration\n"
            '  hint: write for example .adapt(delta_min="1 second") or .adapt(delta_min="auto")',
        ),
        (
            {"t_gap": timedelta(0)},
            "t_gap=datetime.timedelta(0) must be a positive duration\n"
            '  hint: write for example .adapt(t_gap="1 second") or .adapt(t_gap="auto")',
        ),
        (
            {"batch_target": "0 seconds"},
            "batch_target='0 seconds' must be a positive duration\n"
            '  hint: write for example .adapt(batch_target="1 second") or '
            '.adapt(batch_target="auto")',
        ),
        (
            {"skew_buffer": "some"},
            "skew_buffer='some' must be a positive number of bytes\n"
            '  hint: write for example skew_buffer="200MB" or skew_buffer=200000000',
        ),
        (
            {"productivity_ratio": True},
            "productivity_ratio=True must be a number of at least 1\n"
            "  hint: write for example .adapt(productivity_ratio=2)",
        ),
    ],
)
def test_invalid_settings_are_rejected_with_an_example(wrong, text) -> None:
    with pytest.raises(SettingsError) as refused:
        Adapt(**wrong)
    assert str(refused.value) == text


def test_rows_wait_in_slow_slots_only_where_a_buffer_is_given() -> None:
    assert Adapt().skew_bytes is None
    given = Adapt(skew_buffer="64 MiB", batch_target="2 seconds")
    assert (given.skew_bytes, given.batch_target_s) == (64 << 20, 2.0)
    assert Adapt(skew_buffer=1000).batch_target_s is None


@pytest.mark.parametrize("name", ["delta_min", "t_gap", "batch_target"])
def test_setting_that_is_not_a_duration_is_rejected(name: str) -> None:
    with pytest.raises(PlanError, match=f"the {name} 'soon' is not a duration"):
        Adapt(**{name: "soon"})
