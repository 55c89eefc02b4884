"""The feed keeps a bounded past, and tells every page what is new."""

from __future__ import annotations

import msgspec
import pytest
from feed_samples import ABOUT, happening, news, point, spilled

from spillway.dashboard.feed.feed import MOST_BEHIND, Feed
from spillway.dashboard.feed.happenings import MESSAGES, happenings_of
from spillway.dashboard.feed.history import (
    MOST_HAPPENINGS,
    MOST_POINTS,
    MOST_SOME,
    MOST_TEXT,
    History,
)
from spillway.dashboard.feed.news import Heat, News, encode
from spillway.metrics.events import STEPS, TRACK_STEPS
from spillway.redaction import MASK


def read(data: bytes) -> News:
    return msgspec.json.decode(data, type=News)


def test_history_is_bounded_and_keeps_the_newest() -> None:
    history = History()
    for at in range(MOST_POINTS + 50):
        history = history.after(News(points=(point(at),), happenings=(happening(at),)))
    assert len(history.points) == MOST_POINTS
    assert len(history.happenings) == MOST_HAPPENINGS
    assert history.points[-1].batch == history.happenings[-1].number == MOST_POINTS + 49


def test_one_whole_message_equals_the_messages_one_by_one() -> None:
    parts = [News(about=ABOUT, status="running", whole=True), *map(news, range(5))]
    history = History()
    for one in parts:
        history = history.after(one)
    assert History().after(history.whole(9)) == history


def test_newest_table_of_each_stage_is_kept() -> None:
    heats = [
        Heat(stage, batch, 0.0, [0], [1], [0], [0.0], [0.0]) for batch in (1, 2) for stage in (0, 1)
    ]
    history = History()
    for one in heats:
        history = history.after(News(heats=(one,)))
    assert [(one.stage, one.batch) for one in history.heats.values()] == [(0, 2), (1, 2)]


def test_page_that_opens_gets_everything_then_only_what_is_new() -> None:
    feed = Feed()
    feed.publish(News(about=ABOUT, whole=True, status="running"))
    feed.publish(news(1))
    feed.enter()
    at, [data] = feed.since(None)
    first = read(data)
    assert (first.whole, first.about, [one.batch for one in first.points]) == (True, ABOUT, [1])
    assert feed.since(at) == (at, [])
    feed.publish(news(2))
    feed.publish(news(3))
    at, found = feed.since(at)
    assert [read(one).points[0].batch for one in found] == [2, 3]
    assert not any(read(one).whole for one in found)


def test_page_that_is_far_behind_gets_everything_again() -> None:
    feed = Feed()
    feed.enter()
    feed.publish(news(0))
    at, _ = feed.since(None)
    for batch in range(1, MOST_BEHIND + 10):
        feed.publish(news(batch))
    after, found = feed.since(at)
    assert [read(one).whole for one in found] == [True]
    assert len(read(found[0]).points) == MOST_BEHIND + 10
    assert feed.since(after) == (after, [])


def test_nothing_is_encoded_while_nobody_looks() -> None:
    feed = Feed()
    for batch in range(3):
        feed.publish(news(batch))
    assert not feed._recent
    assert len(feed.history.points) == 3


def test_message_is_one_line_of_json_even_with_odd_text() -> None:
    odd = News(happenings=(happening(1, reason='a\nb\r"<script>\u2028</script>\x00'),))
    data = encode(odd)
    assert b"\n" not in data
    assert b"\r" not in data
    assert read(data) == odd


def test_every_step_of_a_protocol_has_its_message() -> None:
    for one in (*STEPS, *TRACK_STEPS):
        assert MESSAGES[one.kind] == one.message != ""


@pytest.mark.parametrize("groups", [(), (1,), tuple(range(MOST_SOME * 3))])
def test_happening_counts_all_groups_and_names_some(groups) -> None:
    [line] = happenings_of([spilled(4, groups=groups)], stage=1, at_s=9.5, first=7)
    assert (line.groups, len(line.some)) == (len(groups), min(len(groups), MOST_SOME))
    assert (line.number, line.stage, line.slot, line.at_s) == (7, 1, 1, 9.5)


def test_reason_is_cut_and_shows_no_secret() -> None:
    reason = "cannot reach s3://AKIAXX:wJalrSecret@bucket " + "x" * 5000
    [line] = happenings_of([spilled(1, reason)], stage=0, at_s=0.0, first=1)
    assert "wJalrSecret" not in line.reason
    assert MASK in line.reason
    assert len(line.reason) == MOST_TEXT
