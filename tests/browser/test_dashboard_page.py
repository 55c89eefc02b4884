"""The page shows what the feed says; driven by messages, without Spark."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from typing import Any

import msgspec
import pytest
from dashboard_cases import about, heat, move_steps, moving, point, slots, spilled, start, step
from dashboard_pages import drawn, until

from spillway.dashboard.feed.feed import Feed
from spillway.dashboard.feed.news import About, Happening, Heat, Moving, News, StageAbout, encode
from spillway.dashboard.server.controls import Controls
from spillway.dashboard.server.serving import Dashboard
from spillway.errors import SettingsError


def tiles(page: Any) -> dict[str, str]:
    found = page.evaluate(
        "[...document.querySelectorAll('#tiles .tile')].map((one) =>"
        " [one.querySelector('dt').textContent, one.querySelector('b').textContent])"
    )
    return dict(found)


def timeline(page: Any) -> list[str]:
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('#timeline .event')].map((one) => one.innerText)"
    )
    return found


def test_page_shows_the_numbers_of_the_feed(open_page, dashboard: Dashboard, feed: Feed) -> None:
    """The smoke test of the quick tier."""
    start(feed)
    page = open_page(dashboard.url)
    drawn(page)
    until(page, "spillway.page.model.points.length === 3")
    assert page.title() == "orders and payments · Spillway"
    found = tiles(page)
    # Three batches of 101 + 102 + 103 and 3 x 50 rows, one a second.
    assert found["Rows in"] == "152/s"
    assert found["In memory"] == "9.77 kB"
    assert found["Watermark waits for"] == "payments"
    feed.publish(
        step(
            4,
            happenings=(spilled(4), *move_steps(4, 2)),
            heats=(heat(4, 4, 64, (0, 1, 2), g3=3, g4=3),),
        )
    )
    until(page, "document.querySelectorAll('#timeline .event').length === 2")
    spill, move = sorted(timeline(page), key=lambda text: "→" in text)
    assert "Spill · slot 0 · 3 groups, 5.86 kB" in spill
    assert "4100 bytes in memory, limit 4000" in spill
    assert "Slot 0 → slot 3 · 2 groups" in move
    assert "M_least/M_max = 0.61 < 0.80" in move
    assert "DCAPE-TR 5.1" in move
    assert page.evaluate("spillway.page.heat.state.frame.slot[3]") == 3


@pytest.mark.full
def test_move_in_progress_is_the_sentence_of_the_page(open_page, dashboard, feed) -> None:
    start(feed)
    page = open_page(dashboard.url)
    drawn(page)
    feed.publish(step(4, slots=(slots(4, 4, (moving(4),)),), happenings=move_steps(4, 1, upto=5)))
    until(page, "document.querySelector('#now').textContent.includes('moves 2 groups')")
    assert page.inner_text("#now") == "Slot 0 moves 2 groups (8.79 kB) to slot 3."
    assert page.inner_text("#now-why").startswith("Why: M_least/M_max = 0.61 < 0.80")
    assert "now: the state shall go" in timeline(page)[0]
    page.click("#timeline details summary")
    assert page.locator("#timeline .steps li").count() == 8
    assert page.locator("#timeline .steps li.reached").count() == 5
    # The last three steps come, and the opened list stays open.
    feed.publish(step(5, happenings=move_steps(4, 1)[5:]))
    until(page, "document.querySelectorAll('#timeline .steps li.reached').length === 8")
    assert page.evaluate("document.querySelector('#timeline details').open")
    assert len(timeline(page)) == 1


@pytest.mark.full
def test_new_plan_and_new_slot_count_are_shown(open_page, dashboard, feed) -> None:
    start(feed)
    page = open_page(dashboard.url)
    drawn(page)
    plan = Happening(
        1, 4.0, 0, 4, "reshaped", "cheaper by 30 %", slot=2, shapes=("(a b c)", "((a b) c)")
    )
    scaled = Happening(2, 5.0, 0, 5, "scaled", "6 slots now share the groups")
    shapes = ("((a b) c)",) * 2 + ("(a b c)",) * 4
    feed.publish(step(4, 6, happenings=(plan, scaled), slots=(slots(4, 6, shapes=shapes),)))
    until(page, "document.querySelectorAll('#timeline .event').length === 2")
    assert "(a b c) → ((a b) c)" in page.inner_text("#timeline")
    assert page.locator("#shapes figure").count() == 2
    assert "plan ((a b) c): slot 0, 1" in page.inner_text("#shapes")
    assert page.evaluate("spillway.page.heat.state.plan.slots") == 6
    marks = page.inner_text("#chart-marks")
    assert "new plan" in marks
    assert "slot count" in marks


@pytest.mark.full
def test_stages_of_a_query_have_their_own_view(open_page, dashboard, feed) -> None:
    grouped = StageAbout("group-by", ("joined",), 8, ("customer",))
    first = about()
    what = About("two stages", "query", "run-1", "virtual", (*first.stages, grouped))
    feed.publish(News(whole=True, about=what, status="running", now_s=0.0))
    for batch in (1, 2):
        feed.publish(step(batch))
        later = point(batch, rows_in=(7,), rows_out=3, reached_s=(None,))
        places = msgspec.structs.replace(slots(batch, 2), stage=1)
        table = msgspec.structs.replace(heat(batch, 2, 8), stage=1)
        feed.publish(
            News(
                points=(msgspec.structs.replace(later, stage=1),),
                slots=(places,),
                heats=(table,),
            )
        )
    page = open_page(dashboard.url)
    drawn(page)
    until(page, "spillway.page.model.points.length === 4")
    assert page.evaluate("spillway.page.heat.state.plan.slots") == 4
    page.click("#stages label:nth-of-type(2)")
    until(page, "spillway.page.heat.state.plan.slots === 2")
    assert tiles(page)["Rows in"] == "7/s"
    assert page.evaluate("spillway.page.heat.state.frame.slot.length") == 8
    page.click("#stages label:nth-of-type(1)")
    until(page, "spillway.page.heat.state.plan.slots === 4")


@pytest.mark.full
def test_phases_of_a_batch_are_stacked_with_the_highest_behind(open_page, dashboard, feed) -> None:
    start(feed)
    page = open_page(dashboard.url)
    drawn(page)
    until(page, "spillway.page.model.points.length === 3")
    # Orange of the exchange shows between the blue of the plan and the green of the operator.
    found = page.evaluate(
        """() => {
        const chart = document.querySelector('[aria-label="Time of a batch"] canvas');
        const pen = chart.getContext('2d'), seen = [];
        const at = Math.round(chart.width * 0.6);
        for (let y = 0; y < chart.height; y += 2) {
            const [r, g, b, a] = pen.getImageData(at, y, 1, 1).data;
            const name = `${r},${g},${b}`;
            if (a === 255 && Math.max(r, g, b) - Math.min(r, g, b) > 60) {
                if (seen[seen.length - 1] !== name) seen.push(name);
            }
        }
        return seen;
        }"""
    )
    colors = ["138,99,210", "42,157,111", "217,115,13", "31,111,214"]
    assert [one for one in found if one in colors] == colors


@pytest.mark.full
def test_hover_pin_keys_and_zoom(open_page, dashboard, feed) -> None:
    start(feed, count=32, groups=512)
    feed.publish(
        step(
            4,
            32,
            512,
            happenings=(spilled(4, groups=(17, 18)),),
            heats=(heat(4, 32, 512, (17, 18)),),
        )
    )
    page = open_page(dashboard.url)
    drawn(page)
    until(page, "spillway.page.model.points.length === 4")
    canvas = page.locator("#heat")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    plan = page.evaluate(
        "(({left, rowHeight, cells}) => ({left, rowHeight, cell: cells[1].cell}))"
        "(spillway.page.heat.state.plan)"
    )
    at = (box["x"] + plan["left"] + 1.5 * plan["cell"], box["y"] + 1.5 * plan["rowHeight"])
    page.mouse.move(*at)
    until(page, "!document.querySelector('#tip').hidden")
    assert "group 17 · slot 1" in page.inner_text("#tip")
    assert "0 B in memory, 3.91 kB on disk" in page.inner_text("#tip")
    page.mouse.click(*at)
    until(page, "!document.querySelector('#pinned').hidden")
    assert "Group 17, slot 1" in page.inner_text("#pinned")
    assert "Spill in slot 0" in page.inner_text("#pinned")
    # The same without a mouse.
    canvas.focus()
    page.keyboard.press("Escape")
    until(page, "document.querySelector('#pinned').hidden")
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    until(page, "!document.querySelector('#pinned').hidden")
    assert "group 17 · slot 1" in page.inner_text("#heat-said")
    page.keyboard.press("+")
    until(page, "spillway.page.heat.state.view.to - spillway.page.heat.state.view.from === 16")
    page.keyboard.press("-")
    until(page, "spillway.page.heat.state.view.to - spillway.page.heat.state.view.from === 32")


@pytest.mark.full
def test_markup_in_names_and_reasons_is_inert(open_page, dashboard, feed) -> None:
    evil = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>'
    stage = StageAbout(evil, (evil, "b"), 64, (evil,))
    what = About(evil, "query", evil, "virtual", (stage,), sink=evil)
    feed.publish(News(whole=True, about=what, status="running", told=evil, now_s=0.0))
    bad = Happening(
        1, 1.0, 0, 1, evil, evil, slot=0, groups=1, some=(1,), message=evil, shapes=(evil, evil)
    )
    named = Moving(1, 0, 1, evil, evil, 1, (1,), 5, evil)
    feed.publish(step(1, happenings=(bad,), slots=(slots(1, 4, (named,), shapes=(evil,) * 4),)))
    page = open_page(dashboard.url)
    drawn(page)
    until(page, "spillway.page.model.points.length === 1")
    page.click("#slot-details summary")
    page.wait_for_timeout(300)
    assert page.evaluate("window.owned") is None
    assert page.locator("body img, body script").count() == 0
    assert page.inner_text("#title") == evil


@pytest.mark.full
def test_restart_of_the_query_leaves_a_gap_and_keeps_the_past(open_page, feed) -> None:
    with Dashboard(feed) as first:
        start(feed, batches=5)
        page = open_page(first.url)
        drawn(page)
        until(page, "spillway.page.model.points.length === 5")
        port = first.port
    until(page, "document.querySelector('#status').dataset.status === 'lost'")
    again = Feed()
    again.publish(
        News(
            whole=True,
            about=about("run-2", epoch=2),
            status="running",
            now_s=20.0,
            happenings=(
                Happening(1, 20.0, 0, 4, "started", "epoch 2: the start continues with batch 5"),
            ),
        )
    )
    for batch in (21, 22):
        again.publish(step(batch))
    with Dashboard(again, port=port):
        until(page, "document.querySelector('#status').dataset.status === 'running'")
        until(page, "spillway.page.model.points.length === 7")
        [gap] = page.evaluate("spillway.page.model.gaps")
        assert (gap["from"], gap["to"]) == (5, 20.5)
        assert "the start continues with batch 5" in page.inner_text("#timeline")
    open_page.problems.clear()  # The browser reports the lost connection.


@pytest.mark.full
def test_commands_need_the_token(open_page, feed) -> None:
    given: list[int] = []

    def scale(command: Any) -> str:
        if command.slots > 9:
            raise SettingsError("99 slots cannot share 64 groups", hint="use at most 64")
        given.append(command.slots)
        return f"the query changes to {command.slots} slots"

    with Dashboard(feed, controls=Controls({"scale": scale})) as opened:
        start(feed, controls=("scale",))
        looking = open_page(opened.url)
        drawn(looking)
        assert looking.locator("#controls").is_hidden()
        page = open_page(opened.control_url)
        drawn(page)
        until(page, "!document.querySelector('#controls').hidden")
        assert page.url == opened.url
        assert opened.guard.token not in page.content()
        page.fill("#controls input[type=number]", "6")
        page.click("#controls button")
        until(page, "document.querySelector('#answer').textContent.includes('6 slots')")
        assert given == [6]
        page.fill("#controls input[type=number]", "99")
        page.click("#controls button")
        until(page, "document.querySelector('#answer').dataset.ok === 'false'")
        assert "use at most 64" in page.inner_text("#answer")
        # A page of another origin, and a request without the token, are refused.
        refused = page.evaluate(
            "fetch('/control/scale', {method: 'POST', body: '{\"slots\":2}',"
            " headers: {'Content-Type': 'application/json'}}).then((one) => one.status)"
        )
        assert refused == 403
        asked = urllib.request.Request(
            f"{opened.url}control/scale",
            b'{"slots":2}',
            {
                "Authorization": f"Bearer {opened.guard.token}",
                "Content-Type": "application/json",
                "Origin": "http://evil.example",
            },
        )
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(asked)
        assert given == [6]
    open_page.problems.clear()  # The browser reports the refused request and the closed server.


@pytest.mark.full
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window_and_nothing_shifts(
    open_page, dashboard, feed, width
) -> None:
    start(feed)
    page = open_page(dashboard.url, width=width, height=844)
    drawn(page)
    until(page, "spillway.page.model.points.length === 3")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.evaluate(
        # A new line of the timeline moves the older ones down, inside their own box.
        "window.shifts = []; new PerformanceObserver((list) => list.getEntries().forEach((one) => {"
        " if (one.sources.some(({node}) => node && !(node.parentElement || document.body)"
        ".closest('#timeline'))) window.shifts.push([one.value, ...one.sources.map(({node}) =>"
        " node && (node.id || node.className || node.nodeName))]); }))"
        ".observe({type: 'layout-shift', buffered: false})"
    )
    for batch in range(4, 12):
        feed.publish(step(batch, happenings=(spilled(batch, batch),)))
        page.wait_for_timeout(150)
    shifts = page.evaluate("window.shifts")
    assert sum(one[0] for one in shifts) < 0.02, shifts


@pytest.mark.full
def test_update_of_a_thousand_slots_is_quick(open_page, dashboard, feed) -> None:
    """100,000 groups, under 200 ms of processor time an update."""
    start(feed, batches=2, count=1000, groups=100_000)
    page = open_page(dashboard.url)
    drawn(page)
    until(page, "spillway.page.model.points.length === 2")
    # What is measured is the page alone: a message as the feed sends it, decoded and drawn.
    message = encode(step(3, 1000, 100_000, slots=(slots(3, 1000, (moving(3),)),)))
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def busy_s() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return float({one["name"]: one["value"] for one in found}["ThreadTime"])

    page.evaluate("(text) => { window.message = text; }", message.decode())
    took = []
    for _ in range(7):
        before = busy_s()
        page.evaluate(
            "new Promise((done) => { const news = JSON.parse(window.message);"
            " news.slots[0].moves = []; spillway.page.take(news);"
            " requestAnimationFrame(() => requestAnimationFrame(done)); })"
        )
        took.append(busy_s() - before)
    assert sorted(took)[3] < 0.2, took
    assert page.evaluate("spillway.page.heat.state.plan.perRow") > 1
    assert page.evaluate("spillway.page.model.frames.get(0).length") <= 20


@pytest.mark.full
def test_page_without_data_says_that_it_waits(open_page, dashboard) -> None:
    page = open_page(dashboard.url)
    until(page, "document.querySelector('#status').dataset.status === 'waiting'")
    assert page.inner_text("#now") == "Waiting for the first batch."


@pytest.mark.full
def test_odd_numbers_do_not_stop_the_page(open_page, dashboard, feed) -> None:
    """No rows, no time, no groups, one huge row, a slot that vanishes."""
    start(feed, batches=1)
    page = open_page(dashboard.url)
    drawn(page)
    feed.publish(
        News(
            points=(
                point(
                    2,
                    seconds=0.0,
                    rows_in=(0, 0),
                    rows_out=0,
                    busy=(),
                    reached_s=(None, None),
                    watermark_s=None,
                ),
            )
        )
    )
    feed.publish(step(3, 1, 1, heats=(heat(3, 1, 1),)))
    huge = Heat(0, 4, 4.0, [0, 1], [1 << 50, 0], [0, 1 << 52], [0.0, 1e300], [1e-300, 0.0])
    feed.publish(step(4, 2, 2, heats=(huge,)))
    feed.publish(News(status="failed", told="StateError: manifest is damaged"))
    until(page, "document.querySelector('#status').dataset.status === 'failed'")
    assert page.inner_text("#now") == "The query has failed."
    assert "manifest is damaged" in page.inner_text("#now-why")
    assert not re.search(r"NaN|undefined|Infinity", page.inner_text("main"))


def test_messages_of_the_cases_are_json() -> None:
    feed = Feed()
    start(feed)
    _, [data] = feed.since(None)
    assert json.loads(data)["points"][0]["rows_in"] == [101, 50]
