"""A dashboard: a thread that makes the feed, and a thread that serves it."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from importlib import import_module
from typing import Protocol

from spillway.dashboard.feed.feed import Feed
from spillway.dashboard.feed.news import News
from spillway.dashboard.server.controls import Controls
from spillway.dashboard.server.guard import Guard, bracketed
from spillway.errors import EnvironmentMissing, SettingsError, without_secrets

#: Seconds between two looks of the producer, and how long closing may take.
LOOK_S = 0.5
CLOSE_S = 5.0

_LOG = logging.getLogger(__name__)


class Producer(Protocol):
    """Makes the messages of a feed."""

    def look(self, *, watched: bool) -> News | None:
        """Returns what is new, or None; `watched`: whether a page is open."""


def check_packages() -> None:
    """Raises EnvironmentMissing if starlette or uvicorn is not installed."""
    try:
        for name in ("uvicorn", "spillway.dashboard.server.app"):
            import_module(name)
    except ModuleNotFoundError as problem:
        raise EnvironmentMissing(
            f"the dashboard needs the Python package {problem.name}, which is not installed",
            hint="pip install 'spillway[dashboard]'",
        ) from problem


class Dashboard:
    """An open dashboard. Close it, or use it in a `with` statement."""

    def __init__(
        self,
        feed: Feed,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        names: Iterable[str] = (),
        controls: Controls | None = None,
        producer: Producer | None = None,
    ) -> None:
        """Listens at once; port 0 takes a free one. Without `controls` nobody can change anything.

        Raises:
            EnvironmentMissing: starlette or uvicorn is not installed.
            SettingsError: The address cannot be used.
        """
        check_packages()
        import uvicorn

        from spillway.dashboard.server.app import make_app

        self.feed = feed
        self._closing = threading.Event()
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._host = host
        self.guard = Guard.of(host, self.port, names, controls=controls is not None)
        config = uvicorn.Config(
            make_app(feed, self.guard, controls or Controls(), self._closing.is_set),
            access_log=False,
            log_config=None,
            log_level="warning",
            lifespan="off",
            http="h11",
            ws="none",
            loop="asyncio",
            server_header=False,
            proxy_headers=False,
            # Pages keep the feed open, so a graceful end would wait for them.
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        #: What serves and what produces, for those who measure what it costs.
        self.threads = [threading.Thread(target=self._serve, name="spillway-page", daemon=True)]
        if producer is not None:
            look = threading.Thread(
                target=self._produce, args=(producer,), name="spillway-feed", daemon=True
            )
            self.threads.append(look)
        for thread in self.threads:
            thread.start()

    @property
    def url(self) -> str:
        """The address of the page, for looking only."""
        shown = "127.0.0.1" if self._host in ("0.0.0.0", "::", "localhost") else self._host
        return f"http://{bracketed(shown)}:{self.port}/"

    @property
    def control_url(self) -> str:
        """The address with the token: whoever has it can give commands. Equal to `url` without."""
        token = self.guard.token
        return self.url if token is None else f"{self.url}#token={token}"

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._closing.is_set()

    def close(self) -> None:
        """Stops serving."""
        self._closing.set()
        self._server.should_exit = True
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(CLOSE_S)
        self._socket.close()

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dashboard at {self.url}>"

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except Exception as problem:
            _LOG.warning("the dashboard ended", exc_info=without_secrets(problem))

    def _produce(self, producer: Producer) -> None:
        """Looks until the dashboard closes; a failed look is a line in the log, never an error."""
        failed = False
        while True:
            try:
                news = producer.look(watched=self.feed.watchers > 0)
                if news is not None:
                    self.feed.publish(news)
            except Exception as problem:
                if not failed:
                    _LOG.warning("the dashboard misses numbers", exc_info=without_secrets(problem))
                failed = True
            if self._closing.wait(LOOK_S):
                return


def _bound(host: str, port: int) -> socket.socket:
    """A listening socket on the address."""
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65_535:
        raise SettingsError(
            f"port={port!r} must be a number from 0 to 65535", hint="0 takes a free port"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host.strip("[]"), port))
        found.listen(128)
    except OSError as problem:
        found.close()
        raise SettingsError(
            f"the dashboard cannot listen on {host}, port {port}",
            detail=problem.strerror or str(problem),
            hint="choose another port, or 0 for a free one",
        ) from problem
    return found
