"""The server shows the feed to its own page only, and takes commands with the token only."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from feed_samples import ABOUT, happening, news
from starlette.testclient import TestClient

from spillway.dashboard.feed.feed import Feed
from spillway.dashboard.feed.news import News
from spillway.dashboard.page.assets import SCRIPTS, STYLES, asset
from spillway.dashboard.server.app import make_app
from spillway.dashboard.server.controls import MOST_BYTES, Controls, parsed
from spillway.dashboard.server.guard import Guard, is_loopback
from spillway.dashboard.server.serving import Dashboard
from spillway.errors import QueryError, SettingsError

PORT = 8080
BASE = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def feed() -> Feed:
    feed = Feed()
    feed.publish(News(about=ABOUT, whole=True, status="running", points=news(1).points))
    return feed


@pytest.fixture
def guard() -> Guard:
    return Guard.of("127.0.0.1", PORT, controls=True)


@pytest.fixture
def given() -> list[Any]:
    return []


@pytest.fixture
def client(feed: Feed, guard: Guard, given: list[Any]) -> TestClient:
    def scale(command: Any) -> str:
        given.append(command)
        return "done"

    def cleanup(_: Any) -> str:
        raise QueryError("cannot, see s3://k:sEcrEt88@b/x", hint="later")

    app = make_app(feed, guard, Controls({"scale": scale, "cleanup": cleanup}))
    return TestClient(app, base_url=BASE, raise_server_exceptions=False)


def bearer(guard: Guard, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {guard.token}", "Content-Type": "application/json", **more}


# What everybody may see


def test_page_has_a_strict_policy_and_nothing_inline(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r"<style|\son\w+=|style=|<script(?![^>]*src=)", answer.text)
    assert re.findall(r'(?:src|href)="((?!#)[^"]*)"', answer.text) == [
        "/assets/icon.svg",
        *(f"/assets/{name}" for name in (*STYLES, *SCRIPTS)),
    ]


def test_every_asset_is_served_with_its_type(client: TestClient) -> None:
    for name in (*STYLES, *SCRIPTS, "icon.svg", "uplot.LICENSE.txt"):
        answer = client.get(f"/assets/{name}")
        assert answer.status_code == 200
        assert answer.content == asset(name) != b""
    assert "javascript" in client.get("/assets/app.js").headers["content-type"]


@pytest.mark.parametrize(
    "path",
    ["/assets/../assets.py", "/assets/%2e%2e%2fassets.py", "/assets/x", "/etc", "/assets/"],
)
def test_no_other_file_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code in (404, 403)


def test_no_script_makes_markup_from_text() -> None:
    scripts = {name: (asset(name) or b"").decode() for name in SCRIPTS if name != "uplot.js"}
    for name, text in scripts.items():
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text
        )
        assert (name, found) == (name, [])
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_snapshot_is_the_whole_message(client: TestClient) -> None:
    found = client.get("/snapshot").json()
    assert found["whole"] is True
    assert found["about"]["title"] == "orders"
    assert [one["batch"] for one in found["points"]] == [1]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods_are_refused(client: TestClient, method: str) -> None:
    assert client.request(method, "/snapshot").status_code == 405


# Who may not


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1:8081",
        "127.0.0.1",
        "127.0.0.1.evil.example:8080",
        "localhost:80",
        "0.0.0.0:8080",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/", "/feed", "/snapshot", "/assets/app.js", "/control/scale"])
def test_wrong_host_is_refused(client: TestClient, host: str, path: str) -> None:
    answer = client.get(path, headers={"Host": host})
    assert answer.status_code == 403
    assert "orders" not in answer.text
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize(
    "host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"]
)
def test_names_of_loopback_are_allowed(client: TestClient, host: str) -> None:
    assert client.get("/snapshot", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{PORT + 1}"},
        {"Origin": f"http://localhost:{PORT}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_request_of_another_site_is_refused(client: TestClient, guard: Guard, headers) -> None:
    assert client.get("/snapshot", headers=headers).status_code == 403
    answer = client.post("/control/scale", headers=bearer(guard, **headers), content=b'{"slots":3}')
    assert answer.status_code == 403


def test_link_of_another_site_opens_the_page_and_gives_no_command(client, guard, given) -> None:
    clicked = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    assert client.get("/", headers=clicked).status_code == 200
    framed = {**clicked, "Sec-Fetch-Dest": "iframe"}
    assert client.get("/", headers=framed).status_code == 403
    form = {**clicked, "Origin": "http://evil.example", "Content-Type": "text/plain"}
    assert client.post("/control/scale", headers=form, content=b"{}").status_code == 403
    assert given == []


def test_own_origin_is_allowed(
    client: TestClient, guard: Guard, given: list[Any], feed: Feed
) -> None:
    headers = bearer(guard, Origin=BASE, **{"Sec-Fetch-Site": "same-origin"})
    answer = client.post("/control/scale", headers=headers, content=b'{"slots":3}')
    assert (answer.status_code, answer.json()) == (200, {"ok": True, "said": "done"})
    assert [one.slots for one in given] == [3]
    # It is a line of the timeline, for all pages.
    assert [(one.kind, one.reason) for one in feed.history.happenings] == [("asked", "done")]


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic x",
        "bearer {token}",
        "{token}",
        "Bearer {token}x",
        "Bearer é",
    ],
)
def test_command_without_the_token_is_refused(client, guard, given, authorization) -> None:
    headers = {"Content-Type": "application/json"}
    if authorization is not None:
        headers["Authorization"] = authorization.format(token=guard.token).encode()
    answer = client.post("/control/scale", headers=headers, content=b'{"slots":3}')
    assert answer.status_code == 403
    assert given == []
    assert guard.token not in answer.text


def test_server_without_commands_has_no_token_and_refuses_all(feed: Feed) -> None:
    guard = Guard.of("127.0.0.1", PORT)
    client = TestClient(make_app(feed, guard, Controls()), base_url=BASE)
    for authorization in ("Bearer ", "Bearer None", ""):
        answer = client.post(
            "/control/scale", headers={"Authorization": authorization}, content=b"{}"
        )
        assert answer.status_code == 403
    assert guard.token is None


def test_token_is_in_no_answer(client: TestClient, guard: Guard) -> None:
    for path in ("/", "/snapshot", *(f"/assets/{name}" for name in SCRIPTS)):
        answer = client.get(path)
        assert guard.token not in answer.text
        assert guard.token not in str(answer.headers)


# Commands


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"slots":"3"}', "cannot be read"),
        (b'{"slots":3,"x":1}', "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"{}", "cannot be read"),
    ],
)
def test_command_that_cannot_be_read_says_so(client, guard, given, body, told) -> None:
    answer = client.post("/control/scale", headers=bearer(guard), content=body)
    assert answer.status_code == 400
    assert told in answer.json()["said"]
    assert given == []


def test_large_or_unknown_command_is_refused(client: TestClient, guard: Guard) -> None:
    large = client.post("/control/scale", headers=bearer(guard), content=b" " * (MOST_BYTES + 1))
    assert large.status_code == 413
    assert client.post("/control/drop", headers=bearer(guard), content=b"{}").status_code == 404
    form = bearer(guard) | {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/control/scale", headers=form, content=b"slots=3").status_code == 415


def test_failed_command_says_why_without_secrets(client: TestClient, guard: Guard) -> None:
    answer = client.post("/control/cleanup", headers=bearer(guard), content=b"{}")
    assert answer.status_code == 400
    assert answer.json()["said"].startswith("cannot, see s3://")
    assert "sEcrEt88" not in answer.text


def test_unknown_command_names_those_that_exist() -> None:
    with pytest.raises(SettingsError) as raised:
        parsed("drop", b"{}")
    assert raised.value.message == "there is no command 'drop'"
    assert raised.value.hint == "the commands are cleanup, scale, memory, pause"


# Addresses


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("example.org", False),
        ("127.0.0.1.example.org", False),
    ],
)
def test_loopback_is_known_by_its_address(host: str, found: bool) -> None:
    assert is_loopback(host) is found


def test_proxy_name_is_allowed_with_and_without_a_port() -> None:
    guard = Guard.of("0.0.0.0", PORT, ["Board.Example"])
    assert {"board.example", "board.example:8080", "0.0.0.0:8080"} <= guard.hosts
    assert guard.refuses({"host": "127.0.0.1:8080"}) is not None


# The thread


@pytest.fixture
def opened(feed: Feed) -> Iterator[Dashboard]:
    with Dashboard(feed, controls=Controls({"scale": lambda _: "done"})) as found:
        yield found


def connected(opened: Dashboard) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", opened.port, timeout=10)


def test_events_come_as_they_are_published(opened: Dashboard, feed: Feed) -> None:
    connection = connected(opened)
    connection.request("GET", "/feed")
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    first = json.loads(answer.readline().removeprefix(b"data: "))
    assert (first["whole"], len(first["points"])) == (True, 1)
    feed.publish(News(happenings=(happening(1, reason="a\nb"),)))
    assert answer.readline() == b"\n"
    second = json.loads(answer.readline().removeprefix(b"data: "))
    assert second["happenings"][0]["reason"] == "a\nb"
    assert feed.watchers == 1
    connection.close()
    until = time.monotonic() + 10
    while feed.watchers and time.monotonic() < until:
        feed.publish(news(2))
        time.sleep(0.05)
    assert feed.watchers == 0


def test_address_has_the_token_only_where_it_gives_commands(opened: Dashboard) -> None:
    assert opened.url == f"http://127.0.0.1:{opened.port}/"
    assert opened.control_url == f"{opened.url}#token={opened.guard.token}"
    assert opened.guard.token not in repr(opened)
    assert len(opened.guard.token) >= 40


def test_closed_dashboard_frees_its_port_and_its_threads(feed: Feed) -> None:
    class Producer:
        looks = 0

        def look(self, *, watched: bool) -> News | None:
            self.looks += 1
            raise OSError("gone")

    producer = Producer()
    opened = Dashboard(feed, producer=producer)
    connection = connected(opened)
    connection.request("GET", "/feed")
    connection.getresponse().readline()
    opened.close()
    assert opened.closed
    assert producer.looks >= 1
    assert not [one for one in threading.enumerate() if one in opened.threads]
    again = Dashboard(feed, port=opened.port)
    again.close()


def test_used_port_is_named(opened: Dashboard, feed: Feed) -> None:
    with pytest.raises(SettingsError) as raised:
        Dashboard(feed, port=opened.port)
    assert raised.value.message == f"the dashboard cannot listen on 127.0.0.1, port {opened.port}"
    assert raised.value.hint == "choose another port, or 0 for a free one"


@pytest.mark.parametrize("port", [-1, 65_536, "80", True, None])
def test_port_that_is_none_is_refused(feed: Feed, port: Any) -> None:
    with pytest.raises(SettingsError, match="must be a number from 0 to 65535"):
        Dashboard(feed, port=port)


def test_it_listens_on_loopback_only(opened: Dashboard) -> None:
    assert opened._socket.getsockname()[0] == "127.0.0.1"
    with socket.socket() as other, pytest.raises(OSError, match="refused"):
        other.connect(("127.0.0.2", opened.port))


def test_missing_package_is_named_with_its_remedy(feed: Feed, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    with pytest.raises(Exception, match="is not installed") as raised:
        Dashboard(feed)
    assert raised.value.hint == "pip install 'spillway[dashboard]'"
