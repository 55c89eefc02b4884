"""The web application: the page, the feed as server-sent events, and commands.

GET  /                  the page
GET  /assets/NAME       its scripts and styles
GET  /feed              server-sent events: a whole message, then what is new
GET  /snapshot          the whole message as one JSON document
POST /control/NAME      a command, with the token as a bearer
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spillway.dashboard.feed.feed import Feed
from spillway.dashboard.feed.history import asked_now
from spillway.dashboard.page.assets import TYPES, asset
from spillway.dashboard.server.controls import MOST_BYTES, Controls, parsed
from spillway.dashboard.server.guard import HEADERS, Guard
from spillway.errors import SpillwayError, without_secrets
from spillway.redaction import hidden

#: Pages that may be open at the same time.
MOST_PAGES = 32
#: Seconds between two looks for new messages, and between two signs of life on a quiet feed.
LOOK_S = 0.25
ALIVE_S = 15.0


def make_app(
    feed: Feed, guard: Guard, controls: Controls, closing: Callable[[], bool] = lambda: False
) -> ASGIApp:
    """The application of one dashboard; feeds end when `closing` returns true."""
    served = _Served(feed, guard, controls, closing)
    app = Starlette(
        routes=[
            Route("/", served.page),
            Route("/assets/{name}", served.asset),
            Route("/feed", served.events),
            Route("/snapshot", served.snapshot),
            Route("/control/{name}", served.control, methods=["POST"]),
        ]
    )
    return Guarded(app, guard)


class Guarded:
    """Refuses requests that the guard does not let pass, and adds the headers to all answers."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    found[name] = value
                found.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._guard.refuses(Headers(scope=scope))
        if refused is None:
            await self._app(scope, receive, with_headers)
        else:
            answer = PlainTextResponse(f"refused: {refused}\n", status_code=403)
            await answer(scope, receive, with_headers)


class _Served:
    """The handlers."""

    def __init__(
        self, feed: Feed, guard: Guard, controls: Controls, closing: Callable[[], bool]
    ) -> None:
        self._feed = feed
        self._closing = closing
        self._guard = guard
        self._controls = controls
        self._busy: set[str] = set()

    async def page(self, _: Request) -> Response:
        return _file("index.html")

    async def asset(self, request: Request) -> Response:
        return _file(request.path_params["name"])

    async def snapshot(self, _: Request) -> Response:
        found = await run_in_threadpool(self._feed.since, None)
        return Response(found[1][0], media_type="application/json")

    async def events(self, request: Request) -> Response:
        if self._feed.watchers >= MOST_PAGES:
            return PlainTextResponse(f"{MOST_PAGES} pages are open already\n", status_code=503)
        return StreamingResponse(self._told(request), media_type="text/event-stream")

    async def _told(self, request: Request) -> AsyncIterator[bytes]:
        sequence: int | None = None
        quiet_s = 0.0
        self._feed.enter()
        try:
            while not self._closing():
                if sequence == self._feed.sequence and quiet_s < ALIVE_S:
                    await asyncio.sleep(LOOK_S)
                    quiet_s += LOOK_S
                    if await request.is_disconnected():
                        return
                    continue
                # Encoding a large history takes time; other requests are served meanwhile.
                sequence, found = await run_in_threadpool(self._feed.since, sequence)
                quiet_s = 0.0
                for data in found:
                    yield b"data: " + data + b"\n\n"
                if not found:
                    yield b": quiet\n\n"
        finally:
            self._feed.leave()

    async def control(self, request: Request) -> Response:
        if not self._guard.permits(request.headers):
            return _said(403, "this needs the token in the address that the query printed")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _said(415, "send JSON")
        name = request.path_params["name"]
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                return _said(413, f"a command has at most {MOST_BYTES} bytes")
        if name not in self._controls.run:
            return _said(404, f"this query does not take the command {name[:40]!r}")
        if name in self._busy:
            return _said(409, f"{name} is running already")
        self._busy.add(name)
        try:
            return await run_in_threadpool(self._carry_out, name, body)
        finally:
            self._busy.discard(name)

    def _carry_out(self, name: str, body: bytes) -> Response:
        try:
            told = self._controls.run[name](parsed(name, body))
        except SpillwayError as problem:
            return _said(400, f"{problem.message}; {problem.hint or ''}".rstrip("; "))
        except Exception as problem:
            return _said(500, f"{type(problem).__name__}: {without_secrets(problem)}")
        self._feed.publish(asked_now(self._feed.history, told))
        return _said(200, told)


def _said(status: int, text: str) -> Response:
    return JSONResponse({"ok": status == 200, "said": hidden(text)}, status_code=status)


def _file(name: str) -> Response:
    data = asset(name)
    if data is None:
        return PlainTextResponse("not found\n", status_code=404)
    return Response(data, media_type=TYPES[name.rpartition(".")[2]])
